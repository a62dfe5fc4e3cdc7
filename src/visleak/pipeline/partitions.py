"""One pass over partitions, by this process or by workers elsewhere, that can be taken up again.

What was found in a partition is kept in the cache, so a pass whose process died goes on where it
was. The key is everything the findings depend on, the engine not among it.
"""

from __future__ import annotations

import hashlib
import pickle
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from visleak.cache import Cache
from visleak.pipeline.context import Handle, RunContext, shared
from visleak.records import Float32, Partition
from visleak.search import PartitionEngine
from visleak.search.hits import Wanted
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
    """What was found in partitions, in the cache; see :class:`visleak.search.streaming.HitStore`.

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
