"""The metrics of all training runs of a curve, and what their names mean."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from visleak.errors import UsageError, VisleakError
from visleak.quantities import (
    bare_name,
    is_loss_name,
    is_precision_name,
    is_share_name,
    plain_name,
)
from visleak.records import Bool, Float64
from visleak.storage import open_rows

#: Names of the metrics of Babu et al. 2025, the most specific first. ``map`` alone comes last,
#: because some mean the average over 0.5:0.95 by it.
ALIASES: Final = {"map50": ("map50", "map05", "map5", "ap50", "map"), "f1": ("f1", "f1score")}
#: Beginnings of names of metrics that count correct answers.
ACCURACY: Final = ("acc", "balancedacc", "top1", "top5")
#: Metrics of a detector in addition to average precision.
DETECTED: Final = ("precision", "recall", *ALIASES["f1"])
#: Number of steps that decide by default: 0, 10 and 20 % (Babu et al. 2025, section 4).
STEPS: Final = 3


@dataclass(frozen=True)
class Scores:
    """The scores of every training run."""

    metrics: tuple[str, ...]  # their names
    steps: tuple[int, ...]  # percent of the test images that leak, ascending from 0
    repetitions: tuple[int, ...]  # numbers of the chains, ascending
    values: Float64  # (metrics, repetitions, steps); NaN for missing runs
    lower: frozenset[str] = frozenset()  # the metrics for which lower is better
    rescaled: tuple[str, ...] = ()  # metrics that were given in percent, and are shares here

    def __post_init__(self) -> None:
        shape = (len(self.metrics), len(self.repetitions), len(self.steps))
        if not self.values.size and 0 in shape:
            # empty lists have no shape
            object.__setattr__(self, "values", self.values.reshape(shape))
        if self.values.shape != shape:
            raise ValueError(f"values must have the shape {shape}, not {self.values.shape}")

    def of(self, metric: str) -> Float64:
        """Return the values of one metric, (repetitions, steps)."""
        return np.asarray(self.values[self.metrics.index(metric)])

    def complete(self, steps: tuple[int, ...]) -> Bool:
        """Return which chains have every metric at each of some steps, (repetitions,)."""
        columns = [self.steps.index(step) for step in steps]
        return np.asarray(np.isfinite(self.values[:, :, columns]).all(axis=(0, 2)))

    def count(self, step: int) -> int:
        """Return the number of training runs of a step."""
        return int(self.complete((step,)).sum())


def lower_is_better(metrics: Sequence[str], requested: Iterable[str] = ()) -> frozenset[str]:
    """Return the metrics for which lower is better: those requested, and those by their name."""
    named = frozenset(requested)
    for name in sorted(named - set(metrics)):
        raise UsageError(
            f"--lower-is-better: there is no metric {name!r}; the training runs have"
            f" {', '.join(metrics)}"
        )
    return named | {name for name in metrics if is_loss_name(name)}


def metric_called(available: Sequence[str], name: str) -> str | None:
    """Return the metric of a name: the same, the same but for case, or an alias."""
    if name in available:
        return name
    plain = {plain_name(each): each for each in reversed(available)}
    family = next((names for names in ALIASES.values() if plain_name(name) in names), ())
    return next((plain[each] for each in (plain_name(name), *family) if each in plain), None)


def _known(scores: Scores, name: str) -> str:
    if (found := metric_called(scores.metrics, name)) is None:
        raise UsageError(
            f"there is no metric {name!r}; the training runs have {', '.join(scores.metrics)}"
        )
    return found


def _is_detected(metric: str) -> bool:
    return is_precision_name(metric) or bare_name(metric) in DETECTED


def deciding_metrics(scores: Scores, requested: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the metrics that decide, by their names in the scores."""
    if not requested:
        usual = [metric_called(scores.metrics, name) for name in ALIASES]
        return tuple(filter(None, usual)) if all(usual) else scores.metrics
    names = [_known(scores, name) for name in requested]
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise UsageError(f"the metric {twice!r} is requested twice; name it once")
    return tuple(names)


def deciding_steps(scores: Scores, requested: tuple[int, ...] | None = None) -> tuple[int, ...]:
    """Return the steps that decide: those requested, or the first three."""
    steps = tuple(scores.steps[:STEPS] if requested is None else requested)
    fits = set(steps) <= set(scores.steps) and list(steps) == sorted(set(steps))
    if len(steps) < 2 or not fits or steps[0] != scores.steps[0]:
        available = ", ".join(map(str, scores.steps))
        shown = ", ".join(map(str, steps)) or "none"
        raise UsageError(
            "a verdict needs two deciding steps or more, ascending and beginning with"
            f" {scores.steps[0]} %; there are {available}, got {shown}"
        )
    return steps


def missing_metrics(scores: Scores, requested: Sequence[str]) -> str:
    """Return a line on the metrics of the paper that a detector lacks; empty if it lacks none."""
    missing = [name for name in ALIASES if metric_called(scores.metrics, name) is None]
    classifies = any(bare_name(metric).startswith(ACCURACY) for metric in scores.metrics)
    detects = any(map(_is_detected, scores.metrics))
    if requested or classifies or not missing or not detects:
        return ""
    names = " and ".join(missing)
    return (
        f"{names} {'is' if len(missing) == 1 else 'are'} missing: the training runs have only"
        f" {', '.join(scores.metrics)}, and the paper decides by mAP and F1 together; let them"
        f" report {names}, or name the deciding metric with --metric"
    )


def chance_of(scores: Scores, requested: Mapping[str, float]) -> dict[str, float]:
    """Return the score of guessing, by the names in the scores, where it is known.

    It is as requested, and 0 for average precision, which only detectors have, and for precision,
    recall and F1 of the same model.
    """
    for name, value in requested.items():
        if not 0.0 <= value < 1.0:
            raise UsageError(f"chance of {name!r} must be 0 or more and below 1; got {value:g}")
    detects = any(is_precision_name(name) for name in scores.metrics)
    found = {name: 0.0 for name in scores.metrics if detects and _is_detected(name)}
    return found | {_known(scores, name): value for name, value in requested.items()}


def chance_levels(labels: pa.StringArray | None) -> dict[str, float]:
    """Return the score of the best guess without looking at the image, by metric.

    The share of the most frequent class of the test set, or of the five most frequent; for the
    macro F1 one over the number of classes, which no constant answer exceeds.

    >>> chance_levels(pa.array(["a", "a", "a", "b"]))
    {'accuracy': 0.75, 'accuracy_top5': 1.0, 'f1': 0.5}
    """
    counts = Counter([] if labels is None else labels.drop_null().to_pylist())
    if not counts:
        return {}
    shares = [count / counts.total() for _, count in counts.most_common()]
    five = min(1.0, sum(shares[:5]))
    return {"accuracy": shares[0], "accuracy_top5": five, "f1": 1.0 / len(shares)}


#: Columns that are not metrics.
STEP: Final = "step"
REPETITION: Final = "repetition"
KNOWN: Final = (STEP, REPETITION, "seconds")
LIMIT: Final = 10 << 20  # larger files are not lists of training runs


@dataclass(frozen=True, slots=True)
class _Row:
    """A line of the file: its number, and its cells by column."""

    path: Path
    line: int
    cells: dict[str, str]

    def fault(self, column: str, words: str) -> VisleakError:
        return VisleakError(f"{self.path}, line {self.line}, column {_quoted(column)}: {words}")

    def number(self, column: str) -> tuple[str, float | None]:
        """Return a cell's text, and the finite number in it, with or without a percent sign."""
        text = self.cells[column].strip()
        try:
            number = float(text.removesuffix("%"))
        except ValueError:
            return text, None
        # only Python reads 1_0 as 10
        return text, number if math.isfinite(number) and "_" not in text else None

    def whole(self, column: str, least: int, most: float = math.inf) -> int:
        text, number = self.number(column)
        if number is None or not least <= number <= most or number != int(number):
            allowed = f", {least} or more" if math.isinf(most) else f" from {least} to {most:g}"
            raise self.fault(
                column, f"must be a whole number{allowed}; got {_quoted(text) or 'nothing'}"
            )
        return int(number)

    def score(self, column: str) -> float:
        """Return a value as it is written, a hundredth of one with a percent sign; NaN of none."""
        text, number = self.number(column)
        if not text or text.lower() == "nan":
            return math.nan
        if number is None:
            raise self.fault(
                column,
                f"must be a number such as 0.486 or 48.6%; got {_quoted(text)}; remove the column"
                " if it is not a metric",
            )
        return number / 100.0 if text.endswith("%") else number


def read_scores(path: str | os.PathLike[str], *, lower: Sequence[str] = ()) -> Scores:
    """Read a file of scores.

    Each row is a training run, or the published mean of several. ``step``: percent of the test
    images that leak; ``repetition`` numbers the chains, and without it there is one; ``seconds``
    is not read; all other columns are metrics. Values with a percent sign are read as shares, and
    so are those above 1 of metrics that are shares by their name; others are taken as they are. An
    empty cell is a missing run.
    """
    file = Path(path)
    rows = list(_rows(file))
    header = list(rows[0].cells)
    metrics = tuple(name for name in header if name not in KNOWN)
    if unknown := [name for name in lower if name not in metrics]:
        raise UsageError(f"{file} has no metric {unknown[0]!r}; it has {', '.join(metrics)}")
    found: dict[tuple[int, int], _Row] = {}
    numbered = REPETITION in header
    for row in rows:
        step = row.whole(STEP, 0, 100)
        repetition = row.whole(REPETITION, 0) if numbered else 1
        other = found.setdefault((repetition, step), row)
        if other is not row:
            which = f" of repetition {repetition}" if numbered else ""
            advice = "keep one" if numbered else f"number its repetitions in a column {REPETITION}"
            raise row.fault(STEP, f"step {step}{which} is in line {other.line} already; {advice}")
    steps = sorted({step for _, step in found})
    if steps[0] != 0:
        shown = ", ".join(map(str, steps))
        raise VisleakError(
            f"{file} has no step 0, the run without leaks on purpose; its steps are {shown}"
        )
    if len(steps) < 2:
        raise VisleakError(f"{file} has only step 0; at least one with leaks is needed, too")
    repetitions = sorted({repetition for repetition, _ in found})
    values = np.full((len(metrics), len(repetitions), len(steps)), np.nan)
    for (repetition, step), row in found.items():
        place = repetitions.index(repetition), steps.index(step)
        values[:, *place] = [row.score(metric) for metric in metrics]
    for name, column in zip(metrics, values, strict=True):
        if not np.isfinite(column).any():
            raise VisleakError(f"{file}, column {_quoted(name)} has no values; remove it")
    rescaled = tuple(name for name in metrics if _is_percent(name, found.values()))
    values[[metrics.index(name) for name in rescaled]] /= 100.0
    less = lower_is_better(metrics, lower)
    return Scores(metrics, tuple(steps), tuple(repetitions), values, less, rescaled)


def _is_percent(metric: str, rows: Iterable[_Row]) -> bool:
    """Whether a column of a metric that is a share holds percent without a sign."""
    if not is_share_name(metric):
        return False
    known = [(value, row) for row in rows if not math.isnan(value := row.score(metric))]
    for value, row in known:
        if not 0.0 <= value <= 100.0:
            raise row.fault(metric, f"must be a share from 0 to 1 or a percentage; got {value:g}")
    large = next((each for each in known if each[0] > 1.0), None)
    small = next((each for each in known if 0.0 < each[0] <= 1.0), None)
    if large and small:
        raise large[1].fault(
            metric,
            f"{large[0]:g} is a percentage, and {small[0]:g} in line {small[1].line} a share; write"
            " percentages with a percent sign",
        )
    return large is not None


def _rows(path: Path) -> Iterator[_Row]:
    if not path.is_file():
        raise UsageError(f"there is no file of scores {path}")
    if path.stat().st_size > LIMIT:
        raise VisleakError(f"{path} has more than {LIMIT >> 20} MiB, too much for a list of scores")
    row = None
    with open_rows(path) as rows:
        header = _header(path, rows.names) if rows.names else []
        for row in rows:
            yield _Row(path, rows.line, dict(zip(header, row.values(), strict=True)))
    if row is None:
        what = "has no rows below its header" if header else "is empty"
        raise VisleakError(
            f"{path} {what}: a file of scores has a column step, perhaps repetition, and metrics"
        )


def _header(path: Path, names: Sequence[str]) -> list[str]:
    header = [name.lower() if name.lower() in KNOWN else name for name in names]
    (name, times), *_ = Counter(header).most_common(1)
    there = ", ".join(map(_quoted, header[:8]))
    odd = [each for each in header if not each.isprintable()]
    wrong = ""
    if times > 1:
        wrong = f"more than one column {_quoted(name)}; keep one"
    elif "" in header:
        wrong = "a column without a name; name it or remove it"
    elif odd:
        wrong = f"a column {_quoted(odd[0])}; name it by letters in one line"
    elif STEP not in header:
        wrong = f"no column step, the percent of the test images that leak; its columns are {there}"
    elif not set(header) - set(KNOWN):
        wrong = f"no metric beside {there}; add a column such as map50"
    if wrong:
        raise VisleakError(f"{path} has {wrong}")
    return header


def _quoted(text: str) -> str:
    """Return a text of the file in one line, cut where it is long."""
    return repr(text if len(text) <= 40 else f"{text[:39]}…") if text else ""
