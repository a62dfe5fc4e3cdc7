"""Finding candidate pairs between two matrices of fingerprints."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Final

from visleak.errors import UsageError
from visleak.search.hits import Search

#: Name on the command line -> class, imported on use.
SEARCHES: Final = {
    "exact": "visleak.search.exact:ExactSearch",
    "faiss": "visleak.search.faiss_search:FaissSearch",
}


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
