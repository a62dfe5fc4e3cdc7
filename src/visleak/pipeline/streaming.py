"""All test sets against embeddings that are streamed once."""

from __future__ import annotations

import hashlib
import pickle
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from visleak.groups import places
from visleak.pipeline.candidates import SAME_COLOUR, pairs_of, side
from visleak.pipeline.context import Handle, RunContext
from visleak.pipeline.embeddings import columns_at, encoded_set, flat_of, problems_of, vectors_at
from visleak.pipeline.encoded_set import EmbeddingCounts, Side, ranks_of
from visleak.records import Bool, EmbeddingSet, Encoder, Float32, Int64, Pairs, Partition
from visleak.search import PartitionEngine
from visleak.search.exact import ExactSearch
from visleak.search.hits import LAYOUT, PartitionHits, Scored, StreamHits, Wanted
from visleak.search.streaming import PartitionSearch, stream
from visleak.storage.cache import Cache

#: Raised whenever the hits of a partition could change.
VERSION = 2


def streamed(
    query: Float32,
    partitions: Sequence[Partition],
    wanted: Wanted,
    context: RunContext,
    progress: Callable[[int], None] | None = None,
    engine: PartitionEngine | None = None,
) -> StreamHits:
    """Return the wanted pairs between the queries and all partitions, read once."""
    if engine is not None:
        # its hits may be incomplete, and are not cached as those of an exact search
        return stream(query, partitions, wanted, progress=progress, run=engine)
    return stream(
        query,
        partitions,
        wanted,
        workers=context.workers,
        progress=progress,
        keep=CachedHits(context.cache, query, wanted) if context.cache is not None else None,
        run=None if context.executor.local else RemotePartitions(context),
        device=context.device,
    )


class CachedHits:
    """The hits of partitions in the cache; see :class:`visleak.search.streaming.HitStore`."""

    def __init__(self, cache: Cache, query: Float32, wanted: Wanted) -> None:
        self._cache = cache
        question = hashlib.blake2b(digest_size=16)
        question.update(repr((VERSION, LAYOUT, query.shape, query.dtype.str, wanted)).encode())
        question.update(np.ascontiguousarray(query).tobytes())
        self._maker = b"partition hits " + question.digest()

    def get(self, partition: Partition) -> bytes | None:
        """Return the stored hits of a partition, or ``None``."""
        key = _key(partition)
        found = self._cache.get(self._maker, [key]).get(key)
        try:
            return None if found is None else zlib.decompress(found)
        except zlib.error:
            return None

    def put(self, partition: Partition, found: bytes) -> None:
        """Store the hits of a partition; most of them are zero counts."""
        self._cache.put(self._maker, [(_key(partition), zlib.compress(found, 1))])


def _key(partition: Partition) -> bytes:
    """Return a digest of a partition: its stamp, and the source of its ids."""
    return hashlib.blake2b(pickle.dumps(partition), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class RemotePartitions:
    """Searches partitions on a cluster; see :class:`visleak.search.streaming.PartitionRunner`."""

    context: RunContext

    def __call__(
        self, search: PartitionSearch, partitions: Sequence[tuple[int, Partition]]
    ) -> Iterator[tuple[int, PartitionHits]]:
        """Yield the number and the hits of each partition, in their order."""
        question = self.context.share(search)
        tasks = ((question, number, partition) for number, partition in partitions)
        network = self.context.device != "cpu"
        return self.context.executor.each(
            _find, tasks, step="searching embeddings", network=network
        )


def _find(task: tuple[Handle[PartitionSearch], int, Partition]) -> tuple[int, PartitionHits]:
    search, number, partition = task
    return number, search.load().find(partition)


def stream_pairs(
    queries: Sequence[Side],
    reference: EmbeddingSet,
    encoder: Encoder,
    views: tuple[int, ...],
    wanted: Wanted,
    context: RunContext,
    engine: PartitionEngine | None = None,
) -> tuple[Side, list[Pairs]]:
    """Compare all test sets with a set of embeddings in one pass."""
    step = f"streaming {reference.name}"
    context.progress(step, 0, len(reference))
    found = streamed(
        _all_views(queries, encoder, views),
        reference.partitions,
        wanted,
        context,
        progress=lambda done: context.progress(step, done, len(reference)),
        engine=engine,
    )
    first = np.cumsum([0, *(part.rows for part in reference.partitions)])
    count = sum(len(each.fingerprints) for each in queries)
    hits = _distinct(found, first, count, views)
    rows = np.unique(hits.reference)
    columns = columns_at(reference, rows, ("id", "flat"))
    rank = ranks_of(columns["id"])
    flat = np.concatenate([each.fingerprints.flat for each in queries])
    total = _totals(found, hits, count, views, wanted)
    if "flat" in columns:
        theirs = flat_of(columns, len(rows))[np.searchsorted(rows, hits.reference)]
        hits = hits.only(flat[hits.query] == theirs)
    hits = hits.only(~flat[hits.query] | (hits.similarity >= np.float32(SAME_COLOUR)))
    hits = _best(hits, rank[np.searchsorted(rows, hits.reference)], flat, wanted)
    listed = np.unique(hits.reference)
    broken = first[found.broken[:, 0]] + found.broken[:, 1]
    own = encoded_set(
        reference,
        np.arange(len(listed)),
        vectors_at(reference, listed),
        columns_at(reference, listed),
        encoder.digest,
        problems_of(reference, broken),
        EmbeddingCounts(len(reference), found.off, streamed=True, files=reference.files),
    )
    streamed_side = side(own, encoder, views, ExactSearch(), context.workers)
    pairs, start = [], 0
    for each in queries:
        stop = start + len(each.fingerprints)
        mine = hits.only((hits.query >= start) & (hits.query < stop))
        ends = mine.query - start, np.searchsorted(listed, mine.reference)
        mine = Scored(*ends, mine.similarity, mine.view)
        pairs.append(pairs_of(each, streamed_side, mine, total[start:stop]))
        start = stop
    return streamed_side, pairs


def _all_views(queries: Sequence[Side], encoder: Encoder, views: tuple[int, ...]) -> Float32:
    """Return the vectors of all queries, then those of their first view, and so on."""
    plain = np.concatenate([np.asarray(each.fingerprints.matrix) for each in queries])
    return np.concatenate([plain if view == 0 else encoder.view(plain, view) for view in views])


def _distinct(found: StreamHits, first: Int64, count: int, views: tuple[int, ...]) -> Scored:
    """Return each pair once, in its most similar view, the first of equals."""
    place, query = np.divmod(found.query, max(1, count))
    reference = first[found.partition] + found.row
    order = np.lexsort((place, -found.similarity, reference, query))
    new = np.ones(len(order), np.bool_)
    new[1:] = (np.diff(query[order]) != 0) | (np.diff(reference[order]) != 0)
    kept = order[new]
    names = np.array(views, np.int8)
    return Scored(query[kept], reference[kept], found.similarity[kept], names[place[kept]])


def _totals(
    found: StreamHits, hits: Scored, count: int, views: tuple[int, ...], wanted: Wanted
) -> Int64:
    """Return the number of references of each query that reach the threshold in any view.

    Above the cap it is a lower bound: the largest number of a single view.
    """
    if wanted.threshold is None:
        return np.zeros(count, np.int64)
    reached = hits.similarity >= np.float32(wanted.threshold)
    distinct = np.bincount(hits.query[reached], minlength=count)
    most: Int64 = found.total.reshape(len(views), count).max(axis=0, initial=0)
    return np.maximum(distinct, most)


def _best(hits: Scored, tie: Int64, flat: Bool, wanted: Wanted) -> Scored:
    """Return the wanted hits of each query over all views; one match of a blank image."""
    order = np.lexsort((tie, -hits.similarity, hits.query))
    owner = hits.query[order]
    place = places(owner)
    limit = np.full(len(order), wanted.best)
    if wanted.threshold is not None:
        reached = hits.similarity[order] >= np.float32(wanted.threshold)
        limit[reached] = max(wanted.best, wanted.cap)
    limit[flat[owner]] = 1
    return hits.only(order[place < limit])
