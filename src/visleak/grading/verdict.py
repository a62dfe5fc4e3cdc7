"""``grade(evidence) -> Grades``."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from visleak.grading import words
from visleak.grading.model import Grader, features
from visleak.records import GRADES, Bool, Evidence, Float32, Grades

EXACT, NEAR, SIMILAR, DIFFERENT = range(len(GRADES))

#: Probability given to pairs whose pixels are approximately identical but whose bytes differ.
SAME_PIXELS: Final = 0.999

_SCREENED: Final = "no shift of this view brings the edges together"
_BLANK: Final = "both are blank; only the colour can be compared"
_UNSEEN: Final = "a picture could not be decoded again"


def grade(
    similarity: Float32,
    background: Float32,
    evidence: Evidence,
    *,
    equal_bytes: Bool,
    flat: Bool,
    grader: Grader,
) -> Grades:
    """Return the verdict on pairs.

    Args:
        similarity, background: ``float32`` (n,), as in ``Pairs``.
        evidence: what was measured; NaN where the screen let a pair go.
        equal_bytes: pairs of two copies of the same bytes: exact, whatever else.
        flat: pairs of blank pictures: exact where pixels agree, else similar; never near.
        grader: the model.
    """
    columns = features(similarity, background, evidence)
    unseen = np.isnan(evidence.checks["screen"]) & ~equal_bytes
    probability, closer = grader.probabilities(columns, evidence.checks["side"])
    result = np.full(len(similarity), DIFFERENT, np.int8)
    result[closer >= 0.5] = SIMILAR
    result[probability >= grader.near_at] = NEAR
    result[flat] = SIMILAR
    exact = (evidence.checks["exact"] == 1) | equal_bytes
    result[exact] = EXACT
    probability = np.where(flat & ~exact, 0.0, probability)
    probability = np.where(exact, np.maximum(probability, SAME_PIXELS), probability)
    probability = np.where(exact & flat, 1.0, probability)
    probability = np.where(equal_bytes, 1.0, probability)
    result[unseen], probability[unseen] = -1, np.nan
    reasons, transforms = _in_words(result, evidence, equal_bytes, flat)
    return Grades(result, probability.astype(np.float32), reasons, transforms)


def _in_words(
    grades: npt.NDArray[np.int8], evidence: Evidence, equal_bytes: Bool, flat: Bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return reasons and transforms, a line each a pair."""
    reasons = [_SCREENED] * len(grades)
    transforms = [""] * len(grades)
    for row in np.flatnonzero(grades == -1):
        reasons[row] = _UNSEEN
    for row in np.flatnonzero(equal_bytes):
        reasons[row] = "identical bytes"
    light = ("gain", "offset", "tint", "inverted")
    names = ("within", "patch", "gradient", *light, "query_ratio", "reference_ratio")
    checked = ~np.isnan(evidence.checks["gradient"]) & ~equal_bytes
    for row in np.flatnonzero(checked):
        check = {name: float(evidence.checks[name][row]) for name in names}
        if flat[row] and grades[row] != EXACT:
            reasons[row] = _BLANK
            continue
        if grades[row] in (NEAR, SIMILAR):
            matrix = evidence.matrix[row].reshape(3, 3).astype(np.float64)
            transforms[row] = words.transform(matrix, check, check["inverted"] == 1)
        reasons[row] = words.reason(int(grades[row]), transforms[row], check)
    return tuple(reasons), tuple(transforms)
