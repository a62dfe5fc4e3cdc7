"""NIfTI volumes: slices of scans, at all times."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from visleak.errors import MissingExtra
from visleak.formats.listing import ending_of
from visleak.formats.request import Request
from visleak.formats.stacks import Contents, check_size, files_of, image_of, stack_set
from visleak.records import Bytes8, ImageSet, Refused, Unreadable

if TYPE_CHECKING:
    from nibabel.nifti1 import Nifti1Image

ENDINGS: Final = (".nii", ".nii.gz")
# Without a handler, logs of nibabel would be printed in programs that set up no logging.
logging.getLogger("nibabel").addHandler(logging.NullHandler())


def open_nifti(request: Request) -> ImageSet:
    """List the slices of NIfTI files: ``nifti:FILE#axis=0``.

    The group of a slice is its file, its frame number the place along the axis (the last of the
    three by default).
    """
    request.refuse_options("axis")
    axis = int(request.choice("axis", ("0", "1", "2"), "2"))
    files = files_of(request, lambda path: ending_of(path) in ENDINGS, "a NIfTI file")
    return stack_set(request, files, partial(contents, axis=axis), partial(Volume, axis=axis))


def _opened(path: str) -> Nifti1Image:
    try:
        from nibabel.imageglobals import LoggingOutputSuppressor
        from nibabel.nifti1 import Nifti1Image
        from nibabel.nifti2 import Nifti2Image
    except ImportError as error:
        raise MissingExtra("medical", "reading NIfTI") from error

    for kind in (Nifti2Image, Nifti1Image):
        # what nibabel finds wrong with a header it prints by a handler of its own
        with LoggingOutputSuppressor():
            if kind.path_maybe_image(path)[0]:
                # an open file is read forward; one that is opened again is unpacked from the start
                return kind.from_filename(path, mmap=False, keep_file_open=True)
    raise Refused("corrupt", "the file has no header of NIfTI")


def _shape(image: Nifti1Image) -> tuple[int, int, int, int]:
    """Return the sides of a volume and how many there are."""
    sides = [int(side) for side in image.shape] + [1] * 3
    if len(image.shape) < 2 or min(image.shape) < 1:
        raise Refused("unsupported", f"a volume of shape {image.shape}")
    volumes = int(np.prod(image.shape[3:], dtype=np.int64)) if len(image.shape) > 3 else 1
    return sides[0], sides[1], sides[2], volumes


def contents(path: str, axis: int) -> Contents:
    """Return the slices of a file."""
    *sides, volumes = _shape(_opened(path))
    depth = sides.pop(axis)
    check_size(sides[0], sides[1], depth * volumes)
    numbers = range(depth * volumes)
    frames = [at % depth for at in numbers]
    times = [f",t={at // depth}" if volumes > 1 else "" for at in numbers]
    names = [f"{'xyz'[axis]}={at}{time}" for at, time in zip(frames, times, strict=True)]
    return Contents(names, numbers, frames)


class Volume:
    """An open volume."""

    def __init__(self, path: str, axis: int) -> None:
        self._image = _opened(path)
        self._axis = axis
        self._sides = _shape(self._image)

    def read(self, numbers: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield some slices, rows along the later axis."""
        depth = self._sides[self._axis]
        for number in numbers:
            yield image_of(self._values(number % depth, number // depth))

    def _values(self, place: int, volume: int) -> npt.NDArray[np.generic]:
        image = self._image
        index: list[slice | int] = [slice(None)] * min(len(image.shape), 3)
        if self._axis < len(index):
            index[self._axis] = place
        later = image.shape[3:]
        index += (int(at) for at in np.unravel_index(volume, later, order="F")) if later else ()
        values = np.asarray(image.dataobj[tuple(index)])
        if values.dtype.names:  # colours
            values = np.stack([values[name] for name in values.dtype.names[:3]], axis=-1)
        if values.dtype.kind == "c":
            values = np.abs(values)
        return values.swapaxes(0, 1)

    def close(self) -> None:
        """Close the file."""
        del self._image
