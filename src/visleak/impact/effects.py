"""The table of a score: leaked images, the others, controls, and whether it is chance."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.impact.benchmark import RELATIONS, Benchmark, Leak
from visleak.impact.controls import Draws, matched_draws, part_draws, random_draws
from visleak.impact.estimates import (
    NOTHING,
    difference_of,
    fair_of,
    gain_of,
    is_dominated,
    score_of,
)
from visleak.impact.results import ENOUGH_DRAWS, Comparison, Effect, Estimate, Row, Twinned
from visleak.impact.scores import Float64, Scores
from visleak.impact.twins import Twins, twins_of
from visleak.records import Bool, Int64
from visleak.stats.multiple import holm
from visleak.stats.permutation import permutation_test
from visleak.stats.resampling import percentiles

#: The row of the images that are compared with leaked ones of their difficulty.
TWINS: Final = "difficulty-matched"

#: Rows of the labels' relation, in the order of :data:`RELATIONS`.
_BY_LABEL: Final = tuple(f"{relation} label" for relation in RELATIONS)


@dataclass(frozen=True, slots=True)
class Asked:
    """How effects are computed.

    Attributes:
        draws: repetitions of the rows that are drawn.
        size: images of a draw; with it every row but the whole benchmark is drawn, as in table 4
            of Ramos et al. (2025). ``None``: as many as leak, and only controls are drawn.
        by_label: tell leaked images whose copy has the same label from the others.
        mid: of permutation tests, the mid-p.
        seed: of everything that is drawn.
    """

    draws: int = 1000
    size: int | None = None
    by_label: bool = True
    mid: bool = True
    seed: int = 0


@dataclass(frozen=True)
class _Column:
    """One metric of one model, on the images that have an answer."""

    scores: Scores
    metric: str
    values: Float64
    share: bool
    percent: bool


@dataclass(frozen=True)
class _Part:
    """One row of the table before it is scored."""

    leak: str
    subset: str
    images: Bool


def effects_of(
    benchmark: Benchmark,
    models: Sequence[Scores],
    asked: Asked,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[Effect, ...]:
    """Return the effect of each metric of each model, in their order, corrected by Holm.

    Args:
        benchmark: the test set and its leaks.
        models: their scores, as long as the benchmark.
        asked: how.
        progress: told how many of how many effects are done.
    """
    total = sum(len(scores.values) for scores in models)
    percent = _in_percent(models)
    found: dict[tuple[int, str], Effect] = {}
    for answered, places in _alike(models):
        part = _only(benchmark, answered)
        columns = [
            _Column(
                models[at], metric, values[answered], models[at].is_share(metric), percent[metric]
            )
            for at in places
            for metric, values in models[at].values.items()
        ]
        owners = [at for at in places for _ in models[at].values]
        table = _Table(part, columns, asked)
        for number, (at, column) in enumerate(zip(owners, columns, strict=True)):
            found[at, column.metric] = table.effect(number, (len(part), len(benchmark)))
            progress(len(found), total)
    ordered = [found[at, metric] for at, scores in enumerate(models) for metric in scores.values]
    return _corrected(ordered, benchmark.leaks)


def _in_percent(models: Sequence[Scores]) -> dict[str, bool]:
    """Return by metric whether it is shown times a hundred: one table has one unit."""
    found: dict[str, bool] = {}
    for scores in models:
        for metric in scores.values:
            found[metric] = found.get(metric, True) and scores.in_percent(metric)
    return found


def _alike(models: Sequence[Scores]) -> Iterator[tuple[Bool, list[int]]]:
    """Yield models that answered the same images together: they are drawn from together."""
    groups: dict[bytes, list[int]] = {}
    for at, scores in enumerate(models):
        groups.setdefault(scores.answered.tobytes(), []).append(at)
    for places in groups.values():
        yield models[places[0]].answered, places


def _only(benchmark: Benchmark, kept: Bool) -> Benchmark:
    """Return the benchmark of some of its images."""
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
    """Return the number of each image's class; images without a label are a class of their own."""
    if labels is None:
        return None
    numbers = pc.fill_null(labels.dictionary_encode().indices, -1).to_numpy().astype(np.int64)
    return np.asarray(np.unique(numbers, return_inverse=True)[1], np.int64)


class _Table:
    """The rows of some columns that have the same images."""

    def __init__(self, benchmark: Benchmark, columns: Sequence[_Column], asked: Asked) -> None:
        self.benchmark, self.columns, self.asked = benchmark, columns, asked
        self.classes = classes_of(benchmark.labels)
        self._differences: dict[tuple[int, bytes], Estimate] = {}
        self.matrix = np.stack([column.values for column in columns], axis=1)
        leaked = [leak.leaked for leak in benchmark.leaks]
        sizes = [self._drawn(int(each.sum())) for each in leaked]
        self.random = random_draws(self.matrix, sizes, asked.draws, asked.seed)
        self.matched: list[Draws] | None = None
        if self.classes is not None:
            self.matched = matched_draws(
                self.matrix, self.classes, leaked, asked.draws, asked.seed, asked.size
            )

        self.twins: list[Twins | None] = [self._twins(each) for each in leaked]

    def _twins(self, leaked: Bool) -> Twins | None:
        """Return the twins of leaked images, where difficulty is known and any image has some."""
        if self.benchmark.difficulty is None:
            return None
        found = twins_of(self.benchmark.difficulty, self.classes, leaked, self.asked.seed)
        return found if len(found.leaked) else None

    def _drawn(self, leaked: int) -> int:
        """Return how many images a control of so many leaked ones has."""
        return leaked if self.asked.size is None else min(self.asked.size, leaked)

    def effect(self, number: int, images: tuple[int, int]) -> Effect:
        """Return the effect on a column."""
        column = self.columns[number]
        whole = self._whole(column)
        rows, comparisons = [whole], []
        for at, leak in enumerate(self.benchmark.leaks):
            rows += [self._row(number, part, whole) for part in self._parts(leak)]
            rows += self._controls(number, at, whole)
            twins = self.twins[at]
            if twins is not None:
                part = np.zeros(len(self.benchmark), np.bool_)
                part[twins.twins] = True
                rows.append(self._row(number, _Part(leak.name, TWINS, part), whole))
            comparisons.append(self._comparison(number, leak, twins))
        return Effect(
            column.scores.model,
            column.metric,
            images,
            percent=column.percent,
            share=column.share,
            lower=column.metric in column.scores.lower,
            rows=tuple(rows),
            comparisons=tuple(comparisons),
        )

    def _whole(self, column: _Column) -> Row:
        score = score_of(column.values, share=column.share, seed=self.asked.seed)
        dominated = not column.share and is_dominated(column.values)
        return Row("", "original", len(column.values), score, NOTHING, dominated=dominated)

    def _parts(self, leak: Leak) -> Iterator[_Part]:
        yield _Part(leak.name, "non-leaked", ~leak.leaked)
        yield _Part(leak.name, "leaked", leak.leaked)
        if not (self.asked.by_label and leak.compared):
            return
        for code, subset in enumerate(_BY_LABEL):
            images = leak.relation == code
            # images without a label are a row only where there are some
            if images.any() or code != RELATIONS.index("unknown"):
                yield _Part(leak.name, subset, images)

    def _row(self, number: int, part: _Part, whole: Row) -> Row:
        """Return the row of a part: of all its images, or of draws of them."""
        column, count = self.columns[number], int(part.images.sum())
        if not count:
            return Row(part.leak, part.subset, 0, NOTHING, NOTHING)
        if self.asked.size is not None:
            own = self.matrix[:, [number]]
            draws = part_draws(own, part.images, self.asked.size, self.asked.draws, self.asked.seed)
            if len(draws.scores) > 1:
                return _drawn_row(part.leak, part.subset, draws, 0, whole)
        share, seed = column.share, self.asked.seed
        if count == whole.images:
            return replace(whole, leak=part.leak, subset=part.subset, gain=Estimate(0.0, 0.0, 0.0))
        values = column.values[part.images]
        score = score_of(values, share=share, seed=seed)
        gain = gain_of(self._difference(number, part.images), count, whole.images)
        dominated = not share and is_dominated(values)
        return Row(part.leak, part.subset, count, score, gain, dominated=dominated)

    def _controls(self, number: int, at: int, whole: Row) -> Iterator[Row]:
        name = self.benchmark.leaks[at].name
        yield _drawn_row(name, "random", self.random[at], number, whole)
        if self.matched is not None:
            yield _drawn_row(name, "class-matched", self.matched[at], number, whole)

    def _difference(self, number: int, part: Bool) -> Estimate:
        """Return the score of a part minus that of the rest; a bootstrap is made once."""
        key, other = (number, part.tobytes()), (number, (~part).tobytes())
        if key not in self._differences:
            column = self.columns[number]
            values, rest = column.values[part], column.values[~part]
            found = difference_of(values, rest, share=column.share, seed=self.asked.seed)
            self._differences[key] = found
            self._differences[other] = Estimate(-found.value, -found.high, -found.low)
        return self._differences[key]

    def _comparison(self, number: int, leak: Leak, twins: Twins | None) -> Comparison:
        column, leaked = self.columns[number], leak.leaked
        values, share = column.values, column.share
        seed, mid = self.asked.seed, self.asked.mid
        others = int((~leaked).sum())
        difference = self._difference(number, leaked)
        p = permutation_test(values, leaked, mid=mid, seed=seed)
        inside = math.nan
        if self.classes is not None:
            inside = permutation_test(values, leaked, self.classes, mid=mid, seed=seed)
        fair, lost = fair_of(values, self.classes, ~leaked, share=share, seed=seed)
        return Comparison(
            leak=leak.name,
            leaked=len(values) - others,
            others=others,
            difference=difference,
            p=p,
            adjusted=math.nan,
            within_classes=inside,
            within_classes_adjusted=math.nan,
            fair=fair,
            inflation=gain_of(difference, others, len(values)),
            classes_lost=lost,
            twinned=None if twins is None else self._twinned(column, twins),
        )

    def _twinned(self, column: _Column, twins: Twins) -> Twinned:
        """Compare leaked images with their twins."""
        values, share, seed = column.values, column.share, self.asked.seed
        own, others = values[twins.leaked], values[twins.twins.ravel()]
        sets = twins.sets(len(values))
        inside, chosen = sets >= 0, np.zeros(len(values), np.bool_)
        chosen[twins.leaked] = True
        return Twinned(
            leaked=len(own),
            twins=twins.twins.shape[1],
            alone=twins.alone,
            difficulty=twins.difficulty,
            score=float(own.mean()),
            difference=difference_of(own, others, share=share, seed=seed),
            p=permutation_test(
                values[inside], chosen[inside], sets[inside], mid=self.asked.mid, seed=seed
            ),
        )


def _drawn_row(leak: str, subset: str, draws: Draws, number: int, whole: Row) -> Row:
    if not draws.images:
        return Row(leak, subset, 0, NOTHING, NOTHING)
    scores = draws.scores[:, number]
    mean = float(scores.mean())
    enough = len(scores) >= ENOUGH_DRAWS and not whole.dominated
    low, high = percentiles(scores if enough else ())
    base = whole.score.value
    deviation = float(scores.std(ddof=1)) if len(scores) > 1 else math.nan
    return Row(
        leak,
        subset,
        draws.images,
        Estimate(mean, low, high),
        Estimate(mean - base, low - base, high - base),
        deviation,
        len(scores),
        draws.overlap,
    )


def _corrected(effects: Sequence[Effect], leaks: Sequence[Leak]) -> tuple[Effect, ...]:
    """Return the effects with Holm's correction over all of their comparisons.

    Leaks of the very same images, such as ``near only`` where none is exact, are one test.
    """
    first = [next(n for n, one in enumerate(leaks) if _same(one, leak)) for leak in leaks]
    tested = sorted(set(first))
    every = [effect.comparisons[n] for effect in effects for n in tested]
    plain = iter(holm([each.p for each in every]))
    inside = iter(holm([each.within_classes for each in every]))
    matched = iter(holm([each.twinned.p if each.twinned else math.nan for each in every]))
    found = []
    for effect in effects:
        adjusted = {n: [float(next(each)) for each in (plain, inside, matched)] for n in tested}
        comparisons = tuple(
            replace(
                each,
                adjusted=adjusted[n][0],
                within_classes_adjusted=adjusted[n][1],
                twinned=each.twinned and replace(each.twinned, adjusted=adjusted[n][2]),
            )
            for each, n in zip(effect.comparisons, first, strict=True)
        )
        found.append(replace(effect, comparisons=comparisons))
    return tuple(found)


def _same(one: Leak, other: Leak) -> bool:
    """Whether two leaks are of the very same images."""
    return np.array_equal(one.leaked, other.leaked)
