"""``grade(evidence) -> Grades``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from visleak.grading import words
from visleak.grading.model import Grader, features
from visleak.records import GRADES, Bool, Evidence, Float32, Grades

EXACT, NEAR, SIMILAR, DIFFERENT = range(len(GRADES))
#: Least probability of pairs whose pixels are identical but whose bytes differ.
SAME_PIXELS: Final = 0.999
#: Pairs graded at a time; only bounds memory.
CHUNK: Final = 16_384

_SCREENED: Final = "no shift of this view brings the edges together"
_BLANK: Final = "both are blank; only the colour can be compared"
_UNSEEN: Final = "an image could not be decoded again"
EQUAL_BYTES: Final = "identical bytes"

#: Reasons of pairs that were not verified, by the code of :class:`visleak.records.Evidence`.
NOT_VERIFIED: Final = (
    "",
    "not verified: better candidates of the image were verified, and none is near",
    "not verified: the limit of verified pairs per image was reached",
    "not verified: near or exact pairs connect the two images",
)


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
        evidence: what was measured; NaN where the screen let a pair go. Skipped pairs have no
            grade, unless their bytes are equal.
        equal_bytes: pairs of two copies of the same bytes: exact, whatever else.
        flat: pairs of blank images: exact where pixels agree, else similar; never near.
        grader: the model.
    """
    parts = [slice(start, start + CHUNK) for start in range(0, max(1, len(similarity)), CHUNK)]
    graded = [
        _graded(
            similarity[part],
            background[part],
            _some(evidence, part),
            equal_bytes=equal_bytes[part],
            flat=flat[part],
            grader=grader,
        )
        for part in parts
    ]
    return Grades(
        np.concatenate([each.grade for each in graded]),
        np.concatenate([each.probability for each in graded]),
        tuple(reason for each in graded for reason in each.reason),
        tuple(transform for each in graded for transform in each.transform),
    )


def _some(evidence: Evidence, part: slice) -> Evidence:
    checks = {name: column[part] for name, column in evidence.checks.items()}
    skipped = None if evidence.skipped is None else evidence.skipped[part]
    return Evidence(checks, evidence.matrix[part], skipped)


def _graded(
    similarity: Float32,
    background: Float32,
    evidence: Evidence,
    *,
    equal_bytes: Bool,
    flat: Bool,
    grader: Grader,
) -> Grades:
    columns = features(similarity, background, evidence)
    unseen = np.isnan(evidence.checks["screen"]) & ~equal_bytes
    probability, closer = grader.probabilities(columns, evidence.checks["side"])
    result = np.full(len(similarity), DIFFERENT, np.int8)
    result[closer >= 0.5] = SIMILAR
    result[probability >= grader.near_at] = NEAR
    result[flat] = SIMILAR
    identical = (evidence.checks["identical"] == 1) | equal_bytes
    # pixels that are the same up to re-encoding do not overrule the model, identical ones do
    recoded = evidence.checks["exact"] == 1
    exact = identical | (recoded & ((result == NEAR) | flat))
    result[exact] = EXACT
    probability = np.where(flat & ~exact, 0.0, probability)
    probability = np.where(identical, np.maximum(probability, SAME_PIXELS), probability)
    probability = np.where(exact & flat, 1.0, probability)
    probability = np.where(equal_bytes, 1.0, probability)
    if evidence.skipped is not None:
        unseen |= (evidence.skipped > 0) & ~equal_bytes
    result[unseen], probability[unseen] = -1, np.nan
    chance = grader.conditions(columns)
    reasons, transforms = _in_words(result, evidence, equal_bytes, flat, chance)
    return Grades(result, probability.astype(np.float32), reasons, transforms)


def _in_words(
    grades: npt.NDArray[np.int8],
    evidence: Evidence,
    equal_bytes: Bool,
    flat: Bool,
    chance: Mapping[str, npt.NDArray[np.float64]],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return reasons and transforms, one line per pair."""
    reasons = [_SCREENED] * len(grades)
    transforms = [""] * len(grades)
    skipped = evidence.skipped if evidence.skipped is not None else np.zeros(len(grades), np.int8)
    for row in np.flatnonzero(grades == -1):
        reasons[row] = NOT_VERIFIED[skipped[row]] or _UNSEEN
    for row in np.flatnonzero(equal_bytes):
        reasons[row] = EQUAL_BYTES
    checked = ~np.isnan(evidence.checks["gradient"]) & ~equal_bytes & (grades >= 0)
    for row in np.flatnonzero(checked):
        check = {name: float(values[row]) for name, values in evidence.checks.items()}
        if flat[row] and grades[row] != EXACT:
            reasons[row] = _BLANK
            continue
        if grades[row] in (NEAR, SIMILAR):
            matrix = evidence.matrix[row].reshape(3, 3).astype(np.float64)
            transforms[row] = words.transform(matrix, check, check["inverted"] == 1)
        conditions = {name: float(values[row]) for name, values in chance.items()}
        weakest = min(conditions, key=conditions.__getitem__, default="")
        reasons[row] = words.reason(int(grades[row]), transforms[row], check, weakest)
    return tuple(reasons), tuple(transforms)
