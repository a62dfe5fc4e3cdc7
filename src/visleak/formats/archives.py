"""Zip archives, and what they share with tar archives: limits, and which members are listed.

Archives are read in place: nothing is ever unpacked to disk. Member names are ids and nothing
else, so ``../`` in them leads nowhere.
"""

from __future__ import annotations

import bz2
import lzma
import os
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import IO, Final, Self, cast

import numpy as np
import pyarrow as pa

from visleak.errors import VisleakError, explaining, one_line
from visleak.formats.files import why_not
from visleak.formats.listing import HEAD, Listing, is_hidden, labels_of
from visleak.formats.remote import StoreError, opened, stamp_of_file
from visleak.formats.request import Request
from visleak.formats.writing import Destination, OutputPart, OutputSource, Selection, file_name
from visleak.records import Bytes8, ImageSet, Int64, Opener, Problem, Unreadable

MAX_MEMBERS: Final = 5_000_000  # an archive with more members is refused
MAX_MEMBER_BYTES: Final = 1 << 30  # a member that unpacks to more is not unpacked
MAX_RATIO: Final = 200  # what unpacks to more than this many times its packed size is a bomb
RATIO_FROM: Final = 64 << 20  # ... if it is larger than this; a small blank bitmap packs very well
#: What the readers of archives raise on damaged ones.
DAMAGE: Final = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    ValueError,
    NotImplementedError,
    struct.error,
    OverflowError,
)


def takes_member(listing: Listing, name: str, head: Callable[[], bytes]) -> bool:
    """Whether a member is listed: an image, no part of whose path is hidden."""
    parts = [part for part in name.split("/") if part not in ("", ".", "..")]
    return bool(parts) and not any(map(is_hidden, parts[:-1])) and listing.takes(parts[-1], head)


def is_bomb(size: int, packed: int) -> bool:
    """Whether so few packed bytes that make so many plain ones are meant to do harm."""
    return size > RATIO_FROM and size > MAX_RATIO * packed


def too_many(shown: str) -> VisleakError:
    """Return the error for an archive beyond :data:`MAX_MEMBERS`."""
    return VisleakError(f"archive {shown} has more than {MAX_MEMBERS:,} members")


def member_set(
    request: Request,
    names: Sequence[str],
    opener: Opener,
    listing: Listing,
    problems: Sequence[Problem] = (),
) -> ImageSet:
    """Return the set of the listed members, in that order; their first folders are labels."""
    if not names:
        request.refuse_empty(listing.why_empty("no member"))
    texts = [name.encode("utf-8", "backslashreplace").decode() for name in names]
    return request.image_set(
        pa.array(texts, pa.string()),
        pa.array((f"{request.shown}!{name}" for name in texts), pa.string()),
        opener,
        labels=labels_of(texts),
        problems=problems,
        skipped=listing.skipped,
    )


@dataclass(frozen=True)
class Members:
    """The images of an archive."""

    all: frozenset[str]  # their names, as the set's ids
    kept: frozenset[str]  # names of those that stay
    kept_stems: frozenset[str]  # their names without endings
    removed_stems: frozenset[str]  # those of images that go

    @classmethod
    def of(cls, piece: Selection) -> Self:
        """Return those of a set whose ids are the names of its members."""
        kept = frozenset(str(id_) for id_ in piece.column("ids"))
        every = frozenset(piece.images.ids.to_pylist())
        return cls(every, kept, _stems(kept), _stems(every - kept))

    def is_image(self, name: str) -> bool:
        """Whether a member is an image: one of the set, or one that the set could not list."""
        return name in self.all or takes_member(Listing(), name, bytes)

    def is_side_file_of_removed(self, name: str) -> bool:
        """Whether a file belongs to images that go and to none that stays."""
        stem = _stem(name)
        return stem in self.removed_stems and stem not in self.kept_stems


def _stems(names: Iterable[str]) -> frozenset[str]:
    return frozenset(map(_stem, names))


def _stem(name: str) -> str:
    """Return a name without its ending.

    >>> _stem("a.b/1.png"), _stem("a.b/README")
    ('a.b/1', 'a.b/README')
    """
    folder, slash, last = name.rpartition("/")
    return folder + slash + (last.rpartition(".")[0] or last)


def open_zip(request: Request) -> ImageSet:
    """List the images of a zip archive in the order they are stored; folders are labels."""
    request.refuse_columns_and_split("the archive")
    listing = Listing()
    with (
        explaining(f"archive {request.text} cannot be read", *DAMAGE),
        opened(request.place) as file,
        zipfile.ZipFile(file) as archive,
    ):
        stamp, members = stamp_of_file(file), archive.infolist()
        if len(members) > MAX_MEMBERS:
            raise too_many(request.text)
        infos = [
            info
            for info in members
            if not info.is_dir()
            and takes_member(listing, info.filename, partial(_head, archive, info))
        ]
    infos.sort(key=lambda info: info.header_offset)
    rows = [
        (i.header_offset, i.compress_size, i.file_size, i.compress_type, i.CRC, i.flag_bits)
        for i in infos
    ]
    opener = ZipOpener(request.place, np.array(rows, dtype=np.int64).reshape(-1, 6), stamp)
    return member_set(request, [info.filename for info in infos], opener, listing)


@dataclass(frozen=True)
class ZipOpener:
    """Reads members of a zip archive."""

    path: str  # the archive
    # int64 (n, 6): offset of the local header, packed size, size, method, CRC and flags of each
    # image
    members: Int64
    stamp: str | None = ""  # of a remote archive

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield the members at the positions, see :class:`visleak.records.Opener`."""
        try:
            with opened(self.path) as file:
                for position in positions:
                    yield _unpacked(file, self.members[position])
        except OSError as error:
            failure = why_not(error)
        else:
            return
        yield from (failure for _ in positions)


def write_zip(part: OutputPart, place: Destination) -> OutputSource:
    """Write a part as a zip archive of its name: same members, packed as they were.

    A removed image takes its side files along: those that differ from it in their ending only.
    """
    (piece,) = part.pieces
    source = cast(ZipOpener, piece.images.opener).path
    name = place.below(part, file_name(source))
    with (
        opened(source) as file,
        zipfile.ZipFile(file) as old,
        zipfile.ZipFile(place.made(name), "w") as new,
    ):
        new.comment = old.comment
        infos = sorted(old.infolist(), key=lambda info: info.header_offset)
        for info, stored in _members(infos, old, piece):
            new.writestr(_copied(info), stored)
            place.progress(f"writing {part.name}", len(new.filelist), len(infos))
        place.progress(f"writing {part.name}", len(infos), len(infos))
    return OutputSource(name)


def _unpacked(file: IO[bytes], row: Int64) -> bytes | Unreadable:
    """Unpack one member; no promise of the archive is believed."""
    offset, packed, size, method, crc, flags = row.tolist()
    unpack = _UNPACKERS.get(method)
    if size > MAX_MEMBER_BYTES or packed > MAX_MEMBER_BYTES or is_bomb(size, packed):
        return Unreadable("too-large", f"unpacks from {packed:,} to {size:,} bytes")
    if flags & 1 or unpack is None:
        what = "encrypted" if flags & 1 else f"packed with method {method}, which is not read"
        return Unreadable("unsupported", f"the archive member is {what}")
    try:
        file.seek(offset)
        header = file.read(30)
        if header[:4] != b"PK\3\4":
            return Unreadable("corrupt", "no member begins where the archive says")
        name, extra = struct.unpack("<HH", header[26:30])
        file.seek(name + extra, os.SEEK_CUR)
        data = unpack(file.read(packed), size)
    except DAMAGE as error:
        if isinstance(error, StoreError):
            raise
        return Unreadable("corrupt", f"the archive member cannot be unpacked: {error}")
    if len(data) != size or zlib.crc32(data) != crc:
        return Unreadable("corrupt", "the archive member fails its checksum")
    return data


def _inflate(data: bytes, size: int) -> bytes:
    # One byte more than promised is enough to see that the promise is broken.
    return zlib.decompressobj(-15).decompress(data, size + 1)


def _bunzip(data: bytes, size: int) -> bytes:
    return bz2.BZ2Decompressor().decompress(data, size + 1)


_UNPACKERS: Final[dict[int, Callable[[bytes, int], bytes]]] = {
    zipfile.ZIP_STORED: lambda data, size: data,
    zipfile.ZIP_DEFLATED: _inflate,
    zipfile.ZIP_BZIP2: _bunzip,
}


def _head(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Return the first bytes of a member; nothing where they cannot be read."""
    try:
        with archive.open(info) as member:
            return member.read(HEAD)
    except (*DAMAGE, RuntimeError) as error:  # such as: it is encrypted
        if isinstance(error, StoreError):
            raise
        return b""


def _members(
    infos: Sequence[zipfile.ZipInfo], archive: zipfile.ZipFile, piece: Selection
) -> Iterator[tuple[zipfile.ZipInfo, bytes]]:
    """Yield the members that are kept, with their content."""
    members, images = Members.of(piece), piece.stored()
    for info in infos:
        name = info.filename.encode("utf-8", "backslashreplace").decode()
        if not info.is_dir() and members.is_image(name):
            if name in members.kept:
                yield info, cast(bytes, next(images))
        elif info.is_dir() or not members.is_side_file_of_removed(name):
            yield info, b"" if info.is_dir() else _read_side_file(archive, info)


def _read_side_file(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Return the content of a member that is not an image."""
    shown = f"{archive.filename}!{info.filename}"
    if info.file_size > MAX_MEMBER_BYTES or is_bomb(info.file_size, info.compress_size):
        raise VisleakError(f"{shown} unpacks to {info.file_size:,} bytes and is not copied")
    try:
        return archive.read(info)
    except (*DAMAGE, RuntimeError) as error:
        raise VisleakError(f"{shown} cannot be copied: {one_line(error)}") from error


def _copied(info: zipfile.ZipInfo) -> zipfile.ZipInfo:
    """Return what the archive says of a member, without what belongs to the place it lay in."""
    copy = zipfile.ZipInfo(info.filename, info.date_time)
    for attribute in ("compress_type", "comment", "create_system", "external_attr"):
        setattr(copy, attribute, getattr(info, attribute))
    return copy
