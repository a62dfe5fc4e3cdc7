"""Zip archives with the members that are kept."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from typing import cast

from visleak.errors import VisleakError
from visleak.images.archive import (
    DAMAGE,
    MAX_MEMBER_BYTES,
    is_bomb,
    said,
)
from visleak.images.archive_zip import ZipOpener
from visleak.images.remote_file import opened
from visleak.remedy.contents import Filled, FilledPart
from visleak.remedy.layouts.members import Members
from visleak.remedy.layouts.names import file_name
from visleak.remedy.layouts.place import Opened, Place


def write_zip(parts: Sequence[FilledPart], place: Place) -> list[Opened]:
    """Write each part as a zip archive of its name: same members, packed as they were.

    A removed picture takes its side files along: those that differ from it in their ending only.

    Raises:
        VisleakError: a member cannot be copied.
    """
    return [_write(part, place) for part in parts]


def _write(part: FilledPart, place: Place) -> Opened:
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
    return Opened(name)


def _members(
    infos: Sequence[zipfile.ZipInfo], archive: zipfile.ZipFile, piece: Filled
) -> Iterator[tuple[zipfile.ZipInfo, bytes]]:
    """Yield the members that are kept, with their content."""
    members, pictures = Members.of(piece), piece.stored()
    for info in infos:
        name = info.filename.encode("utf-8", "backslashreplace").decode()
        if not info.is_dir() and members.is_picture(name):
            if name in members.kept:
                yield info, cast(bytes, next(pictures))
        elif info.is_dir() or not members.is_side_file_of_removed(name):
            yield info, b"" if info.is_dir() else _read(archive, info)


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Return the content of a member that is no picture."""
    shown = f"{archive.filename}!{info.filename}"
    if info.file_size > MAX_MEMBER_BYTES or is_bomb(info.file_size, info.compress_size):
        raise VisleakError(f"{shown} unpacks to {info.file_size:,} bytes and is not copied")
    try:
        return archive.read(info)
    except (*DAMAGE, RuntimeError) as error:
        raise VisleakError(f"{shown} cannot be copied: {said(error)}") from error


def _copied(info: zipfile.ZipInfo) -> zipfile.ZipInfo:
    """Return what the archive says of a member, without what belongs to the place it lay in."""
    copy = zipfile.ZipInfo(info.filename, info.date_time)
    for attribute in ("compress_type", "comment", "create_system", "external_attr"):
        setattr(copy, attribute, getattr(info, attribute))
    return copy
