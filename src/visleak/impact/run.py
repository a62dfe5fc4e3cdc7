"""``impact``: from an audit and the predictions of models to the impact of leaks on their scores.

``check`` compares prediction files with an audit, and computes nothing more.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from visleak.errors import UsageError
from visleak.impact.benchmark import Benchmark, Scores, benchmark_of, sampled, with_subsets
from visleak.impact.difficulty import difficulty_of, doubts_about
from visleak.impact.effects import RESAMPLES, Sampling, effects_of, flips_of
from visleak.impact.predictions.plausibility import between, doubtful_gaps
from visleak.impact.predictions.scores import read_scores
from visleak.impact.results import Effect, Gap, Impact
from visleak.impact.settings import ImpactSettings, PathText
from visleak.progress import Progress, silent
from visleak.quantities import some
from visleak.rates import wilson
from visleak.stats.bootstrap import Estimate
from visleak.stats.intervals import mcnemar_exact, newcombe_paired

_NONE: Mapping[str, PathText] = {}
_DEFAULTS: Final = ImpactSettings()

#: A note where reviewed pairs alone count.
_REVIEWED: Final = (
    "only reviewed pairs count: images whose leaks were not reviewed are among those that do not"
    " leak"
)


@dataclass(frozen=True)
class CheckedFile:
    """One prediction file against an audit."""

    model: str
    file: str
    fair: bool  # it is of the fair test set
    answered: int  # images of the test set with a prediction
    unknown: int  # predictions whose ids the test set lacks
    scores: Mapping[str, float]  # mean of each metric over the images with a prediction
    checked: tuple[str, ...]  # what could be compared with labels: `labels`, `predictions`
    notes: tuple[str, ...]  # for readers of the scores, one line each
    doubts: tuple[str, ...]  # why the file may be mixed up


@dataclass(frozen=True)
class Check:
    """Prediction files against an audit."""

    test_set: str  # its name
    images: int  # its readable images
    files: tuple[CheckedFile, ...]  # each of them
    doubts: tuple[str, ...]  # all reasons for doubt, those about several files last


def impact(
    folder: PathText,
    predictions: Mapping[str, PathText],
    settings: ImpactSettings = _DEFAULTS,
    *,
    fair: Mapping[str, PathText] = _NONE,
    progress: Progress = silent,
) -> Impact:
    """Measure the impact of the leaks of a test set on the scores of models.

    Subsets are those of Ramos et al. (2025), section 7.3: the whole benchmark, the images that do
    not leak, those that do (by the label of their copy, table 3), and as many drawn at random;
    further a control of the same classes, tests, and the expected score of a fair benchmark.

    Args:
        folder: the audit folder; verdicts of reviewers count.
        predictions: a prediction file by the name of its model.
        settings: how it is measured.
        fair: the same on the fair test set that ``visleak replace`` wrote, whose ids are those of
            the test set: errors on both are compared (Barz & Denzler 2020, table 2).
        progress: reports each step.

    Raises:
        UsageError: an argument is invalid, or predictions and audit do not fit.
        VisleakError: a file is damaged.
    """
    if not predictions:
        raise UsageError("no predictions: give a file per model, --predictions [NAME=]FILE")
    for name in fair:
        if name not in predictions:
            raise UsageError(
                f"fair predictions of {name!r}, which has no others; models are"
                f" {', '.join(predictions)}: use the same name in both, --predictions NAME=FILE and"
                " --fair-predictions NAME=FILE"
            )
    progress("reading the audit", 0, 0)
    path = Path(folder)
    benchmark = benchmark_of(
        path, settings.test_set, settings.references, judged_only=settings.reviewed_only
    )
    lists = {name: Path(each) for name, each in settings.subsets.items()}
    benchmark, about_subsets = with_subsets(benchmark, lists)
    progress("reading the audit", 1, 1)
    difficulty = None
    if settings.difficulty:
        difficulty = difficulty_of(path, benchmark, settings.difficulty, settings.seed, progress)
        benchmark = replace(benchmark, difficulty=difficulty.values)
    known = any(leak.compared for leak in benchmark.leaks)
    by_label = known if settings.by_label is None else settings.by_label
    if by_label and not known:
        raise UsageError(
            f"no leaked image of {benchmark.name!r} has a label that can be compared with its"
            " copy's: audit again with --label COLUMN for both sets, or leave --by-label out"
        )
    models, on_fair = (
        _read_models(files, benchmark, settings, progress) for files in (predictions, fair)
    )
    effects = effects_of(
        benchmark,
        models,
        Sampling(settings.draws, settings.size, by_label, not settings.exact_p, settings.seed),
        lambda done, total: progress("comparing", done, total),
    )
    metrics = dict.fromkeys(metric for scores in models for metric in scores.values)
    flips = (flips_of(benchmark, models, metric, settings.seed) for metric in metrics)
    gaps = tuple(_gaps(models, on_fair))
    source = difficulty.source if difficulty else None
    return Impact(
        audit=os.fspath(folder),
        test_set=benchmark.name,
        references=benchmark.references,
        images=len(benchmark),
        leaks={leak.name: int(leak.leaked.sum()) for leak in benchmark.leaks},
        effects=effects,
        flips=tuple(flip for found in flips for flip in found),
        gaps=gaps,
        notes=(
            *sampled(path, benchmark),
            *about_subsets,
            *(note for scores in (*models, *on_fair) for note in scores.notes),
            *_without_gap(models, on_fair, gaps),
            *_notes(benchmark, effects, settings.size),
            *([f"difficulty is that of {source}"] if source else []),
            *([_REVIEWED] if settings.reviewed_only else []),
        ),
        settings={
            **{name: getattr(settings, name) for name in ("draws", "size", "seed")},
            "p": "exact" if settings.exact_p else "mid",
            "resamples": RESAMPLES,
            "judged_only": settings.reviewed_only,
            "difficulty": source,
        },
        judged=benchmark.judged,
        doubts=tuple(_doubts(benchmark, models, on_fair, gaps)),
    )


def check(
    folder: PathText,
    predictions: Mapping[str, PathText],
    settings: ImpactSettings = _DEFAULTS,
    *,
    fair: Mapping[str, PathText] = _NONE,
    progress: Progress = silent,
) -> Check:
    """Compare prediction files with an audit and with each other, and compute nothing more.

    Args:
        folder, predictions, settings, fair, progress: as of :func:`impact`.

    Raises:
        UsageError: an argument is invalid.
        VisleakError: a file is damaged, or is of another set.
    """
    benchmark = benchmark_of(Path(folder), settings.test_set)
    models, on_fair = (
        _read_models(each, benchmark, settings, progress) for each in (predictions, fair)
    )
    files = tuple(
        CheckedFile(
            scores.model,
            scores.file,
            is_fair,
            int(scores.answered.sum()),
            scores.unknown,
            {metric: float(np.nanmean(values)) for metric, values in scores.values.items()},
            scores.checked,
            scores.notes,
            scores.doubts,
        )
        for is_fair, read in ((False, models), (True, on_fair))
        for scores in read
    )
    doubts = _doubts(benchmark, models, on_fair, list(_gaps(models, on_fair)))
    return Check(benchmark.name, len(benchmark), files, tuple(doubts))


def _read_models(
    files: Mapping[str, PathText],
    benchmark: Benchmark,
    settings: ImpactSettings,
    progress: Progress,
) -> list[Scores]:
    models: list[Scores] = []
    for done, (name, path) in enumerate(files.items(), start=1):
        progress("reading predictions", done - 1, len(files))
        scores = read_scores(
            path,
            benchmark,
            name=name,
            metrics=settings.metrics,
            lower=settings.lower_is_better,
            allow_partial=settings.allow_partial,
        )
        models.append(scores)
        progress("reading predictions", done, len(files))
    return models


def _doubts(
    benchmark: Benchmark, models: Sequence[Scores], on_fair: Sequence[Scores], gaps: Sequence[Gap]
) -> Iterator[str]:
    """Yield why files may be mixed up, each for itself and compared with each other."""
    for where, every in (("", models), (" on the fair test set", on_fair)):
        for scores in every:
            yield from (f"{scores.model}{where}: {doubt}" for doubt in scores.doubts)
    stems = {scores.model: Path(scores.file).stem for scores in models}
    yield from between(models, stems, benchmark.ids)
    if benchmark.difficulty is not None:
        yield from doubts_about(benchmark.difficulty, models)
    yield from doubtful_gaps(gaps)


def _gaps(models: Sequence[Scores], on_fair: Sequence[Scores]) -> Iterator[Gap]:
    """Yield the gap of each model to the fair test set, in each metric that has one."""
    known = {scores.model: scores for scores in models}
    for fair in on_fair:
        original = known[fair.model]
        both = original.answered & fair.answered
        for metric in original.values:
            shares = (metric in each.values and each.is_share(metric) for each in (original, fair))
            if both.any() and all(shares):
                yield gap_of(original, fair, metric)


def gap_of(original: Scores, fair: Scores, metric: str) -> Gap:
    """Return the errors of a model on both sets, the gap and the relative gap.

    The fair set has the test set's ids, and other images where duplicates were; all others are
    in both, and so the errors are compared id by id.
    """
    both = original.answered & fair.answered
    error = 1 if metric in original.lower else 0
    before, after = (each.values[metric][both] == error for each in (original, fair))
    masks = (before & after, before & ~after, after & ~before, ~before & ~after)
    stayed, only_before, only_after, neither = (int(mask.sum()) for mask in masks)
    images, wrong, wrong_after = len(before), stayed + only_before, stayed + only_after
    ends = newcombe_paired(stayed, only_before, only_after, neither)
    return Gap(
        original.model,
        metric,
        images,
        original=Estimate(wrong / images, *wilson(wrong, images)),
        fair=Estimate(wrong_after / images, *wilson(wrong_after, images)),
        gap=Estimate((wrong_after - wrong) / images, *ends),
        relative=(wrong_after - wrong) / wrong if wrong else math.nan,
        p=mcnemar_exact(only_before, only_after),
        changed=(only_before, only_after),
    )


def _without_gap(
    models: Sequence[Scores], on_fair: Sequence[Scores], gaps: Sequence[Gap]
) -> Iterator[str]:
    """Yield a note per model whose fair predictions give no error to compare."""
    compared = {gap.model for gap in gaps}
    known = {scores.model: scores for scores in models}
    for fair in on_fair:
        if fair.model not in compared:
            before, after = (", ".join(each.values) for each in (known[fair.model], fair))
            yield (
                f"{fair.model}: no gap to the fair test set, because no metric of both files is 0"
                f" or 1 per image (test set: {before}; fair: {after})"
            )


def _notes(benchmark: Benchmark, effects: Sequence[Effect], size: int | None) -> Iterator[str]:
    if size is not None:
        yield from _about_draws(effects, size)
    every = [each for effect in effects for each in effect.comparisons]
    for leak, lost in {each.leak: each.classes_lost for each in every if each.classes_lost}.items():
        classes = "1 class" if lost == 1 else f"{lost:,} classes"
        yield f"{leak}: all images of {classes} leak, and the fair score excludes them"
    for effect in effects:
        rows = [row for row in effect.rows if row.images > 1 and row.draws == 1 and row.dominated]
        names = [f"{row.subset} ({row.leak})" if row.leak else row.subset for row in rows]
        if names:
            yield (
                f"{effect.model}: no interval can be given for {effect.metric} of"
                f" {some(names)}: one image alone makes up most of its spread"
            )
    alone = {
        each.leak: (each.twinned.alone, each.leaked)
        for each in every
        if each.twinned is not None and each.twinned.alone
    }
    for leak, (count, leaked) in alone.items():
        yield (
            f"{leak}: {count:,} of {leaked:,} leaked images have no match of the same class and"
            " difficulty; the comparison with matched images excludes them"
        )
    for each in benchmark.leaks:
        if bool(np.all(each.leaked)):
            yield f"{each.name}: every image leaks, so there is nothing to compare with"


def _about_draws(effects: Sequence[Effect], size: int) -> Iterator[str]:
    rows = [row for effect in effects for row in effect.rows]
    small = {(row.leak, row.subset) for row in rows if row.leak and row.draws == 1 and row.images}
    if small:
        yield (
            f"{len(small):,} of the parts have no more than {size:,} images: they are used as a"
            " whole, without a deviation"
        )
    near = [row for row in rows if row.draws > 1 and row.overlap > 0.5]
    for name, overlap in {f"{row.leak}, {row.subset}": row.overlap for row in near}.items():
        yield (
            f"{name}: two draws share {100 * overlap:.0f} % of their images on average, which alone"
            " makes their scores similar; a small deviation is not informative there"
        )
