"""``grade(evidence) -> Grades``, and reasons and transforms in words."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from visleak.grading.model import Grader, features
from visleak.records import GRADES, Bool, Evidence, Float32, Float64, Grades, Int8, Int64

EXACT, NEAR, SIMILAR, DIFFERENT = range(len(GRADES))
#: Smallest probability of pairs with identical pixels and different bytes.
SAME_PIXELS: Final = 0.999
#: Pairs per batch; only bounds memory.
CHUNK: Final = 16_384

_SCREENED: Final = "could not be aligned: edges agree at no shift of this view"
_BLANK: Final = "both are blank; only the colour can be compared"
_LOST: Final = "an image could not be decoded again"
EQUAL_BYTES: Final = "identical bytes"

#: Reasons of pairs that were not verified, by ``skipped`` of :class:`visleak.records.Evidence`.
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
    """Return the grades of pairs.

    Args:
        similarity, background: ``float32`` (n,), as in ``Pairs``.
        evidence: the measures, NaN for pairs that the screen rejected. Skipped pairs have no grade,
            unless their bytes are equal.
        equal_bytes: pairs of equal bytes, which are always exact.
        flat: pairs of blank images, which are exact if their pixels agree, else similar.
        grader: the models.
    """
    graded = []
    for start in range(0, max(1, len(similarity)), CHUNK):
        part = slice(start, start + CHUNK)
        own = _rows(evidence, part)
        columns = features(similarity[part], background[part], own)
        graded.append(_graded(grader, columns, own, equal_bytes[part], flat[part]))
    return Grades.joined(graded)


def _rows(evidence: Evidence, part: slice) -> Evidence:
    checks = {name: column[part] for name, column in evidence.checks.items()}
    skipped = None if evidence.skipped is None else evidence.skipped[part]
    return Evidence(checks, evidence.matrix[part], skipped)


def _graded(
    grader: Grader,
    columns: Mapping[str, Float64],
    evidence: Evidence,
    equal_bytes: Bool,
    flat: Bool,
) -> Grades:
    unverified = np.isnan(evidence.checks["screen"]) & ~equal_bytes
    probability, closer = grader.probabilities(columns, evidence.checks["side"])
    result = np.full(len(evidence), DIFFERENT, np.int8)
    result[closer >= 0.5] = SIMILAR
    result[probability >= grader.near_at] = NEAR
    result[flat] = SIMILAR
    identical = (evidence.checks["identical"] == 1) | equal_bytes
    # identical pixels overrule the model, pixels that are equal up to re-encoding do not
    reencoded = evidence.checks["exact"] == 1
    exact = identical | (reencoded & ((result == NEAR) | flat))
    result[exact] = EXACT
    probability = np.where(flat & ~exact, 0.0, probability)
    probability = np.where(identical, np.maximum(probability, SAME_PIXELS), probability)
    probability = np.where(exact & flat, 1.0, probability)
    probability = np.where(equal_bytes, 1.0, probability)
    if evidence.skipped is not None:
        unverified |= (evidence.skipped > 0) & ~equal_bytes
    result[unverified], probability[unverified] = -1, np.nan
    similar = np.flatnonzero((result == SIMILAR) & (evidence.checks["close_side"] > 0))
    weakest = _weakest_conditions(grader, columns, similar)
    reasons, transforms = _in_words(result, evidence, equal_bytes, flat, weakest)
    return Grades(result, probability.astype(np.float32), reasons, transforms)


def _weakest_conditions(
    grader: Grader, columns: Mapping[str, Float64], rows: Int64
) -> dict[int, str]:
    """Return the least probable condition of some pairs, by row."""
    conditions = grader.conditions({name: column[rows] for name, column in columns.items()})
    if not conditions:
        return {}
    least = np.stack(list(conditions.values())).argmin(axis=0).tolist()
    names = list(conditions)
    return {row: names[number] for row, number in zip(rows.tolist(), least, strict=True)}


def _in_words(
    grades: Int8,
    evidence: Evidence,
    equal_bytes: Bool,
    flat: Bool,
    weakest: Mapping[int, str],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return reasons and transforms, one line per pair."""
    reasons = [_SCREENED] * len(grades)
    transforms = [""] * len(grades)
    skipped = evidence.skipped if evidence.skipped is not None else np.zeros(len(grades), np.int8)
    for row in np.flatnonzero(grades == -1):
        reasons[row] = NOT_VERIFIED[skipped[row]] or _LOST
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
            transforms[row] = sys.intern(transform(matrix, check, check["inverted"] == 1))
        why = weakest.get(int(row), "")
        # many pairs share few reasons
        reasons[row] = sys.intern(reason(int(grades[row]), transforms[row], check, why))
    return tuple(reasons), tuple(transforms)


# -- in words -------------------------------------------------------------------------------------

Matrix = npt.NDArray[np.floating]
#: Smallest changes that are mentioned: brightness (levels), contrast (factor), colours (levels).
BRIGHTER: Final = 6.0
CONTRAST: Final = 1.15
TINTED: Final = 12.0
#: Smallest shift, scale and rotation (degrees) that are mentioned.
SHIFTED: Final = 0.025
SCALED: Final = 0.03
TURNED: Final = 2.0
#: Smallest share of contradicting detail that is mentioned, and smallest correlation of equal
#: colours.
OPPOSED: Final = 0.005
SAME_COLOURS: Final = 0.9
#: Fewest windows with texture for a decision.
SPARSE: Final = 3.0


def geometry(matrix: Matrix, ratios: tuple[float, float] = (1.0, 1.0)) -> list[str]:
    """Describe the effect of a relation on the query: mirror, turn, crop, scale, shift.

    >>> geometry(np.array([[-1.0, 0, 1], [0, 1, 0], [0, 0, 1]]))
    ['mirrored']
    """
    words = []
    linear = np.diag([ratios[1], 1.0]) @ matrix[:2, :2] @ np.diag([1 / ratios[0], 1.0])
    if np.linalg.det(linear) < 0:
        # mirrored first, then turned, as in the views
        linear = linear @ np.diag([-1.0, 1.0])
        upside_down = linear[0, 0] < -0.5 and linear[1, 1] < -0.5
        words.append("flipped top to bottom" if upside_down else "mirrored")
        if upside_down:
            linear = -linear
    angle = float(np.degrees(np.arctan2(linear[1, 0] - linear[0, 1], linear[0, 0] + linear[1, 1])))
    if abs(angle) > TURNED:
        words.append(f"turned {abs(angle):.0f}° {'clockwise' if angle > 0 else 'anticlockwise'}")
    words += _size(linear, matrix)
    return words


def _size(linear: Matrix, matrix: Matrix) -> list[str]:
    across, down = np.linalg.norm(linear, axis=0)
    scale = float(np.sqrt(abs(np.linalg.det(matrix[:2, :2]))))
    words = []
    if abs(across / down - 1) > 2 * SCALED:
        words.append(f"stretched {across / down:.2f} to 1")
    if scale > 1 + SCALED:
        words.append(f"cropped to {100 / scale**2:.0f} %")
    elif scale < 1 - SCALED:
        words.append(f"shown at {100 * scale:.0f} % size")
    else:
        centre = matrix[:2] @ np.array([0.5, 0.5, 1.0]) / (matrix[2] @ np.array([0.5, 0.5, 1.0]))
        x, y = centre - 0.5
        if max(abs(x), abs(y)) > SHIFTED:
            words.append(f"shifted by {100 * max(abs(x), abs(y)):.0f} %")
    return words


def colours(check: Mapping[str, float], inverted: bool) -> list[str]:
    """Describe the change of brightness, contrast and colour."""
    words = ["inverted"] if inverted else []
    gain, offset = check["gain"], check["offset"]
    change = gain * 128 + offset - 128
    if not inverted and abs(change) > BRIGHTER:
        words.append("brighter" if change > 0 else "darker")
    if not 1 / CONTRAST < gain < CONTRAST and gain > 0:
        words.append("more contrast" if gain > 1 else "less contrast")
    if check["tint"] > TINTED:
        words.append("other colours")
    return words


def transform(matrix: Matrix, check: Mapping[str, float], inverted: bool) -> str:
    """Describe the processing from query to reference; empty if there is none."""
    ratios = (check["query_ratio"], check["reference_ratio"])
    return ", ".join(geometry(matrix, ratios) + colours(check, inverted))


def reason(grade: int, changes: str, check: Mapping[str, float], weakest: str = "") -> str:
    """Return the reason for the grade of a checked pair, in one line.

    Args:
        grade: index into ``GRADES``.
        changes: the :func:`transform` of the pair.
        check: the measures, by name.
        weakest: the least probable condition of a similar pair.
    """
    name = GRADES[grade]
    if name == "exact":
        return "all pixels identical" if check["identical"] == 1 else "same pixels, encoded again"
    if name == "near":
        changed = f", {changes}" if changes else ""
        agrees = f"{100 * check['within']:.0f} % of the overlap agrees"
        close = "fine detail agrees" if check["close_side"] > 0 else agrees
        return f"same shot{changed}; {close}"
    if check["close_side"] > 0:
        return _similar(check, weakest) if name == "similar" else _different(check)
    if name == "similar":
        return f"similar edges (correlation {check['gradient']:.2f}), too few for the same shot"
    return f"edges do not agree (correlation {check['gradient']:.2f}) after the best alignment"


def _different(check: Mapping[str, float]) -> str:
    """Return the reason why a pair is different, not similar."""
    if check["windows"] < SPARSE:
        return "too little detail to decide"
    return f"fine detail does not agree (correlation {check['matched']:.2f}) after alignment"


def _similar(check: Mapping[str, float], weakest: str) -> str:
    """Return the reason why a pair is similar, not near."""
    places = round(check["altered_places"] or check["places"])
    if weakest in ("unchanged", "unmoved") and places:
        return f"same template; content differs in {places} place{'s' if places != 1 else ''}"
    if weakest == "unmoved":
        return "same template; a mark is in another place, or a part has other colours"
    if check["opposed"] >= OPPOSED:
        return f"{100 * check['opposed']:.0f} % of the shared detail contradicts"
    if weakest == "unchanged" and check["colour"] < SAME_COLOURS:
        return f"same shapes in other colours (correlation {check['colour']:.2f})"
    return "no difference found, but too little shared detail to confirm the same shot"
