"""All test sets against a set of embeddings that is never loaded: it passes by once.

Only the images that are in a pair become part of the audit's records; of all others nothing is
kept but their number.
"""

from __future__ import annotations

import hashlib
import pickle
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from visleak.cache import Cache
from visleak.pipeline.candidates import SAME_COLOUR, Side, side
from visleak.pipeline.context import Handle, RunContext, shared
from visleak.pipeline.embeddings import (
    Taken,
    columns_at,
    fingerprints,
    flat_of,
    image_set,
    problems_of,
    vectors_at,
)
from visleak.records import Bool, EmbeddingSet, Encoder, Float32, Int8, Int64, Pairs, Partition
from visleak.search import PartitionEngine
from visleak.search.hits import Search, Wanted
from visleak.search.streaming import PartitionSearch, stream
from visleak.search.streaming_hits import LAYOUT, PartitionHits, StreamHits

#: Raised whenever what is found in a partition could change.
VERSION = 2


def streamed(
    query: Float32,
    partitions: Sequence[Partition],
    wanted: Wanted,
    place: RunContext,
    progress: Callable[[int], None] | None = None,
    through: PartitionEngine | None = None,
) -> StreamHits:
    """Return the wanted pairs between the queries and all partitions, read once.

    Args:
        query: ``float32`` (n, d): unit rows, of all benchmarks together.
        partitions: of the reference side, with ids unique over all of them.
        wanted: which pairs.
        place: where to work. Threads of this process take a partition together; workers of a
            cluster take one each, and fetch the queries once a node.
        progress: called with the number of rows done so far.
        through: answers for the partitions instead, through indexes that are kept.
    """
    if through is not None:
        # what may lack pairs must not be kept as the answer of those who find all
        return stream(query, partitions, wanted, progress=progress, run=through)
    return stream(
        query,
        partitions,
        wanted,
        workers=place.workers,
        progress=progress,
        keep=KeptHits(place.cache, query, wanted) if place.cache is not None else None,
        run=None if place.executor.here else Elsewhere(place),
        device=place.device,
    )


class KeptHits:
    """What was found in partitions, in the cache; see :class:`visleak.search.streaming.Kept`.

    Args:
        cache: where it is kept.
        query, wanted: the question it answers.
    """

    def __init__(self, cache: Cache, query: Float32, wanted: Wanted) -> None:
        self._cache = cache
        question = hashlib.blake2b(digest_size=16)
        question.update(repr((VERSION, LAYOUT, query.shape, query.dtype.str, wanted)).encode())
        question.update(np.ascontiguousarray(query).tobytes())
        self._maker = b"partition hits " + question.digest()

    def get(self, partition: Partition) -> bytes | None:
        """Return what was put for a partition, or ``None``."""
        key = _key(partition)
        found = self._cache.get(self._maker, [key]).get(key)
        try:
            return None if found is None else zlib.decompress(found)
        except zlib.error:
            return None

    def put(self, partition: Partition, found: bytes) -> None:
        """Keep what was found in a partition; counts of nothing found make up most of it."""
        self._cache.put(self._maker, [(_key(partition), zlib.compress(found, 1))])


def _key(partition: Partition) -> bytes:
    """Return a digest of a partition: its stamp, and where its ids come from."""
    return hashlib.blake2b(pickle.dumps(partition), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class _Task:
    search: Handle
    number: int
    partition: Partition


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Puts the question to partitions on workers; see :class:`visleak.search.streaming.Run`."""

    place: RunContext

    def __call__(
        self, search: PartitionSearch, partitions: Sequence[tuple[int, Partition]]
    ) -> Iterator[tuple[int, PartitionHits]]:
        """Yield each partition's number and what was found in it, in their order."""
        question = self.place.share(search)
        tasks = (_Task(question, number, partition) for number, partition in partitions)
        network = self.place.device != "cpu"
        return self.place.executor.each(_find, tasks, step="searching embeddings", network=network)


def _find(task: _Task) -> tuple[int, PartitionHits]:
    search: PartitionSearch = shared(task.search)
    return task.number, search.find(task.partition)


@dataclass(frozen=True, slots=True)
class Passed:
    """What came of a pass.

    Attributes:
        taken: the reference's images that are in a pair.
        side: the same, ready for the tables.
        pairs: one record a test set, in their order.
    """

    taken: Taken
    side: Side
    pairs: tuple[Pairs, ...]


@dataclass(frozen=True, slots=True)
class _Hits:
    """Pairs of a row of all queries together and a row of all partitions together."""

    query: Int64
    reference: Int64
    similarity: Float32
    view: Int8

    def only(self, keep: Bool | Int64) -> _Hits:
        """Return some of the rows."""
        return _Hits(self.query[keep], self.reference[keep], self.similarity[keep], self.view[keep])


def pass_by(
    queries: Sequence[Side],
    reference: EmbeddingSet,
    *,
    encoder: Encoder,
    views: tuple[int, ...],
    wanted: Wanted,
    engine: Search,
    place: RunContext,
    through: PartitionEngine | None = None,
) -> Passed:
    """Compare all test sets with a set of embeddings in one pass.

    Args:
        queries: the test sets.
        reference: the training set.
        encoder: makes the views of the queries.
        views: that are compared.
        wanted: which pairs; the best are those of highest similarity, without correction.
        engine: looks for the background of the images in pairs.
        place: where to work.
        through: looks for pairs through indexes; by default every vector is compared.
    """
    step = f"streaming {reference.name}"
    place.progress(step, 0, len(reference))
    found = streamed(
        _all_views(queries, encoder, views),
        reference.partitions,
        wanted,
        place,
        progress=lambda done: place.progress(step, done, len(reference)),
        through=through,
    )
    first = np.cumsum([0, *(part.rows for part in reference.partitions)])
    count = sum(len(each.fingerprints) for each in queries)
    hits = _hits(found, first, count, views)
    rows = np.unique(hits.reference)
    columns = columns_at(reference, rows, ("id", "flat"))
    rank = np.empty(len(rows), np.int64)
    rank[pc.sort_indices(columns["id"]).to_numpy()] = np.arange(len(rows))
    flat = np.concatenate([each.fingerprints.flat for each in queries])
    total = _totals(found, hits, count, views, wanted)
    hits = _of_one_kind(hits, rows, flat, flat_of(columns, len(rows)), "flat" in columns)
    hits = _chosen(hits, rank[np.searchsorted(rows, hits.reference)], flat, wanted)
    broken = first[found.broken[:, 0]] + found.broken[:, 1]
    listed = np.unique(hits.reference)
    taken = _taken(reference, listed, encoder.digest, found.off, broken)
    own = side(taken.fingerprints, encoder, views, engine, place.workers)
    pairs, start = [], 0
    for each in queries:
        stop = start + len(each.fingerprints)
        mine = hits.only((hits.query >= start) & (hits.query < stop))
        pairs.append(_pairs(mine, start, listed, each, own, total[start:stop]))
        start = stop
    return Passed(taken, own, tuple(pairs))


def _all_views(queries: Sequence[Side], encoder: Encoder, views: tuple[int, ...]) -> Float32:
    """Return the vectors of all queries, then those of their first view, and so on."""
    plain = np.concatenate([np.asarray(each.fingerprints.matrix) for each in queries])
    return np.concatenate([plain if view == 0 else encoder.view(plain, view) for view in views])


def _hits(found: StreamHits, first: Int64, count: int, views: tuple[int, ...]) -> _Hits:
    """Return the hits of queries, each pair once: in the view it is most alike in, the first."""
    place, query = np.divmod(found.query, max(1, count))
    reference = first[found.partition] + found.row
    order = np.lexsort((place, -found.similarity, reference, query))
    new = np.ones(len(order), np.bool_)
    new[1:] = (np.diff(query[order]) != 0) | (np.diff(reference[order]) != 0)
    kept = order[new]
    names = np.array(views, np.int8)
    return _Hits(query[kept], reference[kept], found.similarity[kept], names[place[kept]])


def _totals(
    found: StreamHits, hits: _Hits, count: int, views: tuple[int, ...], wanted: Wanted
) -> Int64:
    """Return how many references each query reaches the threshold with, in any view.

    Where a view has more than the cap, they are not all known: it is at least the most of a view.
    """
    if wanted.threshold is None:
        return np.zeros(count, np.int64)
    single = found.total.reshape(len(views), count)
    reached = hits.similarity >= np.float32(wanted.threshold)
    distinct = np.bincount(hits.query[reached], minlength=count)
    most: Int64 = single.max(axis=0, initial=0)
    return np.maximum(distinct, most)


def _of_one_kind(hits: _Hits, rows: Int64, flat: Bool, reference_flat: Bool, known: bool) -> _Hits:
    """Return the pairs of two blank pictures of one colour, or of two that are not blank."""
    blank = flat[hits.query]
    same = blank == reference_flat[np.searchsorted(rows, hits.reference)] if known else True
    return hits.only(same & (~blank | (hits.similarity >= np.float32(SAME_COLOUR))))


def _chosen(hits: _Hits, tie: Int64, flat: Bool, wanted: Wanted) -> _Hits:
    """Return what is wanted of each query over all views; one match of a blank picture."""
    order = np.lexsort((tie, -hits.similarity, hits.query))
    owner = hits.query[order]
    place = np.arange(len(order)) - np.searchsorted(owner, owner)
    limit = np.full(len(order), wanted.best)
    if wanted.threshold is not None:
        reached = hits.similarity[order] >= np.float32(wanted.threshold)
        limit[reached] = max(wanted.best, wanted.cap)
    limit[flat[owner]] = 1
    return hits.only(order[place < limit])


def _taken(reference: EmbeddingSet, rows: Int64, encoder: str, off: int, broken: Int64) -> Taken:
    """Return some rows of a set as its images."""
    columns, vectors = columns_at(reference, rows), vectors_at(reference, rows)
    problems = problems_of(reference, broken)
    prints = fingerprints(reference, np.arange(len(rows)), vectors, columns, encoder, problems)
    images = image_set(reference, columns)
    return Taken(images, prints, len(reference), off, streamed=True, files=reference.files)


def _pairs(
    hits: _Hits, start: int, listed: Int64, query: Side, reference: Side, total: Int64
) -> Pairs:
    """Return the hits of one test set as its pairs."""
    left, right = hits.query - start, np.searchsorted(listed, hits.reference)
    order = np.lexsort((reference.order[right], -hits.similarity, query.order[left]))
    left, right = left[order], right[order]
    background = (query.background[left] + reference.background[right]) / 2
    return Pairs(
        query_set=query.fingerprints.set,
        reference_set=reference.fingerprints.set,
        query=left,
        reference=right,
        similarity=hits.similarity[order],
        background=background.astype(np.float32),
        view=hits.view[order],
        total=total,
    )
