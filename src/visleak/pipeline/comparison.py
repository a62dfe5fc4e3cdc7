"""One comparison: a pair of sets with its candidates, evidence and grades."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from visleak.records import DEGREES, Float32, Grades, ImageSet, Int8, Pairs


@dataclass(frozen=True, slots=True)
class Comparison:
    """One comparison, complete: a pair of sets, its pairs and their verdicts.

    Attributes:
        query, reference: the sets.
        pairs: sorted by the query's id.
        degree: ``int8`` (n,): index into ``DEGREES``, -1 below the soft threshold.
        grades: the verdicts, or ``None`` where pictures were not looked at.
        matrix: ``float32`` (n, 9), NaN where no relation was fitted.
        coverage, modality: of the comparison.
        skipped: ``int8`` (n,), as in :class:`visleak.records.Evidence`, or ``None``.
    """

    query: ImageSet
    reference: ImageSet
    pairs: Pairs
    degree: npt.NDArray[np.int8]
    grades: Grades | None
    matrix: Float32 | None
    coverage: str
    modality: str
    skipped: Int8 | None = None


def degree_of(similarity: Float32, hard: float | None, soft: float | None) -> npt.NDArray[np.int8]:
    """Return the degree of similarities: 0 hard, 1 soft, -1 neither."""
    result = np.full(len(similarity), -1, np.int8)
    if soft is not None:
        result[similarity >= np.float32(soft)] = DEGREES.index("soft")
    if hard is not None:
        result[similarity >= np.float32(hard)] = DEGREES.index("hard")
    return result
