"""The metrics that a file of predictions gives, for the images that it matches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import UsageError, VisleakError
from visleak.impact.answer_columns import Answers, Float64, listed, numbers_of, quoted, text_of
from visleak.impact.benchmark import Benchmark
from visleak.impact.matching import Match
from visleak.impact.scoring import (
    TOP,
    Right,
    Truth,
    right_predictions,
    right_ranked,
    right_scores,
)
from visleak.pipeline.labels import normalised, share_classes

Int64 = npt.NDArray[np.int64]

ACCURACY: Final = "accuracy"
TOP_FIVE: Final = f"top-{TOP}"

#: What pandas calls a column of row numbers.
_ROW_NUMBERS: Final = ("", "Unnamed: 0", "__index_level_0__")

#: Columns that are no metrics, though they may hold numbers.
OTHERS: Final = frozenset(
    ("label", "prediction", "predictions", "confidence", "rank", "index", "classes", *_ROW_NUMBERS)
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
    """

    sources: dict[str, dict[str, Float64]] = field(default_factory=dict)
    unusable: list[str] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, metric: str, source: str, values: Float64) -> None:
        """Take a column as a source of a metric."""
        self.sources.setdefault(metric, {})[source] = values

    def add_right(self, source: str, right: Right) -> None:
        """Take what a model is right about as sources of accuracy and top-5."""
        self.add(ACCURACY, f"`{source}`", right.first)
        if right.top is not None:
            self.add(TOP_FIVE, f"`{source}`", right.top)


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
        UsageError: predictions and labels do not fit.
        VisleakError: a column holds what it must not, or two columns contradict each other.
    """
    gathered = Gathered()
    _add_columns(gathered, file, found.rows)
    if not wanted or wanted & {ACCURACY, TOP_FIVE} or wanted - set(gathered.sources):
        _add_classes(gathered, file, found, benchmark)
        _settle(gathered, file.path)
    if gathered.unread:
        name, cell = next(iter(gathered.unread.items()))
        why = f"; in {quoted(name)} {cell}" if cell else ""
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
        values = numbers_of(column)
        if isinstance(values, int):
            cell = f"row {values} holds {quoted(column[values].as_py())}"
            if name == "correct":
                raise VisleakError(f"{file.path}: `correct` must be 0, 1, true or false; {cell}")
            gathered.unread[name] = cell
            continue
        if name == "correct":
            wrong = ~np.isnan(values) & (values != 0) & (values != 1)
            if wrong.any():
                row = int(wrong.argmax())
                raise VisleakError(
                    f"{file.path}: `correct` must be 0, 1, true or false; row {row} holds"
                    f" {values[row]:g}"
                )
        gathered.add(ACCURACY if name == "correct" else name, f"`{name}`", values[rows])
    gathered.unread.update(dict.fromkeys(file.unused, ""))


def _add_classes(gathered: Gathered, file: Answers, found: Match, benchmark: Benchmark) -> None:
    """Take what comes of comparing predictions with labels."""
    given = [
        name
        for name, there in (
            ("prediction", "prediction" in file.columns),
            ("predictions", file.ranked is not None),
            ("scores", file.scores is not None),
        )
        if there
    ]
    if not given:
        return
    truth = _truth(gathered, file, found, benchmark)
    if truth is None:
        gathered.unusable.append(
            f"`{given[0]}` needs labels, and set {quoted(benchmark.name)} has none: add a column"
            " `label`, or give `correct`"
        )
        return
    predicted = None
    if "prediction" in file.columns:
        where = f"{file.path}: column `prediction`"
        predicted = text_of(file.columns["prediction"], where).take(pa.array(found.rows))
        if _speaks(gathered, "prediction", predicted, truth):
            gathered.add_right("prediction", right_predictions(predicted, truth))
    if file.ranked is not None:
        ranked = right_ranked(file.ranked, found.rows, truth)
        if predicted is not None:
            _refuse_other_first(file, found.rows, predicted, ranked.firsts)
        if _speaks(gathered, "predictions", ranked.firsts, truth, silent=predicted is not None):
            gathered.add_right("predictions", ranked.right)
        if ranked.many and ranked.right.top is None:
            gathered.notes.append(
                f"its lists of predictions have at most {ranked.longest}, so there is no {TOP_FIVE}"
            )
    if file.scores is not None:
        _add_scores(gathered, file, found.rows, truth)


def _truth(gathered: Gathered, file: Answers, found: Match, benchmark: Benchmark) -> Truth | None:
    """Return the labels of the matched rows: those of the file, else those of the set."""
    images = pa.array(found.images)
    theirs = None if benchmark.labels is None else benchmark.labels.take(images)
    if "label" in file.columns:
        labels = text_of(file.columns["label"], f"{file.path}: column `label`")
        if labels.null_count < len(labels):
            mine = labels.take(pa.array(found.rows))
            gathered.notes += _other_labels(mine, theirs)
            return Truth(mine, _vocabulary(labels), "its column `label`", in_file=True)
    if theirs is None or benchmark.labels is None:
        return None
    return Truth(theirs, _vocabulary(benchmark.labels), f"set {quoted(benchmark.name)}")


def _vocabulary(labels: pa.StringArray) -> pa.Array:
    return pc.unique(normalised(pc.unique(labels).drop_null()))


def _other_labels(mine: pa.StringArray, theirs: pa.StringArray | None) -> Iterator[str]:
    """Yield that labels differ from those of the set, where both speak of the same classes."""
    if theirs is None or not share_classes(mine, theirs):
        return
    differs = pc.fill_null(pc.not_equal(normalised(mine), normalised(theirs)), False)
    count = pc.sum(differs).as_py() or 0
    if count:
        yield (
            f"its column `label` differs from the audited labels for {count:,} of {len(mine):,}"
            " images; the column is what predictions are compared with"
        )


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
    if count == total and (total >= SURE or _numbers(predicted) != _numbers(truth.labels)):
        gathered.unusable.append(
            f"none of its predictions (`{source}`) is a label: it predicts {odd}, labels of"
            f" {truth.source} are such as {_example(truth.labels)}; {_remedy(truth)}"
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


def _remedy(truth: Truth) -> str:
    """Return what to do where predictions and labels are in different words."""
    if truth.in_file:
        return (
            "write both in the same words, or leave `label` out to compare with the audited labels"
        )
    return "name classes as the set does, or add a column `label` in the words of the predictions"


def _numbers(texts: pa.StringArray) -> bool:
    """Whether all texts are whole numbers."""
    whole = pc.match_substring_regex(texts.drop_null(), r"^-?[0-9]+(\.0+)?$")
    return bool(pc.all(whole, min_count=0).as_py())


def _example(texts: pa.StringArray) -> str:
    known = texts.drop_null()
    return quoted(known[0]) if len(known) else "none"


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


def _add_scores(gathered: Gathered, file: Answers, rows: Int64, truth: Truth) -> None:
    if file.scores is None:
        return
    scored = right_scores(file.scores, rows, truth, file.path)
    count = int(scored.classless.sum())
    labelled = len(truth.labels) - truth.labels.null_count
    if count and count == labelled:
        ask = "name them in `classes`" if file.scores.classes is None else _remedy(truth)
        gathered.unusable.append(
            f"no label is one of its {len(scored.classes):,} classes: labels of {truth.source} are"
            f" such as {_example(truth.labels)}, classes such as {_example(scored.classes)}; {ask}"
        )
        return
    if count:
        lost = quoted(truth.labels[int(scored.classless.argmax())])
        gathered.notes.append(
            f"{count:,} of {labelled:,} labels are none of its {len(scored.classes):,} classes,"
            f" such as {lost}: those images count as wrong"
        )
    gathered.add_right("scores", scored.right)


def _settle(gathered: Gathered, path: str) -> None:
    """Refuse predictions that cannot be compared with labels, unless ``correct`` is there."""
    if not gathered.unusable:
        return
    others = [name for name in gathered.sources if name != ACCURACY]
    if ACCURACY not in gathered.sources:
        instead = f", or ask for {listed(others)} with --metric" if others else ""
        raise UsageError(f"{path}: {gathered.unusable[0]}{instead}")
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
