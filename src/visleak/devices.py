"""Devices of torch by name: where vectors are compared, and where networks run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from visleak.errors import MissingExtra, UsageError

if TYPE_CHECKING:
    from types import ModuleType


def torch_device(wanted: str) -> str | None:
    """Return the torch device of a choice of device, or ``None`` for plain numpy."""
    if wanted == "cpu":
        return None
    if wanted not in ("auto", "torch-cpu") and not re.fullmatch(r"cuda(:\d+)?", wanted):
        raise UsageError(f"device must be auto, cpu, cuda or cuda:N; got {wanted!r}")
    try:
        import torch
    except ImportError as error:
        if wanted == "auto":
            return None
        raise MissingExtra("torch", f"a search on {wanted}") from error
    if wanted == "torch-cpu":
        return "cpu"
    number = int(wanted.partition(":")[2] or 0)
    if number < torch.cuda.device_count():
        return f"cuda:{number}"
    if wanted == "auto":
        return None
    raise UsageError(
        f"device {wanted} is not there: torch {torch.__version__} sees"
        f" {torch.cuda.device_count()} GPUs; take auto or cpu"
    )


def network_device(torch: ModuleType, wanted: str, invalid: UsageError, advice: str) -> str:
    """Return the device of auto, cpu, cuda, cuda:N or mps; ``auto`` is a CUDA GPU if any."""
    kind, colon, number = wanted.partition(":")
    numbered = kind == "cuda" and number.isascii() and number.isdecimal() and len(number) < 4
    if kind not in ("auto", "cpu", "cuda", "mps") or (colon and not numbered):
        raise invalid
    cuda = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if kind == "auto":
        return "cuda:0" if cuda else "cpu"
    if kind == "cuda" and int(number or 0) >= cuda:
        raise UsageError(
            f"device {wanted} is not there: torch {torch.__version__} sees {cuda} CUDA GPUs; use"
            f" {advice}, or install the torch of the machine (pytorch.org)"
        )
    if kind == "mps" and not torch.backends.mps.is_available():
        raise UsageError(f"device mps is not there: torch {torch.__version__} cannot use it")
    return f"cuda:{int(number or 0)}" if kind == "cuda" else wanted
