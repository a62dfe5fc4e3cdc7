"""``.tar`` archives, plain or packed with gzip, bzip2 or xz."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import os
import posixpath
import tarfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, Self, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import VisleakError, explaining, one_line
from visleak.formats.archives import (
    DAMAGE,
    MAX_MEMBER_BYTES,
    MAX_MEMBERS,
    MAX_RATIO,
    RATIO_FROM,
    Members,
    member_set,
    takes_member,
    too_many,
)
from visleak.formats.files import why_not
from visleak.formats.listing import HEAD, Listing
from visleak.formats.opening import open_image_set
from visleak.formats.remote import StoreError, opened, redacted, size_of_file, stamp_of_file
from visleak.formats.request import Request
from visleak.formats.writing import Destination, OutputPart, OutputSource, Selection, file_name
from visleak.records import Bytes8, ImageSet, Int64, Problem, Unreadable


def _gzip(file: IO[bytes], mode: str) -> gzip.GzipFile:
    """Pack without name and time of day, so that the same members make the same bytes."""
    return gzip.GzipFile("", mode, fileobj=file, mtime=0)


#: First bytes of a packed archive, and what packs and unpacks it.
PACKERS: Final[tuple[tuple[bytes, Callable[..., Any]], ...]] = (
    (b"\x1f\x8b", _gzip),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ\0", lzma.LZMAFile),
)


def _packer(head: bytes) -> Callable[..., Any] | None:
    """Return what packs an archive that begins so, ``None`` for a plain one."""
    return next((packs for magic, packs in PACKERS if head.startswith(magic)), None)


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
            if member.isdir() or not takes_member(listing, name, partial(head_of, stream, member)):
                continue
            if member.islnk() or member.issym():
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
    where = np.array([places[name] for name in names], dtype=np.int64).reshape(-1, 2)
    opener = TarOpener(request.place, where[:, 0].copy(), where[:, 1].copy(), stamp)
    return member_set(request, names, opener, listing, problems)


@dataclass
class TarOpener:
    """Reads members of a tar archive, which stays open: ascending positions unpack it once."""

    path: str  # the archive, or its address
    offsets: Int64  # int64: where each image's bytes lie in the plain archive
    sizes: Int64
    stamp: str | None = ""  # of a remote archive
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    _stream: TarStream | None = field(default=None, repr=False, compare=False)
    _owner: int = field(default=0, repr=False, compare=False)

    def __reduce__(self) -> tuple[object, ...]:
        return TarOpener, (self.path, self.offsets, self.sizes, self.stamp)

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
            return why_not(error)
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
    copy_tar(source, place.made(name), _of_images(piece), place, part.name)
    return _opened(place, name, piece)


class TarStream:
    """The plain bytes of a tar archive, packed or not, that refuses to become a bomb."""

    def __init__(self, path: str) -> None:
        self._base = opened(path)
        head = self._base.read(6)
        self._base.seek(0)
        self.stamp = stamp_of_file(self._base)
        packer = _packer(head)
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
            raise ValueError(f"a header asks for {size:,} bytes")
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
        # where a server does not say how large it is, what was read of it so far counts
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
    """Return the first bytes of the member that the archive has come to."""
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
    """Yield the members of an archive, between which the stream may be read, but only forward."""
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
class Choice:
    """What becomes of the members of an archive."""

    keeps: Callable[[tarfile.TarInfo], bool]  # whether a member stays
    # another content for a member that stays, or None
    content: Callable[[tarfile.TarInfo], bytes | None]


def _opened(place: Destination, name: str, piece: Selection) -> OutputSource:
    """Return how an archive is opened; a link that became a file may stand elsewhere in it."""
    if not piece.instead:
        return OutputSource(name)
    found = open_image_set(str(place.folder / name)).ids
    order = pc.index_in(found, pa.array(piece.column("ids"), pa.string()))
    return OutputSource(
        name, ids=tuple(found.to_pylist()), order=pc.fill_null(order, -1).to_numpy()
    )


def _of_images(piece: Selection) -> Choice:
    members = Members.of(piece)
    places = {
        piece.images.ids[position].as_py(): stand.stored
        for position, stand in piece.instead.items()
    }

    def keeps(member: tarfile.TarInfo) -> bool:
        name = member.name.encode("utf-8", "backslashreplace").decode()
        if not member.isdir() and members.is_image(name):
            return name in members.kept
        return member.isdir() or not members.is_side_file_of_removed(name)

    def content(member: tarfile.TarInfo) -> bytes | None:
        name = member.name.encode("utf-8", "backslashreplace").decode()
        return cast("bytes | None", places.get(name))

    return Choice(keeps, content)


def copy_tar(source: str, target: Path, choice: Choice, place: Destination, shown: str) -> None:
    """Copy the members of an archive that stay, in their order; nothing is unpacked to disk.

    A link whose target goes becomes a file in its target's place, the next ones links to it.
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
        raise VisleakError(
            f"archive {redacted(source)} cannot be copied: {one_line(error)}"
        ) from error
    place.progress(f"writing {shown}", count, count)


def _heirs(source: str, choice: Choice) -> tuple[dict[str, list[str]], int]:
    """Return links that stay, by the file they lead to if that goes or changes, and members."""
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
        packer = _packer(file.read(6))
    with target.open("wb") as plain, packer(plain, "wb") if packer else plain as file:
        yield file
