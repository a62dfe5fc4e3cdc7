"""Pictures inside ``.tar`` archives, plain or packed with gzip, bzip2 or xz."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import posixpath
import tarfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import IO, Any, Final, Self, cast

import numpy as np

from visleak.errors import VisleakError
from visleak.images.archive import (
    DAMAGE,
    MAX_MEMBER_BYTES,
    MAX_MEMBERS,
    MAX_RATIO,
    RATIO_FROM,
    damaged,
    member_set,
    takes_member,
    too_many,
)
from visleak.images.folder import why_not
from visleak.images.listing import HEAD, Listing
from visleak.images.remote_file import opened, size_of_file, stamp_of_file
from visleak.images.request import Request
from visleak.images.stores import StoreError
from visleak.records import Bytes8, ImageSet, Int64, Problem, Unreadable

#: First bytes of a packed archive, and what opens it.
PACKERS: Final[tuple[tuple[bytes, Callable[..., Any]], ...]] = (
    (b"\x1f\x8b", gzip.open),
    (b"BZh", bz2.open),
    (b"\xfd7zXZ\0", lzma.open),
)


class TarStream:
    """The plain bytes of a tar archive, packed or not, that refuses to become a bomb.

    Args:
        path: the archive, or its address; how it is packed is read from its first bytes.

    Attributes:
        packed: whether the archive is packed.
        stamp: of a remote archive, see :class:`visleak.images.remote_file.RemoteFile`.
    """

    def __init__(self, path: str) -> None:
        self._base = opened(path)
        head = self._base.read(6)
        self._base.seek(0)
        self.stamp = stamp_of_file(self._base)
        packer = next((opens for magic, opens in PACKERS if head.startswith(magic)), None)
        self.packed = packer is not None
        self._size = size_of_file(self._base)
        self._file: IO[bytes] = packer(self._base, "rb") if packer else self._base

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, size: int) -> bytes:
        """Return up to ``size`` bytes.

        Raises:
            ValueError: more is asked for than any picture or any honest archive has.
        """
        if size > MAX_MEMBER_BYTES:
            raise ValueError(f"a header asks for {size:,} bytes")
        self._refuse_bomb(self._file.tell() + size)
        return self._file.read(size)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a byte of the plain archive; backwards in a packed one starts over.

        Raises:
            ValueError: the byte is farther than any honest archive of this size reaches.
        """
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


@dataclass
class TarOpener:
    """Reads members of a tar archive.

    The stream stays open between calls, so that ascending positions unpack the archive once.

    Attributes:
        path: the archive, or its address.
        offsets, sizes: ``int64``: where each picture's bytes lie in the plain archive.
        stamp: of a remote archive, see :class:`visleak.images.remote_file.RemoteFile`.
    """

    path: str
    offsets: Int64
    sizes: Int64
    stamp: str | None = ""
    _lock: Any = field(default_factory=threading.Lock, repr=False, compare=False)
    _stream: TarStream | None = field(default=None, repr=False, compare=False)
    _owner: int = field(default=0, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return TarOpener, (self.path, self.offsets, self.sizes, self.stamp)

    def __del__(self) -> None:
        if self._stream is not None:
            self._stream.close()

    def close(self) -> None:
        """Let go of the archive; the next read opens it again."""
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


def open_tar(request: Request) -> ImageSet:
    """List the pictures of a tar archive, packed or not, in their order; folders are labels.

    Raises:
        VisleakError: the archive is damaged, a bomb, has too many members or no pictures.
    """
    request.refuse_columns("the archive")
    request.refuse_split()
    places: dict[str, tuple[int, int]] = {}
    links: list[tuple[str, str]] = []
    listing = Listing()
    try:
        with TarStream(request.place) as stream:
            stamp = stream.stamp
            for member in members_of(stream, request.text):
                name = member.name
                if member.isdir() or not takes_member(
                    listing, name, partial(head_of, stream, member)
                ):
                    continue
                if member.islnk() or member.issym():
                    links.append((name, link_target(member)))
                elif member.isreg() and not member.issparse():
                    if name in places:
                        raise VisleakError(f"archive {request.text} has two members named {name!r}")
                    places[name] = (member.offset_data, member.size)
    except DAMAGE as error:
        raise damaged(request.text, error) from error
    problems = []
    for name, target in links:
        if target in places and name not in places:
            places[name] = places[target]
        else:
            locator = f"{request.shown}!{name}"
            detail = "a link to no picture of the archive"
            problems.append(Problem(request.name, name, locator, "missing", detail))
    # A link lies where its target lies, so that reading stays ascending.
    names = sorted(places, key=lambda name: (places[name], name))
    where = np.array([places[name] for name in names], dtype=np.int64).reshape(-1, 2)
    opener = TarOpener(request.place, where[:, 0].copy(), where[:, 1].copy(), stamp)
    return member_set(request, names, opener, listing, problems)


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
    """Yield the members of an archive, in their order.

    The stream may be read between two members, as long as nobody goes back.

    Args:
        stream: the archive, at its beginning.
        shown: how messages call it.

    Raises:
        VisleakError: it has too many members.
        ValueError: something else than members follows the last one.
    """
    with tarfile.open(fileobj=cast(Any, stream), mode="r:") as archive:
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
