"""The screen of a stream on a GPU: the plain product in half precision, checked again exactly.

How far a product in half precision may be off, for unit vectors of width d: every coordinate of
both is rounded to a relative u_h (2^-11 in fp16, 2^-8 in bf16; subnormal ones of fp16 to 2^-25),
the products are exact in ``float32`` and summed in it, for which twice the usual bound is taken
because tensor cores cut sums off where processors round them, and the sum is rounded to half
precision once more. By Cauchy-Schwarz the similarity is off by at most

    2 u_h + u_h^2 + 2^-24 sqrt(d) + 2 d 2^-24 + u_h (1 + that)

that is 0.0016 in fp16 and 0.012 in bf16 at 512 coordinates. Pairs that reach their floor less that
are compared again in ``float64`` on the processor.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from visleak.errors import MissingExtra, UsageError, VisleakError
from visleak.records import Float32, Int64
from visleak.search.streaming_screen import (
    RowLengths,
    ScreenResult,
    dot_error,
    length_error,
    row_lengths,
)

#: Pairs and queries of one product on a device: its result takes 3 bytes per pair, and if
#: everything is wanted its list of places takes 16.
PAIRS: Final = 2**27
TILE: Final = 8_192
BLOCKS: Final = (1024, 65_536)  # rows at a time, however few or many the queries are
#: Relative rounding of the precisions a device may compute in.
PRECISIONS: Final = {"fp16": 2.0**-11, "bf16": 2.0**-8}


def half_error(width: int, precision: str) -> float:
    """Return how far a similarity of unit vectors in a precision may be off; see the module."""
    unit = PRECISIONS[precision]
    rounding = 2 * unit + unit * unit + 2.0**-24 * math.sqrt(width)
    summing = 2 * dot_error(width)
    return rounding + summing + unit * (1 + rounding + summing)


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


class DeviceScreen:
    """Compares whole vectors in half precision on a device of torch."""

    def __init__(self, query: Float32, device: str, precision: str = "fp16") -> None:
        import torch

        self.block = int(np.clip(PAIRS // max(1, len(query)), *BLOCKS))
        self._torch = torch
        self._device = device
        self._kind = {"fp16": torch.float16, "bf16": torch.bfloat16}[precision]
        # sums cut to half precision halfway would be off by more than the bound allows
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        width = query.shape[1]
        self._slack = half_error(width, precision) + 2 * length_error(width)
        self._query = torch.tensor(query, device=device).to(self._kind)

    def select(self, stored: npt.NDArray[Any], floor: Float32) -> ScreenResult:
        """Return pairs that may reach the floor; see :class:`Screen`."""
        try:
            rows, judged = self._prepared(stored)
            query, row = self.reaching(rows, self._torch.tensor(floor, device=self._device)).T
        except self._torch.cuda.OutOfMemoryError as error:
            raise VisleakError(
                f"{self._device} has too little free memory to search on; use the processor"
                " (device cpu), or free memory of the GPU"
            ) from error
        keep = ~np.isin(row, judged.broken)
        return ScreenResult(query[keep], row[keep], judged.broken, judged.off)

    def reaching(self, rows: Any, floor: Any) -> Int64:
        """Return pairs (n, 2) of query and row that may reach the floor."""
        found = []
        for start in range(0, len(floor), TILE):
            tile = slice(start, start + TILE)
            reached = self._query[tile] @ rows.T >= (floor[tile] - self._slack)[:, None]
            places = self._torch.nonzero(reached).cpu().numpy()
            found.append(places + np.array([start, 0]))
        return np.concatenate([np.empty((0, 2), np.int64), *found])

    def _prepared(self, stored: npt.NDArray[Any]) -> tuple[Any, RowLengths]:
        """Return unit rows in half precision on the device, and their lengths."""
        torch = self._torch
        # a copy: torch takes neither read-only memory nor foreign byte order
        own = np.array(stored, stored.dtype.newbyteorder("="))
        rows = torch.from_numpy(own).to(self._device).to(torch.float32)
        judged = row_lengths(stored, torch.linalg.vector_norm(rows, dim=1).cpu().numpy())
        if len(judged.odd):
            rows[torch.tensor(judged.odd, device=self._device)] = torch.tensor(
                judged.replaced, device=self._device
            )
        rows *= torch.tensor(judged.scale, device=self._device)[:, None]
        return rows.to(self._kind), judged
