"""``FILE.onnx.json``: how pictures are prepared for an ONNX file, and what its vectors mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from visleak.documents import read_document
from visleak.encoders.limits import stated_thresholds
from visleak.encoders.preparing import PixelPreparation
from visleak.errors import UsageError, VisleakError

#: What the file says it is, and the version of its layout.
KIND: Final = "onnx encoder"
SCHEMA: Final = 1

RESIZES: Final = ("squash", "short-side")
#: Names of Pillow's filters.
INTERPOLATIONS: Final = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4}
CHANNELS: Final = ("RGB", "BGR")
LAYOUTS: Final = ("NCHW", "NHWC")
ROUNDINGS: Final = ("floor", "even")

#: Pixels a side may have.
LARGEST: Final = 4096


@dataclass(frozen=True)
class Recipe:
    """What stands in the file, defaults filled in.

    Attributes:
        size: (height, width) or, for ``short-side``, (short,), in pixels.
        resize: ``squash`` gives up the aspect ratio, ``short-side`` keeps it.
        crop: (height, width) about the centre, or empty.
        interpolation: a filter of Pillow.
        rounding: where an odd crop begins: ``floor``, or ``even`` as torchvision rounds.
        mean, std: of the channels in the network's order, for values from 0 to 1.
        channels: their order.
        layout: order of the network's axes.
        input, output: names in the network; empty where it has one only.
        normalise: the network's vectors have yet to be made unit length.
        enough: a JPEG may be decoded at a half, a quarter or an eighth as long as its short side
            keeps this many pixels; 0 decodes all.
        thresholds: ``{"hard": .., "soft": .., "provenance": ..}`` or ``None``.
    """

    size: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    resize: str = "squash"
    crop: tuple[int, ...] = ()
    interpolation: str = "bicubic"
    rounding: str = "floor"
    channels: str = "RGB"
    layout: str = "NCHW"
    input: str = ""
    output: str = ""
    normalise: bool = True
    enough: int = 0
    thresholds: Mapping[str, Any] | None = field(default=None)

    @property
    def preparation(self) -> PixelPreparation:
        """What is done with a picture where it is decoded."""
        return PixelPreparation(
            self.size, self.crop, INTERPOLATIONS[self.interpolation], self.rounding
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of what the network takes."""
        height, width = self.crop or self.size
        return height, width

    def as_dict(self) -> dict[str, Any]:
        """Return what :func:`read_recipe` reads; what is written so is read as this very recipe."""
        plain = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in vars(self).items()
            if value not in ((), "", None)
        }
        if len(self.size) == 1:
            plain["size"] = self.size[0]
        return {"visleak": KIND, "schema": SCHEMA, **plain}


def read_recipe(path: Path) -> Recipe:
    """Return the recipe in a file.

    Raises:
        UsageError: there is no such file.
        VisleakError: it is none, or a newer visleak wrote it.
    """
    if not path.is_file():
        raise UsageError(
            f"no such file: {path}; it says how pictures are prepared for the network"
            " (docs/encoders.md), another one is named by ?prep=FILE.json"
        )
    content = read_document(path, KIND, SCHEMA, "see docs/encoders.md", key="visleak")
    # notes of whoever wrote the file
    given = {k: v for k, v in content.items() if k not in ("visleak", "schema", "about")}
    try:
        return _recipe(given)
    except ValueError as error:
        raise VisleakError(f"{path}: {error}") from error


def _recipe(given: Mapping[str, Any]) -> Recipe:
    """Return the recipe of names and values; raises ValueError for what is none."""
    for name in given:
        if name not in _READERS:
            raise ValueError(f"{name!r} is not known; known are {', '.join(_READERS)}, about")
    for name in ("size", "mean", "std"):
        if name not in given:
            raise ValueError(f"{name} is missing")
    made = Recipe(**{name: _READERS[name](name, value) for name, value in given.items()})
    if made.resize == "short-side":
        if len(set(made.size)) > 1 or not made.crop:
            raise ValueError(
                "resize short-side takes one number as size, and a crop: all pictures must come"
                " out in one shape"
            )
        made = Recipe(**{**vars(made), "size": made.size[:1]})
    if min(made.std) <= 0:
        raise ValueError(f"std must be above 0; got {list(made.std)}")
    return made


def _sides(name: str, value: object) -> tuple[int, ...]:
    if value is None and name == "crop":
        return ()
    sides = value if isinstance(value, list) else [value, value]
    if len(sides) != 2 or not all(type(s) is int and 1 <= s <= LARGEST for s in sides):
        raise ValueError(
            f"{name} must be a number of pixels up to {LARGEST}, or [height, width]; got {value!r}"
        )
    return tuple(sides)


def _three(name: str, value: object) -> tuple[float, ...]:
    numbers = value if isinstance(value, list) else []
    finite = [float(n) for n in numbers if type(n) in (int, float) and abs(n) < 1e6]
    if len(finite) != 3 or len(numbers) != 3:
        raise ValueError(f"{name} must be three numbers, one a channel; got {value!r}")
    return tuple(finite)


def _one_of(allowed: Sequence[str]) -> Callable[[str, object], str]:
    def read(name: str, value: object) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")
        return value

    return read


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a name; got {value!r}")
    return value


def _truth(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false; got {value!r}")
    return value


def _count(name: str, value: object) -> int:
    if type(value) is not int or not 0 <= value <= LARGEST:
        raise ValueError(f"{name} must be a number of pixels from 0 to {LARGEST}; got {value!r}")
    return value


def _thresholds(name: str, value: object) -> Mapping[str, Any] | None:
    return stated_thresholds(value)


_READERS: Final[Mapping[str, Callable[[str, object], Any]]] = {
    "size": _sides,
    "resize": _one_of(RESIZES),
    "crop": _sides,
    "interpolation": _one_of(tuple(INTERPOLATIONS)),
    "rounding": _one_of(ROUNDINGS),
    "mean": _three,
    "std": _three,
    "channels": _one_of(CHANNELS),
    "layout": _one_of(LAYOUTS),
    "input": _text,
    "output": _text,
    "normalise": _truth,
    "enough": _count,
    "thresholds": _thresholds,
}
