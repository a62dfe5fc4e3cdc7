"""Pictures inside ``.zip`` archives."""

from __future__ import annotations

import bz2
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import IO, Final

import numpy as np

from visleak.images.archive import (
    DAMAGE,
    MAX_MEMBER_BYTES,
    MAX_MEMBERS,
    damaged,
    is_bomb,
    member_set,
    takes_member,
    too_many,
)
from visleak.images.folder import why_not
from visleak.images.listing import HEAD, Listing
from visleak.images.remote_file import opened, stamp_of_file
from visleak.images.request import Request
from visleak.images.stores import StoreError
from visleak.records import Bytes8, ImageSet, Int64, Unreadable


@dataclass(frozen=True)
class ZipOpener:
    """Reads members of a zip archive.

    Attributes:
        path: the archive.
        members: ``int64`` (n, 6): offset of the local header, packed size, size, method, CRC
            and flags of each picture.
        stamp: of a remote archive, see :class:`visleak.images.remote_file.RemoteFile`.
    """

    path: str
    members: Int64
    stamp: str | None = ""

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield the members at the positions, see :class:`visleak.records.Opener`."""
        try:
            with opened(self.path) as file:
                for position in positions:
                    yield _member(file, self.members[position])
        except OSError as error:
            failure = why_not(error)
        else:
            return
        yield from (failure for _ in positions)


def _member(file: IO[bytes], row: Int64) -> bytes | Unreadable:
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


def open_zip(request: Request) -> ImageSet:
    """List the pictures of a zip archive in the order they are stored; folders are labels.

    Raises:
        VisleakError: the archive is damaged, has too many members or no pictures.
    """
    request.refuse_columns("the archive")
    request.refuse_split()
    listing = Listing()
    try:
        with opened(request.place) as file, zipfile.ZipFile(file) as archive:
            stamp, members = stamp_of_file(file), archive.infolist()
            if len(members) > MAX_MEMBERS:
                raise too_many(request.text)
            infos = [
                info
                for info in members
                if not info.is_dir()
                and takes_member(listing, info.filename, partial(_head, archive, info))
            ]
    except DAMAGE as error:
        raise damaged(request.text, error) from error
    infos.sort(key=lambda info: info.header_offset)
    rows = [
        (i.header_offset, i.compress_size, i.file_size, i.compress_type, i.CRC, i.flag_bits)
        for i in infos
    ]
    opener = ZipOpener(request.place, np.array(rows, dtype=np.int64).reshape(-1, 6), stamp)
    return member_set(request, [info.filename for info in infos], opener, listing)


def _head(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Return the first bytes of a member; nothing where they cannot be had."""
    try:
        with archive.open(info) as member:
            return member.read(HEAD)
    except (*DAMAGE, RuntimeError) as error:  # such as: it is encrypted
        if isinstance(error, StoreError):
            raise
        return b""
