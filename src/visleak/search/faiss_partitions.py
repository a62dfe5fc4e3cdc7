"""One index per partition, their findings merged: for embeddings that are searched repeatedly.

Ramos et al. (2025) search LAION through one index for each million embeddings, since a single one
over all of them gave poor retrieval. An index is built once and kept; later audits load it and
read only the vectors of candidates, and all of a few partitions, on which recall is measured.

A file of an index is named by everything it was built from, the partition's stamp among it, so it
never becomes stale; deleting it changes no result. What cannot be read is built again. The folder
is the program's own: faiss trusts the files that it reads.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import reduce
from pathlib import Path
from typing import Final, cast

import numpy as np
import pyarrow as pa
from threadpoolctl import threadpool_limits

from visleak.records import Float32, Int64, Partition
from visleak.search import faiss_search
from visleak.search.faiss_search import BLOCK, SAMPLE, Effort, Index, Kind, Layout, faiss
from visleak.search.hits import Account, Hits, PartitionHits, Recall, Rows, Sides, Wanted, id_ranks
from visleak.search.streaming import PartitionSearch
from visleak.vectors import check_digest, unit_rows


@dataclass
class StoredIndex:
    """An index and what goes with it."""

    index: Index  # of the partition's rows
    broken: Int64  # int64 (k,), ascending: rows without a direction (NaN, infinity, zeros)
    off: int  # rows whose length is off
    efforts: dict[str, Effort] = field(default_factory=dict)  # of searches, by effort_key


def effort_key(wanted: Wanted) -> str:
    """Return the key of an effort: what was searched for."""
    return f"threshold {wanted.threshold}, best {wanted.best}"


class IndexStore:
    """A folder of indexes."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def get(self, partition: Partition, layout: Layout) -> StoredIndex | None:
        """Return the index of a partition, ``None`` if there is none that can be read."""
        if self._folder is None:
            return None
        files = self._files(self._folder, partition, layout)
        try:
            about = json.loads(files[1].read_text(encoding="utf-8"))
            if files[0].stat().st_size != about["bytes"]:
                return None
            filled = faiss().read_index(str(files[0]))
            efforts = {name: Effort(**effort) for name, effort in about["efforts"].items()}
            broken = np.array(about["broken"], np.int64)
            index = Index(layout, filled, float(about["slack"]))
            found = StoredIndex(index, broken, int(about["off"]), efforts)
        except (OSError, ValueError, KeyError, TypeError, RuntimeError):
            return None
        fits = (len(index), filled.d) == (partition.rows, layout.width)
        return found if fits else None

    def put(self, partition: Partition, layout: Layout, entry: StoredIndex) -> None:
        """Store an index; its description last."""
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        stored, described = self._files(self._folder, partition, layout)
        size = stored.stat().st_size if self.get(partition, layout) else None
        if size is None:
            write = faiss().write_index
            size = _replace(stored, lambda beside: write(entry.index.filled, str(beside)))
        about = {
            "bytes": size,
            "slack": entry.index.slack,
            "off": entry.off,
            "efforts": {name: asdict(effort) for name, effort in entry.efforts.items()},
            "broken": entry.broken.tolist(),
        }
        _replace(described, lambda beside: beside.write_text(json.dumps(about), encoding="utf-8"))

    @staticmethod
    def _files(folder: Path, partition: Partition, layout: Layout) -> tuple[Path, Path]:
        version = faiss().__version__
        parts = (
            faiss_search.DIGEST,
            version,
            layout.key,
            layout.width,
            partition.rows,
            partition.stamp,
        )
        name = hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()
        return folder / f"{name}.faiss", folder / f"{name}.json"


def _replace(path: Path, write: Callable[[Path], object]) -> int:
    """Write a file atomically; return its size."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        write(beside)
        handle = os.open(beside, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    return path.stat().st_size


MEASURED: Final = 8  # partitions on which recall is measured, for measuring reads them whole


class StoredRows(Rows):
    """All rows of a stored matrix, of any float type, converted to unit rows on access."""

    __slots__ = ()

    def __len__(self) -> int:
        return len(self.matrix)

    def __getitem__(self, part: slice | Int64) -> Float32:
        return unit_rows(self.matrix[part]).matrix


class FaissPartitions:
    """A :class:`visleak.search.streaming.PartitionRunner` that searches through an index."""

    name = "faiss"

    def __init__(
        self,
        folder: Path | None = None,
        *,
        workers: int = 1,
        kind: Kind | None = None,
        sample: int = SAMPLE,
        measured: int = MEASURED,
    ) -> None:
        faiss()
        self._store = IndexStore(folder)
        self._workers = workers
        self._kind = kind
        self._sample = sample
        self._measured = measured
        self._done: list[Account] = []

    def __call__(
        self, search: PartitionSearch, partitions: Sequence[tuple[int, Partition]]
    ) -> Iterator[tuple[int, PartitionHits]]:
        """Yield each partition's number and what was found in it."""
        count = len(partitions)
        chosen = set(np.linspace(0, count - 1, min(count, self._measured)).astype(int).tolist())
        for place, (number, partition) in enumerate(partitions):
            yield number, self._find(search, partition, place in chosen)

    @property
    def account(self) -> Account:
        """The searches so far, over all partitions; recall is that of the measured ones."""
        keys = {each.index for each in self._done}
        measured = [each.recall for each in self._done if each.recall is not None]
        seen = reduce(Recall.plus, measured) if measured else None
        parameters: dict[str, float] = {"partitions": len(self._done), "measured": len(measured)}
        for each in self._done:
            for name, value in each.parameters.items():
                parameters[name] = max(value, parameters.get(name, value))
        exact = all(each.exact for each in self._done)
        return Account(self.name, ", ".join(sorted(keys)) or "none", parameters, exact, seen)

    def _find(self, search: PartitionSearch, partition: Partition, measured: bool) -> PartitionHits:
        """Return the hits in a partition, as far as its index finds them."""
        if not partition.rows or not len(search.query):
            return _nothing(partition, len(search.query))
        with faiss_search.threads(self._workers), threadpool_limits(self._workers, user_api="blas"):
            kind = self._kind or faiss_search.kind_for(partition.rows)
            layout = Layout.of(kind, partition.rows, search.query.shape[1], penalised=False)
            stored = cast(Float32, partition.matrix())
            rows = StoredRows(stored, np.empty(0, np.int64))
            entry = self._store.get(partition, layout) or self._built(partition, layout, rows)
            sides = _sides(search.query, rows, partition, entry)
            tuned, others = faiss_search.sampled(len(search.query), self._sample)
            effort = self._effort(partition, entry, sides, search.wanted, tuned)
            every = np.arange(len(search.query))
            hits = faiss_search.search_index(entry.index, sides, search.wanted, every, effort)
            seen = (
                faiss_search.measure(hits, sides, search.wanted, others, self._workers)
                if measured
                else None
            )
        self._done.append(faiss_search.account_of(entry.index, effort, seen))
        return _of_partition(hits, partition, entry)

    def _built(self, partition: Partition, layout: Layout, rows: StoredRows) -> StoredIndex:
        check_digest(partition)
        none = np.zeros(len(rows), np.float32)
        index = faiss_search.build(layout, rows, none, lambda done: None)
        broken, off = [np.empty(0, np.int64)], 0
        for start in range(0, len(rows), BLOCK):
            unit = unit_rows(rows.matrix[start : start + BLOCK])
            broken.append(np.flatnonzero(unit.broken) + start)
            off += int(unit.off.sum())
        entry = StoredIndex(index, np.concatenate(broken), off)
        self._store.put(partition, layout, entry)
        return entry

    def _effort(
        self, partition: Partition, entry: StoredIndex, sides: Sides, wanted: Wanted, rows: Int64
    ) -> Effort:
        """Return the effort, tuned on the first search of its kind."""
        if entry.index.exact:
            return Effort()
        name = effort_key(wanted)
        if name not in entry.efforts:
            entry.efforts[name] = faiss_search.tune(entry.index, sides, wanted, rows, self._workers)
            self._store.put(partition, entry.index.layout, entry)
        return entry.efforts[name]


def _sides(query: Float32, rows: StoredRows, partition: Partition, entry: StoredIndex) -> Sides:
    """Return the queries and a partition; ties go by id where all pairs are found, else by row."""
    count = len(rows)
    order = id_ranks(partition.columns()["id"]) if entry.index.exact else np.arange(count)
    return Sides(query, rows, np.zeros(count, np.float32), order)


def _of_partition(hits: Hits, partition: Partition, entry: StoredIndex) -> PartitionHits:
    """Return hits as those of a partition, without broken rows."""
    keep = ~np.isin(hits.reference, entry.broken)
    row = hits.reference[keep]
    distinct, place = np.unique(row, return_inverse=True)
    ids = pa.array([], pa.string())
    if len(distinct):
        ids = partition.columns(distinct)["id"].cast(pa.string())
    return PartitionHits(
        query=hits.query[keep],
        row=row,
        similarity=hits.similarity[keep],
        id=ids.take(pa.array(place)),
        total=hits.total,
        broken=entry.broken,
        off=entry.off,
        rows=partition.rows,
    )


def _nothing(partition: Partition, queries: int) -> PartitionHits:
    none = np.empty(0, np.int64)
    return PartitionHits(
        none, none, np.empty(0, np.float32), pa.array([], pa.string()),
        np.zeros(queries, np.int64), none, 0, partition.rows,
    )  # fmt: skip
