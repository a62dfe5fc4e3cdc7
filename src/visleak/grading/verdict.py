"""``grade(evidence) -> Grades``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from visleak.grading.model import Grader, features
from visleak.records import GRADES, Bool, Evidence, Float32, Grades, Int64

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
    return Grades.joined(graded)


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
    another = np.flatnonzero((result == SIMILAR) & (evidence.checks["close_side"] > 0))
    weakest = _weakest(grader, columns, another)
    reasons, transforms = _in_words(result, evidence, equal_bytes, flat, weakest)
    return Grades(result, probability.astype(np.float32), reasons, transforms)


def _weakest(
    grader: Grader, columns: Mapping[str, npt.NDArray[np.float64]], rows: Int64
) -> dict[int, str]:
    """Return the least probable condition of some pairs, by row; only similar ones name it."""
    chance = grader.conditions({name: column[rows] for name, column in columns.items()})
    if not chance:
        return {}
    least = np.stack(list(chance.values())).argmin(axis=0).tolist()
    names = list(chance)
    return {row: names[place] for row, place in zip(rows.tolist(), least, strict=True)}


def _in_words(
    grades: npt.NDArray[np.int8],
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
            transforms[row] = sys.intern(transform(matrix, check, check["inverted"] == 1))
        why = weakest.get(int(row), "")
        # of many pairs few reasons differ
        reasons[row] = sys.intern(reason(int(grades[row]), transforms[row], check, why))
    return tuple(reasons), tuple(transforms)


# -- in words -------------------------------------------------------------------------------------

Matrix = npt.NDArray[np.floating]
#: Brightness (grey levels) and contrast changes that are worth a word.
BRIGHTER: Final = 6.0
CONTRAST: Final = 1.15
TINTED: Final = 12.0
#: Shift, scale, stretch and turn that are worth a word.
SHIFTED: Final = 0.025
SCALED: Final = 0.03
TURNED: Final = 2.0
#: Share of the shared detail from which contradiction is worth a word, and the correlation of the
#: colours below which they are others.
OPPOSED: Final = 0.005
SAME_COLOURS: Final = 0.9
#: Windows with texture below which the detail of a pair decides nothing.
SPARSE: Final = 3.0


def geometry(matrix: Matrix, ratios: tuple[float, float] = (1.0, 1.0)) -> list[str]:
    """Return in words what a relation does to the query: mirror, turn, crop, scale, shift.

    >>> geometry(np.array([[-1.0, 0, 1], [0, 1, 0], [0, 0, 1]]))
    ['mirrored']
    """
    words = []
    linear = np.diag([ratios[1], 1.0]) @ matrix[:2, :2] @ np.diag([1 / ratios[0], 1.0])
    if np.linalg.det(linear) < 0:
        # left-right first, the rest after: the same order as in the views
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
    """Return in words what was done to brightness, contrast and colour."""
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
    """Return what was done to the query to get the reference; empty where nothing was."""
    ratios = (check["query_ratio"], check["reference_ratio"])
    return ", ".join(geometry(matrix, ratios) + colours(check, inverted))


def reason(grade: int, changes: str, check: Mapping[str, float], weakest: str = "") -> str:
    """Return one line for a person: why a checked pair has its grade."""
    name = GRADES[grade]
    if name == "exact":
        return "all pixels identical" if check["identical"] == 1 else "same pixels, encoded again"
    if name == "near":
        changed = f", {changes}" if changes else ""
        agrees = f"{100 * check['within']:.0f} % of the overlap agrees"
        close = "fine detail agrees" if check["close_side"] > 0 else agrees
        return f"same shot{changed}; {close}"
    if check["close_side"] > 0:
        return _another(check, weakest) if name == "similar" else _nothing_shared(check)
    if name == "similar":
        return f"similar edges (correlation {check['gradient']:.2f}), too few for the same shot"
    return f"edges do not agree (correlation {check['gradient']:.2f}) after the best alignment"


def _nothing_shared(check: Mapping[str, float]) -> str:
    """Return what tells a different pair from a similar one."""
    if check["windows"] < SPARSE:
        return "too little detail to decide"
    return f"fine detail does not agree (correlation {check['matched']:.2f}) after alignment"


def _another(check: Mapping[str, float], weakest: str) -> str:
    """Return what tells a similar pair from a near one."""
    places = round(check["altered_places"] or check["places"])
    if weakest == "unchanged" and places:
        return f"same template; content differs in {places} place{'s' if places != 1 else ''}"
    if check["opposed"] >= OPPOSED:
        return f"{100 * check['opposed']:.0f} % of the shared detail contradicts"
    if weakest == "unchanged" and check["colour"] < SAME_COLOURS:
        return f"same shapes in other colours (correlation {check['colour']:.2f})"
    return "nothing found that differs, but too little to be sure of the same shot"
