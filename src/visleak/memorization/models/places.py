"""Where a model runs, and in what precision."""

from __future__ import annotations

from typing import Any, Final

from visleak.encoders.libraries import library
from visleak.errors import UsageError

PRECISIONS: Final = ("auto", "fp32", "fp16", "bf16")

_DTYPES: Final = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


def device_of(asked: str) -> str:
    """Return the device of torch that is meant; ``auto`` is a CUDA GPU where torch sees one.

    Args:
        asked: ``auto``, ``cpu``, ``cuda``, ``cuda:N`` or ``mps``.

    Raises:
        UsageError: there is no such device, or it is not there.
        MissingExtra: torch is not installed.
    """
    torch = library("torch", "diffusion", "a diffusion model")
    kind, colon, number = asked.partition(":")
    numbered = kind == "cuda" and number.isascii() and number.isdecimal() and len(number) < 4
    if kind not in ("auto", "cpu", "cuda", "mps") or (colon and not numbered):
        raise UsageError(f"device is one of auto, cpu, cuda, cuda:N, mps; got {asked!r}")
    cuda = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if kind == "auto":
        return "cuda:0" if cuda else "cpu"
    if kind == "cuda" and int(number or 0) >= cuda:
        raise UsageError(
            f"device {asked} is not there: torch {torch.__version__} sees {cuda} CUDA GPUs; use"
            " cpu, or install the torch of the machine (pytorch.org)"
        )
    if kind == "mps" and not torch.backends.mps.is_available():
        raise UsageError(f"device mps is not there: torch {torch.__version__} cannot use it")
    return f"cuda:{int(number or 0)}" if kind == "cuda" else asked


def precision_of(asked: str, device: str) -> str:
    """Return ``fp32``, ``fp16`` or ``bf16``; ``auto`` is fp16 on a CUDA GPU, else fp32.

    Raises:
        UsageError: there is no such precision.

    >>> precision_of("auto", "cpu"), precision_of("auto", "cuda:1")
    ('fp32', 'fp16')
    """
    if asked not in PRECISIONS:
        raise UsageError(f"precision is one of {', '.join(PRECISIONS)}; got {asked!r}")
    if asked != "auto":
        return asked
    return "fp16" if device.startswith("cuda") else "fp32"


def dtype_of(precision: str) -> Any:
    """Return torch's type of a precision."""
    return getattr(library("torch", "diffusion", "a diffusion model"), _DTYPES[precision])
