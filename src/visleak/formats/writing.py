"""Writing data sets: the images of a part, their destination, their names, and the new SOURCE."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from visleak.delimited import write_csv_rows
from visleak.errors import UsageError, VisleakError
from visleak.formats.files import FileOpener
from visleak.formats.frames import as_iso
from visleak.formats.listing import name_text
from visleak.formats.remote import is_address, path_of
from visleak.formats.request import canonical_split, row_numbers, text_column
from visleak.formats.sources import locate
from visleak.records import Bytes8, ImageSet, Int64, Problem, Unreadable

#: Receives the step, the number of units that are done, and their total.
Progress = Callable[[str, int, int], None]
Stored = bytes | Bytes8  # what is stored of an image: its encoded bytes, or its pixels


@dataclass(frozen=True)
class Replacement:
    """An image that replaces another one."""

    set: str  # of the replacing image
    id: str
    stored: Stored  # the content that is written
    # its file, as the system has it; None where it is not a file or other content is written
    path: bytes | None


@dataclass(frozen=True)
class Selection:
    """The images of a set that are written."""

    images: ImageSet
    keep: Int64  # int64 (n,), ascending: positions that could be read
    digests: Bytes8  # uint8 (n, 16): content digest of each image of the result
    sizes: Int64  # int64 (n,): its bytes
    instead: Mapping[int, Replacement]  # by position
    problems: tuple[Problem, ...]  # images that should be kept and could not be read

    def __len__(self) -> int:
        return len(self.keep)

    def stored(self) -> Iterator[Stored]:
        """Yield the content of each image of the result, read again from the source."""
        positions = self.keep.tolist()
        source = self.images.opener.read([at for at in positions if at not in self.instead])
        for position in positions:
            stand = self.instead.get(position)
            found = next(source) if stand is None else stand.stored
            if isinstance(found, Unreadable):
                raise VisleakError(
                    f"{where(self.images, position)} could be read before and cannot now:"
                    f" {found.detail or found.reason}"
                )
            yield found

    def path(self, position: int) -> bytes | None:
        """Return the file with the content of an image of the result, ``None`` if there is none."""
        stand = self.instead.get(position)
        return stand.path if stand is not None else file_of(self.images, position)

    def column(self, name: str) -> list[Any]:
        """Return a column of the set (``ids``, ``labels``, ...) for the images of the result."""
        values = getattr(self.images, name)
        if values is None:
            return [None] * len(self)
        return list(values.take(pa.array(self.keep)).to_pylist())


@dataclass(frozen=True)
class OutputPart:
    """A part that is written, and its images."""

    name: str
    pieces: tuple[Selection, ...]

    def __len__(self) -> int:
        return sum(map(len, self.pieces))

    def column(self, name: str) -> list[Any]:
        """Return a column for the images of all pieces, in order."""
        return [value for piece in self.pieces for value in piece.column(name)]

    def digests(self) -> Bytes8:
        """Return the digests of all pieces, (n, 16)."""
        return np.concatenate([piece.digests for piece in self.pieces])


@dataclass(frozen=True)
class OutputSource:
    """How a written part is opened, and the ids that it then has."""

    path: str  # file or folder, relative to the folder of the result; empty for that itself
    before: str = ""  # what stands around it in the SOURCE: yolo:, #val
    after: str = ""
    # ids of the result, in its order; None for those of the sets
    ids: tuple[str, ...] | None = None
    # int64: the image of the part, counted over its pieces, at each position of the result; None
    # for their own order
    order: Int64 | None = None
    options: Mapping[str, str] = field(default_factory=dict)  # columns it is opened with
    renamed: bool = False  # ids are new, such as row numbers

    @classmethod
    def by_name(cls, path: str, names: Sequence[str], before: str = "", after: str = "") -> Self:
        """Return that of images that are listed by their names."""
        texts = [name_text(name) for name in names]
        order = sorted(range(len(texts)), key=texts.__getitem__)
        ids = tuple(texts[at] for at in order)
        return cls(path, before, after, ids, np.array(order, np.int64))

    def source(self, folder: Path) -> str:
        """Return the SOURCE, with the result at ``folder``."""
        return f"{self.before}{folder / self.path}{self.after}"

    def as_dict(self) -> dict[str, object]:
        """Return the fields that open it as plain values."""
        names = ("path", "before", "after")
        return {name: getattr(self, name) for name in names} | {"options": dict(self.options)}


@dataclass(frozen=True)
class Destination:
    """Where a result is written."""

    folder: Path  # where it lies while it is written
    final: Path  # the name it gets; beside folder
    how: str  # manifest, link or copy
    many: bool  # there are several parts, each in a folder of its own
    progress: Progress

    def below(self, part: OutputPart, name: str = "") -> str:
        """Return the relative name of something of a part."""
        return "/".join(word for word in (part.name if self.many else "", name) if word)

    def made(self, name: str) -> Path:
        """Return the path of a new file, with its folder there."""
        if is_outside(name):
            raise VisleakError(
                f"{name!r} lies outside of its data set and has no place in {self.final}; write"
                " the lists alone with --format manifest"
            )
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(path):
            raise VisleakError(f"two images would be {self.final / name}; rename one of them")
        return path

    def put(self, piece: Selection, position: int, name: str, stored: Stored | None = None) -> None:
        """Write an image under a name, as a link or a copy."""
        path, source = self.made(name), piece.path(position)
        if source is not None:
            self.put_file(source, path)
        elif isinstance(stored, bytes):
            path.write_bytes(stored)
        else:
            raise UsageError(
                f"set {piece.images.name!r}: an image is not a file to link to; use --format copy"
            )

    def put_file(self, source: bytes, path: Path) -> None:
        """Link or copy a file."""
        if self.how == "link":
            os.symlink(self.link_to(source, path), path)
        else:
            shutil.copyfile(source, path)

    def link_to(self, source: bytes, path: Path) -> str:
        """Return how a file is named from where ``path`` will be."""
        # the folder is renamed later within the same parent, so relative paths stay valid
        start = os.path.realpath(path.parent)
        return os.path.relpath(os.path.abspath(os.fsdecode(source)), start)


def linkable(images: ImageSet) -> bool:
    """Whether the images of a set are files of this machine."""
    return isinstance(images.opener, FileOpener) and not is_address(images.source)


def file_of(images: ImageSet, position: int) -> bytes | None:
    """Return the file of an image, ``None`` where its images are not files."""
    opener = images.opener
    if not isinstance(opener, FileOpener):
        return None
    name: bytes | None = opener.names[position].as_py()
    return None if name is None else os.path.join(os.fsencode(opener.root), name)


def where(images: ImageSet, position: int) -> str:
    """Return how a message names an image."""
    return f"set {images.name!r}: image {images.ids[position].as_py()!r}"


def is_outside(name: str) -> bool:
    """Whether a relative name leads out of its folder.

    >>> is_outside("a/b.png"), is_outside("../a.png"), is_outside("/a.png")
    (False, True, True)
    """
    return os.path.isabs(name) or os.path.normpath(name).split("/")[0] in ("..", ".")


def inner_name(name: str) -> str:
    """Return a name below the folder of a result for any path or address.

    >>> inner_name("cats//1.png"), inner_name("../dogs/2.png"), inner_name("/mnt/3.png")
    ('cats/1.png', 'dogs/2.png', 'mnt/3.png')
    >>> inner_name("https://host/a/4.png?sig=1")
    'host/a/4.png'
    """
    if re.match(r"[a-z][a-z0-9+.-]*://", name):
        name = name.partition("://")[2].partition("?")[0]
    if not is_outside(name):
        return os.path.normpath(name)
    return "/".join(part for part in name.split("/") if part not in ("", ".", ".."))


def free_name(name: str, mark: str, taken: Iterable[str]) -> str:
    """Return a free name, with a mark before its last part if it is taken.

    >>> free_name("cat/1.png", "train", {"cat/1.png"})
    'cat/train-1.png'
    """
    folder, slash, last = name.rpartition("/")
    free, number = name, 1
    while free in taken:
        free = f"{folder}{slash}{mark}{f'-{number}' if number > 1 else ''}-{last}"
        number += 1
    return free


def file_name(place: str) -> str:
    """Return the last name of a path or an address.

    >>> file_name("a/b.zip"), file_name("https://host/b.zip?sig=1")
    ('b.zip', 'b.zip')
    """
    return os.path.basename(path_of(place) if is_address(place) else place)


def file_names(files: Sequence[str]) -> list[str]:
    """Return the names of shards in the result, which sort in the order of the shards.

    >>> file_names(["a/train-0.parquet", "a/train-1.parquet"])
    ['train-0.parquet', 'train-1.parquet']
    >>> file_names(["train.parquet", "test.parquet"])
    ['00-train.parquet', '01-test.parquet']
    """
    names = [file_name(file) for file in files]
    if all(before < after for before, after in itertools.pairwise(names)):
        return names
    width = max(2, len(str(len(names) - 1)))
    return [f"{number:0{width}d}-{name}" for number, name in enumerate(names)]


def split_of(part: OutputPart) -> str:
    """Return the value of a part in a ``split`` column; empty if its sources name no split.

    For pieces of several splits, the split of the set that has the name of the part, else the split
    of that name, else the name.
    """
    splits = {piece.images.name: locate(piece.images.source).split for piece in part.pieces}
    if len(set(splits.values())) == 1:
        return next(iter(splits.values()))
    if part.name in splits:
        return splits[part.name]
    own = canonical_split(part.name)
    return next((split for split in splits.values() if canonical_split(split) == own), part.name)


def with_split(table: pa.Table, split: str) -> pa.Table:
    """Return a table whose column ``split`` names one split in all rows."""
    own = canonical_split(split)
    values = [
        value if canonical_split(value or "") == own else split
        for value in text_column(table["split"], "split").to_pylist()
    ]
    column = pa.array(values, pa.string()).cast(table.schema.field("split").type)
    return table.set_column(table.column_names.index("split"), table.schema.field("split"), column)


def are_row_numbers(images: ImageSet) -> bool:
    """Whether the ids of a set are the row numbers of its images."""
    return bool(images.ids.equals(row_numbers(len(images))))


def write_listing(
    part: OutputPart, place: Destination, name: str = "", paths: Sequence[str] = ()
) -> OutputSource:
    """Write ``PART.csv`` (id, path, and label, caption, group, frame where they are known).

    Paths are relative to the list, so it keeps working when it is moved together with the data.
    It is read back as a CSV manifest; its cells are plain, so they are not guarded against
    spreadsheets, which would change ids.
    """
    name = name or f"{part.name}.csv"
    path = place.made(name)
    columns = {
        column: part.column(f"{column}s")
        for column in ("label", "caption", "group", "frame")
        if any(getattr(piece.images, f"{column}s") is not None for piece in part.pieces)
    }
    if "frame" in columns:  # times as texts that are read as times again
        timed = (piece.images.timed for piece in part.pieces for _ in piece.keep)
        columns["frame"] = [
            as_iso(frame) if known and frame is not None else frame
            for known, frame in zip(timed, columns["frame"], strict=True)
        ]
    ids = ids_of(part)
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            write_csv_rows(file, [("id", "path", *columns)])
            rows = zip(ids, paths or files_of(part, place, path), *columns.values(), strict=True)
            write_csv_rows(file, (["" if v is None else v for v in row] for row in rows))
    except UnicodeEncodeError as error:
        raise VisleakError(
            f"a name of part {part.name!r} is not UTF-8 and cannot be listed; use --format copy"
            " or --format link"
        ) from error
    return OutputSource(name, ids=tuple(ids))


def files_of(part: OutputPart, place: Destination, beside: Path) -> list[str]:
    """Return the file of each image of a part, relative to the folder of a list."""
    found = []
    for piece in part.pieces:
        for position in piece.keep.tolist():
            file = piece.path(position)
            if file is None:
                raise UsageError(
                    f"set {piece.images.name!r}: an image is not a file that a list could name; use"
                    " --format copy"
                )
            found.append(place.link_to(file, beside))
    return found


def ids_of(part: OutputPart) -> list[str]:
    """Return the ids of a part; a repeated one is prefixed with the name of its set."""
    ids: dict[str, None] = {}
    for piece in part.pieces:
        for own in piece.column("ids"):
            free = str(own)
            while free in ids:
                free = f"{piece.images.name}/{free}"
            ids[free] = None
    return list(ids)


def contents(piece: Selection) -> Iterator[tuple[int, Stored | None]]:
    """Yield the positions of a piece, and the content of images that are not files."""
    positions = piece.keep.tolist()
    if not isinstance(piece.images.opener, FileOpener):
        yield from zip(positions, piece.stored(), strict=True)
        return
    for position in positions:
        stand = piece.instead.get(position)
        yield position, None if stand is None else stand.stored


def names_of(part: OutputPart) -> list[str]:
    """Return a name for each image of a part: its own, changed only where two would be one.

    An image that comes from another set and finds its name taken gets that set's name before its
    own: ``cat/1.png`` of ``train`` becomes ``cat/train-1.png``.
    """
    names: dict[str, None] = {}
    for piece in part.pieces:
        opener, own = piece.images.opener, piece.column("ids")
        if isinstance(opener, FileOpener):
            own = [os.fsdecode(opener.names[at].as_py()) for at in piece.keep.tolist()]
        for name in own:
            names[free_name(name, piece.images.name, names)] = None
    return list(names)


def source_place(piece: Selection) -> str:
    """Return the place that the source of a selection names."""
    return locate(piece.images.source).place


def put_files(part: OutputPart, place: Destination, listed: Sequence[str]) -> list[str]:
    """Put the files of a part below its folder; return their names there."""
    taken: dict[str, object] = {}
    names = []
    rest = iter(listed)
    for piece in part.pieces:
        for position, stored in contents(piece):
            given = next(rest)
            source: object = piece.path(position) or (piece.images.name, position)
            name = inner_name(given)
            if taken.get(name, source) != source:
                name = free_name(name, piece.images.name, taken)
            if name not in taken:  # rows may share a file
                taken[name] = source
                place.put(piece, position, place.below(part, name), stored)
            names.append(given if os.path.normpath(given) == name else name)
    return names
