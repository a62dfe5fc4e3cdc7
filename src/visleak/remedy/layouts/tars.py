"""Tar archives and WebDataset shards with the members that are kept, streamed."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import re
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import UsageError, VisleakError
from visleak.images import open_pictures
from visleak.images.addresses import redacted
from visleak.images.archive import DAMAGE, TARS, said
from visleak.images.archive_tar import TarOpener, TarStream, link_target, members_of
from visleak.images.joining import JoinedOpener
from visleak.images.remote_file import opened
from visleak.images.request import writable
from visleak.images.samples import key_and_ending
from visleak.images.sources import locate
from visleak.remedy.contents import Filled, FilledPart
from visleak.remedy.layouts.members import Members
from visleak.remedy.layouts.names import file_name, shard_names
from visleak.remedy.layouts.place import Opened, Place


def _gzip(file: IO[bytes], mode: str) -> gzip.GzipFile:
    """Pack without name and time of day, so that the same members make the same bytes."""
    return gzip.GzipFile("", mode, fileobj=file, mtime=0)


#: First bytes of a packed archive, and what packs alike.
_PACKERS: Final[tuple[tuple[bytes, Callable[..., Any]], ...]] = (
    (b"\x1f\x8b", _gzip),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ\0", lzma.LZMAFile),
)


@dataclass(frozen=True)
class Choice:
    """What becomes of the members of an archive.

    Attributes:
        keeps: whether a member stays.
        content: another content for a member that stays, or ``None``.
    """

    keeps: Callable[[tarfile.TarInfo], bool]
    content: Callable[[tarfile.TarInfo], bytes | None]


def write_tar(parts: Sequence[FilledPart], place: Place) -> list[Opened]:
    """Write each part as a tar archive of its name, packed as it was.

    A removed picture takes its side files along: those that differ from it in their ending only.
    """
    written = []
    for part in parts:
        (piece,) = part.pieces
        source = cast(TarOpener, piece.images.opener).path
        name = place.below(part, file_name(source))
        copy_tar(source, place.made(name), _of_pictures(piece), place, part.name)
        written.append(_opened(place, name, piece))
    return written


def _opened(place: Place, name: str, piece: Filled) -> Opened:
    """Return how an archive is opened; a link that became a file may stand elsewhere in it."""
    if not piece.instead:
        return Opened(name)
    found = open_pictures(str(place.folder / name)).ids
    order = pc.index_in(found, pa.array(piece.column("ids"), pa.string()))
    return Opened(name, ids=tuple(found.to_pylist()), order=pc.fill_null(order, -1).to_numpy())


def _of_pictures(piece: Filled) -> Choice:
    members = Members.of(piece)
    places = {
        piece.images.ids[position].as_py(): stand.stored
        for position, stand in piece.instead.items()
    }

    def keeps(member: tarfile.TarInfo) -> bool:
        name = member.name.encode("utf-8", "backslashreplace").decode()
        if not member.isdir() and members.is_picture(name):
            return name in members.kept
        return member.isdir() or not members.is_side_file_of_removed(name)

    def content(member: tarfile.TarInfo) -> bytes | None:
        name = member.name.encode("utf-8", "backslashreplace").decode()
        return cast("bytes | None", places.get(name))

    return Choice(keeps, content)


def write_webdataset(parts: Sequence[FilledPart], place: Place) -> list[Opened]:
    """Write the shards of each part under their names: all members of the samples that are kept."""
    return [_write_shards(part, place) for part in parts]


def _write_shards(part: FilledPart, place: Place) -> Opened:
    (piece,) = part.pieces
    opener = cast(JoinedOpener, piece.images.opener)
    shards = cast("tuple[TarOpener, ...]", opener.parts)
    if len(shards) > 1 and re.search(r"[*?\[\]{}]", str(place.final)):
        raise UsageError(
            f"the output {place.final} has a name that a pattern of shards takes for wildcards;"
            " choose another -o DIR"
        )
    names = [place.below(part, name) for name in shard_names([shard.path for shard in shards])]
    for number, (shard, name) in enumerate(zip(shards, names, strict=True)):
        start, end = int(opener.starts[number]), int(opener.starts[number + 1])
        choice = _of_samples(piece, shard, start, end)
        copy_tar(shard.path, place.made(name), choice, place, f"{part.name} {number}")
    ending = next(end for end in sorted(TARS, key=len)[::-1] if names[0].lower().endswith(end))
    image = locate(piece.images.source).options.get("image")
    return Opened(
        names[0] if len(names) == 1 else place.below(part),
        before="wds:",
        after=(f"/*{ending}" if len(names) > 1 else "") + (f"?image={image}" if image else ""),
        options=piece.images.options,
        renamed=True,
    )


def _of_samples(piece: Filled, shard: TarOpener, start: int, end: int) -> Choice:
    """Return the choice in one shard, whose samples are those from ``start`` to ``end``."""
    prefix = len(f"{writable(redacted(shard.path))}!")
    keys = [text.as_py()[prefix:] for text in piece.images.locators[start:end]]
    staying = {int(at) for at in piece.keep if start <= at < end}
    removed = {key for at, key in enumerate(keys, start) if at not in staying}
    stands = {
        (int(shard.offsets[at - start]), keys[at - start]): stand.stored
        for at, stand in piece.instead.items()
        if start <= at < end
    }

    def key_of(member: tarfile.TarInfo) -> str:
        return writable(key_and_ending(member.name)[0])

    def content(member: tarfile.TarInfo) -> bytes | None:
        return cast("bytes | None", stands.get((member.offset_data, key_of(member))))

    return Choice(lambda member: key_of(member) not in removed, content)


def copy_tar(source: str, target: Path, choice: Choice, place: Place, shown: str) -> None:
    """Copy the members of an archive that stay, in their order; nothing is unpacked to disk.

    A link whose target goes becomes a file in its target's place, the next ones links to it.

    Raises:
        VisleakError: the archive is damaged.
    """
    heirs, count = _heirs(source, choice)
    try:
        with (
            TarStream(source) as stream,
            _packed_like(source, target) as file,
            tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as new,
        ):
            for number, member in enumerate(members_of(stream, redacted(source))):
                for info, size in _placed(member, choice, heirs):
                    stored = choice.content(member) if info.name == member.name else None
                    if stored is None and size:
                        stream.seek(member.offset_data)
                        stored = stream.read(size)
                    info.size = len(stored or b"")
                    new.addfile(info, io.BytesIO(stored or b""))
                if number % 64 == 0:
                    place.progress(f"writing {shown}", number, count)
    except DAMAGE as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise VisleakError(f"archive {redacted(source)} cannot be copied: {said(error)}") from error
    place.progress(f"writing {shown}", count, count)


def _heirs(source: str, choice: Choice) -> tuple[dict[str, list[str]], int]:
    """Return links that stay, by the file they lead to, where that goes or becomes another.

    Also, how many members there are.
    """
    regular: set[str] = set()
    heirs: dict[str, list[str]] = {}
    count = 0
    with TarStream(source) as stream:
        for member in members_of(stream, redacted(source)):
            count += 1
            if member.isreg() and not (choice.keeps(member) and choice.content(member) is None):
                regular.add(member.name)
            elif _is_link(member) and choice.keeps(member) and choice.content(member) is None:
                heirs.setdefault(link_target(member), []).append(member.name)
    return {target: sorted(heirs[target]) for target in regular & heirs.keys()}, count


def _placed(
    member: tarfile.TarInfo, choice: Choice, heirs: dict[str, list[str]]
) -> Iterator[tuple[tarfile.TarInfo, int]]:
    """Yield what is written for a member, and how many of its bytes are read."""
    if member.issparse():
        raise VisleakError(f"member {member.name!r} is a sparse file and is not copied")
    if member.isreg() and member.name in heirs:
        yield _file_named(heirs[member.name][0], member), member.size
    if not choice.keeps(member):
        return
    if not _is_link(member):
        yield member, member.size if member.isreg() else 0
    elif choice.content(member) is not None:
        yield _file_named(member.name, member), 0
    else:
        family = heirs.get(link_target(member))
        if family is None:
            yield member, 0
        elif member.name != family[0]:
            copy = _file_named(member.name, member)
            copy.type, copy.linkname = tarfile.LNKTYPE, family[0]
            yield copy, 0


def _is_link(member: tarfile.TarInfo) -> bool:
    return member.islnk() or member.issym()


def _file_named(name: str, member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return a plain file of a name, of a member's age and rights."""
    info = tarfile.TarInfo(name)
    info.mtime, info.mode = member.mtime, member.mode
    return info


@contextlib.contextmanager
def _packed_like(source: str, target: Path) -> Iterator[IO[bytes]]:
    """Open a file to write that is packed as another archive is."""
    with opened(source) as file:
        head = file.read(6)
    packer = next((opens for magic, opens in _PACKERS if head.startswith(magic)), None)
    with target.open("wb") as plain, packer(plain, "wb") if packer else plain as file:
        yield file
