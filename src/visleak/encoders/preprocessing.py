"""Preprocessing: from a decoded image to the input of a network.

:class:`PixelPreparation` resizes and crops in ``uint8``, through Pillow, to the bit as the
libraries do that networks come from. :class:`Scaling` is left to the network's device, where it
costs nothing and the image travels there at a quarter of the size. Nothing here needs torch.

:func:`read_preprocessing` reads what a model's folder states (``preprocessor_config.json``).
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import cv2
import numpy as np
from PIL import Image

from visleak.documents import as_plain
from visleak.errors import VisleakError
from visleak.records import Bytes8, DecodedImage

PREPS: Final = ("none", "laion", "laion-nojpeg")  # values of the option prep of CLIP
LAION_SIDE: Final = 256  # side and JPEG quality of the images that LAION's vectors were made of
LAION_QUALITY: Final = 95
#: Of a resized image of more pixels than this only the part that a crop keeps is made, and without
#: a crop it is shortened.
MOST_PIXELS: Final = 16_000_000


@dataclass(frozen=True, slots=True)
class PixelPreparation:
    """Resizes and crops an image as its network's library does."""

    # (short,), the length of the short side; (height, width), whatever the shape; or ()
    resize: tuple[int, ...]
    # (height, width) about the centre, with black where the image is smaller; or ()
    crop: tuple[int, ...] = ()
    resample: int = 3  # Pillow's number of the filter (2 bilinear, 3 bicubic)
    rounding: str = "floor"  # floor begins an odd crop as transformers does, even as torchvision
    prep: str = "none"  # a step before it, one of PREPS

    @property
    def shape(self) -> tuple[int, int] | None:
        """Height and width of the result; ``None`` if they depend on the image."""
        if self.crop:
            return self.crop[0], self.crop[1]
        return (self.resize[0], self.resize[1]) if len(self.resize) == 2 else None

    def __call__(self, image: DecodedImage) -> Bytes8:
        """Return the prepared image, ``uint8`` (height, width, 3)."""
        pixels = image.pixels
        if self.prep != "none":
            pixels = as_laion(pixels, jpeg=self.prep == "laion")
        size = self._size(*pixels.shape[:2])
        tall, wide = self.crop or size
        # where the crop begins, which may be outside of the resized image, and what it keeps of it
        above, before = self._start(size[0], tall), self._start(size[1], wide)
        top, left = max(above, 0), max(before, 0)
        bottom, right = min(above + tall, size[0]), min(before + wide, size[1])
        kept = _resized(pixels, size, (top, left, bottom, right), self.resample)
        if kept.shape[:2] == (tall, wide):
            return np.ascontiguousarray(kept)
        whole = np.zeros((tall, wide, 3), np.uint8)
        down, across = top - above, left - before
        whole[down : down + bottom - top, across : across + right - left] = kept
        return whole

    def recipe(self) -> dict[str, object]:
        """Return everything the prepared pixels depend on, as plain values."""
        return dict(as_plain(self))

    def _size(self, height: int, width: int) -> tuple[int, int]:
        if not self.resize:
            return height, width
        if len(self.resize) == 2:
            return self.resize[0], self.resize[1]
        short, long = min(height, width), max(height, width)
        longest = int(self.resize[0] * long / short)
        if not self.crop:
            # a line of pixels would become gigabytes
            longest = min(longest, MOST_PIXELS // self.resize[0])
        sides = self.resize[0], longest
        return sides if height <= width else sides[::-1]

    def _start(self, side: int, crop: int) -> int:
        if side < crop:
            # transformers pads in front with the larger half, torchvision with the smaller
            spare = crop - side
            return -((spare + 1) // 2 if self.rounding == "floor" else spare // 2)
        return (side - crop) // 2 if self.rounding == "floor" else round((side - crop) / 2)


def _resized(
    pixels: Bytes8, size: tuple[int, int], kept: tuple[int, int, int, int], resample: int
) -> Bytes8:
    """Return the part (top, left, bottom, right) of the image resized to (height, width).

    Of a very long image, of which almost nothing is kept, only that part is made.
    """
    height, width = pixels.shape[:2]
    top, left, bottom, right = kept
    if size == (height, width):
        return pixels[top:bottom, left:right]
    image = Image.fromarray(pixels)
    if size[0] * size[1] <= MOST_PIXELS or kept == (0, 0, *size):
        whole = image.resize(size[::-1], Image.Resampling(resample))
        return np.asarray(whole)[top:bottom, left:right]
    down, across = height / size[0], width / size[1]
    region = left * across, top * down, right * across, bottom * down
    shape = right - left, bottom - top
    return np.asarray(image.resize(shape, Image.Resampling(resample), box=region))


def as_laion(pixels: Bytes8, jpeg: bool = True) -> Bytes8:
    """Return an image prepared as those of LAION's vectors, (256, 256, 3).

    The mode ``border`` of img2dataset: the longest side is resized to 256, white is added on either
    side up to a square, and the result is stored as JPEG.
    """
    height, width = pixels.shape[:2]
    longest = max(height, width)
    if longest != LAION_SIDE:
        scale = LAION_SIDE / longest
        shape = max(round(width * scale), 1), max(round(height * scale), 1)
        method = cv2.INTER_AREA if longest > LAION_SIDE else cv2.INTER_LANCZOS4
        pixels = np.asarray(cv2.resize(pixels, shape, interpolation=method), np.uint8)
        height, width = pixels.shape[:2]
    square = np.full((LAION_SIDE, LAION_SIDE, 3), 255, np.uint8)
    top, left = (LAION_SIDE - height) // 2, (LAION_SIDE - width) // 2
    square[top : top + height, left : left + width] = pixels
    if not jpeg:
        return square
    quality = [int(cv2.IMWRITE_JPEG_QUALITY), LAION_QUALITY]
    _, stored = cv2.imencode(".jpg", square[..., ::-1], quality)
    with Image.open(io.BytesIO(stored.tobytes())) as image:
        return np.asarray(image.convert("RGB"))


#: Files of transformers; the second, of newer versions, may hold several processors.
FILES: Final = ("preprocessor_config.json", "processor_config.json")
_OPENAI: Final = {
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
_HALF: Final = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
_SQUARE: Final = {"height": 224, "width": 224}
#: Defaults of all kinds of processors, and of each.
_ALWAYS: Final = {"do_resize": True, "do_rescale": True, "do_normalize": True}
KINDS: Final[Mapping[str, Mapping[str, object]]] = {
    "CLIP": {**_OPENAI, "size": 224, "crop_size": 224, "resample": 3, "do_center_crop": True},
    "Bit": {**_OPENAI, "size": 224, "crop_size": 224, "resample": 3, "do_center_crop": True},
    "ViT": {**_HALF, "size": _SQUARE, "resample": 2},
    "DeiT": {**_HALF, "size": [256, 256], "crop_size": 224, "resample": 3, "do_center_crop": True},
    "Blip": {**_OPENAI, "size": {"height": 384, "width": 384}, "resample": 3},
    "Siglip": {**_HALF, "size": _SQUARE, "resample": 3},
    "ConvNext": {**_HALF, "size": 384, "resample": 3, "crop_pct": 224 / 256},
}
#: Kinds for which one number means the short side; for the others it is a square.
_SHORT_SIDE: Final = ("CLIP", "Bit", "ConvNext")


@dataclass(frozen=True, slots=True)
class Scaling:
    """``(pixels * factor - mean) / std`` in each channel."""

    factor: float = 1 / 255  # of the pixels, 1/255 as a rule
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)  # three numbers each
    std: tuple[float, ...] = (1.0, 1.0, 1.0)


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """All steps between an image and a network."""

    pixels: PixelPreparation
    scaling: Scaling

    def recipe(self) -> dict[str, object]:
        """Return everything the network's input depends on, as plain values."""
        return {**self.pixels.recipe(), **as_plain(self.scaling)}


def read_preprocessing(folder: Path, prep: str = "none") -> Preprocessing:
    """Return the preprocessing of the model in a folder."""
    path, config = _read(folder)
    kind = _kind(path, config)
    stated = {name: value for name, value in config.items() if value is not None}
    whole = {**_ALWAYS, **KINDS[kind], **stated}
    try:
        return Preprocessing(_pixels(whole, kind, prep), _scaling(whole))
    except (KeyError, TypeError, ValueError) as error:
        raise VisleakError(
            f"{path} is not understood ({type(error).__name__}: {error}); compare it with the one"
            " of the published model"
        ) from error


def is_described(folder: Path) -> bool:
    """Return whether a model's folder states its preprocessing."""
    return any((folder / name).is_file() for name in FILES)


def clip_preprocessing(side: int, prep: str = "none") -> Preprocessing:
    """Return the preprocessing of CLIP's own processor, at another size.

    The short side is resized to ``side`` (bicubic), the rest cropped away about the centre, and
    colours are scaled by OpenAI's means and standard deviations.

    >>> clip_preprocessing(16).pixels.shape
    (16, 16)
    """
    config = {**_ALWAYS, **KINDS["CLIP"], "size": side, "crop_size": side}
    return Preprocessing(_pixels(config, "CLIP", prep), _scaling(config))


def _read(folder: Path) -> tuple[Path, Mapping[str, object]]:
    for name in FILES:
        path = folder / name
        if not path.is_file():
            continue
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise VisleakError(f"{path} cannot be read ({error})") from error
        if isinstance(config, dict):
            config = config.get("image_processor", config)
        if isinstance(config, dict):
            return path, config
        raise VisleakError(f"{path} is not understood: it must hold names and values")
    raise VisleakError(
        f"{folder} has no {FILES[0]}, which says how images are prepared; copy it there from the"
        " published model"
    )


def _kind(path: Path, config: Mapping[str, object]) -> str:
    """Return the kind of processor of a file; one of :data:`KINDS`."""
    stated = str(config.get("image_processor_type") or config.get("feature_extractor_type") or "")
    kind = stated
    for suffix in ("Fast", "Pil", "ImageProcessor", "FeatureExtractor"):
        kind = kind.removesuffix(suffix)
    if kind not in KINDS:
        raise VisleakError(
            f"{path} is of {stated or 'no named processor'!r}; those known are"
            f" {', '.join(f'{known}ImageProcessor' for known in KINDS)}: export the model to ONNX"
            " and use onnx:FILE"
        )
    return kind


def _pixels(config: Mapping[str, Any], kind: str, prep: str) -> PixelPreparation:
    crop = _sides(config["crop_size"]) if config.get("do_center_crop") else ()
    resize = _resize(config["size"], kind) if config["do_resize"] else ()
    if kind == "ConvNext" and resize:
        (short,) = resize
        # below 384 the short side is made longer, then cropped; from there the shape is given up
        crop = (short, short) if short < 384 else crop
        resize = (int(short / config["crop_pct"]),) if short < 384 else (short, short)
    return PixelPreparation(resize, crop, int(config["resample"]), "floor", prep)


def _resize(size: object, kind: str) -> tuple[int, ...]:
    if isinstance(size, int):
        return (_positive(size),) if kind in _SHORT_SIDE else (_positive(size),) * 2
    if isinstance(size, dict) and set(size) == {"shortest_edge"}:
        return (_positive(size["shortest_edge"]),)
    return _sides(size)


def _sides(size: object) -> tuple[int, int]:
    if isinstance(size, dict):
        if set(size) != {"height", "width"}:
            raise ValueError(f"a size must be height and width, or shortest_edge; got {size}")
        size = size["height"], size["width"]
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return _positive(height), _positive(width)


def _positive(side: object) -> int:
    number = int(side) if isinstance(side, int | float) and not isinstance(side, bool) else 0
    if number != side or not 1 <= number <= 4096:
        raise ValueError(f"a side must be from 1 to 4096 pixels; got {side!r}")
    return number


def _scaling(config: Mapping[str, Any]) -> Scaling:
    factor = float(config.get("rescale_factor", 1 / 255)) if config["do_rescale"] else 1.0
    if not config["do_normalize"]:
        return Scaling(factor)
    colours = []
    for name in ("image_mean", "image_std"):
        values = config[name]
        numbers = [values] * 3 if isinstance(values, int | float) else list(values)
        if len(numbers) != 3:
            raise ValueError(f"mean and standard deviation must be of three channels; got {values}")
        colours.append(tuple(map(float, numbers)))
    mean, std = colours
    if min(std) <= 0:
        raise ValueError(f"image_std must be above 0; got {config['image_std']}")
    return Scaling(factor, mean, std)
