"""Aesthetic score: how much people would like an image, from 1 to 10 or so.

The published head (``sac+logos+ava1-l14-linearMSE``, Schuhmann 2022) is a stack of linear layers,
768-1024-128-64-16-1, on the unit vector of an image by OpenAI's CLIP ViT-L/14. It was trained with
dropout and has no activations, so in use it is one affine map.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from visleak.encoders.clip import clip_encoder
from visleak.encoders.features import (
    AESTHETIC_CLIP,
    EncoderFeatures,
    ImageFeatures,
    clip_request,
)
from visleak.encoders.weights import read_tensors
from visleak.errors import UsageError, VisleakError
from visleak.records import Bytes8, Float64
from visleak.vectors import NORM_TOLERANCE

#: A layer: its matrix (outputs, inputs) and what is added (outputs,).
Layer = tuple[Float64, Float64]

#: What must hold of a file, in words for messages.
WANTED: Final = "a stack of linear layers (weight and bias each) that ends with one output"


def read_layers(path: Path, what: str) -> tuple[Layer, ...]:
    """Return the linear layers of a file, in the order of the numbers in their names."""
    if not path.is_file():
        raise VisleakError(f"{what}: there is no file {path}")
    found: dict[str, dict[str, Float64]] = {}
    for name, tensor in read_tensors(path, what).items():
        stem, _, kind = name.rpartition(".")
        if kind not in ("weight", "bias"):
            raise VisleakError(f"{what}: {path} has {name!r}; it must be {WANTED}")
        found.setdefault(stem, {})[kind] = tensor.double().numpy()
    stack = [_layer(path, what, stem, found[stem]) for stem in sorted(found, key=_natural)]
    _refuse_gaps(path, what, stack)
    return tuple(stack)


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key by which layer 10 comes after layer 2."""
    return [(int(part) if part.isdecimal() else -1, part) for part in re.split(r"(\d+)", name)]


def _layer(path: Path, what: str, stem: str, parts: Mapping[str, Float64]) -> Layer:
    weight = parts.get("weight", np.empty(0))
    bias = parts.get("bias", np.zeros(len(weight)))
    if weight.ndim != 2 or bias.shape != weight.shape[:1]:
        raise VisleakError(
            f"{what}: {path}: {stem or 'its only layer'} is not a linear layer (weight"
            f" {weight.shape}, bias {bias.shape}); it must be {WANTED}"
        )
    if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
        raise VisleakError(f"{what}: {path} has numbers in {stem} that are not finite")
    return weight, bias


def _refuse_gaps(path: Path, what: str, stack: list[Layer]) -> None:
    widths = [weight.shape[::-1] for weight, _ in stack]
    fits = all(one[1] == other[0] for one, other in pairwise(widths))
    if not stack or not fits or widths[-1][1] != 1:
        shapes = ", ".join(f"{one} to {other}" for one, other in widths) or "none"
        raise VisleakError(f"{what}: {path} has layers {shapes}; it must be {WANTED}")


WHAT: Final = "aesthetic head"


class AestheticHead:
    """A stack of linear layers that gives one number for a vector.

    A file of weights does not tell whether there are activations between the layers: it is taken
    that there are none, as in the published head. One that has any (``...-reluMSE``) gives other
    numbers than it was trained for.

    Attributes:
        width: numbers of a vector that it takes.
        digest: changes whenever any score could.

    >>> head = AestheticHead([(np.array([[3.0, 4.0]]), np.array([5.0]))], "small")
    >>> head([[0.6, 0.8]]).tolist()
    [10.0]
    """

    def __init__(self, layers: Sequence[Layer], name: str) -> None:
        self._layers, self.name = tuple(layers), name
        self.width = int(self._layers[0][0].shape[1])
        hasher = blake2b(b"aesthetic head 1", digest_size=16)
        for matrix, bias in self._layers:
            hasher.update(repr(matrix.shape).encode())
            hasher.update(np.ascontiguousarray(matrix, "<f8").tobytes())
            hasher.update(np.ascontiguousarray(bias, "<f8").tobytes())
        self.digest = hasher.hexdigest()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> AestheticHead:
        """Return the head of a file: safetensors, or a state dict of torch (``.pth``)."""
        file = Path(path).expanduser()
        return cls(read_layers(file, WHAT), os.fspath(path))

    def __call__(self, features: npt.ArrayLike) -> Float64:
        """Return the score of each vector, (n,), of features (n, width) of unit length."""
        rows = np.asarray(features, np.float64)
        if rows.ndim != 2 or rows.shape[1] != self.width:
            raise UsageError(
                f"{WHAT} {self.name} takes vectors of {self.width} numbers"
                f"{' (CLIP ViT-L/14)' if self.width == 768 else ''}; got an array {rows.shape}"
            )
        lengths = np.linalg.norm(rows, axis=1)
        if not (np.abs(lengths - 1.0) <= NORM_TOLERANCE).all():
            raise UsageError(
                f"{WHAT} {self.name} takes vectors of unit length; got one of length"
                f" {lengths[np.argmax(np.abs(lengths - 1.0))]:.4g}"
            )
        for matrix, bias in self._layers:
            rows = rows @ matrix.T + bias
        return np.asarray(rows[:, 0])


class Aesthetic:
    """The aesthetic score of images."""

    number = "aesthetic score of a linear head on unit CLIP vectors"

    def __init__(self, head: AestheticHead, features: ImageFeatures) -> None:
        if head.width != features.width:
            raise UsageError(
                f"{WHAT} {head.name} takes vectors of {head.width} numbers"
                f"{', those of CLIP ViT-L/14' if head.width == 768 else ''}; {features.name} makes"
                f" {features.width}"
            )
        self.head, self.features = head, features
        self.name = f"{head.name} on {features.name}"
        joined = f"{head.digest} {features.digest}".encode()
        self.digest = blake2b(joined, digest_size=16).hexdigest()

    def __call__(self, pixels: Sequence[Bytes8]) -> Float64:
        """Return the score of each image, (n,)."""
        return self.head(self.features.images(pixels))


def load_aesthetic(
    head: str | os.PathLike[str],
    clip: str = AESTHETIC_CLIP,
    device: str = "auto",
    precision: str = "fp32",
) -> Aesthetic:
    """Return the aesthetic score of a head in a file, on the CLIP it was trained with."""
    read = AestheticHead.load(head)
    encoder = clip_encoder(clip_request(clip, device, precision), assumed=True)
    return Aesthetic(read, EncoderFeatures(encoder))
