"""Pictures that a Python program already holds: Pillow images, arrays and tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from PIL import Image

from visleak.errors import UsageError
from visleak.images.decoding import QUIET
from visleak.images.deep_colours import holds_deep_colours
from visleak.images.libtiff import messages_kept
from visleak.images.orientation import orientation_of, turned
from visleak.images.pixels import is_deep, rgb_of_array, rgb_of_image, shallow
from visleak.images.raw_modes import mend
from visleak.images.request import Request, writable
from visleak.records import Bytes8, ImageSet, Unreadable

#: How far a float of a tensor may lie outside [0, 1] by rounding.
SLACK: Final = 1e-4


@dataclass(frozen=True)
class MemoryOpener:
    """Hands out the pictures of a sequence.

    Attributes:
        pictures: anything with a length and an item for each number; an item is a Pillow image,
            an array, a tensor, or a tuple that begins with one of them.
    """

    pictures: Any

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield the pictures as arrays, see :class:`visleak.records.Opener`."""
        for position in positions:
            try:
                item = self.pictures[int(position)]
                yield rgb_of(picture_in(item))
            except Exception as error:  # items may come from anybody's code
                yield Unreadable("corrupt", " ".join(str(error).split())[:200])


def rgb_of(picture: Any) -> bytes | Bytes8 | Unreadable:
    """Return a Pillow image or an array as ``uint8`` (height, width, 3), or why that cannot be.

    Bytes are an encoded picture and are passed on. A tensor of torch has its channels first and
    is ``uint8`` or a float in [0, 1].
    """
    if isinstance(picture, Image.Image):
        return _of_image(picture)
    if is_tensor(picture):
        picture = _of_tensor(picture)
    if isinstance(picture, bytes | Unreadable):
        return picture
    if isinstance(picture, np.ndarray):
        if not picture.size:
            return Unreadable("empty", f"an array of shape {picture.shape} has no pixels")
        return rgb_of_array(picture)
    return Unreadable(
        "corrupt", f"expected a Pillow image or an array, got {type(picture).__name__}"
    )


def _of_image(picture: Image.Image) -> bytes | Bytes8 | Unreadable:
    try:
        if (file := getattr(picture, "fp", None)) and holds_deep_colours(picture):
            file.seek(0)  # Pillow would keep the high bytes only
            return bytes(file.read())
        exif = picture.info.get("exif")
        orientation = orientation_of(exif) if isinstance(exif, bytes) else 1
        with QUIET, messages_kept():
            mend(picture)
            picture.load()
        shown = shallow(picture) if is_deep(picture) else picture
        return rgb_of_image(turned(shown, orientation))
    except OSError as error:
        reason = "truncated" if "truncated" in str(error) else "corrupt"
        return Unreadable(reason, " ".join(str(error).split())[:200])


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor of torch, which is not imported to find out."""
    return any(base.__module__.partition(".")[0] == "torch" for base in type(value).__mro__)


def _of_tensor(tensor: Any) -> npt.NDArray[Any] | Unreadable:
    """Return a tensor (channels, height, width) as an array with its channels last."""
    values: npt.NDArray[Any] = tensor.detach().cpu().numpy()
    if values.ndim == 3:
        values = values.transpose(1, 2, 0)
    if values.dtype.kind != "f":
        return values
    if values.size and not (values.min() >= -SLACK and values.max() <= 1 + SLACK):
        return Unreadable(
            "unsupported",
            "its values are not in [0, 1]: they are normalised; give the data set without its"
            " transform",
        )
    return np.asarray(np.clip(values, 0, 1))


def picture_in(item: Any) -> Any:
    """Return the picture of an item, which may be (picture, label, ...)."""
    return item[0] if isinstance(item, tuple) and item else item


def open_memory(
    pictures: Any,
    request: Request,
    targets: Sequence[Any] | None = None,
    names: Mapping[int, str] | None = None,
) -> ImageSet:
    """Make a set of a sequence of pictures or of (picture, label).

    Ids are the row numbers. If the first item is a tuple, every item is asked for its label now.

    Args:
        pictures: the sequence.
        request: the caller's wishes.
        targets: the labels, where they are known without asking the items.
        names: names of labels that are numbers.

    Raises:
        UsageError: the object is no sequence, or one single picture.
        VisleakError: it is empty.
    """
    for option in ("id", "label"):
        if getattr(request, option) is not None:
            raise UsageError(f"{option} {getattr(request, option)!r}: a sequence has no columns")
    if isinstance(pictures, Image.Image) or _is_one_picture(pictures):
        raise UsageError("source must be a sequence of pictures; got one picture: put it in a list")
    known = hasattr(pictures, "__len__") and hasattr(pictures, "__getitem__")
    if not known or isinstance(pictures, Mapping | bytes | bytearray):
        raise UsageError(
            "source must be SOURCE text, a path, or a sequence of Pillow images or arrays; got"
            f" {type(pictures).__name__}"
        )
    count = len(pictures)
    if not count:
        request.no_pictures()
    ids = pa.array(range(count), pa.int64()).cast(pa.string())
    if targets is None and isinstance(_item(pictures, 0), tuple):
        targets = [_target(_item(pictures, row)) for row in range(count)]
    labels = None if targets is None else label_column(targets, names or {})
    return request.image_set(ids, ids, MemoryOpener(pictures), labels=labels)


def _is_one_picture(pictures: Any) -> bool:
    if is_tensor(pictures) and hasattr(pictures, "shape"):
        return bool(pictures.ndim < 3 or (pictures.ndim == 3 and pictures.shape[0] in (1, 3, 4)))
    if not isinstance(pictures, np.ndarray):
        return False
    return pictures.ndim < 3 or (pictures.ndim == 3 and pictures.shape[2] in (3, 4))


def _item(pictures: Any, row: int) -> Any:
    """Return an item, or ``None`` where there is none: reading it again will say why."""
    try:
        return pictures[row]
    except Exception:  # items may come from anybody's code
        return None


def _target(item: Any) -> Any:
    return item[1] if isinstance(item, tuple) and len(item) > 1 else None


def label_column(targets: Sequence[Any], names: Mapping[int, str]) -> pa.StringArray:
    """Return labels as text: the name of a number where it has one."""
    return pa.array((_label(target, names) for target in targets), pa.string())


def _label(target: Any, names: Mapping[int, str]) -> str | None:
    scalar = isinstance(target, np.generic) or (is_tensor(target) and target.ndim == 0)
    value = target.item() if scalar else target
    if value is None:
        return None
    known = isinstance(value, int) and not isinstance(value, bool)
    return writable(str(names.get(value, value) if known else value))
