"""Vectors of pictures that metrics are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from visleak.encoders import ENCODERS, load_encoder
from visleak.encoders.network import RUNNING, Running
from visleak.encoders.request import Request, parse
from visleak.errors import UsageError, VisleakError
from visleak.memorization.metrics.inception import Inception
from visleak.records import Bytes8, Encoder, Picture

Float64 = npt.NDArray[np.float64]

#: Pictures that are handed on at a time; only bounds memory.
CHUNK: Final = 64

#: What loads an Inception network of a file, as encoders are named.
INCEPTION: Final = "inception"

#: Encoders that do not have all options of a network, and those they have.
_FEWER: Final[Mapping[str, tuple[str, ...]]] = {
    "builtin": (),
    "phash": (),
    "pdq": (),
    "onnx": ("device",),
}


class PictureFeatures(Protocol):
    """From pictures to vectors.

    Attributes:
        name: as the command line calls it.
        number: what its vectors are, in words.
        digest: changes whenever any vector could.
        width: numbers a picture.
    """

    name: str
    number: str
    digest: str
    width: int

    def images(self, pictures: Sequence[Bytes8]) -> Float64:
        """Return vectors (n, width) of pictures, ``uint8`` (height, width, 3) of any sizes."""
        ...


class EncoderFeatures:
    """The vectors of an encoder.

    Args:
        encoder: makes them.
        unit: at unit length. Otherwise they are what a network itself returns, of any length.

    Raises:
        UsageError: vectors of their own length are asked of an encoder that has none.
    """

    def __init__(self, encoder: Encoder, *, unit: bool = True) -> None:
        if not unit and not _has_lengths(encoder):
            raise UsageError(f"encoder {encoder.name} has vectors of unit length only")
        self.encoder, self.unit = encoder, unit
        self.name, self.width = encoder.name, encoder.width
        self.number = "vectors at unit length" if unit else "outputs of the network"
        precise = precision_note(encoder)
        self.digest = encoder.digest + ("" if unit else " outputs") + precise

    def images(self, pictures: Sequence[Bytes8]) -> Float64:
        """Return vectors (n, width), see :class:`PictureFeatures`.

        Raises:
            VisleakError: a vector is no direction: beyond the precision, or all zero.
        """
        parts = [np.empty((0, self.width))]
        for start in range(0, len(pictures), CHUNK):
            some = [_picture(each) for each in pictures[start : start + CHUNK]]
            parts.append(np.asarray(self._vectors(some), np.float64))
        rows = np.concatenate(parts)
        wrong = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        if len(wrong):
            raise VisleakError(
                f"model {self.name} makes no vector of {len(wrong)} of {len(rows)} pictures; try"
                " precision=fp32"
            )
        return rows

    def _vectors(self, pictures: list[Picture]) -> npt.NDArray[Any]:
        if self.unit:
            return self.encoder.encode(pictures)[0]
        network: Any = self.encoder
        made: npt.NDArray[Any] = network.outputs([network.preparation(each) for each in pictures])
        return made


def _picture(pixels: Bytes8) -> Picture:
    return Picture(pixels, pixels.shape[1], pixels.shape[0])


def _has_lengths(encoder: Encoder) -> bool:
    return hasattr(encoder, "outputs") and hasattr(encoder, "preparation")


def precision_note(model: object) -> str:
    """Return what a digest says of half precision; nothing of full precision.

    Numbers of half precision are others than those of the same weights in full.
    """
    precision = getattr(model, "precision", "fp32")
    return "" if precision == "fp32" else f" {precision}"


def load_features(text: str, *, device: str = "auto", precision: str = "fp32") -> PictureFeatures:
    """Return what makes the vectors that sets of pictures are compared by.

    Args:
        text: an encoder, such as ``dinov2`` or ``builtin``, or ``inception:FILE``, the network of
            FID in TorchScript (see :mod:`visleak.memorization.metrics.inception`). Of networks the
            outputs are taken as they are, as for Inception's; other encoders have vectors of unit
            length only. Distances of different features are different numbers.
        device: ``auto``, ``cpu``, ``cuda:N`` or ``mps``.
        precision: ``fp32``, ``fp16``, ``bf16`` or ``auto``.

    Raises:
        UsageError: there is no such encoder, or an option it does not have.
        MissingExtra: it needs a package that is not installed.
        VisleakError: its weights cannot be had.
    """
    request = parse(text, "features")
    if request.name == INCEPTION:
        request.knows(*RUNNING)
        path = Path(request.wanted_argument("FILE")).expanduser()
        told = replace(request, options=options_of(request, device, precision))
        return Inception(path, Running.asked(told))
    if request.name not in ENCODERS:
        raise UsageError(
            f"features are inception:FILE or an encoder ({', '.join(ENCODERS)}); got {text!r}"
        )
    encoder = load_encoder(text, **options_of(request, device, precision))
    return EncoderFeatures(encoder, unit=not _has_lengths(encoder))


def options_of(request: Request, device: str, precision: str) -> dict[str, str]:
    """Return the options of a model: its text's own, and where those are silent, those given.

    >>> options_of(parse("clip?device=cuda:1"), "cpu", "fp32")
    {'device': 'cuda:1', 'precision': 'fp32'}
    """
    known = _FEWER.get(request.name, ("device", "precision"))
    given = {"device": device, "precision": precision}
    return {**{name: given[name] for name in known}, **request.options}
