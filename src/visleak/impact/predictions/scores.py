"""The scores of a model, image by image, from a prediction file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import VisleakError
from visleak.formats.request import writable
from visleak.impact.benchmark import Benchmark, Scores
from visleak.impact.predictions.files import (
    PredictionFile,
    listed,
    numbers_of,
    percentages_of,
    quoted,
    read_predictions,
    text_of,
)
from visleak.impact.predictions.matching import (
    TOP,
    Correct,
    Match,
    Truth,
    codes,
    correct_predictions,
    correct_ranked,
    correct_scores,
    coverage_note,
    match,
    unknown_note,
)
from visleak.impact.predictions.plausibility import Evidence, Labels, doubts_of
from visleak.pipeline.comparison import normalised, share_classes
from visleak.quantities import is_loss_name, is_share_name
from visleak.records import Float64

ACCURACY: Final = "accuracy"
TOP_FIVE: Final = f"top-{TOP}"

#: Columns that are not metrics, though they may hold numbers; the last are pandas' row numbers.
OTHERS: Final = frozenset(
    (
        *("id", "label", "prediction", "predictions", "confidence", "rank", "index", "classes"),
        *("", "Unnamed: 0", "__index_level_0__"),
    )
)

#: Why ``predictions`` that are not lists are not used.
_LISTS: Final = (
    "`predictions` holds lists of classes, in Parquet or npz; one class per image is `prediction`"
)

#: A model that names a class of the set in none of this many predictions has other class names.
_SURE: Final = 10


def read_scores(
    path: str | os.PathLike[str],
    benchmark: Benchmark,
    *,
    name: str = "",
    metrics: Sequence[str] = (),
    lower: Sequence[str] = (),
    allow_partial: bool = False,
) -> Scores:
    """Read the predictions of a model, image by image, from a prediction file.

    The file is CSV, TSV, Parquet or npz and has ``id``, which names the image, and any of:
    ``correct`` (0, 1, true, false), ``prediction`` (a class), ``predictions`` (classes, best
    first), class scores, and columns of numbers, which are metrics of their own names. Labels
    come from ``label``, else from the benchmark. Rows may be in any order.

    >>> import pyarrow as pa, tempfile
    >>> file = Path(tempfile.mkdtemp()) / "resnet.csv"
    >>> _ = file.write_text("id,prediction,loss\\nb.png,cat,0.5\\na.png,cat,2\\n")
    >>> labels = pa.array(["dog", "cat"])
    >>> test = Benchmark("test", ("train",), pa.array(["a.png", "b.png"]), labels, ())
    >>> scores = read_scores(file, test, lower=["loss"])
    >>> scores.model, {metric: values.tolist() for metric, values in scores.values.items()}
    ('resnet', {'accuracy': [0.0, 1.0], 'loss': [2.0, 0.5]})

    Args:
        path: the file.
        benchmark: the images.
        name: of the model; the file's name without its ending if empty.
        metrics: to read; all by default.
        lower: metrics of which lower is better.
        allow_partial: accept predictions for less than 95 % of the images.

    Raises:
        UsageError: there is no such file, or its format is not supported.
        VisleakError: the file is damaged, contradicts itself, is of another set, or lacks a metric.
    """
    file = read_predictions(path)
    found = match(file.ids, benchmark, file.path)
    model = writable(name or Path(path).stem)
    read = _MetricReader(file, found, benchmark)
    chosen = read.chosen(metrics, lower)
    columns, torn = _complete(file, chosen, found, len(benchmark))
    answered = ~np.isnan(next(iter(columns.values())))
    notes = [*unknown_note(found, file.ids, benchmark), *read.notes]
    if torn:
        notes.append(
            f"images that lack some of the metrics {listed(chosen)} and are ignored in all:"
            f" {torn:,}"
        )
    notes += coverage_note(answered, found, file.ids, benchmark, file.path, allow_partial)
    shown = model if model.isprintable() else quoted(model)
    own = None if benchmark.labels is None else read.labels[1]
    evidence = read.evidence
    named = {metric for metric in columns if is_loss_name(metric)} - set(lower)
    if named:
        notes.append(f"lower is better by their names: {listed(sorted(named))}")
    ids = file.ids.take(pa.array(found.rows))
    return Scores(
        model,
        columns,
        os.fspath(path),
        found.unknown,
        (frozenset(lower) & set(columns)) | named,
        doubts=tuple(doubts_of(ids, benchmark.ids, found.unknown, evidence, own)),
        checked=(*(["labels"] if own else []), *(["predictions"] if evidence else [])),
        notes=tuple(f"{shown}: {note}" for note in notes),
    )


def _complete(
    file: PredictionFile, chosen: Mapping[str, Float64], found: Match, images: int
) -> tuple[dict[str, Float64], int]:
    """Return metrics by image, all NaN where one is, and how many images lack some but not all."""
    missing = np.stack([np.isnan(values) for values in chosen.values()])
    lost = missing.any(axis=0)
    columns = {}
    for name, values in chosen.items():
        if (wrong := np.isinf(values)).any():
            row = int(found.rows[int(wrong.argmax())])
            raise VisleakError(
                f"{file.path}: metric {quoted(name)} of row {row} (id {quoted(file.ids[row])}) is"
                " infinite; leave the cell empty where there is no value"
            )
        columns[name] = np.full(images, np.nan)
        columns[name][found.images] = np.where(lost, np.nan, values)
    return columns, int((lost & ~missing.all(axis=0)).sum())


class _MetricReader:
    """Reads the metrics of a file, (m,) by matched row, from all columns that give them."""

    def __init__(self, file: PredictionFile, found: Match, benchmark: Benchmark) -> None:
        self.file, self.found, self.benchmark = file, found, benchmark
        self.sources: dict[str, dict[str, Float64]] = {}  # metric to columns, and their values
        self.unusable: list[str] = []  # why predictions cannot be compared with labels
        self.unread: dict[str, str] = {}  # columns that are not numbers, and the first such cell
        self.notes: list[str] = []
        self.evidence: Evidence | None = None  # predictions against the labels

    @cached_property
    def labels(self) -> tuple[Truth | None, Labels | None, list[str]]:
        """The labels of the matched rows, see :func:`truth_of`."""
        return truth_of(self.file, self.found, self.benchmark)

    def chosen(self, metrics: Sequence[str], lower: Sequence[str]) -> dict[str, Float64]:
        """Return the requested metrics, all by default; ``lower`` must be among those read."""
        file, values = self.file, self._metrics(frozenset([*metrics, *lower] if metrics else ()))
        if not values:
            names = listed(name for name in [*file.columns, *file.unused] if name != "id")
            there = f"it has {names}" if names else "it has `id` alone"
            name, cell = next(
                ((name, cell) for name, cell in self.unread.items() if cell), ("", "")
            )
            if cell:
                odd = f"{quoted(name)} is not of numbers such as 0.5: {cell}"
                there += f"; {_LISTS if cell == _LISTS else odd}"
            raise VisleakError(
                f"{file.path} holds nothing to score: it needs `correct`, `prediction`,"
                f" `predictions`, class scores or a column of numbers; {there}"
            )
        for name in (*metrics, *lower):
            if name not in values:
                reason = f" ({self.unread[name]})" if self.unread.get(name) else ""
                raise VisleakError(
                    f"{file.path} has no metric {quoted(name)}{reason}; it has {listed(values)}"
                )
        return {name: values[name] for name in (metrics or values)}

    def _metrics(self, wanted: frozenset[str]) -> dict[str, Float64]:
        """Return the metrics by name, NaN for no value; ``wanted`` is empty for all."""
        self._add_columns()
        if not wanted or wanted & {ACCURACY, TOP_FIVE} or wanted - set(self.sources):
            self._add_classes()
            self._settle()
        if self.unread:
            name, cell = next(iter(self.unread.items()))
            why = f" ({quoted(name)}: {cell})" if cell else ""
            self.notes.append(f"columns that are not metrics: {listed(self.unread)}{why}")
        first = [name for name in (ACCURACY, TOP_FIVE) if name in self.sources]
        return {name: self._agreed(name) for name in dict.fromkeys([*first, *self.sources])}

    def _add(self, metric: str, source: str, values: Float64) -> None:
        self.sources.setdefault(metric, {})[f"`{source}`"] = values

    def _add_correct(self, source: str, correct: Correct, truth: Truth) -> None:
        """Add accuracy and top-5, and the predicted classes as evidence that the file fits."""
        self._add(ACCURACY, source, correct.first)
        if correct.top is not None:
            self._add(TOP_FIVE, source, correct.top)
        names = tuple(truth.vocabulary.to_pylist())
        self.evidence = Evidence(correct.guesses, truth.codes(truth.labels), names)

    def _add_columns(self) -> None:
        for name, column in self.file.columns.items():
            if name in OTHERS:
                continue
            values = self._numbers(name, column)
            if name == "correct":
                odd = values if isinstance(values, int) else _first_not_binary(values)
                if odd is not None:
                    raise VisleakError(
                        f"{self.file.path}: `correct` must be 0, 1, true or false;"
                        f" {_cell(column, odd)}"
                    )
            if isinstance(values, int):
                self.unread[name] = _cell(column, values)
            else:
                self._add(ACCURACY if name == "correct" else name, name, values[self.found.rows])
        self.unread.update(dict.fromkeys(self.file.unused, ""))
        if "predictions" in {*self.file.columns, *self.unread}:
            self.unread["predictions"] = _LISTS

    def _numbers(self, name: str, column: pa.Array) -> Float64 | int:
        """Return a column as numbers, percentages as shares, or the first row that is neither."""
        values = numbers_of(column)
        if (found := percentages_of(column) if isinstance(values, int) else None) is None:
            return values if isinstance(values, int) else self._in_shares(name, column, values)
        shares, odd = found
        if odd >= 0:
            marked = next(row for row, cell in enumerate(column) if "%" in str(cell.as_py()))
            raise VisleakError(
                f"{self.file.path}: column {quoted(name)} mixes percentages and plain numbers:"
                f" {_cell(column, marked)}, {_cell(column, odd)}; write all cells in one way"
            )
        self.notes.append(f"{quoted(name)} holds percentages, which are read as shares: 50% is 0.5")
        return shares

    def _in_shares(self, name: str, column: pa.Array, values: Float64) -> Float64:
        """Return a metric that is a share by its name as shares, if it holds percentages."""
        above = (values > 1) & np.isfinite(values)
        if name == "correct" or not above.any():
            return values
        if not is_share_name(name):
            low, high = np.nanmin(values), np.nanmax(values)
            if low >= 0 and high <= 100 and not is_loss_name(name):
                self.notes.append(
                    f"{quoted(name)} is between {low:g} and {high:g} and is taken in its own"
                    " unit; write percentages with a percent sign, 50%"
                )
            return values
        outside = np.isfinite(values) & ((values < 0) | (values > 100))
        small = (values > 0) & (values <= 1)
        if outside.any() or small.any():
            row, odd = int(above.argmax()), int((outside if outside.any() else small).argmax())
            cells = dict.fromkeys((_cell(column, row), _cell(column, odd)))
            raise VisleakError(
                f"{self.file.path}: column {quoted(name)} must hold shares from 0 to 1, or"
                f" percentages with a percent sign: {', '.join(cells)}"
            )
        self.notes.append(
            f"{quoted(name)} is a share and holds values up to {np.nanmax(values):g}, which are"
            " read as percentages: 50 is 0.5"
        )
        return values / 100.0

    def _add_classes(self) -> None:
        file, rows = self.file, self.found.rows
        there = {*file.lists, *({"prediction"} & file.columns.keys())}
        if not there:
            return
        truth, _, notes = self.labels
        self.notes += notes
        if truth is None:
            first = next(each for each in ("prediction", "predictions", "scores") if each in there)
            self.unusable.append(
                f"`{first}` needs labels, and set {quoted(self.benchmark.name)} has none: add a"
                " column `label`, or give `correct`"
            )
            return
        predicted = None
        if "prediction" in there:
            where = f"{file.path}: column `prediction`"
            predicted = text_of(file.columns["prediction"], where).take(pa.array(rows))
            if self._fits("prediction", predicted, truth):
                self._add_correct("prediction", correct_predictions(predicted, truth), truth)
        if "predictions" in there:
            self._add_ranked(truth, predicted)
        if "scores" in there:
            self._add_scores(truth)

    def _fits(
        self, source: str, predicted: pa.StringArray, truth: Truth, *, silent: bool = False
    ) -> bool:
        """Whether predictions have the class names of the labels; note how many have not."""
        known = predicted.is_valid().to_numpy(zero_copy_only=False)
        outside = known & (truth.codes(predicted) < 0)
        count, total = int(outside.sum()), int(known.sum())
        if not count:
            return True
        odd = quoted(predicted[int(outside.argmax())])
        other = _are_numbers(predicted) != _are_numbers(truth.labels)
        if count == total and (total >= _SURE or other):
            self.unusable.append(
                f"none of its predictions (`{source}`) is a label: it predicts {odd}, labels of"
                f" {truth.source} are such as {_example(truth.labels)}; {_remedy(truth)}"
            )
            return False
        if not silent:
            share = 100 * count / total
            doubt = ": do both sides use the same class names?" if share > 50 else ""
            self.notes.append(
                f"{count:,} of {total:,} predictions ({share:.1f} %) are not a label of"
                f" {truth.source}, such as {odd}, and count as wrong{doubt}"
            )
        return True

    def _add_ranked(self, truth: Truth, predicted: pa.StringArray | None) -> None:
        rows = self.found.rows
        correct, firsts, short = correct_ranked(self.file, rows, truth)
        if predicted is not None:
            other = pc.not_equal(normalised(predicted), normalised(firsts))
            differ = np.flatnonzero(pc.fill_null(other, False).to_numpy(zero_copy_only=False))
            if len(differ):
                at = int(differ[0])
                raise VisleakError(
                    f"{self.file.path}: row {rows[at]} predicts {quoted(predicted[at])} in"
                    f" `prediction` and first {quoted(firsts[at])} in `predictions`; leave"
                    " one of the columns out"
                )
        if self._fits("predictions", firsts, truth, silent=predicted is not None):
            self._add_correct("predictions", correct, truth)
        if short:
            self.notes.append(
                f"its lists of predictions have at most {short}, so there is no {TOP_FIVE}"
            )

    def _add_scores(self, truth: Truth) -> None:
        correct, classless, classes = correct_scores(self.file, self.found.rows, truth)
        count = int(classless.sum())
        labelled = len(truth.labels) - truth.labels.null_count
        if count and count == labelled:
            ask = "name them in `classes`" if self.file.classes is None else _remedy(truth)
            self.unusable.append(
                f"no label is one of its {len(classes):,} classes: labels of {truth.source}"
                f" are such as {_example(truth.labels)}, classes such as"
                f" {_example(classes)}; {ask}"
            )
            return
        if count:
            lost = quoted(truth.labels[int(classless.argmax())])
            self.notes.append(
                f"{count:,} of {labelled:,} labels are not among its {len(classes):,}"
                f" classes, such as {lost}: those images count as wrong"
            )
        self._add_correct("scores", correct, truth)

    def _settle(self) -> None:
        """Refuse predictions that cannot be compared with labels, unless ``correct`` is there."""
        if self.unusable and ACCURACY not in self.sources:
            others = listed(self.sources)
            instead = f", or ask for {others} with --metric" if others else ""
            raise VisleakError(f"{self.file.path}: {self.unusable[0]}{instead}")
        self.notes += [f"not used: {reason}" for reason in self.unusable]

    def _agreed(self, metric: str) -> Float64:
        """Return the values of a metric, on which all of its sources must agree."""
        (name, values), *others = self.sources[metric].items()
        for other, more in others:
            differ = ~np.isnan(values) & ~np.isnan(more) & (values != more)
            if differ.any():
                first = int(differ.argmax())
                row = int(self.found.rows[first])
                raise VisleakError(
                    f"{self.file.path}: {metric} of row {row} (id {quoted(self.file.ids[row])}) is"
                    f" {values[first]:g} by {name} and {more[first]:g} by {other}; leave one of"
                    " the columns out, or correct the labels"
                )
            values = np.where(np.isnan(values), more, values)
        return values


def _first_not_binary(values: Float64) -> int | None:
    wrong = ~np.isnan(values) & (values != 0) & (values != 1)
    return int(wrong.argmax()) if wrong.any() else None


def _cell(column: pa.Array, row: int) -> str:
    return f"row {row} holds {quoted(column[row].as_py())}"


def truth_of(
    file: PredictionFile, found: Match, benchmark: Benchmark
) -> tuple[Truth | None, Labels | None, list[str]]:
    """Return the labels of the matched rows: those of the file, else those of the set.

    Returns ``None`` where there are none; those of the file beside the audited ones, where both
    have some; and notes about them.
    """
    known = benchmark.labels
    theirs = None if known is None else known.take(pa.array(found.images))
    truth, own, notes = None, None, []
    if theirs is not None and theirs.is_valid().true_count:
        truth = Truth(theirs, _vocabulary(known), f"set {quoted(benchmark.name)}")
    if "label" in file.columns:
        labels = text_of(file.columns["label"], f"{file.path}: column `label`")
        mine = labels.take(pa.array(found.rows))
        if theirs is not None:
            shared, words = share_classes(mine, theirs), _vocabulary(theirs)
            names = words if shared else _vocabulary(mine)
            own = Labels(codes(mine, names), codes(theirs, words), shared)
        if labels.null_count < len(labels):
            truth = Truth(mine, _vocabulary(labels), "its column `label`", in_file=True)
            differs = pc.not_equal(normalised(mine), normalised(theirs)) if own else None
            if own and own.shared and (count := pc.sum(differs).as_py()):
                notes.append(
                    f"its column `label` differs from the audited labels for {count:,} of"
                    f" {len(mine):,} images; predictions are compared with the column"
                )
    return truth, own, notes


def _vocabulary(labels: pa.StringArray) -> pa.Array:
    return pc.unique(normalised(pc.unique(labels).drop_null()))


def _remedy(truth: Truth) -> str:
    """Return what to do where predictions and labels have different class names."""
    if truth.in_file:
        return "use the same class names in both, or leave `label` out to use the audited labels"
    return "name classes as the set does, or add a column `label` with the names of the predictions"


def _are_numbers(texts: pa.StringArray) -> bool:
    whole = pc.match_substring_regex(texts.drop_null(), r"^-?[0-9]+(\.0+)?$")
    return bool(pc.all(whole, min_count=0).as_py())


def _example(texts: pa.StringArray) -> str:
    known = texts.drop_null()
    return quoted(known[0]) if len(known) else "none"
