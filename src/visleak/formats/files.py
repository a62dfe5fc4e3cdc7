"""Images that are single files, on this machine or at an address: how they are read.

Nothing is fetched but what the caller named: an address on the command line, or the addresses in
a table that was opened with ``?remote=yes``.
"""

from __future__ import annotations

import errno
import itertools
import os
import shlex
import stat
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from pathlib import Path, PurePath
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import UsageError
from visleak.formats.listing import name_text
from visleak.formats.remote import (
    BLOCK,
    SCHEMES,
    RemoteFile,
    StoreError,
    is_address,
    joined,
    origin_of,
    redacted,
    scheme_of,
)
from visleak.formats.request import Request
from visleak.records import Bytes8, ImageSet, Int64, Opener, Unreadable

MAX_FILE_BYTES: Final = 1 << 30  # a larger file is not read into memory
PART: Final = 1 << 20  # bytes read at once of a file whose size is not known
TOGETHER: Final = 8  # images fetched at a time; a store answers one late, but many at once
AHEAD: Final = 16  # images fetched ahead of the one that is wanted


@dataclass
class StatefulOpener:
    """An opener that is pickled without its private fields, such as open files."""

    def __reduce__(self) -> tuple[object, ...]:
        names = (each.name for each in fields(self) if not each.name.startswith("_"))
        return type(self), tuple(getattr(self, name) for name in names)


@dataclass
class JoinedOpener(StatefulOpener):
    """Reads shards one after the other; only the last one read stays open."""

    parts: tuple[Opener, ...]  # the openers
    starts: Int64  # int64 (parts + 1,): the position at which each begins, and the end
    _last: int = field(default=-1, repr=False, compare=False)

    @property
    def stamp(self) -> str | None:
        """Text that changes when a remote shard does; ``None`` where that is unknown."""
        stamps = [getattr(part, "stamp", "") for part in self.parts]
        return None if None in stamps else "\n".join(stamps)

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield the images at the positions, see :class:`visleak.records.Opener`."""
        for owner, rows in by_owner(self.starts, np.asarray(positions, np.int64)):
            if self._last not in (-1, owner):
                getattr(self.parts[self._last], "close", int)()
            self._last = owner
            yield from self.parts[owner].read(rows)


def starts_of(sizes: Sequence[int]) -> Int64:
    """Return the positions at which parts of some sizes begin, and the end."""
    return np.concatenate(([0], np.cumsum(np.asarray(sizes, np.int64)))).astype(np.int64)


def joined_opener(parts: Sequence[Opener], sizes: Sequence[int]) -> JoinedOpener:
    """Return the opener of shards that hold ``sizes`` images each."""
    return JoinedOpener(tuple(parts), starts_of(sizes))


def by_owner(starts: Int64, wanted: Int64) -> Iterator[tuple[int, list[int]]]:
    """Yield each part that wanted positions lie in, and which of its own these are.

    >>> list(by_owner(starts_of([2, 3]), np.array([0, 2, 4])))
    [(0, [0]), (1, [0, 2])]
    """
    owners = np.searchsorted(starts, wanted, side="right") - 1
    pairs = zip(owners.tolist(), (wanted - starts[owners]).tolist(), strict=True)
    for owner, rows in itertools.groupby(pairs, key=lambda pair: pair[0]):
        yield owner, [row for _, row in rows]


@dataclass(frozen=True)
class SubsetOpener:
    """Reads some images of another opener."""

    opener: Opener  # the other one
    rows: Int64  # int64, ascending: which of its positions

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield the images at the positions, see :class:`visleak.records.Opener`."""
        return self.opener.read(self.rows[np.asarray(positions, np.int64)].tolist())


def chosen(images: ImageSet, positions: Int64, name: str) -> ImageSet:
    """Return some images of a set as a set of its own, kept in memory only."""
    rows = pa.array(positions, pa.int64())
    names = ("ids", "locators", "labels", "captions", "groups", "frames")
    known = {each: getattr(images, each) for each in names}
    taken: dict[str, Any] = {each: v.take(rows) for each, v in known.items() if v is not None}
    return replace(
        images,
        **taken,
        name=name,
        opener=SubsetOpener(images.opener, positions),
        columns={each: column.take(rows) for each, column in images.columns.items()},
        problems=(),
        source="",
        options={},
    )


@dataclass(frozen=True)
class FileOpener:
    """Reads files."""

    root: str  # the folder that the names are relative to
    names: pa.BinaryArray  # the file names as the system has them; null is missing

    def folders(self) -> set[Path]:
        """Return the folders that hold the files."""
        root = os.fsencode(self.root)
        held = {os.path.dirname(name) for name in self.names.to_pylist() if name is not None}
        return {Path(os.fsdecode(os.path.realpath(os.path.join(root, name)))) for name in held}

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield the content of the files at the positions, see :class:`visleak.records.Opener`."""
        root = os.fsencode(self.root)
        for position in positions:
            name = self.names[position].as_py()
            if name is None:
                yield Unreadable("missing", "the manifest names no file")
            else:
                yield read_file(os.path.join(root, name))


def file_stamp(*paths: Path | str) -> str:
    """Return a text that changes when one of the files does."""
    found = [os.stat(path) for path in paths]
    return " ".join(f"{status.st_size} {status.st_mtime_ns}" for status in found)


def read_file(path: bytes | str) -> bytes | Unreadable:
    """Return the content of a regular file, or why it cannot be read."""
    try:
        # Not blocking, so that a pipe without a writer cannot stop the run.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                what = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
                return Unreadable("io-error", f"{what} stands at this name")
            if status.st_size > MAX_FILE_BYTES:
                return _too_large(status.st_size)
            data = os.read(handle, status.st_size)
            if data and len(data) == status.st_size:
                return data
            # read in parts, or of unknown size
            return _joined(data, lambda most: os.read(handle, min(most, PART)))
        finally:
            os.close(handle)
    except (OSError, ValueError) as error:
        return as_unreadable(error)


def _joined(data: bytes, read: Callable[[int], bytes], what: str = "files") -> bytes | Unreadable:
    """Return some bytes and all that follow, unless these are too many."""
    parts, size = [data], len(data)
    while size <= MAX_FILE_BYTES and (part := read(MAX_FILE_BYTES + 1 - size)):
        parts.append(part)
        size += len(part)
    return b"".join(parts) if size <= MAX_FILE_BYTES else _too_large(size, what)


def _too_large(size: int, what: str = "files") -> Unreadable:
    return Unreadable("too-large", f"{size:,} bytes; {what} up to {MAX_FILE_BYTES:,} are read")


def as_unreadable(error: OSError | ValueError) -> Unreadable:
    """Return the reason of an error of the system or of a remote store on a file."""
    if isinstance(error, StoreError):
        return Unreadable(error.reason, str(error))
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return Unreadable("missing", "no such file")
    if isinstance(error, PermissionError):
        return Unreadable("no-permission", "the system does not let this user read the file")
    if isinstance(error, IsADirectoryError):
        return Unreadable("io-error", "a folder stands at this name")
    number = getattr(error, "errno", None)
    if number == errno.ENAMETOOLONG:
        return Unreadable("missing", "the name is longer than a file's name can be")
    return Unreadable("io-error", str(error) if number is None else os.strerror(number))


def file_set(
    request: Request,
    root: Path,
    names: Sequence[str],
    *,
    ids: Sequence[str] | None = None,
    **more: Any,
) -> ImageSet:
    """Return the set of the files ``names`` below ``root``, see :meth:`Request.image_set`."""
    return request.image_set(
        pa.array(map(name_text, names) if ids is None else ids, pa.string()),
        pa.array((name_text(os.path.join(root, name)) for name in names), pa.string()),
        FileOpener(str(root), pa.array(map(os.fsencode, names), pa.binary())),
        **more,
    )


@dataclass(frozen=True)
class RemoteOpener:
    """Fetches images by address; those without a scheme are files of this machine."""

    places: pa.StringArray  # Arrow string array, address or path; null is missing
    stamp: str | None = None  # text that changes when an image does, None where that is unknown

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield the images at the positions, see :class:`visleak.records.Opener`."""
        waiting: deque[Future[bytes | Unreadable]] = deque()
        with ThreadPoolExecutor(TOGETHER) as threads:
            for position in positions:
                waiting.append(threads.submit(fetched, self.places[position].as_py()))
                if len(waiting) > AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()


def fetched(place: str | None) -> bytes | Unreadable:
    """Return the image at a place, or why it cannot be read."""
    if place is None:
        return Unreadable("missing", "the table names no file")
    if not is_address(place):
        return read_file(place)
    if scheme_of(place) not in SCHEMES:
        return Unreadable("unsupported", f"{scheme_of(place)}:// is not fetched")
    try:
        with RemoteFile(place) as file:
            if file.size is not None and file.size > MAX_FILE_BYTES:
                return _too_large(file.size, "objects")
            return _joined(b"", lambda most: file.read(min(most, BLOCK)) or b"", "objects")
    except (OSError, ValueError) as error:
        return as_unreadable(error)


def remote_places(
    request: Request, names: Sequence[str | None], root: str
) -> pa.StringArray | None:
    """Return where the files of a table are, as an Arrow string array; ``None`` where all are here.

    Tables are untrusted. A local one may name addresses only with ``?remote=yes``; a remote one may
    name objects of its own host, and never a local file.
    """
    addresses = [name for name in names if name and is_address(name)]
    remote = is_address(root)
    if remote:
        other = next((a for a in addresses if origin_of(a) != origin_of(root)), None)
        if other is not None:
            raise UsageError(
                f"{request.text} names an image on another host, {origin_of(other)}; only those"
                " on its own are fetched: save the table here and open it with ?remote=yes"
            )
    elif not addresses:
        return None
    elif request.options.get("remote", "no") not in ("yes", "true", "1"):
        raise UsageError(
            f"{request.text} names {len(addresses):,} files by address, the first at"
            f" {origin_of(addresses[0])}; nothing is fetched unless you allow it:"
            f" {request.path}?remote=yes"
        )

    def placed(name: str) -> str:
        if is_address(name):
            return name
        return joined(root, name.lstrip("/")) if remote else os.path.join(root, name)

    return pa.array((placed(name) if name else None for name in names), pa.string())


def without_secrets(texts: pa.StringArray) -> pa.StringArray:
    """Return texts without user names, passwords and signatures in addresses."""
    if not pc.any(pc.match_substring(texts, "://")).as_py():
        return texts
    shown = (None if text is None else redacted(text) for text in texts.to_pylist())
    return pa.array(shown, pa.string())


# -- the files of a list that was made on another machine ------------------------------------------


#: Folders that are searched for a file that is missing.
SEARCHED: Final = 200


@dataclass(frozen=True)
class Root:
    """The value of ``--root``: the folder of relative names, or a prefix to replace."""

    folder: str  # the folder, absolute
    # what names begin with on the other machine; None where the folder is put before relative names
    replaces: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the root of ``DIR`` or ``OLD=NEW``; refuse a folder that does not exist."""
        old, equals, new = ("", "", text) if os.path.isdir(text) else text.partition("=")
        folder = new if equals else text
        if not os.path.isdir(folder):
            raise UsageError(
                f"root {text!r}: there is no folder {folder!r}; give the folder of the files, or"
                " OLD=NEW to replace the beginning of their names"
            )
        return cls(os.path.abspath(folder), old if equals else None)

    @property
    def text(self) -> str:
        """The text that :meth:`parse` takes, from any working folder."""
        return self.folder if self.replaces is None else f"{self.replaces}={self.folder}"

    def applied(self, base: str, names: Sequence[str | None]) -> tuple[str, list[str | None]]:
        """Return the folder that names start from, and the names of the files here.

        >>> Root("/data", "/home/ann").applied("lists", ["/home/ann/a.png", "b.png", None])
        ('lists', ['/data/a.png', 'b.png', None])
        """
        old = self.replaces
        if old is None:
            return self.folder, list(names)
        return base, [
            os.path.join(self.folder, name[len(old) :].lstrip("/\\"))
            if name and name.startswith(old)
            else name
            for name in names
        ]


def root_hint(images: ImageSet) -> str:
    """Return the ``--root`` by which the first file of a set is found here; empty if none is."""
    opener = images.opener
    if not isinstance(opener, FileOpener):
        return ""
    name = next((each for each in opener.names.to_pylist() if each is not None), b"")
    text = os.fsdecode(name)
    parts = PurePath(text.replace("\\", "/")).parts
    for skipped in range(1 if text.startswith("/") else 0, len(parts)):
        rest = "/".join(parts[skipped:])
        for folder in islice(_folders(Path(opener.root)), SEARCHED):
            if (folder / rest).is_file():
                old = text[: len(text) - len(rest)]
                return f"--root {shlex.quote(f'{old}={folder}/' if old else str(folder))}"
    return ""


def _folders(root: Path) -> Iterator[Path]:
    """Yield the folders near the list and near the working folder."""
    seen = set()
    for start in (root, *list(root.absolute().parents)[:2], Path()):
        inside = sorted(each for each in start.iterdir() if each.is_dir()) if start.is_dir() else []
        for folder in (start, *inside):
            if folder.resolve() not in seen:
                seen.add(folder.resolve())
                yield folder
