"""Zip and tar archives: how members are listed, read and written, and the limits of both.

Archives are read in place: nothing is unpacked to disk. Member names are used as ids only, so
``../`` in them has no effect.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import os
import posixpath
import struct
import tarfile
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from posixpath import splitext
from typing import IO, Any, Final, Self, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import VisleakError, explaining, one_line
from visleak.formats.files import StatefulOpener, as_unreadable
from visleak.formats.listing import HEAD, Listing, is_hidden, labels_of
from visleak.formats.opening import open_image_set
from visleak.formats.remote import StoreError, opened, redacted, size_of_file, stamp_of_file
from visleak.formats.request import Request, writable
from visleak.formats.writing import Destination, OutputPart, OutputSource, Selection, file_name
from visleak.records import Bytes8, ImageSet, Int64, Opener, Problem, Unreadable

MAX_MEMBERS: Final = 5_000_000  # an archive with more members is refused
MAX_MEMBER_BYTES: Final = 1 << 30  # a member that unpacks to more is not unpacked
MAX_RATIO: Final = 200  # what unpacks to more than this many times its packed size is a bomb
RATIO_FROM: Final = 64 << 20  # ... if it is larger than this; a small blank bitmap packs very well
#: Errors that the libraries raise on damaged archives.
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


def lists_member(listing: Listing, name: str, head: Callable[[], bytes]) -> bool:
    """Whether a member is listed: an image without a hidden part in its path."""
    parts = [part for part in name.split("/") if part not in ("", ".", "..")]
    return bool(parts) and not any(map(is_hidden, parts[:-1])) and listing.takes(parts[-1], head)


def is_bomb(size: int, packed: int) -> bool:
    """Whether a member unpacks to far more bytes than an image can."""
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
    texts = [writable(name) for name in names]
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
    kept: frozenset[str]  # names of those that are kept
    kept_stems: frozenset[str]  # their names without endings
    removed_stems: frozenset[str]  # those of removed images

    @classmethod
    def of(cls, piece: Selection) -> Self:
        """Return those of a set whose ids are the names of its members."""
        kept = frozenset(map(str, piece.column("ids")))
        every = frozenset(piece.images.ids.to_pylist())
        stems = (frozenset(splitext(name)[0] for name in names) for names in (kept, every - kept))
        return cls(every, kept, *stems)

    def keeps(self, name: str) -> bool:
        """Whether a file is copied: a kept image, or a file that belongs to no removed image."""
        # the set could not list all images
        if name in self.all or lists_member(Listing(), name, bytes):
            return name in self.kept
        stem = splitext(name)[0]
        return stem not in self.removed_stems or stem in self.kept_stems


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
            and lists_member(listing, info.filename, partial(_head, archive, info))
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
            failure = as_unreadable(error)
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
    members, images = Members.of(piece), piece.stored()
    with (
        opened(source) as file,
        zipfile.ZipFile(file) as old,
        zipfile.ZipFile(place.made(name), "w") as new,
    ):
        new.comment = old.comment
        infos = sorted(old.infolist(), key=lambda info: info.header_offset)
        for info in infos:
            own = writable(info.filename)
            if info.is_dir():
                stored = b""
            elif not members.keeps(own):
                continue
            else:
                image = own in members.kept
                stored = cast(bytes, next(images)) if image else _read_side_file(old, info)
            new.writestr(_copied(info), stored)
            place.progress(f"writing {part.name}", len(new.filelist), len(infos))
        place.progress(f"writing {part.name}", len(infos), len(infos))
    return OutputSource(name)


def _unpacked(file: IO[bytes], row: Int64) -> bytes | Unreadable:
    """Unpack one member without trusting the sizes that the archive states."""
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
            return Unreadable("corrupt", "no member begins at the stated offset")
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


#: Decompressors by method; one byte more than the stated size shows that it is wrong.
_UNPACKERS: Final[dict[int, Callable[[bytes, int], bytes]]] = {
    zipfile.ZIP_STORED: lambda data, size: data,
    zipfile.ZIP_DEFLATED: lambda data, size: zlib.decompressobj(-15).decompress(data, size + 1),
    zipfile.ZIP_BZIP2: lambda data, size: bz2.BZ2Decompressor().decompress(data, size + 1),
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


def _read_side_file(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    shown = f"{archive.filename}!{info.filename}"
    if info.file_size > MAX_MEMBER_BYTES or is_bomb(info.file_size, info.compress_size):
        raise VisleakError(f"{shown} unpacks to {info.file_size:,} bytes and is not copied")
    with explaining(f"{shown} cannot be copied", *DAMAGE, RuntimeError):
        return archive.read(info)


def _packer(file: IO[bytes]) -> Callable[..., Any] | None:
    """Return the class that compresses an archive, ``None`` if it is not compressed."""
    head = file.read(6)
    return next((packs for magic, packs in PACKERS if head.startswith(magic)), None)


def _copied(info: zipfile.ZipInfo) -> zipfile.ZipInfo:
    """Return the entry of a member without its position in the archive."""
    copy = zipfile.ZipInfo(info.filename, info.date_time)
    for attribute in ("compress_type", "comment", "create_system", "external_attr"):
        setattr(copy, attribute, getattr(info, attribute))
    return copy


# -- tar archives ----------------------------------------------------------------------------------


def _gzip(file: IO[bytes], mode: str) -> gzip.GzipFile:
    """Compress without a name and a time, so that equal members give equal bytes."""
    return gzip.GzipFile("", mode, fileobj=file, mtime=0)


#: First bytes of a compressed archive, and the class that reads and writes it.
PACKERS: Final[tuple[tuple[bytes, Callable[..., Any]], ...]] = (
    (b"\x1f\x8b", _gzip),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ\0", lzma.LZMAFile),
)


def open_tar(request: Request) -> ImageSet:
    """List the images of a tar archive, packed or not, in their order; folders are labels."""
    request.refuse_columns_and_split("the archive")
    places: dict[str, tuple[int, int]] = {}
    links: list[tuple[str, str]] = []
    listing = Listing()
    with (
        explaining(f"archive {request.text} cannot be read", *DAMAGE),
        TarStream(request.place) as stream,
    ):
        stamp = stream.stamp
        for member in members_of(stream, request.text):
            name = member.name
            if member.isdir() or not lists_member(listing, name, partial(head_of, stream, member)):
                continue
            if is_link(member):
                links.append((name, link_target(member)))
            elif member.isreg() and not member.issparse():
                if name in places:
                    raise VisleakError(f"archive {request.text} has two members named {name!r}")
                places[name] = (member.offset_data, member.size)
    problems = []
    for name, target in links:
        if target in places and name not in places:
            places[name] = places[target]
        else:
            locator = f"{request.shown}!{name}"
            detail = "a link to no image of the archive"
            problems.append(Problem(request.name, name, locator, "missing", detail))
    # A link lies where its target lies, so that reading stays ascending.
    names = sorted(places, key=lambda name: (places[name], name))
    opener = tar_opener(request.place, [places[name] for name in names], stamp)
    return member_set(request, names, opener, listing, problems)


def tar_opener(path: str, places: Sequence[tuple[int, int]], stamp: str | None) -> TarOpener:
    """Return the opener of images at some (offset, size) of the plain archive."""
    offsets, sizes = np.array(places, np.int64).reshape(-1, 2).T.copy()
    return TarOpener(path, offsets, sizes, stamp)


def is_link(member: tarfile.TarInfo) -> bool:
    """Whether a member is a link, hard or symbolic."""
    return member.islnk() or member.issym()


@dataclass
class TarOpener(StatefulOpener):
    """Reads members of a tar archive, which stays open: ascending positions unpack it once."""

    path: str  # the archive, or its address
    offsets: Int64  # int64: where each image's bytes lie in the plain archive
    sizes: Int64
    stamp: str | None = ""  # of a remote archive
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    _stream: TarStream | None = field(default=None, repr=False, compare=False)
    _owner: int = field(default=0, repr=False, compare=False)

    def __del__(self) -> None:
        if self._stream is not None:
            self._stream.close()

    def close(self) -> None:
        """Close the archive; the next read opens it again."""
        if self._owner == os.getpid():
            with self._lock:
                if self._stream is not None:
                    self._stream.close()
                self._stream = None

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield the members at the positions, see :class:`visleak.records.Opener`."""
        if self._owner != os.getpid():
            # A forked worker must share neither the parent's place in the file nor its lock.
            self._lock, self._stream, self._owner = threading.Lock(), None, os.getpid()
        for position in positions:
            with self._lock:
                found = self._member(int(self.offsets[position]), int(self.sizes[position]))
            yield found

    def _member(self, offset: int, size: int) -> bytes | Unreadable:
        if size > MAX_MEMBER_BYTES:
            return Unreadable("too-large", f"the archive member has {size:,} bytes")
        try:
            if self._stream is None:
                self._stream = TarStream(self.path)
            self._stream.seek(offset)
            data = self._stream.read(size)
        except (FileNotFoundError, PermissionError, StoreError) as error:
            return as_unreadable(error)
        except DAMAGE as error:
            self._stream = None
            return Unreadable("corrupt", f"the archive cannot be unpacked here: {error}")
        if len(data) < size:
            return Unreadable("truncated", "the archive ends within this member")
        return data


def write_tar(part: OutputPart, place: Destination) -> OutputSource:
    """Write a part as a tar archive of its name, packed as it was.

    The side files of a removed image go too: those that differ from it in their ending only.
    """
    (piece,) = part.pieces
    source = cast(TarOpener, piece.images.opener).path
    name = place.below(part, file_name(source))
    members = Members.of(piece)
    stands = {piece.images.ids[at].as_py(): new.stored for at, new in piece.instead.items()}
    choice = MemberSelection(
        lambda member: member.isdir() or members.keeps(writable(member.name)),
        lambda member: cast("bytes | None", stands.get(writable(member.name))),
    )
    copy_tar(source, place.made(name), choice, place, part.name)
    if not stands:
        return OutputSource(name)
    # a link that became a file may stand elsewhere in the archive
    found = open_image_set(str(place.folder / name)).ids
    order = pc.index_in(found, pa.array(piece.column("ids"), pa.string()))
    return OutputSource(
        name, ids=tuple(found.to_pylist()), order=pc.fill_null(order, -1).to_numpy()
    )


class TarStream:
    """The uncompressed bytes of a tar archive; refuses a decompression bomb."""

    def __init__(self, path: str) -> None:
        self._base = opened(path)
        packer = _packer(self._base)
        self._base.seek(0)
        self.stamp = stamp_of_file(self._base)
        self.packed = packer is not None
        self._size = size_of_file(self._base)
        self._file: IO[bytes] = packer(self._base, "rb") if packer else self._base

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, size: int) -> bytes:
        """Return up to ``size`` bytes."""
        if size > MAX_MEMBER_BYTES:
            raise ValueError(f"a header states {size:,} bytes")
        self._refuse_bomb(self._file.tell() + size)
        return self._file.read(size)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a byte of the plain archive; backwards in a packed one starts over."""
        if whence == os.SEEK_SET:
            self._refuse_bomb(offset)
        return self._file.seek(offset, whence)

    def _refuse_bomb(self, end: int) -> None:
        if not self.packed:
            return
        # without a stated size, the bytes that were read so far count
        size = self._base.tell() if self._size is None else self._size
        if end > max(RATIO_FROM, MAX_RATIO * size) + tarfile.RECORDSIZE:
            raise ValueError(f"it unpacks to more than {MAX_RATIO} times its size")

    def tell(self) -> int:
        """Return the current byte of the plain archive."""
        return self._file.tell()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        self._base.close()


def head_of(stream: TarStream, member: tarfile.TarInfo) -> bytes:
    """Return the first bytes of a member."""
    if not member.isreg() or member.issparse():
        return b""
    stream.seek(member.offset_data)
    return stream.read(min(member.size, HEAD))


def link_target(member: tarfile.TarInfo) -> str:
    """Return the name of the member that a link leads to."""
    if member.islnk():
        return member.linkname
    return posixpath.normpath(posixpath.join(posixpath.dirname(member.name), member.linkname))


def members_of(stream: TarStream, shown: str) -> Iterator[tarfile.TarInfo]:
    """Yield the members of an archive; in between, the stream may be read forward."""
    with tarfile.open(fileobj=cast(IO[bytes], stream), mode="r:") as archive:
        count = 0
        while (member := archive.next()) is not None:
            archive.members = []  # type: ignore[attr-defined]  # it would keep all
            count += 1
            if count > MAX_MEMBERS:
                raise too_many(shown)
            yield member
        stream.seek(archive.offset)
        if stream.read(tarfile.BLOCKSIZE).strip(b"\0"):
            raise ValueError(f"no member begins at byte {archive.offset:,}")


@dataclass(frozen=True)
class MemberSelection:
    """Which members of an archive are copied, and with which content."""

    keeps: Callable[[tarfile.TarInfo], bool]  # whether a member is copied
    # new content of a member that is copied, None for its own
    content: Callable[[tarfile.TarInfo], bytes | None]


def copy_tar(
    source: str, target: Path, choice: MemberSelection, place: Destination, shown: str
) -> None:
    """Copy the selected members of an archive in their order; nothing is unpacked to disk.

    The first link to a file that is removed becomes that file, the others link to it.
    """
    orphans, count = _orphaned_links(source, choice)
    try:
        with (
            TarStream(source) as stream,
            _packed_like(source, target) as file,
            tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as new,
        ):
            for number, member in enumerate(members_of(stream, redacted(source))):
                for info, size in _placed(member, choice, orphans):
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
        raise VisleakError(
            f"archive {redacted(source)} cannot be copied: {one_line(error)}"
        ) from error
    place.progress(f"writing {shown}", count, count)


def _orphaned_links(source: str, choice: MemberSelection) -> tuple[dict[str, list[str]], int]:
    """Return the links to files that are removed or replaced, by file, and the member count."""
    regular: set[str] = set()
    orphans: dict[str, list[str]] = {}
    count = 0
    with TarStream(source) as stream:
        for member in members_of(stream, redacted(source)):
            count += 1
            stays = choice.keeps(member) and choice.content(member) is None
            if member.isreg() and not stays:
                regular.add(member.name)
            elif is_link(member) and stays:
                orphans.setdefault(link_target(member), []).append(member.name)
    return {target: sorted(orphans[target]) for target in regular & orphans.keys()}, count


def _placed(
    member: tarfile.TarInfo, choice: MemberSelection, orphans: dict[str, list[str]]
) -> Iterator[tuple[tarfile.TarInfo, int]]:
    def file(name: str) -> tarfile.TarInfo:
        info = tarfile.TarInfo(name)
        info.mtime, info.mode = member.mtime, member.mode
        return info

    if member.issparse():
        raise VisleakError(f"member {member.name!r} is a sparse file and is not copied")
    if member.isreg() and member.name in orphans:
        yield file(orphans[member.name][0]), member.size
    if not choice.keeps(member):
        return
    if not is_link(member):
        yield member, member.size if member.isreg() else 0
    elif choice.content(member) is not None:
        yield file(member.name), 0
    elif (family := orphans.get(link_target(member))) is None:
        yield member, 0
    elif member.name != family[0]:
        link = file(member.name)
        link.type, link.linkname = tarfile.LNKTYPE, family[0]
        yield link, 0


@contextlib.contextmanager
def _packed_like(source: str, target: Path) -> Iterator[IO[bytes]]:
    with opened(source) as file:
        packer = _packer(file)
    with target.open("wb") as plain, packer(plain, "wb") if packer else plain as file:
        yield file
