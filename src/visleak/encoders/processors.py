"""Preprocessing as a model's folder describes it (``preprocessor_config.json``), read by us."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from visleak.encoders.preparing import PixelPreparation
from visleak.errors import VisleakError

#: Where transformers writes it; newer versions put it into a file of several processors.
FILES: Final = ("preprocessor_config.json", "processor_config.json")

_OPENAI: Final = {
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
_HALF: Final = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
_SQUARE: Final = {"height": 224, "width": 224}

#: What holds of each kind where the file is silent.
KINDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "CLIP": {**_OPENAI, "size": 224, "crop_size": 224, "resample": 3, "do_center_crop": True},
    "Bit": {**_OPENAI, "size": 224, "crop_size": 224, "resample": 3, "do_center_crop": True},
    "ViT": {**_HALF, "size": _SQUARE, "resample": 2},
    "DeiT": {
        **_HALF,
        "size": {"height": 256, "width": 256},
        "crop_size": 224,
        "resample": 3,
        "do_center_crop": True,
    },
    "Blip": {**_OPENAI, "size": {"height": 384, "width": 384}, "resample": 3},
    "Siglip": {**_HALF, "size": _SQUARE, "resample": 3},
    "ConvNext": {**_HALF, "size": 384, "resample": 3, "crop_pct": 224 / 256},
}

#: Kinds for which one number means the short side; for the others it is a square.
_SHORT_SIDE: Final = ("CLIP", "Bit", "ConvNext")


@dataclass(frozen=True, slots=True)
class Scaling:
    """``(pixels * factor - mean) / std`` in each channel.

    Attributes:
        factor: of the pixels, 1/255 as a rule.
        mean, std: three numbers each.
    """

    factor: float = 1 / 255
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)

    def recipe(self) -> dict[str, Any]:
        """Return the numbers, for the digest."""
        return {"factor": self.factor, "mean": list(self.mean), "std": list(self.std)}


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """Everything between a picture and a network."""

    pixels: PixelPreparation
    scaling: Scaling

    def recipe(self) -> dict[str, Any]:
        """Return everything the network's input depends on, as plain values."""
        return {**self.pixels.recipe(), **self.scaling.recipe()}


def read_preprocessing(folder: Path, prep: str = "none") -> Preprocessing:
    """Return the preprocessing of the model in a folder.

    Args:
        folder: as ``save_pretrained`` writes it, or the hub has it.
        prep: what is done with a picture before, one of :data:`visleak.encoders.preparing.PREPS`.

    Raises:
        VisleakError: the folder does not say, or says what we do not do.
    """
    path, config = _read(folder)
    kind = _kind(path, config)
    told = {name: value for name, value in config.items() if value is not None}
    whole = {"do_resize": True, "do_rescale": True, "do_normalize": True, **KINDS[kind], **told}
    try:
        return Preprocessing(_pixels(whole, kind, prep), _scaling(whole))
    except (KeyError, TypeError, ValueError) as error:
        raise VisleakError(
            f"{path} is not understood ({type(error).__name__}: {error}); compare it with the one"
            " of the published model"
        ) from error


def is_described(folder: Path) -> bool:
    """Return whether a model's folder says how pictures are prepared."""
    return any((folder / name).is_file() for name in FILES)


def clip_preprocessing(side: int, prep: str = "none") -> Preprocessing:
    """Return what CLIP's own processor does where nothing is said, at another size.

    The short side is resized to ``side`` (bicubic), the rest cropped away about the centre, and
    colours are scaled by OpenAI's means and standard deviations.

    >>> clip_preprocessing(16).pixels.shape
    (16, 16)
    """
    config = {**KINDS["CLIP"], "size": side, "crop_size": side, "do_resize": True}
    scaled = {**config, "do_rescale": True, "do_normalize": True}
    return Preprocessing(_pixels(config, "CLIP", prep), _scaling(scaled))


def _read(folder: Path) -> tuple[Path, Mapping[str, Any]]:
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
        f"{folder} has no {FILES[0]}, which says how pictures are prepared; copy it there from the"
        " published model"
    )


def _kind(path: Path, config: Mapping[str, Any]) -> str:
    """Return which processor a file is of; one of :data:`KINDS`."""
    told = str(config.get("image_processor_type") or config.get("feature_extractor_type") or "")
    kind = told
    for suffix in ("Fast", "Pil", "ImageProcessor", "FeatureExtractor"):
        kind = kind.removesuffix(suffix)
    if kind not in KINDS:
        raise VisleakError(
            f"{path} is of {told or 'no named processor'!r}; those known are"
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


def _resize(size: Any, kind: str) -> tuple[int, ...]:
    if isinstance(size, int):
        return (_positive(size),) if kind in _SHORT_SIDE else (_positive(size),) * 2
    if isinstance(size, dict) and set(size) == {"shortest_edge"}:
        return (_positive(size["shortest_edge"]),)
    return _sides(size)


def _sides(size: Any) -> tuple[int, int]:
    if isinstance(size, dict):
        if set(size) != {"height", "width"}:
            raise ValueError(f"a size must be height and width, or shortest_edge; got {size}")
        return _positive(size["height"]), _positive(size["width"])
    if isinstance(size, list | tuple):
        height, width = size
        return _positive(height), _positive(width)
    return _positive(size), _positive(size)


def _positive(side: Any) -> int:
    if isinstance(side, bool) or int(side) != side or not 1 <= side <= 4096:
        raise ValueError(f"a side must be from 1 to 4096 pixels; got {side!r}")
    return int(side)


def _scaling(config: Mapping[str, Any]) -> Scaling:
    factor = float(config.get("rescale_factor", 1 / 255)) if config["do_rescale"] else 1.0
    if not config["do_normalize"]:
        return Scaling(factor)
    mean, std = (_three(config[name]) for name in ("image_mean", "image_std"))
    if min(std) <= 0:
        raise ValueError(f"image_std must be above 0; got {config['image_std']}")
    return Scaling(factor, mean, std)


def _three(values: Any) -> tuple[float, ...]:
    numbers = [values] * 3 if isinstance(values, int | float) else list(values)
    if len(numbers) != 3:
        raise ValueError(f"mean and standard deviation must be of three channels; got {values}")
    return tuple(float(number) for number in numbers)
