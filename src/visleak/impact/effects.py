"""The effect of leaks on a score: leaked images, the others, controls, and tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.impact.benchmark import RELATIONS, Benchmark, Leak, Scores
from visleak.impact.results import ENOUGH_DRAWS, Comparison, Effect, Flip, MatchedComparison, Row
from visleak.records import Bool, Float64, Int64
from visleak.stats.bootstrap import (
    NOTHING,
    Estimate,
    cluster_draws,
    difference_of,
    fair_of,
    gain_of,
    is_dominated,
    percentiles,
    score_of,
)
from visleak.stats.draws import (
    Draws,
    MatchedControls,
    matched_controls,
    matched_draws,
    part_draws,
    random_draws,
)
from visleak.stats.permutation import holm, permutation_test

MATCHED: Final = "difficulty-matched"  # the row of controls with the difficulty of leaked images


@dataclass(frozen=True, slots=True)
class Sampling:
    """How effects are computed."""

    draws: int = 1000  # repetitions of the rows that are drawn
    # images of a draw; with it every row but the whole benchmark is drawn, as in table 4 of Ramos
    # et al. (2025). `None`: as many as leak, and only controls are drawn
    size: int | None = None
    by_label: bool = True  # separate leaked images whose copy has the same label from the others
    mid: bool = True  # permutation tests give mid-p values
    seed: int = 0  # of everything that is drawn


@dataclass(frozen=True)
class _Column:
    """One metric of one model, on the images with a prediction."""

    scores: Scores
    metric: str
    values: Float64
    share: bool
    percent: bool


def effects_of(
    benchmark: Benchmark,
    models: Sequence[Scores],
    sampling: Sampling,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[Effect, ...]:
    """Return the effect of each metric of each model, in their order, corrected by Holm."""
    every = [(at, metric) for at, scores in enumerate(models) for metric in scores.values]
    # a metric has one unit in all tables
    percent: dict[str, bool] = {}
    # models with predictions for the same images share draws
    groups: dict[bytes, list[tuple[int, str]]] = {}
    for at, metric in every:
        percent[metric] = percent.get(metric, True) and models[at].in_percent(metric)
        groups.setdefault(models[at].answered.tobytes(), []).append((at, metric))
    found: dict[tuple[int, str], Effect] = {}
    for owners in groups.values():
        answered = models[owners[0][0]].answered
        part = _only(benchmark, answered)
        columns = []
        for at, metric in owners:
            scores = models[at]
            values, share = scores.values[metric][answered], scores.is_share(metric)
            columns.append(_Column(scores, metric, values, share, percent[metric]))
        table = _Table(part, columns, sampling)
        for number, owner in enumerate(owners):
            found[owner] = table.effect(number, (len(part), len(benchmark)))
            progress(len(found), len(every))
    return _corrected([found[owner] for owner in every], benchmark.leaks)


def _only(benchmark: Benchmark, kept: Bool) -> Benchmark:
    mask = pa.array(kept)
    return replace(
        benchmark,
        ids=benchmark.ids.filter(mask),
        labels=None if benchmark.labels is None else benchmark.labels.filter(mask),
        difficulty=None if benchmark.difficulty is None else benchmark.difficulty[kept],
        leaks=tuple(
            Leak(leak.name, leak.leaked[kept], leak.relation[kept]) for leak in benchmark.leaks
        ),
    )


def classes_of(labels: pa.Array | None) -> Int64 | None:
    """Return the number of each image's class; images without a label are one class."""
    if labels is None:
        return None
    numbers = pc.fill_null(labels.dictionary_encode().indices, -1).to_numpy().astype(np.int64)
    return np.asarray(np.unique(numbers, return_inverse=True)[1], np.int64)


class _Table:
    """The rows of some columns that have the same images."""

    def __init__(
        self, benchmark: Benchmark, columns: Sequence[_Column], sampling: Sampling
    ) -> None:
        self.benchmark, self.columns, self.sampling = benchmark, columns, sampling
        self.classes = classes_of(benchmark.labels)
        self._differences: dict[tuple[int, bytes], Estimate] = {}
        self.matrix = np.stack([column.values for column in columns], axis=1)
        leaked = [leak.leaked for leak in benchmark.leaks]
        draws, size, seed = sampling.draws, sampling.size, sampling.seed
        most = len(benchmark) if size is None else size
        sizes = [min(most, int(each.sum())) for each in leaked]
        self.drawn = {"random": random_draws(self.matrix, sizes, draws, seed)}
        if self.classes is not None:
            found = matched_draws(self.matrix, self.classes, leaked, draws, seed, size)
            self.drawn["class-matched"] = found
        self.controls: list[MatchedControls | None] = [None] * len(leaked)
        if benchmark.difficulty is not None:
            for at, each in enumerate(leaked):
                own = matched_controls(benchmark.difficulty, self.classes, each, seed)
                self.controls[at] = own if len(own.leaked) else None

    def effect(self, number: int, images: tuple[int, int]) -> Effect:
        """Return the effect on a column."""
        column = self.columns[number]
        share = column.share
        score = score_of(column.values, share=share, seed=self.sampling.seed)
        dominated = not share and is_dominated(column.values)
        whole = Row("", "original", len(column.values), score, NOTHING, dominated=dominated)
        rows, comparisons = [whole], []
        for at, leak in enumerate(self.benchmark.leaks):
            rows += [self._row(number, leak.name, *part, whole) for part in self._parts(leak)]
            for subset, drawn in self.drawn.items():
                rows.append(_drawn_row(leak.name, subset, drawn[at], number, whole))
            if (controls := self.controls[at]) is not None:
                part = np.zeros(len(self.benchmark), np.bool_)
                part[controls.controls] = True
                rows.append(self._row(number, leak.name, MATCHED, part, whole))
            comparisons.append(self._comparison(number, leak, controls))
        return Effect(
            column.scores.model,
            column.metric,
            images,
            percent=column.percent,
            share=share,
            lower=column.metric in column.scores.lower,
            rows=tuple(rows),
            comparisons=tuple(comparisons),
        )

    def _parts(self, leak: Leak) -> Iterator[tuple[str, Bool]]:
        yield "non-leaked", ~leak.leaked
        yield "leaked", leak.leaked
        if self.sampling.by_label and leak.compared:
            for code, relation in enumerate(RELATIONS):
                images = leak.relation == code
                # images without a label are a row only where there are some
                if images.any() or relation != "unknown":
                    yield f"{relation} label", images

    def _row(self, number: int, leak: str, subset: str, images: Bool, whole: Row) -> Row:
        """Return the row of a part: of all its images, or of draws of them."""
        column, count, sampling = self.columns[number], int(images.sum()), self.sampling
        if not count:
            return Row(leak, subset, 0, NOTHING, NOTHING)
        if sampling.size is not None:
            own = self.matrix[:, [number]]
            draws = part_draws(own, images, sampling.size, sampling.draws, sampling.seed)
            if len(draws.scores) > 1:
                return _drawn_row(leak, subset, draws, 0, whole)
        if count == whole.images:
            return replace(whole, leak=leak, subset=subset, gain=Estimate(0.0, 0.0, 0.0))
        values = column.values[images]
        score = score_of(values, share=column.share, seed=sampling.seed)
        gain = gain_of(self._difference(number, images), count, whole.images)
        dominated = not column.share and is_dominated(values)
        return Row(leak, subset, count, score, gain, dominated=dominated)

    def _difference(self, number: int, part: Bool) -> Estimate:
        """Return the score of a part minus that of the rest; a bootstrap is made once."""
        key, other = (number, part.tobytes()), (number, (~part).tobytes())
        if key not in self._differences:
            column = self.columns[number]
            values, rest = column.values[part], column.values[~part]
            found = difference_of(values, rest, share=column.share, seed=self.sampling.seed)
            self._differences[key] = found
            self._differences[other] = Estimate(-found.value, -found.high, -found.low)
        return self._differences[key]

    def _comparison(self, number: int, leak: Leak, controls: MatchedControls | None) -> Comparison:
        column, leaked = self.columns[number], leak.leaked
        values, share = column.values, column.share
        seed, mid = self.sampling.seed, self.sampling.mid
        others = int((~leaked).sum())
        difference = self._difference(number, leaked)
        inside = math.nan
        if self.classes is not None:
            inside = permutation_test(values, leaked, self.classes, mid=mid, seed=seed)
        fair, lost = fair_of(values, self.classes, ~leaked, share=share, seed=seed)
        return Comparison(
            leak=leak.name,
            leaked=len(values) - others,
            others=others,
            difference=difference,
            p=permutation_test(values, leaked, mid=mid, seed=seed),
            adjusted=math.nan,
            within_classes=inside,
            within_classes_adjusted=math.nan,
            fair=fair,
            inflation=gain_of(difference, others, len(values)),
            classes_lost=lost,
            twinned=None if controls is None else self._matched_comparison(column, controls),
        )

    def _matched_comparison(self, column: _Column, matched: MatchedControls) -> MatchedComparison:
        values, seed, mid = column.values, self.sampling.seed, self.sampling.mid
        own, others = values[matched.leaked], values[matched.controls.ravel()]
        sets = matched.sets(len(values))
        inside, chosen = sets >= 0, np.zeros(len(values), np.bool_)
        chosen[matched.leaked] = True
        return MatchedComparison(
            leaked=len(own),
            twins=matched.controls.shape[1],
            alone=matched.alone,
            difficulty=matched.difficulty,
            score=float(own.mean()),
            difference=difference_of(own, others, share=column.share, seed=seed),
            p=permutation_test(values[inside], chosen[inside], sets[inside], mid=mid, seed=seed),
        )


def _drawn_row(leak: str, subset: str, draws: Draws, number: int, whole: Row) -> Row:
    if not draws.images:
        return Row(leak, subset, 0, NOTHING, NOTHING)
    scores = draws.scores[:, number]
    mean, base = float(scores.mean()), whole.score.value
    enough = len(scores) >= ENOUGH_DRAWS and not whole.dominated
    low, high = percentiles(scores if enough else ())
    deviation = float(scores.std(ddof=1)) if len(scores) > 1 else math.nan
    score, gain = Estimate(mean, low, high), Estimate(mean - base, low - base, high - base)
    count, overlap = draws.images, draws.overlap
    return Row(leak, subset, count, score, gain, deviation, len(scores), overlap)


def _corrected(effects: Sequence[Effect], leaks: Sequence[Leak]) -> tuple[Effect, ...]:
    """Return the effects with Holm's correction over all of their comparisons.

    Leaks of exactly the same images, such as ``near only`` where none is exact, are one test.
    """
    masks = [leak.leaked for leak in leaks]
    first = [next(n for n, own in enumerate(masks) if np.array_equal(own, m)) for m in masks]
    tested = [(e, n) for e in range(len(effects)) for n in sorted(set(first))]
    every = [effects[e].comparisons[n] for e, n in tested]
    columns = zip(
        holm([each.p for each in every]),
        holm([each.within_classes for each in every]),
        holm([each.twinned.p if each.twinned else math.nan for each in every]),
        strict=True,
    )
    adjusted = {key: tuple(map(float, row)) for key, row in zip(tested, columns, strict=True)}

    def corrected(each: Comparison, plain: float, inside: float, matched: float) -> Comparison:
        twinned = each.twinned and replace(each.twinned, adjusted=matched)
        return replace(each, adjusted=plain, within_classes_adjusted=inside, twinned=twinned)

    return tuple(
        replace(
            effect,
            comparisons=tuple(
                corrected(each, *adjusted[e, n])
                for each, n in zip(effect.comparisons, first, strict=True)
            ),
        )
        for e, effect in enumerate(effects)
    )


RESAMPLES: Final = 2000  # resamples of the images
_BLOCK: Final = 4_000_000  # numbers that a block of resamples may hold


def flips_of(
    benchmark: Benchmark, models: Sequence[Scores], metric: str, seed: int = 0
) -> tuple[Flip, ...]:
    """Return, for each leak and each two models, whether and how likely their order changes.

    Both orders of a resample are of the same images with predictions of both, so that what they
    have in common cancels: ``chance`` is about the effect of the leak, ``behind`` about how certain
    the order on images that do not leak is. The likeliest change is first.
    """
    own = [scores for scores in models if metric in scores.values]
    sign = -1.0 if any(metric in scores.lower for scores in own) else 1.0
    groups: dict[bytes, tuple[Bool, list[tuple[Scores, Scores]]]] = {}
    for first, second in combinations(own, 2):
        both = first.answered & second.answered
        if both.any():
            groups.setdefault(both.tobytes(), (both, []))[1].append((first, second))
    found = [
        flip
        for answered, pairs in groups.values()
        for flip in _flips(benchmark, pairs, answered, metric, sign, seed)
    ]
    return tuple(sorted(found, key=lambda flip: -flip.chance))


def _flips(
    benchmark: Benchmark,
    pairs: Sequence[tuple[Scores, Scores]],
    answered: Bool,
    metric: str,
    sign: float,
    seed: int,
) -> Iterator[Flip]:
    """Yield how the orders change of pairs with predictions for the same images."""
    leads = [sign * (one.values[metric] - other.values[metric])[answered] for one, other in pairs]
    lead = np.stack(leads, axis=1)
    # the better one first, in the given order where they are equal
    behind_now = lead.mean(axis=0) < 0.0
    lead[:, behind_now] *= -1.0
    leaks = [(leak.name, ~leak.leaked[answered]) for leak in benchmark.leaks]
    leaks = [(name, kept) for name, kept in leaks if kept.any() and not kept.all()]
    counted = _resampled(lead, [kept for _, kept in leaks], seed)
    for (name, kept), (chance, behind) in zip(leaks, counted, strict=True):
        for at, pair in enumerate(pairs):
            first, second = pair[::-1] if behind_now[at] else pair
            whole, fair = float(lead[:, at].mean()), float(lead[kept, at].mean())
            yield Flip(
                *(metric, name, first.model, second.model, sign * whole, sign * fair),
                *(fair < 0.0 < whole, float(chance[at]), float(behind[at]), len(lead)),
            )


def _resampled(lead: Float64, parts: Sequence[Bool], seed: int) -> list[tuple[Float64, Float64]]:
    """Return by part and pair how often the order changes, and how often the first is behind.

    ``lead`` (n, pairs): score of the first minus that of the second. ``parts``: masks of images,
    (n,).
    """
    weighted = [lead * kept[:, None] for kept in parts]
    changed, behind = (np.zeros((len(parts), lead.shape[1])) for _ in range(2))
    size = max(1, min(RESAMPLES, _BLOCK // len(lead)))
    drawn = cluster_draws(len(lead), RESAMPLES, seed)
    for start in range(0, RESAMPLES, size):
        rows = min(size, RESAMPLES - start)
        counts = np.stack([next(drawn) for _ in range(rows)]).astype(np.float64)
        # sums of ones and zeros are exact; others may miss a tie by an ulp
        whole = _sign(counts @ lead)
        for at, part in enumerate(weighted):
            fair = _sign(counts @ part)
            changed[at] += (np.abs(whole - fair) / 2.0).sum(axis=0)
            behind[at] += ((1.0 - fair) / 2.0).sum(axis=0)
    return [
        (each / RESAMPLES, last / RESAMPLES) for each, last in zip(changed, behind, strict=True)
    ]


def _sign(sums: Float64) -> Float64:
    """Return which of two is ahead: 1, 0 for a tie, or -1."""
    return np.asarray(np.sign(np.where(np.abs(sums) < 1e-9, 0.0, sums)))
