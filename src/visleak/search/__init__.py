"""Search for candidate pairs between two matrices of embeddings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from visleak.errors import not_one_of
from visleak.lazy import load
from visleak.search.hits import Account, Search
from visleak.search.streaming import PartitionRunner

__all__ = ["PARTITION_SEARCHES", "SEARCHES", "PartitionEngine", "load_partition_search"]
__all__ += ["load_search"]

__dir__ = __all__.copy


class PartitionEngine(PartitionRunner, Protocol):
    """Searches partitions, and reports what it may have missed."""

    @property
    def account(self) -> Account:
        """Of the searches so far, over all partitions."""


#: Name on the command line -> class, imported on use.
SEARCHES: Final = {
    "exact": "visleak.search.exact:ExactSearch",
    "faiss": "visleak.search.faiss_search:FaissSearch",
}
#: The same of classes that search partitions through indexes.
PARTITION_SEARCHES: Final = {"faiss": "visleak.search.faiss_partitions:FaissPartitions"}


def load_search(name: str, *, progress: Callable[[int], None] | None = None) -> Search:
    """Return a new search engine of a name.

    >>> type(load_search("exact")).__name__
    'ExactSearch'
    """
    if name not in SEARCHES:
        raise not_one_of("search", name, SEARCHES)
    engine: Search = load(SEARCHES[name])(progress=progress)
    return engine


def load_partition_search(name: str, folder: Path | None, workers: int) -> PartitionEngine | None:
    """Return an engine for partitions, ``None`` if they are read in full instead."""
    if name not in PARTITION_SEARCHES:
        return None
    engine: PartitionEngine = load(PARTITION_SEARCHES[name])(folder, workers=workers)
    return engine
