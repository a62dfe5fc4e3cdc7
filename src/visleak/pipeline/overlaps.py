"""Overlaps: the share of each image that others show too, its place, and the scenes they form.

Candidates are pairs that share local features, and near or exact ones. A pair's relation is part of
``pairs.parquet``; everything else follows from it.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from visleak.errors import VisleakError
from visleak.formats import Boxes, boxes_of
from visleak.groups import components
from visleak.images import DECODING
from visleak.pipeline.comparison import Comparison, normalised_name
from visleak.pipeline.context import CacheHandle, RunContext, known_entries
from visleak.pipeline.encoded_set import Side, numbered_contents
from visleak.pipeline.pixels import PairTask, in_tasks, loaded
from visleak.rates import Rate
from visleak.records import Bool, Bytes8, Float32, Float64, Int64
from visleak.storage.audit_folder import BoxSummary, OverlapSummary, SceneSummary
from visleak.verification import check, overlap
from visleak.verification.frame import bounded
from visleak.verification.overlap import overlap_of
from visleak.verification.regions import Polygon, area_of, clipped_to, region_of, share_of, union_of

BOUND: Final = 768  # long side of the images whose relation is measured, pixels
CHUNK: Final = 16  # pairs per task
#: Images of either side whose pairs follow each other, because the features of so many are kept.
BLOCK: Final = 24
STEP: Final = "measuring overlaps"
LARGEST: Final = 5  # scenes whose sizes are reported
SEEN: Final = 0.5  # share of a box that must be seen
SAME: Final = 0.5  # intersection over union of two boxes of one object


def with_overlaps(comparisons: Sequence[Comparison], context: RunContext) -> list[Comparison]:
    """Return comparisons with the relations of the pairs that overlap."""
    distinct = {each.names: _Distinct.of(each) for each in comparisons if each.has_pixels}
    reduce = partial(bounded, side=BOUND), BOUND

    def inputs(pairs: _Distinct) -> Callable[[slice], _Input]:
        cache = context.cache_handle()
        return lambda part: pairs.only(part).input(cache)

    for some, (made, fresh) in in_tasks(
        [*distinct.values()], context, STEP, CHUNK, reduce, inputs, _measure
    ):
        some.relations[:] = made
        if context.cache is not None:
            context.cache.put(digest(), fresh.items())
    return [
        replace(each, overlap=distinct[each.names].of_all()) if each.names in distinct else each
        for each in comparisons
    ]


@dataclass(frozen=True, slots=True)
class _Input:
    starts: Float32
    keys: Bytes8  # of the cache, (n, bytes)
    cache: CacheHandle | None


@dataclass(frozen=True, slots=True)
class _Distinct:
    """The distinct pairs of contents of a comparison that may overlap."""

    sides: tuple[Side, Side]
    query: Int64  # int64 (n,): rows of the fingerprints
    reference: Int64
    starts: Float32  # float32 (n, 9): the relation that verification found, NaN without one
    relations: Float32  # float32 (n, 9): those that are measured
    number: Int64  # int64, of all pairs: which of these, -1 none, -2 equal contents

    @classmethod
    def of(cls, comparison: Comparison) -> _Distinct:
        pairs, sides = comparison.pairs, (comparison.query, comparison.reference)
        own, others = numbered_contents(*sides)
        left, right = own[pairs.query], others[pairs.reference]
        may = np.zeros(len(pairs), np.bool_) if pairs.votes is None else pairs.votes > 0
        near = np.zeros(len(pairs), np.bool_) if comparison.near is None else comparison.near
        may = (may | near) & ~sides[0].fingerprints.flat[pairs.query]
        equal = may & (left == right)
        rows = np.flatnonzero(may & ~equal)
        codes = left[rows] * (int(others.max(initial=0)) + 1) + right[rows]
        _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
        number = np.where(equal, -2, -1).astype(np.int64)
        chosen = rows[first]
        ends = left[chosen], right[chosen]
        place = np.lexsort((ends[1], ends[0], ends[1] // BLOCK, ends[0] // BLOCK))
        number[rows] = np.argsort(place)[inverse]
        chosen = chosen[place]
        starts = np.full((len(chosen), 9), np.nan, np.float32)
        if comparison.relations is not None:
            matrix, known = comparison.relations.of(chosen)
            known &= near[chosen]
            starts[known] = matrix[known]
        ends = pairs.query[chosen], pairs.reference[chosen]
        return cls(sides, *ends, starts, np.empty_like(starts), number)

    def __len__(self) -> int:
        return len(self.query)

    def only(self, part: slice) -> _Distinct:
        """Return some of the pairs; their relations are a view."""
        names = ("query", "reference", "starts", "relations")
        return replace(self, **{name: getattr(self, name)[part] for name in names})

    def input(self, cache: CacheHandle | None) -> _Input:
        """Return what measuring the pairs needs beside their pixels."""
        own, others = (
            side.fingerprints.digests[rows]
            for side, rows in zip(self.sides, (self.query, self.reference), strict=True)
        )
        starts = np.ascontiguousarray(self.starts)
        keys = np.concatenate([own, others, starts.view(np.uint8)], axis=1)
        return _Input(starts, keys, cache)

    def of_all(self) -> Float32:
        """Return the relations of all pairs of the comparison."""
        result = np.full((len(self.number), 9), np.nan, np.float32)
        result[self.number == -2] = np.eye(3, dtype=np.float32).ravel()
        measured = self.number >= 0
        result[measured] = self.relations[self.number[measured]]
        return result


def digest() -> bytes:
    """Return the digest of everything that overlaps depend on beside the images."""
    own = check.constants(overlap)
    recipe = f"overlap at {BOUND} of {DECODING}: {own}".encode() + check.digest()
    return hashlib.blake2b(recipe, digest_size=16).digest()


def _measure(task: PairTask[_Input]) -> tuple[Float32, Mapping[bytes, bytes]]:
    """Return the relations of some pairs (n, 9), and those that the cache did not have."""
    given = task.input
    keys = [hashlib.blake2b(key.tobytes(), digest_size=16).digest() for key in given.keys]
    known = known_entries(given.cache, digest(), keys)
    relations, fresh = np.empty((len(keys), 9), np.float32), {}
    with loaded(task.pixels) as (left, right):
        for row, key in enumerate(keys):
            if key in known:
                relations[row] = np.frombuffer(known[key], "<f4")
                continue
            start = given.starts[row].astype(np.float64).reshape(3, 3)
            ends = left.image(int(task.query[row])), right.image(int(task.reference[row]))
            found = overlap_of(*ends, [] if np.isnan(start).any() else [start])
            relations[row] = np.nan if found is None else found.ravel()
            fresh[key] = relations[row].astype("<f4").tobytes()
    return relations, fresh


# -- what follows from the relations --------------------------------------------------------------


def shares(relations: Float32) -> Float32:
    """Return the share of the query of each relation (n, 9) that the reference shows, else NaN."""
    result = np.full(len(relations), np.nan, np.float32)
    for row, matrix in _known(relations):
        result[row] = share_of(matrix)
    return result


def _known(relations: Float32) -> Iterator[tuple[int, Float64]]:
    """Yield the number of each relation (n, 9) that there is, and its matrix (3, 3)."""
    for row in np.flatnonzero(~np.isnan(relations[:, 0])).tolist():
        yield row, relations[row].astype(np.float64).reshape(3, 3)


def related(comparison: Comparison) -> Iterator[tuple[int, int, Float64]]:
    """Yield the rows of the images that overlap, and the relation from query to reference."""
    if comparison.overlap is not None:
        pairs = comparison.pairs
        for at, matrix in _known(comparison.overlap):
            yield int(pairs.query[at]), int(pairs.reference[at]), matrix


def seen(comparisons: Sequence[Comparison], count: int) -> Float32 | None:
    """Return the share of each image of a query set that its references show together.

    ``comparisons`` are those of the set that count as leaks, ``count`` is that of its readable
    images. ``None`` where overlaps were not measured.
    """
    measured = [each for each in comparisons if each.overlap is not None]
    if not measured:
        return None
    regions = defaultdict[int, list[Polygon]](list)
    for each in measured:
        for query, reference, matrix in related(each):
            regions[query].append(region_of(matrix))
            if each.coverage == "within":
                regions[reference].append(region_of(np.linalg.inv(matrix)))
    result = np.zeros(count, np.float32)
    for row, own in regions.items():
        result[row] = union_of(own)
    return result


def counted(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return the comparisons of a query set whose pairs are leaks: of other sets, if there are."""
    return [each for each in comparisons if each.coverage != "within"] or list(comparisons)


def scenes(sides: Sequence[Side], comparisons: Sequence[Comparison]) -> dict[str, Int64]:
    """Return the scene of each image by set, ``int64`` (n,): images that overlaps connect.

    Numbered in the order of sets and ids; -1 for an image that overlaps none.
    """
    starts, count = {}, 0
    for side in sides:
        starts[side.name] = count
        count += len(side.fingerprints)
    # by rank of the ids, so that the order of files changes no number
    ties = []
    for each in comparisons:
        if each.overlap is None:
            continue
        there = np.flatnonzero(~np.isnan(each.overlap[:, 0]))
        left = starts[each.query.name] + each.query.order[each.pairs.query[there]]
        right = starts[each.reference.name] + each.reference.order[each.pairs.reference[there]]
        ties.append((left, right))
    found = components(count, ties)
    sizes = np.bincount(found)
    rank = np.cumsum(sizes > 1) - 1
    number = np.where(sizes[found] > 1, rank[found], -1)
    return {side.name: number[starts[side.name] + side.order] for side in sides}


def is_seen(share: Float32, least: float, blank: Bool) -> Bool:
    """Return which images are seen to at least a share; stored shares are rounded."""
    return np.asarray((share >= np.float32(least)) & (share > 0) & ~blank)


def summary_of(comparison: Comparison) -> OverlapSummary | None:
    """Return the entry of a comparison in ``audit.json``."""
    relations, pairs = comparison.overlap, comparison.pairs
    if relations is None:
        return None
    there = ~np.isnan(relations[:, 0])
    within = comparison.coverage == "within"
    images = [end[there] for end in (pairs.query, pairs.reference)[: 1 + within]]
    return OverlapSummary(int(there.sum()), len(np.unique(np.concatenate(images))))


def scenes_of(
    sides: Sequence[Side], comparisons: Sequence[Comparison], queries: Sequence[Side]
) -> SceneSummary | None:
    """Return what overlaps connect, for ``audit.json``; ``None`` where none were measured."""
    if all(each.overlap is None for each in comparisons):
        return None
    found = scenes(sides, comparisons)
    tested = {side.name for side in queries}
    scene = np.concatenate([found[side.name] for side in sides])
    is_query = np.concatenate([np.full(len(found[s.name]), s.name in tested) for s in sides])
    sizes = np.bincount(scene[scene >= 0])
    shared = np.intersect1d(scene[is_query & (scene >= 0)], scene[~is_query & (scene >= 0)])
    largest = tuple(np.sort(sizes)[::-1][:LARGEST].tolist())
    return SceneSummary(len(sizes), int(sizes.sum()), len(shared), largest)


def rate(
    comparisons: Sequence[Comparison], query: Side, least: float, population: int | None
) -> Rate | None:
    """Return how many images of a query set are seen to at least a share."""
    share = seen(comparisons, len(query.fingerprints))
    if share is None:
        return None
    hit = is_seen(share, least, query.fingerprints.flat)
    return Rate.of(int(hit.sum()), len(hit), population=population)


def sentence(found: Rate, least: float, name: str) -> str:
    """Return the part of a headline on overlaps, empty where there is none.

    >>> sentence(Rate.of(3, 10), 0.1, "test")
    '; 3 of 10 test images are seen to at least 10 % in images that overlap them'
    """
    if not found.count:
        return ""
    verb = "is" if found.count == 1 else "are"
    return (
        f"; {found.count:,} of {found.total:,} {name} images {verb} seen to at least"
        f" {100 * least:g} % in images that overlap them"
    )


# -- annotated objects of test images that training images show ------------------------------------


@dataclass(frozen=True, slots=True)
class _Objects:
    """The boxes of the readable images of a set, in unit coordinates."""

    first: Int64  # int64 (images + 1,): those of row r are first[r]:first[r + 1]
    corners: Float64  # float64 (n, 4): left, top, right, bottom
    names: tuple[str, ...]  # their classes, empty where there is none

    @classmethod
    def of(cls, side: Side, boxes: Boxes) -> _Objects:
        rows = side.fingerprints.rows
        own = boxes.taken(rows)
        real = np.flatnonzero(~own.crowd)
        sizes = side.fingerprints.sizes[own.image[real]]
        units = np.concatenate([sizes, sizes], axis=1).astype(np.float64)
        corners = own.corners[real] if own.relative else own.corners[real] / np.maximum(units, 1)
        names = tuple(
            normalised_name(own.names[label]) if label >= 0 else "" for label in own.label[real]
        )
        first = np.searchsorted(own.image[real], np.arange(len(rows) + 1))
        return cls(first.astype(np.int64), np.clip(corners, 0, 1), names)

    def rows(self, image: int) -> range:
        """Return the boxes of an image."""
        return range(int(self.first[image]), int(self.first[image + 1]))


def seen_boxes(
    comparisons: Sequence[Comparison], sides: Mapping[str, Side]
) -> tuple[tuple[BoxSummary, ...], list[str]]:
    """Return how many boxes of query sets are seen, and what could not be read, in words."""
    measured = [c for c in comparisons if c.overlap is not None and c.coverage != "within"]
    objects: dict[str, _Objects] = {}
    notes = []
    for name in dict.fromkeys(name for each in measured for name in each.names):
        try:
            boxes = boxes_of(sides[name].images)
        except VisleakError as error:
            notes.append(f"boxes of {name}: {error}")
            continue
        if boxes is not None:
            objects[name] = _Objects.of(sides[name], boxes)
    found = [
        _counted(each, objects[each.query.name], objects.get(each.reference.name))
        for each in measured
        if each.query.name in objects
    ]
    return tuple(found), notes


def _counted(comparison: Comparison, own: _Objects, others: _Objects | None) -> BoxSummary:
    """Count the boxes of a query set; each by the reference that shows most of it."""
    best: dict[int, tuple[float, str]] = {}
    for query, reference, matrix in related(comparison):
        region = region_of(matrix)
        for box in own.rows(query):
            corners = own.corners[box]
            area = float(np.prod(corners[2:] - corners[:2]))
            share = area_of(clipped_to(region, corners)) / area if area > 0 else 0.0
            if share >= SEEN and share > best.get(box, (0.0, ""))[0]:
                best[box] = share, _relation(own, box, others, reference, matrix)
    kinds = Counter(kind for _, kind in best.values())
    found = (kinds[name] for name in ("same", "different", "unmatched"))
    return BoxSummary(*comparison.names, len(own.names), len(best), *found)


def _relation(
    own: _Objects, box: int, others: _Objects | None, reference: int, matrix: Float64
) -> str:
    """Return whether a box is annotated in a reference as the same class, as another, or not."""
    if others is None:
        return "unmatched"
    left, top, right, bottom = own.corners[box]
    around = np.array([[left, right, right, left], [top, top, bottom, bottom], [1, 1, 1, 1]])
    moved = matrix @ around
    points = np.clip(moved[:2] / moved[2], 0, 1)
    there = np.concatenate([points.min(axis=1), points.max(axis=1)])
    classes = [
        others.names[other]
        for other in others.rows(reference)
        if _agreement(there, others.corners[other]) >= SAME
    ]
    if not classes:
        return "unmatched"
    return "same" if own.names[box] in classes else "different"


def _agreement(one: Float64, other: Float64) -> float:
    """Return the intersection over union of two boxes.

    >>> round(_agreement(np.array([0, 0, 1, 1.0]), np.array([0.5, 0, 1, 1.0])), 3)
    0.5
    """
    inside = np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2])
    shared = float(np.prod(np.maximum(inside, 0)))
    areas = sum(float(np.prod(box[2:] - box[:2])) for box in (one, other))
    return shared / max(areas - shared, 1e-12)
