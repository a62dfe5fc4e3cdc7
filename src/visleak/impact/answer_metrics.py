"""The metrics that a file of predictions gives, for the images that it matches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import VisleakError
from visleak.impact.answer_columns import (
    Answers,
    ClassScores,
    Float64,
    Ranked,
    listed,
    numbers_of,
    percentages_of,
    quoted,
    text_of,
)
from visleak.impact.answer_labels import are_numbers, example, remedy, truth_of
from visleak.impact.benchmark import Benchmark
from visleak.impact.matching import Match
from visleak.impact.plausibility import Evidence
from visleak.impact.scoring import (
    TOP,
    Right,
    Truth,
    right_predictions,
    right_ranked,
    right_scores,
)
from visleak.pipeline.labels import normalised

Int64 = npt.NDArray[np.int64]

ACCURACY: Final = "accuracy"
TOP_FIVE: Final = f"top-{TOP}"

#: What pandas calls a column of row numbers.
_ROW_NUMBERS: Final = ("", "Unnamed: 0", "__index_level_0__")

#: Columns that are no metrics, though they may hold numbers.
OTHERS: Final = frozenset(
    ("label", "prediction", "predictions", "confidence", "rank", "index", "classes", *_ROW_NUMBERS)
)

#: What is said of ``predictions`` that are no lists.
LISTS: Final = (
    "`predictions` holds lists of classes, in Parquet or npz; one class an image is `prediction`"
)

#: A model that names a class of the set in none of so many answers speaks another language.
SURE: Final = 10


@dataclass
class Gathered:
    """What is found in a file, step by step.

    Attributes:
        sources: metric to the columns that give it: their names, and values (m,) by matched row.
        unusable: why predictions cannot be compared with labels.
        unread: columns that are no numbers, and the first cell that is none.
        notes: what is to be said.
        evidence: what is predicted, against the labels.
    """

    sources: dict[str, dict[str, Float64]] = field(default_factory=dict)
    unusable: list[str] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    evidence: Evidence | None = None

    def add(self, metric: str, source: str, values: Float64) -> None:
        """Take a column as a source of a metric."""
        self.sources.setdefault(metric, {})[source] = values

    def add_right(self, source: str, right: Right) -> None:
        """Take what a model is right about as sources of accuracy and top-5."""
        self.add(ACCURACY, f"`{source}`", right.first)
        if right.top is not None:
            self.add(TOP_FIVE, f"`{source}`", right.top)

    def add_guesses(self, guesses: Int64, truth: Truth) -> None:
        """Take predicted classes as evidence of whether the file fits the images."""
        names = tuple(truth.vocabulary.to_pylist())
        self.evidence = Evidence(guesses, truth.codes(truth.labels), names)


def metrics_of(
    file: Answers, found: Match, benchmark: Benchmark, wanted: frozenset[str]
) -> tuple[dict[str, Float64], Gathered]:
    """Return the metrics of a file by name, (m,) by matched row, NaN for no value.

    Args:
        file: the predictions.
        found: which of their rows mean which images.
        benchmark: the images, with their labels.
        wanted: metrics that are asked for; empty for all.

    Raises:
        VisleakError: predictions and labels do not fit, a column holds what it must not, or two
            columns contradict each other.
    """
    gathered = Gathered()
    _add_columns(gathered, file, found.rows)
    if not wanted or wanted & {ACCURACY, TOP_FIVE} or wanted - set(gathered.sources):
        _add_classes(gathered, file, found, benchmark)
        _settle(gathered, file.path)
    if gathered.unread:
        name, cell = next(iter(gathered.unread.items()))
        why = f" ({quoted(name)}: {cell})" if cell else ""
        gathered.notes.append(f"columns that are no metrics: {listed(gathered.unread)}{why}")
    first = [name for name in (ACCURACY, TOP_FIVE) if name in gathered.sources]
    order = dict.fromkeys([*first, *gathered.sources])
    return {
        name: _agreed(name, gathered.sources[name], file, found.rows) for name in order
    }, gathered


def _add_columns(gathered: Gathered, file: Answers, rows: Int64) -> None:
    """Take ``correct`` and all columns of numbers."""
    for name, column in file.columns.items():
        if name in OTHERS:
            continue
        values = _numbers(gathered, file, name, column)
        if name == "correct":
            odd = values if isinstance(values, int) else _neither(values)
            if odd is not None:
                raise VisleakError(
                    f"{file.path}: `correct` must be 0, 1, true or false; {_cell(column, odd)}"
                )
        if isinstance(values, int):
            gathered.unread[name] = _cell(column, values)
        else:
            gathered.add(ACCURACY if name == "correct" else name, f"`{name}`", values[rows])
    gathered.unread.update(dict.fromkeys(file.unused, ""))
    if "predictions" in {*file.columns, *gathered.unread}:
        gathered.unread["predictions"] = LISTS


def _numbers(gathered: Gathered, file: Answers, name: str, column: pa.Array) -> Float64 | int:
    """Return a column as numbers, percentages as shares, or the first row that is no number."""
    values = numbers_of(column)
    found = percentages_of(column) if isinstance(values, int) else None
    if found is None:
        return values
    shares, odd = found
    if odd >= 0:
        marked = next(row for row, cell in enumerate(column) if "%" in str(cell.as_py()))
        raise VisleakError(
            f"{file.path}: column {quoted(name)} mixes percentages and plain numbers:"
            f" {_cell(column, marked)}, {_cell(column, odd)}; write all cells in one way"
        )
    gathered.notes.append(f"{quoted(name)} holds percentages, which are read as shares: 50% is 0.5")
    return shares


def _neither(values: Float64) -> int | None:
    """Return the first row that is neither 0 nor 1 nor empty."""
    wrong = ~np.isnan(values) & (values != 0) & (values != 1)
    return int(wrong.argmax()) if wrong.any() else None


def _cell(column: pa.Array, row: int) -> str:
    return f"row {row} holds {quoted(column[row].as_py())}"


def _add_classes(gathered: Gathered, file: Answers, found: Match, benchmark: Benchmark) -> None:
    """Take what comes of comparing predictions with labels."""
    there = {
        "prediction": "prediction" in file.columns,
        "predictions": file.ranked is not None,
        "scores": file.scores is not None,
    }
    if not any(there.values()):
        return
    truth, said = truth_of(file, found, benchmark)
    gathered.notes += said
    if truth is None:
        gathered.unusable.append(
            f"`{max(there, key=there.__getitem__)}` needs labels, and set {quoted(benchmark.name)}"
            " has none: add a column `label`, or give `correct`"
        )
        return
    predicted = None
    if "prediction" in file.columns:
        where = f"{file.path}: column `prediction`"
        predicted = text_of(file.columns["prediction"], where).take(pa.array(found.rows))
        if _speaks(gathered, "prediction", predicted, truth):
            gathered.add_right("prediction", right_predictions(predicted, truth))
            gathered.add_guesses(_guesses(predicted, truth), truth)
    if file.ranked is not None:
        _add_ranked(gathered, file, file.ranked, found.rows, truth, predicted)
    if file.scores is not None:
        _add_scores(gathered, file, file.scores, found.rows, truth)


def _speaks(
    gathered: Gathered, source: str, predicted: pa.StringArray, truth: Truth, silent: bool = False
) -> bool:
    """Whether predictions are in the words of the labels; say how many are not."""
    there = predicted.is_valid().to_numpy(zero_copy_only=False)
    outside = there & (truth.codes(predicted) < 0)
    count, total = int(outside.sum()), int(there.sum())
    if not count:
        return True
    odd = quoted(predicted[int(outside.argmax())])
    if count == total and (total >= SURE or are_numbers(predicted) != are_numbers(truth.labels)):
        gathered.unusable.append(
            f"none of its predictions (`{source}`) is a label: it predicts {odd}, labels of"
            f" {truth.source} are such as {example(truth.labels)}; {remedy(truth)}"
        )
        return False
    if not silent:
        share = 100 * count / total
        doubt = ": do both sides call the classes alike?" if share > 50 else ""
        gathered.notes.append(
            f"{count:,} of {total:,} predictions ({share:.1f} %) are no label of {truth.source},"
            f" such as {odd}, and count as wrong{doubt}"
        )
    return True


def _add_ranked(
    gathered: Gathered,
    file: Answers,
    lists: Ranked,
    rows: Int64,
    truth: Truth,
    predicted: pa.StringArray | None,
) -> None:
    ranked = right_ranked(lists, rows, truth)
    if predicted is not None:
        _refuse_other_first(file, rows, predicted, ranked.firsts)
    if _speaks(gathered, "predictions", ranked.firsts, truth, silent=predicted is not None):
        gathered.add_right("predictions", ranked.right)
        gathered.add_guesses(_guesses(ranked.firsts, truth), truth)
    if ranked.many and ranked.right.top is None:
        gathered.notes.append(
            f"its lists of predictions have at most {ranked.longest}, so there is no {TOP_FIVE}"
        )


def _refuse_other_first(
    file: Answers, rows: Int64, predicted: pa.StringArray, firsts: pa.StringArray
) -> None:
    other = pc.fill_null(pc.not_equal(normalised(predicted), normalised(firsts)), False)
    found = np.flatnonzero(other.to_numpy(zero_copy_only=False))
    if len(found):
        first = int(found[0])
        raise VisleakError(
            f"{file.path}: row {rows[first]} predicts {quoted(predicted[first])} in `prediction`"
            f" and first {quoted(firsts[first])} in `predictions`; leave one of the columns out"
        )


def _add_scores(
    gathered: Gathered, file: Answers, scores: ClassScores, rows: Int64, truth: Truth
) -> None:
    scored = right_scores(scores, rows, truth, file.path)
    count = int(scored.classless.sum())
    labelled = len(truth.labels) - truth.labels.null_count
    if count and count == labelled:
        ask = "name them in `classes`" if scores.classes is None else remedy(truth)
        gathered.unusable.append(
            f"no label is one of its {len(scored.classes):,} classes: labels of {truth.source} are"
            f" such as {example(truth.labels)}, classes such as {example(scored.classes)}; {ask}"
        )
        return
    if count:
        lost = quoted(truth.labels[int(scored.classless.argmax())])
        gathered.notes.append(
            f"{count:,} of {labelled:,} labels are none of its {len(scored.classes):,} classes,"
            f" such as {lost}: those images count as wrong"
        )
    gathered.add_right("scores", scored.right)
    gathered.add_guesses(scored.guesses, truth)


def _guesses(predicted: pa.StringArray, truth: Truth) -> Int64:
    there = predicted.is_valid().to_numpy(zero_copy_only=False)
    return np.asarray(np.where(there, truth.codes(predicted), -2))


def _settle(gathered: Gathered, path: str) -> None:
    """Refuse predictions that cannot be compared with labels, unless ``correct`` is there."""
    if not gathered.unusable:
        return
    others = [name for name in gathered.sources if name != ACCURACY]
    if ACCURACY not in gathered.sources:
        instead = f", or ask for {listed(others)} with --metric" if others else ""
        raise VisleakError(f"{path}: {gathered.unusable[0]}{instead}")
    gathered.notes += [f"not used: {reason}" for reason in gathered.unusable]


def _agreed(metric: str, sources: Mapping[str, Float64], file: Answers, rows: Int64) -> Float64:
    """Return the values of a metric, on which all of its sources must agree."""
    (name, values), *others = sources.items()
    for other, more in others:
        differ = ~np.isnan(values) & ~np.isnan(more) & (values != more)
        if differ.any():
            first = int(differ.argmax())
            row = int(rows[first])
            raise VisleakError(
                f"{file.path}: {metric} of row {row} (id {quoted(file.ids[row])}) is"
                f" {values[first]:g} by {name} and {more[first]:g} by {other}; leave one of the"
                " columns out, or mend labels"
            )
        values = np.where(np.isnan(values), more, values)
    return values
