"""A benchmark in sentences that a person can repeat."""

from __future__ import annotations

import math
import re
from typing import Final

from visleak.memorization.benchmark.paper import REFERENCE, paper_table
from visleak.memorization.benchmark.records import NONE, TRIGGER, Benchmark, Line, MethodRow

#: How methods are called in sentences, tables and figures.
NAMES: Final = {
    NONE: "no mitigation",
    "rna": "RNA",
    "rta": "RTA",
    "wen": "Wen et al.",
    "ren": "Ren et al.",
}

#: Folders before the last part of an absolute path, wherever it stands in a name.
_FOLDERS: Final = re.compile(r"(?<![\w.])~?/(?:[^\s/]+/)*([^\s/]+)/?")

#: From which probability on a change is called one.
LEVEL: Final = 0.05


def short(name: str) -> str:
    """Return a name without the folders of a machine's paths.

    >>> short("/home/ann/sd-1.4/"), short("head.pth on clip:/models/vit-l"), short("hub:CompVis/sd")
    ('sd-1.4', 'head.pth on clip:vit-l', 'hub:CompVis/sd')
    """
    return _FOLDERS.sub(r"\1", name)


def line_name(line: Line) -> str:
    """Return how a method with its options is called."""
    return ", ".join(each for each in (name_of(line.method), line.variant) if each)


def name_of(method: str) -> str:
    """Return how a method is called; one that nobody knows by its own name."""
    return NAMES.get(method, method)


def label_of(row: MethodRow) -> str:
    """Return method and setting as people read them."""
    return f"{name_of(row.method)} {row.setting}".strip()


def number(value: float, places: int = 3) -> str:
    """Return a number as the paper prints it; a dash where it is not known.

    >>> number(0.6412), number(5.249, 2), number(-0.0004), number(float("nan"))
    ('.641', '5.25', '.000', '-')
    """
    if math.isnan(value):
        return "-"
    text = f"{value:.{places}f}"
    if float(text) == 0:
        text = text.lstrip("-")
    return text.replace("0.", ".", 1) if text.lstrip("-").startswith("0.") else text


def signed(value: float, places: int = 3) -> str:
    """Return a change with its sign.

    >>> signed(0.0123), signed(-0.5), signed(0.0)
    ('+.012', '-.500', '.000')
    """
    text = number(value, places)
    return f"+{text}" if value > 0 and float(text) != 0 else text


def p_value(value: float) -> str:
    """Return a probability in words.

    >>> p_value(0.0421), p_value(0.00003), p_value(float("nan"))
    ('p = .042', 'p < .001', 'p is not known')
    """
    if math.isnan(value):
        return "p is not known"
    return "p < .001" if value < 0.001 else f"p = {number(value)}"


def headline(result: Benchmark) -> str:
    """Return what stands above all: which method lowers similarity most at what cost."""
    base = result.base.value(TRIGGER, "top1")
    best = [best_of(result, line) for line in result.lines]
    known = [row for row in best if row is not None]
    if not known:
        return f"without mitigation the top-1 similarity is {number(base)}"
    told = ", ".join(_told(result, row) for row in known)
    return f"top-1 similarity {number(base)} without mitigation; {told}"


def _told(result: Benchmark, row: MethodRow) -> str:
    clip = row.value(TRIGGER, "clip")
    cost = (
        "" if math.isnan(clip) else f" (CLIP {signed(clip - result.base.value(TRIGGER, 'clip'))})"
    )
    return f"{number(row.value(TRIGGER, 'top1'))} with {label_of(row)}{cost}"


def best_of(result: Benchmark, line: Line) -> MethodRow | None:
    """Return the row of a method with the lowest top-1 similarity."""
    rows = [row for row in result.of(line) if not math.isnan(row.value(TRIGGER, "top1"))]
    return min(rows, key=lambda row: row.value(TRIGGER, "top1"), default=None)


def verdicts(result: Benchmark) -> list[str]:
    """Return for each method whether it succeeds by the paper's rule, in words.

    The rule: top-1 similarity comes down to that of the reference, what a search for the prompt
    would have shown, while the CLIP score stays at least at the base's.
    """
    rows = (best_of(result, line) for line in result.lines)
    return [_verdict(result, row) for row in rows if row is not None]


def meets(result: Benchmark, row: MethodRow) -> tuple[bool | None, bool | None]:
    """Return whether a row's similarity reaches the reference, and whether its CLIP score stays.

    ``None`` where it is not known.
    """
    top, clip = row.value(TRIGGER, "top1"), row.value(TRIGGER, "clip")
    goal, _ = goal_of(result)
    reached = None if math.isnan(goal) or math.isnan(top) else top <= goal
    stays = None if math.isnan(clip) else clip >= result.base.value(TRIGGER, "clip")
    return reached, stays


def goal_of(result: Benchmark) -> tuple[float, str]:
    """Return the similarity that a method is to come down to, and whose it is.

    That of the reference performance, where a search was asked; else the paper's, for its own
    models and similarity alone; else NaN.
    """
    if result.reference is not None:
        return result.reference.similarity.value, "the reference"
    paper = paper_table(result.about["model"])
    printed = None if paper is None else paper.row(REFERENCE)
    value = None if printed is None else printed.values[(TRIGGER, "top1")]
    if value is None or not is_sscd(result):
        return math.nan, ""
    return value, "the paper's reference"


def is_sscd(result: Benchmark) -> bool:
    """Whether the similarity is the paper's."""
    return str(result.about["similarity"]["name"]).startswith("sscd")


def _verdict(result: Benchmark, lowest: MethodRow) -> str:
    """Return the sentence about one method."""
    rows = result.of(lowest.line)
    winner = next((row for row in rows if meets(result, row) == (True, True)), None)
    row = winner or lowest
    reached, stays = meets(result, row)
    said = f"{label_of(row)}: top-1 {number(result.base.value(TRIGGER, 'top1'))} to "
    said += f"{number(row.value(TRIGGER, 'top1'))}{_surely(row, 'top1')}"
    if reached is not None:
        goal, whose = goal_of(result)
        said += f", {'at or below' if reached else 'above'} {whose} {number(goal)}"
    clip = row.score(TRIGGER, "clip")
    if clip is not None and clip.change is not None:
        said += f", CLIP by {signed(clip.change.value)}{_surely(row, 'clip')}"
    if None in (reached, stays):
        lacking = [] if reached is not None else ["a reference performance"]
        lacking += [] if stays is not None else ["CLIP scores"]
        return f"{said}; whether it succeeds cannot be said without {' and '.join(lacking)}"
    goal, whose = goal_of(result)
    if result.base.value(TRIGGER, "top1") <= goal:
        return f"{said}: without mitigation it is at or below {whose} already, and none can succeed"
    if winner is not None:
        chance = "" if _is_sure(row, "top1") else ", by a change that may be chance"
        return f"{said}: it succeeds by the paper's rule{chance}"
    return f"{said}: it does not succeed by the paper's rule{_nearest(result, rows)}"


def _surely(row: MethodRow, name: str) -> str:
    """Return the probability of a number's own change, to stand behind this number."""
    score = row.score(TRIGGER, name)
    if score is None or score.change is None:
        return ""
    chance = "" if _is_sure(row, name) else ": it may be chance"
    return f" ({p_value(score.change.p_holm)}{chance})"


def _is_sure(row: MethodRow, name: str) -> bool:
    """Whether the change of a number is significant."""
    score = row.score(TRIGGER, name)
    return score is not None and score.change is not None and score.change.p_holm < LEVEL


def _nearest(result: Benchmark, rows: tuple[MethodRow, ...]) -> str:
    """Return what a method reaches at most while its CLIP score stays."""
    kept = [row for row in rows if meets(result, row)[1]]
    if not kept:
        return ", and no setting keeps the CLIP score"
    row = min(kept, key=lambda each: each.value(TRIGGER, "top1"))
    where = row.setting or "its one setting"
    reaches = f"{number(row.value(TRIGGER, 'top1'))}{_surely(row, 'top1')}"
    return f"; with the CLIP score kept it reaches {reaches} with {where}"
