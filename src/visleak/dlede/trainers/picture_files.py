"""The files of a set's pictures, for trainers that open them themselves, and their sizes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

import numpy as np
from PIL import Image

from visleak.errors import VisleakError
from visleak.images.folder import FileOpener
from visleak.images.joining import JoinedOpener
from visleak.images.mapped import ChosenOpener
from visleak.images.orientation import orientation_of
from visleak.pipeline.workplace import Progress
from visleak.records import ImageSet, Int64, Opener

#: EXIF's orientations that swap width and height.
_TURNED: Final = (5, 6, 7, 8)


def files_of(images: ImageSet) -> list[str]:
    """Return the absolute path of each picture, as the system names it (``os.fsencode`` it).

    Raises:
        VisleakError: the pictures are no files of this machine, such as those of an archive.
    """
    names = _names(images.opener, np.arange(len(images)))
    if names is None:
        raise VisleakError(
            f"set {images.name!r}: this trainer opens the pictures itself, and those of"
            f" {images.source or 'a set in memory'} are no files of this machine; unpack them into"
            " a folder, or use --trainer torch:detector, which reads every source"
        )
    return names


def _names(opener: Opener, rows: Int64) -> list[str] | None:
    """Return the paths of some rows of an opener, ``None`` where they are no files."""
    if isinstance(opener, ChosenOpener):
        return _names(opener.opener, opener.rows[rows])
    if isinstance(opener, JoinedOpener):
        found: list[str] = []
        for part, start, end in zip(opener.parts, opener.starts, opener.starts[1:], strict=False):
            names = _names(part, rows[(rows >= start) & (rows < end)] - start)
            if names is None:
                return None
            found += names
        return found
    if not isinstance(opener, FileOpener):
        return None
    names = opener.names.take(rows).to_pylist()
    root = os.path.abspath(opener.root)
    return [os.path.join(root, os.fsdecode(name or b"")) for name in names]


def check_files(images: ImageSet) -> None:
    """See that the pictures are files, are there, and that a list can name them line by line.

    Raises:
        VisleakError: they are not; the line names the first.
    """
    files = files_of(images)
    missing = [file for file in files if not os.path.isfile(file)]
    if missing:
        raise VisleakError(
            f"set {images.name!r}: {len(missing):,} of {len(files):,} pictures are not there, such"
            f" as {missing[0]!r}; a training cannot leave them out: {_remove(images, 'them')}"
        )
    broken = next((file for file in files if len(file.splitlines()) > 1), None)
    if broken is not None:
        raise VisleakError(
            f"set {images.name!r}: {broken!r} has a line break in its name, and a list has one"
            " path a line; rename it"
        )


def _remove(images: ImageSet, them: str) -> str:
    """Say how a set does without pictures: a folder has no list to take them from."""
    if os.path.isdir(images.source):
        return f"remove {them} from the folder {images.source}"
    return f"take {them} from the list"


def sizes_of(images: ImageSet, progress: Progress) -> Int64:
    """Return width and height of each picture as it is shown (EXIF's turn applied), (n, 2).

    Raises:
        VisleakError: one is no picture.
    """
    files = files_of(images)
    sizes = np.zeros((len(files), 2), np.int64)
    for row, file in enumerate(files):
        sizes[row] = _size(images, file)
        if row % 500 == 499 or row + 1 == len(files):
            progress(f"reading the sizes of {images.name}", row + 1, len(files))
    return sizes


def _size(images: ImageSet, file: str) -> Sequence[int]:
    try:
        with Image.open(file) as picture:
            # not getexif(), which decodes a whole PNG to look for what may stand at its end
            turned = orientation_of(picture.info.get("exif", b"")) in _TURNED
            return picture.size[::-1] if turned else picture.size
    except Exception as error:  # Pillow raises many kinds
        raise VisleakError(
            f"set {images.name!r}: {file!r} is no picture that can be read; {_remove(images, 'it')}"
        ) from error
