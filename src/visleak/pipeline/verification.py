"""``verify(pairs) -> Evidence``: a cheap screen, a full check of survivors, a fine comparison.

The check aligns images of 256 pixels; pairs that resemble each other there are then compared at up
to 1,024 pixels, where strokes and fine texture are visible. An audit bounds the number of checks
(:mod:`visleak.pipeline.selection`). Evidence goes into the cache as soon as it is made, so that an
interrupted run loses one task per worker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Final

import numpy as np

from visleak.grading import Grader, grade
from visleak.images import decode
from visleak.pipeline.comparison import same_bytes
from visleak.pipeline.context import Handle, RunContext, trim_heap
from visleak.pipeline.encoded_set import EncodedSet, ImagesLost
from visleak.pipeline.evidence import (
    CHECK,
    CHECKED,
    RELATION,
    SCREEN,
    DistinctPairs,
    Subset,
    VerifiedPairs,
    as_evidence,
    recall_screens,
    remember,
    remember_screens,
    uses_features,
)
from visleak.pipeline.pixels import PairTask, in_tasks, loaded
from visleak.pipeline.selection import (
    Candidates,
    Clusters,
    Rounds,
    SpanningForest,
    most_for,
    sizes_for,
)
from visleak.records import (
    GRADES,
    Bool,
    Evidence,
    Float32,
    Grade,
    Int8,
    Int64,
    Opener,
    Pairs,
    Unreadable,
)
from visleak.verification import check, fine_comparison, placements, screen
from visleak.verification.exact import is_exact, is_identical
from visleak.verification.frame import Photo
from visleak.verification.image_pair import ImagePair
from visleak.verification.measures import CHECKS, Measures

#: A pair is checked in full where its corrected similarity plus SCREEN_WEIGHT times its screen
#: score reaches GATE.
SCREEN_WEIGHT: Final = 0.35
GATE: Final = 0.12
#: The same for small images, which have a screen of their own: on judged CIFAR-10 pairs that keeps
#: 99 % of the near-duplicates and leaves out nineteen twentieths of the candidates.
SMALL_WEIGHT: Final = 0.6
SMALL_GATE: Final = 0.29
#: Pairs per task. A fine comparison takes five times as long as a check.
SCREEN_CHUNK: Final = 1024
CHECK_CHUNK: Final = 32
FINE_CHUNK: Final = 4
#: Checks that are made at full size where they hold of bounded images.
FULL_SIZE: Final = [CHECKS.index("exact"), CHECKS.index("identical")]


def verify(
    comparisons: Sequence[Pairs], sets: Mapping[str, EncodedSet], context: RunContext
) -> list[Evidence]:
    """Return the evidence on the pairs of all comparisons; images are decoded once per set.

    All pairs that pass the screen are checked but those with equal bytes, whose evidence stays
    NaN. Pairs of equal contents are checked once.
    """
    distinct = [DistinctPairs.of_pairs(pairs, sets, context) for pairs in comparisons]
    _check_and_compare(_passed(distinct, context), context)
    return [VerifiedPairs(each, None).evidence() for each in distinct]


def verify_in_rounds(
    comparisons: Sequence[Pairs],
    sets: Mapping[str, EncodedSet],
    context: RunContext,
    grader: Grader,
    clusters: Sequence[Clusters | None],
) -> list[VerifiedPairs]:
    """Return the evidence on pairs: the best candidates of each image, more while any is near.

    The grader decides after each step which images proceed to the next; ``clusters`` has the
    result of :func:`connect` for each comparison it was called on.
    """
    distinct = [
        DistinctPairs.of_pairs(pairs, sets, context, own)
        for pairs, own in zip(comparisons, clusters, strict=True)
    ]
    survivors = _passed(distinct, context)
    rounds = [
        Rounds(
            _candidates(rows),
            sizes_for(rows.own.pairs),
            np.flatnonzero(rows.own.tried),
            np.flatnonzero(rows.own.near),
        )
        for rows in survivors
    ]
    while any(len(own.due()) for own in rounds):
        due = [Subset(rows.own, own.due()) for rows, own in zip(survivors, rounds, strict=True)]
        _fill_checks(due, context)
        steps = [
            own.steps(rows.agreement, _scores(rows)[0], rows.votes)
            for rows, own in zip(due, rounds, strict=True)
        ]
        while any(each.due().any() for each in steps):
            some = [rows.only(each.due()) for rows, each in zip(due, steps, strict=True)]
            _fill_comparisons(some, context)
            for rows, each in zip(some, steps, strict=True):
                each.proceed(_are_near(rows, grader))
        for own, each in zip(rounds, steps, strict=True):
            if len(own.due()):
                own.proceed(each)
    return [
        VerifiedPairs(each, own.skipped(len(each.pairs)))
        for each, own in zip(distinct, rounds, strict=True)
    ]


def _passed(distinct: Sequence[DistinctPairs], context: RunContext) -> list[Subset]:
    return _screened(
        [Subset(each, np.flatnonzero(~each.equal & ~each.connected)) for each in distinct], context
    )


def connect(
    comparisons: Sequence[Pairs],
    sets: Mapping[str, EncodedSet],
    context: RunContext,
    grader: Grader,
) -> list[Clusters]:
    """Verify the pairs that connect the dense clusters of each comparison."""
    subsets = []
    for pairs in comparisons:
        # their local features were not compared
        bare = replace(pairs, votes=np.zeros(len(pairs), np.float32))
        own = DistinctPairs.of_pairs(bare, sets, context)
        subsets.append(Subset(own, np.flatnonzero(~own.equal)))
    forests = []
    for each in subsets:
        pairs, (left, right) = each.own.pairs, each.own.numbers
        similarity, most = pairs.similarity[each.index], most_for(pairs)
        ends = left[each.query], right[each.reference]
        forests.append(SpanningForest(ends, similarity, most))
        del similarity, ends
    while any(len(forest.due()) for forest in forests):
        due = [
            Subset(each.own, each.index[forest.due()])
            for each, forest in zip(subsets, forests, strict=True)
        ]
        passed = _screened(due, context)
        _check_and_compare(passed, context)
        for each, survivors, forest in zip(due, passed, forests, strict=True):
            if len(each):
                near = survivors.index[_are_near(survivors, grader)]
                forest.proceed(np.isin(each.index, near))
    found = []
    for each, forest in zip(subsets, forests, strict=True):
        tried = each.only(forest.tried)
        found.append(Clusters.of(tried.cache_keys(), tried.table, forest.near[forest.tried]))
    return found


def equal_bytes(pairs: Pairs, sets: Mapping[str, EncodedSet]) -> Bool:
    """Return which pairs are two copies of the same bytes."""
    return same_bytes(pairs, sets[pairs.query_set], sets[pairs.reference_set])


def _candidates(survivors: Subset) -> Candidates:
    """Return the candidates of one comparison, with those that clusters connect."""
    own, rows = survivors.own, survivors
    connected = own.connected & ~own.equal
    if connected.any():
        connected[survivors.index] = True
        rows = Subset(own, np.flatnonzero(connected))
    trim_heap()
    query, reference = (numbers.astype(np.int32) for numbers in own.numbers)
    return Candidates(
        pair=rows.index,
        query=query[own.pairs.query[rows.index]],
        reference=reference[own.pairs.reference[rows.index]],
        score=_scores(rows)[0],
        votes=rows.votes,
        within=own.pairs.query_set == own.pairs.reference_set,
    )


def _are_near(rows: Subset, grader: Grader) -> Bool:
    near = np.zeros(len(rows), np.bool_)
    for part, some in rows.parts():
        graded = grade(
            rows.own.pairs.similarity[some.index],
            rows.own.pairs.background[some.index],
            as_evidence(some.table),
            equal_bytes=np.zeros(len(some), np.bool_),
            flat=some.flat,
            grader=grader,
        ).grade
        near[part] = (graded >= 0) & (graded <= GRADES.index(Grade.NEAR))
    return near


# -- the screen ----------------------------------------------------------------------------------


def _screened(todo: Sequence[Subset], context: RunContext) -> list[Subset]:
    """Screen the pairs without a known screen; return those of all pairs that pass."""
    for rows in todo:
        recall_screens(rows, context.cache)
    fresh = [rows.only(rows.own.table.unscreened(rows.index)) for rows in todo]
    if any(map(len, fresh)):
        reduce = (screen.thumbnail, 2 * screen.SIDE)
        for rows, found in in_tasks(
            fresh, context, "screening pairs", SCREEN_CHUNK, reduce, _screen_inputs, _screen
        ):
            rows.own.table.put_screens(rows.index, found)
        for rows, new in zip(todo, fresh, strict=True):
            remember_screens(rows, new, context.cache)
    return [_survivors(rows) for rows in todo]


def _screen_inputs(rows: Subset) -> Callable[[slice], tuple[Int8, Bool]]:
    view, small = rows.own.pairs.view[rows.index], _are_small(rows)
    return lambda part: (view[part], small[part])


def _screen(task: PairTask[tuple[Int8, Bool]]) -> Float32:
    """Return score and placement of some pairs, (n, 5)."""
    with loaded(task.pixels) as (left, right):
        query = left.stack(task.query, screen.SIDE)
        reference = right.stack(task.reference, screen.SIDE)
    view, small = task.input
    found = np.ones((len(query), SCREEN.stop), np.float32)
    if small.any():
        sides = query[small], reference[small], view[small]
        found[small, 0], found[small, 1:] = placements.place(*sides)
    if not small.all():
        sides = query[~small], reference[~small], view[~small]
        found[~small, 0], shift = screen.screen(*sides)
        found[~small, 1:3] = shift.astype(np.float32) / screen.SIDE
    return found


def _are_small(rows: Subset) -> Bool:
    left, right = rows.longest
    return np.asarray(np.maximum(left, right) <= check.SMALL)


def _scores(rows: Subset) -> tuple[Float32, Bool]:
    """Return the sum of similarity and screen of each pair, and whether it reaches the gate."""
    score, reached = np.empty(len(rows), np.float32), np.empty(len(rows), np.bool_)
    for part, some in rows.parts():
        pairs, small = some.own.pairs, _are_small(some)
        weight = np.where(small, SMALL_WEIGHT, SCREEN_WEIGHT).astype(np.float32)
        corrected = pairs.similarity[some.index] - pairs.background[some.index]
        # dissimilar whole images may still be crops, which the screen of small images detects
        corrected = np.where(small, np.maximum(corrected, 0), corrected)
        score[part] = corrected + weight * some.own.table.screens(some.index)[:, 0]
        reached[part] = score[part] >= np.where(small, SMALL_GATE, GATE).astype(np.float32)
    return score, reached


def _survivors(rows: Subset) -> Subset:
    reached = _scores(rows)[1]
    for part, some in rows.parts():
        reached[part] |= some.flat | (some.votes > 0)
    return rows.only(reached)


# -- the full check ------------------------------------------------------------------------------


def _check_and_compare(todo: Sequence[Subset], context: RunContext) -> None:
    """Check pairs that have not been, and compare in fine detail those that resemble each other."""
    _fill_checks(todo, context)
    _fill_comparisons(todo, context)


def _fill_checks(todo: Sequence[Subset], context: RunContext) -> None:
    """Check the pairs that have not been."""
    unchecked = [rows.only(~rows.own.table.checked(rows.index)) for rows in todo]
    for rows, found in in_tasks(
        unchecked,
        context,
        "checking pairs",
        CHECK_CHUNK,
        (check.bounded, check.BOUND),
        lambda rows: _check_inputs(rows, context),
        _check,
    ):
        rows.own.table.put_checks(rows.index, found)
        remember(rows, context.cache)


def _fill_comparisons(todo: Sequence[Subset], context: RunContext) -> None:
    """Compare in fine detail the checked pairs that resemble each other and have not been."""
    unfinished = [rows.only(rows.open) for rows in todo]
    side = fine_comparison.PLACES_SIDE
    reduce = (partial(check.bounded, side=side), side)
    for rows, found in in_tasks(
        unfinished,
        context,
        "comparing fine detail",
        FINE_CHUNK,
        reduce,
        lambda rows: lambda part: rows.only(part).table,
        _compare,
    ):
        rows.own.table.put_checks(rows.index, found[:, CHECKED])
        remember(rows, context.cache)


@dataclass(frozen=True, slots=True)
class _CheckInput:
    # of each pair, from the search and the screen
    view: Int8
    same_size: Bool  # images of equal size
    magnification: Float32  # how many pixels of the reference one of the query is at full size
    features: Bool  # local features are used
    positions: Int64  # int64 (n, 2): of the images in their sets
    large: Bool  # pairs of images that were bounded: exact ones are compared at full size
    placement: Float32
    # names and openers of both sets, if there are large pairs
    stored: tuple[tuple[str, Handle[Opener]], ...]


def _check_inputs(rows: Subset, context: RunContext) -> Callable[[slice], _CheckInput]:
    sides, sizes = rows.own.sides, rows.sizes
    same_size = np.asarray((sizes[0] == sizes[1]).all(axis=1))
    ours, theirs = (np.maximum(check.BOUND, own) for own in rows.longest)
    large = same_size & (sizes[0].max(axis=1, initial=0) > check.BOUND)
    stored = tuple((own.name, context.share(own.opener)) for own in sides if large.any())
    left, right = (own.fingerprints.rows for own in sides)
    positions = np.stack([left[rows.query], right[rows.reference]], axis=1)
    magnification = (ours / theirs).astype(np.float32)
    pairs = rows.own.pairs
    view, features = pairs.view[rows.index], uses_features(pairs, rows.index)

    def part_of(part: slice) -> _CheckInput:
        return _CheckInput(
            view[part],
            same_size[part],
            magnification[part],
            features[part],
            positions[part],
            large[part],
            rows.own.table.screens(rows.index[part])[:, 1:],
            stored,
        )

    return part_of


def _check(task: PairTask[_CheckInput]) -> Float32:
    """Return checks and relations of some pairs, (k, checks + 9)."""
    given = task.input
    result = np.full((len(task.query), len(CHECKS) + 9), np.nan, np.float32)
    with loaded(task.pixels) as (left, right):
        pairs = []
        for row, (query, reference) in enumerate(zip(task.query, task.reference, strict=True)):
            x, y, wider, higher = given.placement[row].tolist()
            pairs.append(
                ImagePair(
                    left.image(int(query)),
                    right.image(int(reference)),
                    int(given.view[row]),
                    (x, y),
                    same_size=bool(given.same_size[row]),
                    enlarged=(wider, higher),
                    local_features=bool(given.features[row]),
                    magnification=float(given.magnification[row]),
                )
            )
        for row, (measures, matrix) in enumerate(check.check_pairs(pairs)):
            result[row, : len(CHECKS)] = [getattr(measures, name) for name in CHECKS]
            result[row, len(CHECKS) :] = matrix.ravel()
            if given.large[row] and measures.exact == 1:
                result[row, FULL_SIZE] = _compared_at_full_size(given.stored, given.positions[row])
    return result


def _compared_at_full_size(
    stored: Sequence[tuple[str, Handle[Opener]]], positions: Int64
) -> tuple[bool, bool]:
    """Return whether two images are exact, and whether identical, at their full size."""
    images = []
    for (name, opener), position in zip(stored, positions.tolist(), strict=True):
        data = next(iter(opener.load().read([position])))
        image = data if isinstance(data, Unreadable) else decode(data)
        if isinstance(image, Unreadable):
            raise ImagesLost(name, [(position, image)])
        images.append(image.pixels)
    return is_exact(*images), is_identical(*images)


# -- the fine comparison ------------------------------------------------------------------------


def _compare(task: PairTask[Float32]) -> Float32:
    """Return the evidence with the columns of the fine comparison, (n, columns)."""
    table = task.input.copy()
    with loaded(task.pixels) as (left, right):
        # pairs of one query follow each other
        own = lru_cache(maxsize=1)(lambda row: Photo.of(left.image(row)))
        others = lru_cache(maxsize=1)(lambda row: Photo.of(right.image(row)))
        for row, (query, reference) in enumerate(zip(task.query, task.reference, strict=True)):
            measures = Measures(*(float(value) for value in table[row, CHECK]))
            matrix = table[row, RELATION].reshape(3, 3).astype(np.float64)
            measures, relation = fine_comparison.add_fine_comparison(
                measures, own(int(query)), others(int(reference)), matrix
            )
            table[row, CHECK] = [getattr(measures, name) for name in CHECKS]
            table[row, RELATION] = relation.ravel()
    return table
