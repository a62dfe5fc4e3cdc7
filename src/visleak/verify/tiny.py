"""The full check of tiny pictures: correlation is all there is to go by."""

from __future__ import annotations

from typing import Final

from visleak.records import Bytes8
from visleak.verify import align
from visleak.verify.align import Matrix
from visleak.verify.measures import Measures, compare, grey, square

#: Side of the squares that are compared.
SIDE: Final = 32


def check_tiny(query: Bytes8, reference: Bytes8, start: Matrix) -> tuple[Measures, Matrix]:
    """Return what is measured on a pair of tiny pictures, and their relation.

    Args:
        query, reference: RGB ``uint8`` pictures; the query inverted where that view is compared.
        start: unit matrix to begin from: view and shift.
    """
    left, right = square(query, SIDE), square(reference, SIDE)
    matrix = align.by_correlation(grey(left), grey(right), start, (SIDE,))
    return compare(left, right, matrix), matrix
