"""Workers on other machines: they prove what they see, and have networks of their own."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final, cast

import numpy as np

from visleak.encoders import load_encoder
from visleak.errors import VisleakError
from visleak.images import content_digest
from visleak.pipeline.batches import batched
from visleak.pipeline.chunks import Chunk
from visleak.pipeline.context import CacheHandle, Handle, RunContext, shared, silent
from visleak.pipeline.processes import Processes
from visleak.records import BatchEncoder, Bytes8, Float32, ImageSet, Int64, Opener, Unreadable
from visleak.search import load_search
from visleak.search.account import Account
from visleak.search.chosen import chosen, joined
from visleak.search.exact import ExactSearch
from visleak.search.hits import Hits, Search, Sides, ViewMaker, Wanted
from visleak.search.rescore import Scored

#: Pictures that are tried to find one that can be read here.
TRIED: Final = 100

#: Pictures a task of a network.
CHUNK: Final = 512


@dataclass
class Proven:
    """An opener that first proves that it reads what the process reads that began the run.

    A node that lacks a folder would otherwise call every picture of it missing.

    Attributes:
        opener: reads the pictures.
        position, digest: of a picture that was read in that process.
        locator: where that picture lies.
    """

    opener: Opener
    position: int
    digest: bytes
    locator: str
    _proven: bool = field(default=False, repr=False)

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield what is stored at the positions, see :class:`visleak.records.Opener`.

        Raises:
            VisleakError: something else is stored here, or nothing.
        """
        if not self._proven:
            found = next(iter(self.opener.read([self.position])))
            if isinstance(found, Unreadable) or content_digest(found) != self.digest:
                why = found.reason if isinstance(found, Unreadable) else "it is another picture"
                raise VisleakError(
                    f"node {socket.gethostname()} does not see {self.locator} ({why}); put the"
                    " images where every node finds them under the same path"
                )
            self._proven = True
        return self.opener.read(positions)


def opener_for(images: ImageSet, positions: range | Int64, place: RunContext) -> Opener:
    """Return the opener of a set as it is to be sent to the workers of a context."""
    if place.executor.here:
        return images.opener
    tried = [int(position) for position in positions[:TRIED]]
    for position, found in zip(tried, images.opener.read(tried), strict=True):
        if not isinstance(found, Unreadable):
            locator = images.locators[position].as_py()
            return Proven(images.opener, position, content_digest(found), locator)
    return images.opener


# -- networks ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _EncodeTask:
    opener: Handle
    encoder: _Named
    cache: CacheHandle | None
    positions: range | Int64


@dataclass(frozen=True, slots=True)
class _Named:
    """An encoder by its name and options, and what its digest must be."""

    name: str
    options: tuple[tuple[str, object], ...]
    digest: str


def travels(encoder: BatchEncoder) -> bool:
    """Whether another process can load the encoder: not if it is an object of the caller's."""
    return _options(encoder) is not None


def _options(encoder: BatchEncoder) -> Mapping[str, object] | None:
    """Return with which options another process loads the encoder of this name."""
    return getattr(encoder, "running_options", None)


def batched_remotely(
    opener: Opener,
    positions: range | Int64,
    encoder: BatchEncoder,
    place: RunContext,
    cache: CacheHandle | None,
) -> Iterator[Chunk]:
    """Yield the fingerprints of the pictures at ascending positions, each worker's network's.

    See :func:`visleak.pipeline.batches.batched`, which does the same with one network here.

    Raises:
        VisleakError: also where a worker's weights are others.
    """
    options = tuple((_options(encoder) or {}).items())
    shown, named = place.share(opener), _Named(encoder.name, options, encoder.digest)
    tasks = (
        _EncodeTask(shown, named, cache, positions[start : start + CHUNK])
        for start in range(0, len(positions), CHUNK)
    )
    for chunks in place.executor.each(_encode, tasks, step="reading images", network=True):
        yield from chunks


def _encode(task: _EncodeTask) -> tuple[Chunk, ...]:
    """Do with a network of one's own what is done elsewhere for all workers."""
    executor = Processes(Path(), 1)
    alone = RunContext(Path(), 1, None, silent, executor)
    try:
        encoder = _loaded(task.encoder)
        return tuple(batched(shared(task.opener), task.positions, encoder, alone, task.cache))
    finally:
        executor.close()


@lru_cache(maxsize=1)
def _loaded(named: _Named) -> BatchEncoder:
    """Return a worker's own encoder.

    Raises:
        VisleakError: it is another one.
    """
    encoder = load_encoder(named.name, **dict(named.options))
    if encoder.digest != named.digest:
        raise VisleakError(
            f"encoder {named.name} on node {socket.gethostname()} has digest {encoder.digest}, and"
            f" this run is of {named.digest}; install the same weights and versions on every node"
        )
    return cast(BatchEncoder, encoder)


#: References a task: large enough to pay for the hand-over of 37 MB of the built-in vectors.
PART: Final = 16_384


def search_for(
    name: str, place: RunContext, progress: Callable[[int], None] | None = None
) -> Search:
    """Return the search engine of a name, for the workers of a context.

    Args:
        name: one of :data:`visleak.search.SEARCHES`.
        place: where to work.
        progress: called with the number of references done.

    Raises:
        UsageError, MissingExtra: as :func:`visleak.search.load_search`.
    """
    if name == ExactSearch.name and not place.executor.here:
        return PartedSearch(place, progress)
    return load_search(name, progress=progress)


@dataclass(frozen=True, slots=True)
class _Question:
    """What is the same for all parts."""

    query: Float32
    views: tuple[int, ...]
    make: ViewMaker | None
    wanted: Wanted


@dataclass(frozen=True, slots=True)
class _SearchTask:
    question: Handle
    reference: Float32
    penalty: Float32
    order: Int64
    weight: Int64 | None


class PartedSearch:
    """Finds exactly what is wanted, part by part; within one set it searches here.

    Args:
        place: its workers search the parts.
        progress: called with the number of references done.
        part: references a task, by default :data:`PART`; never changes an answer.
    """

    accounts: Sequence[Account] = ()

    def __init__(
        self, place: RunContext, progress: Callable[[int], None] | None = None, part: int = 0
    ) -> None:
        self._place = place
        self._progress = progress or (lambda done: None)
        self._part = part or PART

    def find(self, sides: Sides, wanted: Wanted, *, workers: int = 1) -> Hits:
        """Return the wanted pairs; see :class:`visleak.search.hits.Search`."""
        total = len(sides.reference)
        if sides.same or total <= self._part or not len(sides.query):
            return ExactSearch(progress=self._progress).find(sides, wanted, workers=workers)
        question = _Question(np.array(sides.query[:]), sides.views, sides.make, wanted)
        tasks = self._tasks(sides, self._place.share(question))
        columns: list[Hits] = []
        counted = np.zeros(len(sides.query), np.int64)
        for number, hits in enumerate(self._place.each(_search, tasks, "searching")):
            columns.append(hits)
            counted += hits.total
            self._progress(min(total, (number + 1) * self._part))
        starts = [number * self._part for number in range(len(columns))]
        scored = Scored(
            np.concatenate([hits.query for hits in columns]),
            np.concatenate([h.reference + a for h, a in zip(columns, starts, strict=True)]),
            np.concatenate([hits.similarity for hits in columns]),
            np.concatenate([hits.view for hits in columns]),
        )
        return joined([(0, scored.only(chosen(scored, sides, wanted)), counted)], sides.order)

    def _tasks(self, sides: Sides, question: Handle) -> Iterator[_SearchTask]:
        for start in range(0, len(sides.reference), self._part):
            part = slice(start, start + self._part)
            yield _SearchTask(
                question,
                np.array(sides.reference[part]),
                sides.penalty[part],
                sides.order[part],
                None if sides.weight is None else sides.weight[part],
            )


def _search(task: _SearchTask) -> Hits:
    """Search one part."""
    asked: _Question = shared(task.question)
    sides = Sides(
        query=asked.query,
        reference=task.reference,
        penalty=task.penalty,
        order=task.order,
        weight=task.weight,
        views=asked.views,
        make=asked.make,
    )
    return ExactSearch().find(sides, asked.wanted)
