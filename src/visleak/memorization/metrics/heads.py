"""Stacks of linear layers read from a file of weights, without running anything that is in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from visleak.encoders.libraries import library, said
from visleak.errors import VisleakError

Float64 = npt.NDArray[np.float64]

#: A layer: its matrix (outputs, inputs) and what is added (outputs,).
Layer = tuple[Float64, Float64]

#: What must hold of a file, in words for messages.
WANTED: Final = "a stack of linear layers (weight and bias each) that ends with one output"


def read_layers(path: Path, what: str) -> tuple[Layer, ...]:
    """Return the linear layers of a file, in the order of the numbers in their names.

    Args:
        path: safetensors, or what ``torch.save`` wrote of a state dict, which is read as data
            only (``weights_only``), onto the CPU wherever it was saved.
        what: who wants it, for messages.

    Raises:
        MissingExtra: torch is not installed, which files of its own need.
        VisleakError: there is no such file, or it is no such stack.
    """
    if not path.is_file():
        raise VisleakError(f"{what}: there is no file {path}")
    tensors = _safetensors(path, what) if path.suffix == ".safetensors" else _torch(path, what)
    found: dict[str, dict[str, Float64]] = {}
    for name, tensor in tensors.items():
        stem, _, kind = name.rpartition(".")
        if kind not in ("weight", "bias"):
            raise VisleakError(f"{what}: {path} has {name!r}; it must be {WANTED}")
        found.setdefault(stem, {})[kind] = tensor
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
            f"{what}: {path}: {stem or 'its only layer'} is no linear layer (weight"
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


def _safetensors(path: Path, what: str) -> dict[str, Float64]:
    safetensors = library("safetensors.numpy", "torch", what)
    try:
        stored = safetensors.load_file(str(path))
        return {name: np.asarray(value, np.float64) for name, value in stored.items()}
    except Exception as error:
        # SafetensorError, KeyError of an unknown type, OSError
        raise VisleakError(f"{what}: {path} cannot be read ({said(error)})") from error


def _torch(path: Path, what: str) -> dict[str, Float64]:
    torch = library("torch", "torch", what)
    try:
        stored: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        # the unpickler raises what it likes of a file that is none of its own
        raise VisleakError(
            f"{what}: {path} cannot be read as weights alone ({said(error)}); give safetensors or"
            " what torch.save wrote of a state_dict()"
        ) from error
    if isinstance(stored, Mapping) and isinstance(stored.get("state_dict"), Mapping):
        stored = stored["state_dict"]
    tensors = isinstance(stored, Mapping) and all(
        isinstance(value, torch.Tensor) for value in stored.values()
    )
    if not tensors:
        raise VisleakError(f"{what}: {path} holds no state_dict(); it must be {WANTED}")
    return {str(name): value.double().numpy() for name, value in stored.items()}
