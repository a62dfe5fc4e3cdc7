"""``impact``: an audit and what models answered, to what the leaks did to their scores."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Final

import numpy as np

from visleak.errors import UsageError
from visleak.impact.benchmark import Benchmark
from visleak.impact.checking import doubts_among, gaps_of, read_models
from visleak.impact.difficulty import difficulty_of
from visleak.impact.effects import Asked, effects_of
from visleak.impact.flips import RESAMPLES, flips_of
from visleak.impact.leaking import benchmark_of, sampled, with_subsets
from visleak.impact.results import Effect, Impact
from visleak.impact.scores import Scores
from visleak.pipeline.workplace import Progress, silent

PathText = str | os.PathLike[str]

_ONLY_JUDGED: Final = (
    "only pairs that people judged count: an image none of whose pairs was judged stands among"
    " those that do not leak"
)


def impact(
    folder: PathText,
    predictions: Mapping[str, PathText],
    *,
    fair: Mapping[str, PathText] | None = None,
    test_set: str | None = None,
    references: Sequence[str] = (),
    subsets: Mapping[str, PathText] | None = None,
    metrics: Sequence[str] = (),
    lower: Sequence[str] = (),
    judged_only: bool = False,
    by_label: bool | None = None,
    difficulty: str | None = None,
    draws: int = 1000,
    size: int | None = None,
    mid: bool = True,
    seed: int = 0,
    allow_partial: bool = False,
    progress: Progress = silent,
) -> Impact:
    """Measure what the leaks of a test set do to the scores of models.

    Subsets are those of Ramos et al. (2025), section 7.3: the whole benchmark, the images that do
    not leak, those that do (by the label of their copy, table 3), and as many drawn at random.
    Beside them stand a control of the same classes, tests, and the score that a fair benchmark
    would have shown.

    Args:
        folder: the audit folder; verdicts of people count.
        predictions: a file of predictions by the name of its model.
        fair: the same on the fair test set that ``visleak replace`` wrote, whose ids are those of
            the test set: errors on both are compared (Barz & Denzler 2020, table 2).
        test_set: where the audit has several.
        references: training sets whose leaks count; by default all.
        subsets: name to a text file with an id a line: leaked images of another source.
        metrics: to look at; by default all that a file has.
        lower: metrics of which less is better.
        judged_only: only pairs that people judged count.
        by_label: tell leaked images whose copy has the same label from the others; by default
            where labels are known.
        difficulty: ``probe``, or ``FILE[#COLUMN]`` with a number per image, larger for harder ones:
            leaked images are compared with others of their class that are as difficult.
        draws: how often the rows that are drawn are drawn.
        size: images of a draw; with it every row but the whole benchmark is drawn, as in table 4
            of Ramos et al. (2025), with ``draws=10, size=200``.
        mid: permutation tests give mid-p values, which are not conservative.
        seed: of everything that is drawn.
        allow_partial: take predictions of less than 95 % of the images.
        progress: told what is done.

    Raises:
        UsageError: an argument is none of those allowed, or predictions and audit do not fit.
        VisleakError: a file is damaged.
    """
    _refuse(predictions, fair or {}, draws, size)
    progress("reading the audit", 0, 0)
    benchmark = benchmark_of(Path(folder), test_set, references, judged_only=judged_only)
    benchmark, notes = with_subsets(benchmark, {n: Path(p) for n, p in (subsets or {}).items()})
    progress("reading the audit", 1, 1)
    hard = None
    if difficulty:
        hard = difficulty_of(Path(folder), benchmark, difficulty, seed, progress)
        benchmark = replace(benchmark, difficulty=hard.values)
    labelled = _labelled(benchmark, by_label)
    models, told = read_models(predictions, benchmark, metrics, lower, allow_partial, progress)
    on_fair, said = read_models(fair or {}, benchmark, metrics, lower, allow_partial, progress)
    asked = Asked(draws, size, labelled, mid, seed)
    effects = effects_of(
        benchmark, models, asked, lambda done, total: progress("comparing", done, total)
    )
    names = dict.fromkeys(metric for scores in models for metric in scores.values)
    return Impact(
        audit=os.fspath(folder),
        test_set=benchmark.name,
        references=benchmark.references,
        images=len(benchmark),
        leaks={leak.name: int(leak.leaked.sum()) for leak in benchmark.leaks},
        effects=effects,
        flips=tuple(flip for name in names for flip in flips_of(benchmark, models, name, seed)),
        gaps=tuple(gaps_of(models, on_fair)),
        notes=(
            *sampled(Path(folder), benchmark),
            *(*notes, *chain(*told.values()), *chain(*said.values())),
            *_without_gap(models, on_fair),
            *_notes(benchmark, effects, asked),
            *([f"difficulty is that of {hard.source}"] if hard else []),
            *([_ONLY_JUDGED] if judged_only else []),
        ),
        settings={
            "draws": draws,
            "size": size,
            "seed": seed,
            "p": "mid" if mid else "exact",
            "resamples": RESAMPLES,
            "judged_only": judged_only,
            "difficulty": hard.source if hard else None,
        },
        judged=benchmark.judged,
        doubts=tuple(doubts_among(benchmark, models, on_fair)),
    )


def _refuse(
    predictions: Mapping[str, PathText], fair: Mapping[str, PathText], draws: int, size: int | None
) -> None:
    """Refuse arguments that make no sense before anything is read."""
    if not predictions:
        raise UsageError("no predictions: give a file a model, --predictions [NAME=]FILE")
    for name in fair:
        if name not in predictions:
            raise UsageError(
                f"fair predictions of {name!r}, which has no others; models are"
                f" {', '.join(predictions)}: name both alike, --predictions NAME=FILE and --fair"
                " NAME=FILE"
            )
    if draws < 2:
        raise UsageError(f"draws must be 2 or more; got {draws}")
    if size is not None and size < 1:
        raise UsageError(f"size must be 1 or more; got {size}")


def _labelled(benchmark: Benchmark, by_label: bool | None) -> bool:
    """Return whether rows are told apart by labels; refuse where that is wished and cannot be."""
    known = any(leak.compared for leak in benchmark.leaks)
    if by_label and not known:
        raise UsageError(
            f"no leaked image of {benchmark.name!r} has a label that can be compared with its"
            " copy's: audit again with --label C for both sets, or leave --by-label out"
        )
    return known if by_label is None else by_label


def _without_gap(models: Sequence[Scores], on_fair: Sequence[Scores]) -> Iterator[str]:
    """Yield a note a model whose answers on the fair test set give no error to compare."""
    compared = {gap.model for gap in gaps_of(models, on_fair)}
    known = {scores.model: scores for scores in models}
    for fair in on_fair:
        if fair.model not in compared:
            before, after = (", ".join(each.values) for each in (known[fair.model], fair))
            yield (
                f"{fair.model}: no gap to the fair test set, because no metric of both files says"
                f" right or wrong of an image (test set: {before}; fair: {after})"
            )


def _notes(benchmark: Benchmark, effects: Sequence[Effect], asked: Asked) -> Iterator[str]:
    """Yield what a reader must know of the table."""
    if asked.size is not None:
        small = {
            f"{row.leak}, {row.subset}"
            for effect in effects
            for row in effect.rows
            if row.leak and row.draws == 1 and row.images
        }
        if small:
            yield (
                f"{len(small):,} of the parts have no more than {asked.size:,} images: they stand"
                " whole, without a deviation"
            )
        near = {
            f"{row.leak}, {row.subset}": row.overlap
            for effect in effects
            for row in effect.rows
            if row.draws > 1 and row.overlap > 0.5
        }
        for row, overlap in near.items():
            yield (
                f"{row}: two draws have {100 * overlap:.0f} % of their images in common, which"
                " alone makes their scores alike; a small deviation says little there"
            )
    lost = {
        each.leak: each.classes_lost
        for effect in effects
        for each in effect.comparisons
        if each.classes_lost
    }
    for leak, classes in lost.items():
        said, what = (
            ("1 class leaks", "it") if classes == 1 else (f"{classes:,} classes leak", "them")
        )
        yield f"{leak}: {said} wholly, and the fair score leaves {what} out"
    yield from _without_interval(effects)
    yield from _without_twins(effects)
    everything = [leak.name for leak in benchmark.leaks if bool(np.all(leak.leaked))]
    for leak in everything:
        yield f"{leak}: every image leaks, so there is nothing to compare with"


def _without_interval(effects: Sequence[Effect]) -> Iterator[str]:
    """Yield a note a score whose parts have no interval although they have several values."""
    for effect in effects:
        parts = [
            f"{row.subset} ({row.leak})" if row.leak else row.subset
            for row in effect.rows
            if row.images > 1 and row.draws == 1 and row.dominated
        ]
        if parts:
            more = f" and {len(parts) - 3:,} more" if len(parts) > 3 else ""
            yield (
                f"{effect.model}: no interval can be given for {effect.metric} of"
                f" {', '.join(parts[:3])}{more}: one image alone makes up most of its spread"
            )


def _without_twins(effects: Sequence[Effect]) -> Iterator[str]:
    """Yield how many leaked images have no twin, which the comparison leaves out."""
    alone = {
        each.leak: (each.twinned.alone, each.leaked)
        for effect in effects
        for each in effect.comparisons
        if each.twinned is not None and each.twinned.alone
    }
    for leak, (count, leaked) in alone.items():
        yield (
            f"{leak}: {count:,} of {leaked:,} leaked images have no twin, because none is left of"
            " their class that is as difficult; the comparison with twins leaves them out"
        )
