"""Workers on other machines: they prove what they see, and have networks of their own."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final, cast

from visleak.encoders import load_encoder
from visleak.errors import VisleakError
from visleak.images import content_digest
from visleak.pipeline.batching import batched
from visleak.pipeline.context import CacheHandle, Handle, RunContext, shared, silent
from visleak.pipeline.prints import Chunk
from visleak.pipeline.processes import Processes
from visleak.records import BatchEncoder, Bytes8, ImageSet, Int64, Opener, Unreadable

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
class _Task:
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


def batched_afar(
    opener: Opener,
    positions: range | Int64,
    encoder: BatchEncoder,
    place: RunContext,
    cache: CacheHandle | None,
) -> Iterator[Chunk]:
    """Yield the fingerprints of the pictures at ascending positions, each worker's network's.

    See :func:`visleak.pipeline.batching.batched`, which does the same with one network here.

    Raises:
        VisleakError: also where a worker's weights are others.
    """
    options = tuple((_options(encoder) or {}).items())
    shown, named = place.share(opener), _Named(encoder.name, options, encoder.digest)
    tasks = (
        _Task(shown, named, cache, positions[start : start + CHUNK])
        for start in range(0, len(positions), CHUNK)
    )
    for chunks in place.executor.each(_work, tasks, step="reading images", network=True):
        yield from chunks


def _work(task: _Task) -> tuple[Chunk, ...]:
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
