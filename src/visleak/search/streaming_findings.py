"""What is found in one partition while its blocks are worked on, by several threads at once."""

from __future__ import annotations

from threading import Lock
from typing import Final

import numpy as np
import pyarrow as pa

from visleak.records import Float32, Int64, Partition
from visleak.search.hits import Wanted
from visleak.search.streaming_hits import PartitionHits, kept

#: Pairs held before they are cut to what is wanted: only bounds memory.
PENDING_LIMIT: Final = 400_000


class Findings:
    """Takes pairs with exact similarities, counts them, and keeps what may be wanted.

    Args:
        queries: number of queries.
        wanted: what is asked for.
        partition: for the ids.
    """

    def __init__(self, queries: int, wanted: Wanted, partition: Partition) -> None:
        self._wanted = wanted
        self._partition = partition
        self._lock = Lock()
        self._pairs: list[tuple[Int64, Int64, Float32]] = []
        self._held = self._settled = 0
        self._total: Int64 = np.zeros(queries, np.int64)
        self._broken: list[Int64] = []
        self._off = 0
        threshold = np.inf if wanted.threshold is None else wanted.threshold
        #: Of the similarity; infinite where none is asked for.
        self.threshold = np.float32(threshold)
        self._leaders = np.full((queries, wanted.best), -np.inf, np.float32)
        #: ``float32``, one a query: no pair of a lower similarity is wanted. It only rises.
        self.floor: Float32 = np.full(
            queries, -np.inf if wanted.best else self.threshold, np.float32
        )

    def add(self, query: Int64, row: Int64, similarity: Float32) -> None:
        """Take pairs with their exact similarities, each pair once."""
        with self._lock:
            keep = similarity >= self.floor[query]
            query, row, similarity = query[keep], row[keep], similarity[keep]
            np.add.at(self._total, query[similarity >= self.threshold], 1)
            if self._wanted.best and len(query):
                self._raise_floor(query, similarity)
            self._pairs.append((query, row, similarity))
            self._held += len(query)
            if self._held > self._settled + max(PENDING_LIMIT, self._settled):
                self._settle()

    def note(self, broken: Int64, off: int) -> None:
        """Take the rows of a block that hold no numbers, and how many are of another length."""
        with self._lock:
            self._broken.append(broken)
            self._off += off

    def raise_floor(self, floor: Float32) -> None:
        """Take similarities that the wanted number of pairs of each query are known to reach."""
        with self._lock:
            self.floor = np.minimum(np.maximum(self.floor, floor), self.threshold)

    def _raise_floor(self, query: Int64, similarity: Float32) -> None:
        """Let the new pairs take their places among the best so far."""
        best = self._wanted.best
        touched, place = np.unique(query, return_inverse=True)
        rows = np.concatenate([np.repeat(np.arange(len(touched)), best), place])
        values = np.concatenate([self._leaders[touched].ravel(), similarity])
        order = np.lexsort((-values, rows))
        rank = np.arange(len(order)) - np.searchsorted(rows[order], rows[order])
        leaders = values[order[rank < best]].reshape(len(touched), best)
        self._leaders[touched] = leaders
        reached = np.maximum(leaders[:, -1], self.floor[touched])
        self.floor[touched] = np.minimum(reached, self.threshold)

    def _settle(self) -> tuple[Int64, Int64, Float32]:
        """Cut what is held to what may be wanted, in the order of rows."""
        none: Int64 = np.empty(0, np.int64)
        columns = zip((none, none, np.empty(0, np.float32)), *self._pairs, strict=True)
        query, row, similarity = (np.concatenate(each) for each in columns)
        keep = kept(query, similarity, self._wanted, lambda some: self._ids(row[some]))
        pairs = query[keep], row[keep], similarity[keep]
        self._pairs = [pairs]
        self._held = self._settled = len(pairs[0])
        return pairs

    def _ids(self, rows: Int64) -> pa.StringArray:
        """Return the ids of rows of the partition, which may repeat."""
        asked, place = np.unique(rows, return_inverse=True)
        ids = self._partition.columns(asked)["id"]
        return ids.cast(pa.string()).take(pa.array(place))

    def finish(self, rows: int) -> PartitionHits:
        """Return what may be wanted, sorted by query, falling similarity and row.

        Args:
            rows: of the partition.
        """
        query, row, similarity = self._settle()
        order = np.lexsort((row, -similarity, query))
        query, row, similarity = query[order], row[order], similarity[order]
        none: Int64 = np.empty(0, np.int64)
        return PartitionHits(
            query=query,
            row=row,
            similarity=similarity,
            id=self._ids(row) if len(row) else pa.array([], pa.string()),
            total=self._total,
            broken=np.sort(np.concatenate([none, *self._broken])),
            off=self._off,
            rows=rows,
        )
