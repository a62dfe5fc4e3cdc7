"""Blocks of stored vectors made fit for comparison, at little more than the price of reading.

Whole rows are only widened to ``float32`` here and their lengths taken; what decides is made of
the stored rows again by :func:`visleak.vectors.unit_rows`, for the few pairs that matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from visleak.records import Float32, Int64
from visleak.vectors import NORM_TOLERANCE, unit_rows

#: Half a unit in the last place of ``float32``: the relative error of one operation.
ROUNDING: Final = 2.0**-24

#: Lengths between which squares neither overflow nor vanish; other rows are normalised exactly.
SANE_LENGTHS: Final = (1e-3, 1e3)

#: Of a half float widened by moving its bits: sign, exponent and fraction, at their new places.
HALF_BITS: Final = np.uint32(0x8FFFE000)

#: Difference of the two exponents' biases: 127 - 15.
HALF_SCALE: Final = np.float32(2.0**112)


@dataclass(frozen=True, slots=True)
class Judged:
    """What the lengths of some stored rows say.

    Attributes:
        scale: ``float32`` (m,): rows times this are of unit length, but for an error of at most
            :func:`length_error`; 0 where a row is broken.
        odd: ``int64`` (k,): rows so short, long or broken that they must be replaced.
        replaced: ``float32`` (k, d): by these; zero where a row is broken.
        broken: ``int64`` (j,): rows without a direction (NaN, infinity, zeros).
        off: how many are of another length than 1.
    """

    scale: Float32
    odd: Int64
    replaced: Float32
    broken: Int64
    off: int


def dot_error(terms: int) -> float:
    """Return how far a ``float32`` dot product may be off, for factors of unit length.

    Holds for any order of summation (Higham 2002, section 3.1): n u / (1 - n u).
    """
    return terms * ROUNDING / (1 - terms * ROUNDING)


def length_error(width: int) -> float:
    """Return the largest relative error of rows times :attr:`Judged.scale`."""
    # the root halves the error of the sum; root, division, product and unit rows round once each
    return dot_error(width) / 2 + 5 * ROUNDING


def read_block(stored: npt.NDArray[Any], out: Float32) -> Judged:
    """Write stored rows (m, d) of any float type into ``out`` (m, d), fit to be scaled."""
    widen(stored, out)
    with np.errstate(over="ignore", invalid="ignore"):
        judged = judge(stored, np.sqrt(np.einsum("ij,ij->i", out, out)))
    out[judged.odd] = judged.replaced
    return judged


def judge(stored: npt.NDArray[Any], lengths: Float32) -> Judged:
    """Return what rough lengths of stored rows say, and look closer where they do not say enough.

    Args:
        stored: (m, d), of any float type.
        lengths: ``float32`` (m,): root of the ``float32`` sum of squares.
    """
    sane = (lengths > SANE_LENGTHS[0]) & (lengths < SANE_LENGTHS[1])
    usable = np.asarray(np.where(sane, lengths, 1), np.float32)
    distance = np.abs(usable - np.float32(1))
    unsure = np.abs(distance - NORM_TOLERANCE) < 4 * dot_error(stored.shape[1])
    off = int(np.count_nonzero((distance > NORM_TOLERANCE) & ~unsure))
    if unsure.any():
        off += int(unit_rows(stored[unsure]).off.sum())
    odd = np.flatnonzero(~sane)
    exact = unit_rows(stored[odd])
    scale = np.reciprocal(usable)
    scale[odd[exact.broken]] = 0
    return Judged(scale, odd, exact.matrix, odd[exact.broken], off + int(exact.off.sum()))


def widen(stored: npt.NDArray[Any], out: Float32) -> None:
    """Write stored rows into ``out`` as ``float32``.

    Half floats are widened with whole-array integer operations, several times faster than numpy
    converts them one by one: the bits move to their places, and a product mends the exponent.
    What is infinite or no number comes out as 65,536 or more, which no finite half float reaches.
    """
    if stored.dtype == np.dtype(np.float16) and stored.dtype.isnative and _keeps_subnormals():
        bits = out.view(np.int32)
        np.copyto(bits, stored.view(np.int16))
        unsigned = out.view(np.uint32)
        np.left_shift(unsigned, 13, out=unsigned)
        np.bitwise_and(unsigned, HALF_BITS, out=unsigned)
        np.multiply(out, HALF_SCALE, out=out)
        return
    with np.errstate(over="ignore", invalid="ignore"):
        np.copyto(out, stored, casting="same_kind")


def _keeps_subnormals() -> bool:
    """Whether this thread computes with subnormal numbers; some libraries switch that off."""
    return bool((np.full(1, 1e-40, np.float32) * np.float32(1e30))[0] > 0)
