"""The engines under one roof, for the conformance suite: name -> what makes one."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pickling_executor import pickling_context
from toy_vectors import Shard
from visleak.pipeline.remote import DistributedSearch
from visleak.pipeline.streaming import RemotePartitions
from visleak.search.exact import ExactSearch
from visleak.search.faiss_partitions import FaissPartitions
from visleak.search.faiss_search import FaissSearch
from visleak.search.hits import Hits
from visleak.search.streaming import PartitionRunner, PartitionSearch, stream


def part(rows, order, name="part"):
    """Return some references as a partition; ids sort like ``order``."""
    ids = np.array([f"{rank:09d}" for rank in order], object)
    return Shard(rows, ids, name, f"{name}-{len(rows)}")


@dataclass
class Passing:
    """An engine for partitions with the interface of one for two matrices, for plain questions."""

    run: PartitionRunner | None = None
    parts: int = 3

    def find(self, sides, wanted, *, workers=1):
        reference = np.asarray(sides.reference[:])
        cuts = np.array_split(np.arange(len(reference)), self.parts)
        parts = [
            part(reference[cut], sides.order[cut], f"part-{number}")
            for number, cut in enumerate(cuts)
        ]
        found = stream(np.asarray(sides.query[:]), parts, wanted, workers=workers, run=self.run)
        first = np.array([cut[0] if len(cut) else 0 for cut in cuts], np.int64)
        assert found.rows == len(reference)
        np.testing.assert_array_equal(
            pc.cast(found.id, pa.int64()).to_numpy(),
            sides.order[first[found.partition] + found.row],
        )
        return Hits(
            query=found.query,
            reference=first[found.partition] + found.row,
            similarity=found.similarity,
            view=np.zeros(len(found.query), np.int8),
            total=found.total,
        )


def through_torch(search, partitions):
    """Put the question to partitions by the path of a GPU, on the processor."""
    pytest.importorskip("torch")
    own = PartitionSearch(search.query, search.wanted, device="torch-cpu")
    for number, partition in partitions:
        yield number, own.find(partition)


Maker = Callable[[], Any]

#: Engines that answer every question as brute force does, byte for byte.
EXACT: dict[str, Maker] = {
    "exact": ExactSearch,
    "exact-in-small-blocks": lambda: ExactSearch(7, 11),
    "faiss": FaissSearch,
    "faiss-flat": lambda: FaissSearch("flat"),
    "parts-elsewhere": lambda: DistributedSearch(pickling_context(Path()), part=60),
}

#: The same for questions about two plain sets.
PLAIN: dict[str, Maker] = {
    "streaming": Passing,
    "streaming-torch": lambda: Passing(through_torch),
    "streaming-elsewhere": lambda: Passing(RemotePartitions(pickling_context(Path()))),
    "faiss-partitions": lambda: Passing(FaissPartitions()),
    "faiss-one-partition": lambda: Passing(FaissPartitions(), parts=1),
}

#: Engines that may miss pairs, and say how many.
APPROXIMATE: dict[str, Maker] = {
    "faiss-hnsw": lambda: FaissSearch("hnsw"),
    "faiss-ivf": lambda: FaissSearch("ivf"),
    "faiss-ivfpq": lambda: FaissSearch("ivfpq"),
}
