"""Workers on other machines: proof that they read the same images, networks, exact search.

A pair's similarity depends on the pair alone and ties are decided by id, so merging the best of
each part of the references gives the result of one search, byte for byte.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final, cast

import numpy as np

from visleak.encoders import load_encoder
from visleak.errors import VisleakError
from visleak.images import content_digest
from visleak.pipeline.batches import batched
from visleak.pipeline.context import CacheHandle, Handle, Processes, RunContext
from visleak.pipeline.encoded_set import Chunk, ReadTask
from visleak.progress import silent
from visleak.records import BatchEncoder, Bytes8, Float32, ImageSet, Int64, Opener, Unreadable
from visleak.search import load_search
from visleak.search.exact import ExactSearch, chosen, joined
from visleak.search.hits import Account, Hits, Search, Sides, ViewMaker, Wanted
from visleak.vectors import parts_of

TRIED: Final = 100  # images that are tried to find a readable one
CHUNK: Final = 512  # images per task of a network
#: References per task: large enough to pay for the transfer of 37 MB of the built-in vectors.
PART: Final = 16_384


@dataclass
class ProvenOpener:
    """An opener that first proves that it reads the same data as the main process.

    A node without access to a folder would otherwise report every image of it as missing.
    """

    opener: Opener
    position: int  # of an image that the main process has read
    digest: bytes
    locator: str
    _proven: bool = field(default=False, repr=False)

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield what is stored at the positions, see :class:`visleak.records.Opener`."""
        if not self._proven:
            found = next(iter(self.opener.read([self.position])))
            if isinstance(found, Unreadable) or content_digest(found) != self.digest:
                why = found.reason if isinstance(found, Unreadable) else "it is another image"
                raise VisleakError(
                    f"node {socket.gethostname()} does not see {self.locator} ({why}); put the"
                    " images where every node finds them under the same path"
                )
            self._proven = True
        return self.opener.read(positions)


def opener_for(images: ImageSet, positions: range | Int64, context: RunContext) -> Opener:
    """Return the opener of a set for the workers of a context."""
    if context.executor.local:
        return images.opener
    tried = [int(position) for position in positions[:TRIED]]
    for position, found in zip(tried, images.opener.read(tried), strict=True):
        if not isinstance(found, Unreadable):
            locator = images.locators[position].as_py()
            return ProvenOpener(images.opener, position, content_digest(found), locator)
    return images.opener


#: Name and options of an encoder, and its digest to check.
_Named = tuple[str, tuple[tuple[str, object], ...], str]


def is_loadable(encoder: BatchEncoder) -> bool:
    """Whether another process can load the encoder; it cannot if it is an object of the caller."""
    return getattr(encoder, "running_options", None) is not None


def batched_remotely(
    opener: Opener,
    positions: range | Int64,
    encoder: BatchEncoder,
    context: RunContext,
    cache: CacheHandle | None,
) -> Iterator[Chunk]:
    """Yield the fingerprints of the images at ascending positions, by a network of each worker.

    See :func:`visleak.pipeline.batches.batched`, which does the same with one network here.
    """
    options = tuple(getattr(encoder, "running_options", {}).items())
    handle, name = context.share(opener), (encoder.name, options, encoder.digest)
    parts = parts_of(len(positions), CHUNK)
    tasks = (ReadTask(handle, name, cache, positions[part]) for part in parts)
    for chunks in context.executor.each(_encode, tasks, step="reading images", network=True):
        yield from chunks


def _encode(task: ReadTask[_Named]) -> tuple[Chunk, ...]:
    executor = Processes(Path(), 1)
    context = RunContext(Path(), 1, None, silent, executor)
    try:
        encoder = _loaded(*task.encoder)
        return tuple(batched(task.opener.load(), task.positions, encoder, context, task.cache))
    finally:
        executor.close()


@lru_cache(maxsize=1)
def _loaded(name: str, options: tuple[tuple[str, object], ...], digest: str) -> BatchEncoder:
    encoder = load_encoder(name, **dict(options))
    if encoder.digest != digest:
        raise VisleakError(
            f"encoder {name} on node {socket.gethostname()} has digest {encoder.digest}, and this"
            f" run is of {digest}; install the same weights and versions on every node"
        )
    return cast(BatchEncoder, encoder)


def search_for(
    name: str, context: RunContext, progress: Callable[[int], None] | None = None
) -> Search:
    """Return the search engine of a name, for the workers of a context."""
    if name == ExactSearch.name and not context.executor.local:
        return DistributedSearch(context, progress)
    return load_search(name, progress=progress)


#: What all parts have in common: queries, views, what makes these, the rule.
_Question = tuple[Float32, tuple[int, ...], ViewMaker | None, Wanted]
#: That and, of a part of the references: vectors, penalties, ranks, weights.
_SearchTask = tuple[Handle[_Question], Float32, Float32, Int64, Int64 | None]


class DistributedSearch:
    """Exact search in parts by the workers of a context; within one set it searches here."""

    accounts: Sequence[Account] = ()

    def __init__(
        self, context: RunContext, progress: Callable[[int], None] | None = None, part: int = 0
    ) -> None:
        self._context = context
        self._progress = progress or (lambda done: None)
        self._part = part or PART

    def find(self, sides: Sides, wanted: Wanted, *, workers: int = 1) -> Hits:
        """Return the wanted pairs; see :class:`visleak.search.hits.Search`."""
        total = len(sides.reference)
        if sides.same or total <= self._part or not len(sides.query):
            return ExactSearch(progress=self._progress).find(sides, wanted, workers=workers)
        question = np.array(sides.query[:]), sides.views, sides.make, wanted
        tasks = self._tasks(sides, self._context.share(question))
        parts: list[Hits] = []
        for hits in self._context.each(_search, tasks, "searching"):
            parts.append(hits)
            self._progress(min(total, len(parts) * self._part))
        first, *others = (
            hits.scored._replace(reference=hits.reference + n * self._part)
            for n, hits in enumerate(parts)
        )
        scored = first.plus(*others)
        counted = np.sum([hits.total for hits in parts], axis=0)
        return joined([(0, scored.only(chosen(scored, sides, wanted)), counted)], sides.order)

    def _tasks(self, sides: Sides, question: Handle[_Question]) -> Iterator[_SearchTask]:
        for part in parts_of(len(sides.reference), self._part):
            weight = None if sides.weight is None else sides.weight[part]
            reference = np.array(sides.reference[part])
            yield question, reference, sides.penalty[part], sides.order[part], weight


def _search(task: _SearchTask) -> Hits:
    question, reference, penalty, order, weight = task
    query, views, make, wanted = question.load()
    sides = Sides(query, reference, penalty, order, weight=weight, views=views, make=make)
    return ExactSearch().find(sides, wanted)
