"""Candidates among small images: one image against windows of the other.

A crop resembles a part of the original more than the whole of it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from visleak.encoders.builtin import BINS, CELLS, COLOURS, ORIENTATION_WIDTH, BuiltinEncoder
from visleak.groups import places, places_within
from visleak.pipeline.candidates import Contents, similarities, with_added
from visleak.pipeline.comparison import Comparison
from visleak.pipeline.context import trim_heap
from visleak.pipeline.encoded_set import Side
from visleak.progress import Progress, silent
from visleak.records import Bool, Encoder, Float32, Int64
from visleak.search.hits import Scored
from visleak.vectors import forget, parts_of
from visleak.verification.check import SMALL

#: Windows: left, top, width and height, as shares of the image.
WINDOWS: Final = (
    *((0.125, 0.125, 0.75, 0.75), (0.0, 0.0, 0.75, 0.75), (0.25, 0.0, 0.75, 0.75)),
    *((0.0, 0.25, 0.75, 0.75), (0.25, 0.25, 0.75, 0.75)),
)
#: Components that are compared, and the length to which they are rounded.
COMPONENTS: Final = 48
LENGTH: Final = 127
WINDOWED: Final = 10  # references per query that are added, at most
PARTS: Final = 4  # into which the references are cut, per wanted candidate
#: Queries and references compared at a time, whose scores fit the processor's cache; and scores
#: that a thread holds, which bounds the queries of large sets.
QUERIES: Final = 128
REFERENCES: Final = 512
SCORES: Final = 8_000_000


def with_windows(
    comparison: Comparison, encoder: Encoder, workers: int = 1, progress: Progress = silent
) -> Comparison:
    """Return a comparison with the pairs in which one image is similar to a window of the other.

    None are added unless both sides have small images with built-in fingerprints.
    """
    query, reference = sides = comparison.query, comparison.reference
    pairs = comparison.pairs
    if not (isinstance(encoder, BuiltinEncoder) and all(_small(side).any() for side in sides)):
        return comparison
    left = _Views.of(query)
    right = left if query is reference else _Views.of(reference)
    step, count = f"windows of {query.name} and {reference.name}", len(left.contents.keys)
    found = _best(left, right, workers, lambda done: progress(step, done, count))
    other = right.contents.leads[found[1]]
    if query is not reference:
        # all copies of a content of the query
        pair, place = places_within(left.contents.sizes()[found[0]])
        one = left.contents.members[left.contents.edges[found[0]][pair] + place]
        other = other[pair]
        del pair, place
    else:
        one = left.contents.leads[found[0]]
        backwards = query.order[one] > query.order[other]
        one, other = np.where(backwards, other, one), np.where(backwards, one, other)
    del left, right, found
    # equal contents are candidates already
    differ = (query.fingerprints.digests[one] != reference.fingerprints.digests[other]).any(axis=1)
    one, other = one[differ], other[differ]
    width = len(reference.fingerprints)
    added = np.setdiff1d(one * width + other, pairs.query * width + pairs.reference)
    one, other = added // width, added % width
    del added
    trim_heap()
    both = query.fingerprints, reference.fingerprints
    similarity, view = similarities(both, one, other, encoder, (0,))
    votes = None if pairs.votes is None else np.zeros(len(one), np.float32)
    scored = Scored(one, other, similarity, view)
    return replace(comparison, pairs=with_added(pairs, sides, scored, votes))


def _small(side: Side) -> Bool:
    sizes = side.fingerprints.sizes.max(axis=1, initial=0)
    return np.asarray((sizes <= SMALL) & ~side.fingerprints.flat)


@dataclass(frozen=True, slots=True)
class _Views:
    contents: Contents
    # int8 (1 + windows, n, components): all of each image, then its windows
    views: npt.NDArray[np.int8]

    @classmethod
    def of(cls, side: Side) -> _Views:
        contents = Contents.of(side, _small(side))
        rows, (maps, mean) = contents.leads, _maps()
        views = np.empty((len(maps), len(rows), COMPONENTS), np.int8)
        for part in parts_of(len(rows), REFERENCES):
            vectors = side.fingerprints.matrix[rows[part]].astype(np.float64)
            for number, components in enumerate(maps):
                made = vectors @ components - mean
                length = np.linalg.norm(made, axis=1, keepdims=True)
                views[number, part] = np.rint(made * (LENGTH / np.maximum(length, 1e-6)))
            forget(side.fingerprints.matrix)
        return cls(contents, views)


@cache
def _maps() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the maps from fingerprints to components of each view, and the mean's components."""
    cohort = BuiltinEncoder().cohort
    assert cohort is not None
    vectors = cohort.astype(np.float64)
    mean = vectors.mean(axis=0)
    components = np.linalg.eigh(np.cov(vectors.T))[1][:, ::-1][:, :COMPONENTS]
    maps = [components, *(_window(*window) @ components for window in WINDOWS)]
    return np.stack(maps), mean @ components


def _window(left: float, top: float, width: float, height: float) -> npt.NDArray[np.float64]:
    """Return the matrix from fingerprints to those of a window, (560, 560)."""
    matrix = np.zeros((ORIENTATION_WIDTH + 3 * COLOURS**2,) * 2)
    for cells, depth, start in ((CELLS, BINS, 0), (COLOURS, 3, ORIENTATION_WIDTH)):
        down, across = _resampled(cells, top, height), _resampled(cells, left, width)
        part = np.kron(np.kron(down, across), np.eye(depth))
        # averaging makes vectors shorter: keep the shares of the parts
        part /= np.sqrt((part**2).sum() / len(part))
        stop = start + len(part)
        matrix[start:stop, start:stop] = part.T
    return matrix


def _resampled(cells: int, start: float, share: float) -> npt.NDArray[np.float64]:
    """Return the weights of cells in the cells of a window along one axis."""
    edges = start + share * np.arange(cells + 1) / cells
    cell = np.arange(cells) / cells
    overlap = np.minimum(edges[1:, None], cell + 1 / cells) - np.maximum(edges[:-1, None], cell)
    return np.asarray(np.maximum(overlap, 0) / (share / cells))


def _best(
    left: _Views, right: _Views, workers: int, progress: Callable[[int], None]
) -> tuple[Int64, Int64]:
    """Return the best pairs of each query, as positions among the contents."""
    same, count = left is right, len(left.contents.keys)
    place = right.contents.order
    step = max(1, min(QUERIES, SCORES // max(1, len(place))))

    def search(start: int) -> tuple[Int64, Int64]:
        score = _scores(left.views[:, start : start + step], right.views)
        queries = np.arange(len(score))
        if same:
            score[queries, start + queries] = -np.inf
        kept = min(WINDOWED, score.shape[1])
        # the best of a few parts bound the best of all from below
        cut = np.array_split(score, min(PARTS * kept, score.shape[1]), axis=1)
        parts = np.stack([part.max(axis=1) for part in cut])
        least = np.partition(parts, -kept, axis=0)[-kept, :, None]
        # ties are decided by id
        rows, columns = np.nonzero(score >= least)
        rank = np.lexsort((place[columns], -score[rows, columns], rows))
        rows, columns = rows[rank], columns[rank]
        chosen = places(rows) < kept
        chosen &= np.isfinite(score[rows, columns])
        return start + rows[chosen], columns[chosen]

    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(max(1, workers)) as pool:
        parts = []
        for number, found in enumerate(pool.map(search, range(0, count, step))):
            parts.append(found)
            progress(min(count, (number + 1) * step))
    one, other = (np.concatenate([part[side] for part in parts]) for side in (0, 1))
    return one, other


def _scores(query: npt.NDArray[np.int8], reference: npt.NDArray[np.int8]) -> Float32:
    """Return the best score of each query (q) with each reference (r) over all windows, (q, r)."""
    score = np.empty((query.shape[1], reference.shape[1]), np.float32)
    ours = query.astype(np.float32)
    windows = range(1, len(WINDOWS) + 1)
    for part in parts_of(reference.shape[1], REFERENCES):
        # in the order in which a product reads them
        theirs = reference[:, part].transpose(0, 2, 1).astype(np.float32, order="C")
        best = ours[0] @ theirs[1]
        product = np.empty_like(best)
        for one, other in (*((0, n) for n in windows), *((n, 0) for n in windows)):
            np.matmul(ours[one], theirs[other], out=product)
            np.maximum(best, product, out=best)
        score[:, part] = best
    return score
