"""``check``: whether files of predictions fit an audit, before anything is computed of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from visleak.impact.answers import scores_of
from visleak.impact.benchmark import Benchmark
from visleak.impact.gaps import can_gap, gap_of
from visleak.impact.leaking import benchmark_of
from visleak.impact.plausibility import between, doubtful_gaps
from visleak.impact.results import Gap
from visleak.impact.scores import Scores
from visleak.pipeline.workplace import Progress, silent

PathText = str | os.PathLike[str]


@dataclass(frozen=True)
class CheckedFile:
    """One file of predictions against an audit.

    Attributes:
        model, file: its name, and the file as given.
        fair: it is of the fair test set.
        answered: images of the test set that have an answer.
        unknown: answers whose ids the test set lacks.
        scores: mean of each metric over the answered images.
        checked: what could be compared with the audited labels: ``labels`` (of the file),
            ``predictions``.
        notes: what a reader must know, one line each.
        doubts: why the file may be mixed up.
    """

    model: str
    file: str
    fair: bool
    answered: int
    unknown: int
    scores: Mapping[str, float]
    checked: tuple[str, ...]
    notes: tuple[str, ...]
    doubts: tuple[str, ...]


@dataclass(frozen=True)
class Check:
    """Files of predictions against an audit.

    Attributes:
        test_set: its name.
        images: its readable images.
        files: each of them.
        doubts: all reasons for doubt, those of the files among themselves last.
    """

    test_set: str
    images: int
    files: tuple[CheckedFile, ...]
    doubts: tuple[str, ...]


def check(
    folder: PathText,
    predictions: Mapping[str, PathText],
    *,
    fair: Mapping[str, PathText] | None = None,
    test_set: str | None = None,
    metrics: Sequence[str] = (),
    lower: Sequence[str] = (),
    allow_partial: bool = False,
    progress: Progress = silent,
) -> Check:
    """Compare files of predictions with an audit and with each other, and compute nothing more.

    Args:
        folder: the audit folder.
        predictions, fair, test_set, metrics, lower, allow_partial: as in
            :func:`visleak.impact.impact`.
        progress: is told what is done.

    Raises:
        UsageError: an argument is none of those allowed.
        VisleakError: a file is damaged, or is of another set.
    """
    benchmark = benchmark_of(Path(folder), test_set)
    models, notes = read_models(predictions, benchmark, metrics, lower, allow_partial, progress)
    on_fair, said = read_models(fair or {}, benchmark, metrics, lower, allow_partial, progress)
    files = (
        *(_checked(scores, notes, fair=False) for scores in models),
        *(_checked(scores, said, fair=True) for scores in on_fair),
    )
    doubts = tuple(doubts_among(benchmark, models, on_fair))
    return Check(benchmark.name, len(benchmark), files, doubts)


def _checked(scores: Scores, notes: Mapping[str, Sequence[str]], *, fair: bool) -> CheckedFile:
    return CheckedFile(
        scores.model,
        scores.file,
        fair,
        int(scores.answered.sum()),
        scores.unknown,
        {metric: float(np.nanmean(values)) for metric, values in scores.values.items()},
        scores.checked,
        tuple(notes[scores.model]),
        scores.doubts,
    )


def read_models(
    files: Mapping[str, PathText],
    benchmark: Benchmark,
    metrics: Sequence[str],
    lower: Sequence[str],
    allow_partial: bool,
    progress: Progress,
) -> tuple[list[Scores], dict[str, tuple[str, ...]]]:
    """Return the scores of each model, and what is to be said of its file, by name."""
    models: list[Scores] = []
    notes: dict[str, tuple[str, ...]] = {}
    for done, (name, path) in enumerate(files.items()):
        progress("reading predictions", done, len(files))
        scores, told = scores_of(
            Path(path),
            benchmark,
            name=name,
            metrics=metrics,
            lower=lower,
            allow_partial=allow_partial,
        )
        models.append(scores)
        notes[scores.model] = told
    if files:
        progress("reading predictions", len(files), len(files))
    return models, notes


def gaps_of(models: Sequence[Scores], on_fair: Sequence[Scores]) -> Iterator[Gap]:
    """Yield the gap of each model to the fair test set, in each metric that has one."""
    known = {scores.model: scores for scores in models}
    for fair in on_fair:
        original = known[fair.model]
        for metric in original.values:
            if can_gap(original, fair, metric):
                yield gap_of(original, fair, metric)


def doubts_among(
    benchmark: Benchmark, models: Sequence[Scores], on_fair: Sequence[Scores]
) -> Iterator[str]:
    """Yield why files may be mixed up, each for itself and among themselves."""
    for scores in models:
        yield from (f"{scores.model}: {doubt}" for doubt in scores.doubts)
    for scores in on_fair:
        yield from (f"{scores.model} on the fair test set: {doubt}" for doubt in scores.doubts)
    stems = {scores.model: Path(scores.file).stem for scores in models}
    yield from between(models, stems, benchmark.ids)
    yield from doubtful_gaps(list(gaps_of(models, on_fair)))
