"""Finding candidate pairs between two matrices of fingerprints."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Final, Protocol

from visleak.errors import UsageError
from visleak.search.hits import Account, Search
from visleak.search.streaming import Run


class PartitionEngine(Run, Protocol):
    """Puts a question to partitions, and says what it missed."""

    @property
    def account(self) -> Account:
        """What was done so far, over all partitions."""
        ...


#: Name on the command line -> class, imported on use.
SEARCHES: Final = {
    "exact": "visleak.search.exact:ExactSearch",
    "faiss": "visleak.search.faiss_search:FaissSearch",
}

#: Name on the command line -> class that puts a question to partitions; of the others, nothing.
PARTITION_SEARCHES: Final = {"faiss": "visleak.search.faiss_partitions:FaissPartitions"}


def load_search(name: str, *, progress: Callable[[int], None] | None = None) -> Search:
    """Return a new search engine of a name.

    Args:
        name: one of :data:`SEARCHES`.
        progress: called with the number of references done.

    Raises:
        UsageError: there is no engine of that name.
        MissingExtra: its package is not installed.

    >>> type(load_search("exact")).__name__
    'ExactSearch'
    """
    if name not in SEARCHES:
        raise UsageError(f"search must be one of {', '.join(SEARCHES)}; got {name!r}")
    module, _, found = SEARCHES[name].partition(":")
    engine: Search = getattr(import_module(module), found)(progress=progress)
    return engine


def load_partition_search(name: str, folder: Path | None, workers: int) -> PartitionEngine | None:
    """Return what puts a question to partitions, ``None`` where they are read through instead.

    Args:
        name: one of :data:`SEARCHES`.
        folder: where indexes are kept; ``None`` keeps none.
        workers: threads.

    Raises:
        MissingExtra: its package is not installed.
    """
    if name not in PARTITION_SEARCHES:
        return None
    module, _, found = PARTITION_SEARCHES[name].partition(":")
    engine: PartitionEngine = getattr(import_module(module), found)(folder, workers=workers)
    return engine
