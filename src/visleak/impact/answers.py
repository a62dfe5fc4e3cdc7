"""Files of predictions, whatever their kind, as scores of the images of a benchmark."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from visleak.errors import VisleakError
from visleak.images.request import writable
from visleak.impact.answer_columns import Answers, Float64, listed, quoted
from visleak.impact.answer_files import read_answers
from visleak.impact.answer_labels import own_labels
from visleak.impact.answer_metrics import LISTS, Gathered, metrics_of
from visleak.impact.benchmark import Benchmark
from visleak.impact.matching import Match, coverage_note, match, unknown_note
from visleak.impact.plausibility import doubts_of
from visleak.impact.scores import Scores


def scores_of(
    path: str | os.PathLike[str],
    benchmark: Benchmark,
    *,
    name: str = "",
    metrics: Sequence[str] = (),
    lower: Sequence[str] = (),
    allow_partial: bool = False,
) -> tuple[Scores, tuple[str, ...]]:
    """Read what a model answered, image by image, from a file of predictions.

    The file is CSV, TSV, Parquet or npz and has ``id``, which names the image, and any of:
    ``correct`` (0, 1, true, false), ``prediction`` (a class), ``predictions`` (classes, best
    first), class scores, and columns of numbers, which are metrics of their own names. Labels
    come from ``label``, else from the benchmark. Rows may be in any order.

    >>> import pyarrow as pa, tempfile
    >>> file = Path(tempfile.mkdtemp()) / "resnet.csv"
    >>> _ = file.write_text("id,prediction,loss\\nb.png,cat,0.5\\na.png,cat,2\\n")
    >>> labels = pa.array(["dog", "cat"])
    >>> test = Benchmark("test", ("train",), pa.array(["a.png", "b.png"]), labels, ())
    >>> scores, notes = scores_of(file, test, lower=["loss"])
    >>> scores.model, {metric: values.tolist() for metric, values in scores.values.items()}
    ('resnet', {'accuracy': [0.0, 1.0], 'loss': [2.0, 0.5]})
    >>> notes
    ()

    Args:
        path: the file.
        benchmark: the images that are asked about.
        name: of the model; the file's name without its ending if empty.
        metrics: to take; all by default.
        lower: metrics of which less is better.
        allow_partial: take answers for less than 95 % of the images.

    Returns:
        The scores, and what a reader must know of them, a line each.

    Raises:
        UsageError: there is no such file, or it is of no kind that is read.
        VisleakError: the file is damaged, contradicts itself, is of another set, or lacks a metric.
    """
    file = read_answers(path)
    found = match(file.ids, benchmark, file.path)
    model = writable(name or Path(path).stem)
    values, gathered = metrics_of(
        file, found, benchmark, frozenset([*metrics, *lower] if metrics else ())
    )
    chosen = _chosen(file, values, gathered, metrics, lower)
    _refuse_infinite(file, found, chosen)
    columns, notes = _complete(chosen, found, benchmark)
    answered = ~np.isnan(next(iter(columns.values())))
    told = [
        *unknown_note(found, file.ids, benchmark),
        *gathered.notes,
        *notes,
        *coverage_note(answered, found, file.ids, benchmark, file.path, allow_partial),
    ]
    called = model if model.isprintable() else quoted(model)
    own = own_labels(file, found, benchmark)
    evidence = gathered.evidence
    ids = file.ids.take(pa.array(found.rows))
    scores = Scores(
        model,
        columns,
        os.fspath(path),
        found.unknown,
        frozenset(lower) & set(columns),
        doubts=tuple(doubts_of(ids, benchmark.ids, found.unknown, evidence, own)),
        checked=(*(["labels"] if own else []), *(["predictions"] if evidence else [])),
    )
    return scores, tuple(f"{called}: {note}" for note in told)


def _chosen(
    file: Answers,
    values: Mapping[str, Float64],
    gathered: Gathered,
    metrics: Sequence[str],
    lower: Sequence[str],
) -> dict[str, Float64]:
    """Return the metrics that are asked for; all where none is.

    Raises:
        VisleakError: there is no such metric, or none at all.
    """
    if not values:
        there = listed([*file.columns, *file.unused])
        names = f"it has {there}" if there else "it has `id` alone"
        hint = "".join(f"; {why}" for why in gathered.unread.values() if why == LISTS)
        raise VisleakError(
            f"{file.path} holds nothing to score: it needs `correct`, `prediction`, `predictions`,"
            f" class scores or a column of numbers; {names}{hint}"
        )
    for name in (*metrics, *lower):
        if name not in values:
            why = gathered.unread.get(name)
            said = f" ({why})" if why else ""
            raise VisleakError(
                f"{file.path} has no metric {quoted(name)}{said}; it has {listed(values)}"
            )
    return {name: values[name] for name in (metrics or values)}


def _refuse_infinite(file: Answers, found: Match, chosen: Mapping[str, Float64]) -> None:
    for name, values in chosen.items():
        wrong = np.isinf(values)
        if wrong.any():
            row = int(found.rows[int(wrong.argmax())])
            raise VisleakError(
                f"{file.path}: metric {quoted(name)} of row {row} (id {quoted(file.ids[row])}) is"
                " infinite; leave the cell empty where there is no value"
            )


def _complete(
    chosen: Mapping[str, Float64], found: Match, benchmark: Benchmark
) -> tuple[dict[str, Float64], Iterator[str]]:
    """Return metrics by image, all NaN where one is, and what is to be said of that."""
    missing = np.stack([np.isnan(values) for values in chosen.values()])
    lost = missing.any(axis=0)
    columns = {}
    for name, values in chosen.items():
        columns[name] = np.full(len(benchmark), np.nan)
        columns[name][found.images] = np.where(lost, np.nan, values)
    torn = int((lost & ~missing.all(axis=0)).sum())
    note = f"images that lack some of the metrics {listed(chosen)} and so count in none: {torn:,}"
    return columns, iter([note] if torn else [])
