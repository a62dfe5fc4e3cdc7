"""The full check of photographs: by correlation, and by local features where that fails."""

from __future__ import annotations

from typing import Final

from visleak.records import Bytes8
from visleak.verify import align
from visleak.verify.align import Matrix
from visleak.verify.measures import Measures, compare, grey, square

#: Side of the squares that are compared, and of those aligned before, more coarsely.
SIDE: Final = 96
COARSE_SIDE: Final = 32

#: Gradient agreement below which another way of aligning is tried.
GOOD: Final = 0.8


def check_large(
    query: Bytes8, reference: Bytes8, start: Matrix, *, features: bool
) -> tuple[Measures, Matrix]:
    """Return what is measured on a pair of photographs, and their relation.

    Args:
        query, reference: bounded RGB ``uint8`` pictures; the query inverted where that view is
            compared.
        start: unit matrix to begin from: view and shift.
        features: align by local features where correlation does not do.
    """
    left, right = square(query, SIDE), square(reference, SIDE)
    matrix = align.by_correlation(grey(left), grey(right), start, (COARSE_SIDE, SIDE))
    measures = compare(left, right, matrix)
    if features and measures.gradient < GOOD:
        found = align.by_features(query, reference)
        if found is not None:
            other = compare(left, right, found, features=True)
            if other.gradient > measures.gradient:
                return other, found
    return measures, matrix
