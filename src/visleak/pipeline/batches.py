"""Feeding an encoder that takes batches: workers decode and prepare, this process computes.

Only the encoder's preparation travels to the workers, never its network. They go on decoding
while the network computes, a bounded number of bytes ahead of it. Batches are cut from the
pictures in the order of the set, so neither chunks nor workers change which ones come together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from visleak.encoders.flatness import flat
from visleak.errors import VisleakError
from visleak.images import decode
from visleak.pipeline.chunks import (
    Chunk,
    Item,
    Print,
    Refused,
    Row,
    called,
    maker,
    no_numbers,
    read_items,
    unpack,
)
from visleak.pipeline.context import CacheHandle, Handle, RunContext, shared
from visleak.records import (
    BatchEncoder,
    Bool,
    DecodedImage,
    Float32,
    Int64,
    Opener,
    Preparation,
    Unreadable,
)

#: Pictures of the first tasks, and the most of a later one: the network waits for whole tasks.
FIRST_CHUNK: Final = 16
MOST: Final = 128

#: Bytes of prepared pictures a task should return; bounds memory: a few tasks a worker wait.
TASK_BYTES: Final = 32_000_000

#: Bytes of prepared pictures that make a batch full, however few they are.
BATCH_BYTES: Final = 512_000_000


@dataclass(frozen=True, slots=True)
class _Recipe:
    """What a worker needs of an encoder."""

    name: str
    maker: bytes
    enough: int
    preparation: Preparation


@dataclass(frozen=True, slots=True)
class _Task:
    opener: Handle
    recipe: Handle
    cache: CacheHandle | None
    positions: range | Int64


@dataclass(frozen=True, slots=True)
class _Ready:
    """A picture on its way to the network, or its fingerprint where it is known."""

    position: int
    digest: bytes
    print: Print
    prepared: npt.NDArray[Any] | None


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What became of a task; ``rest`` is what was left because the pictures were too large."""

    ready: tuple[_Ready, ...]
    unreadable: tuple[Refused, ...]
    rest: range | Int64

    @property
    def bytes(self) -> int:
        """Bytes of prepared pictures."""
        return sum(one.prepared.nbytes for one in self.ready if one.prepared is not None)


def batched(
    opener: Opener,
    positions: range | Int64,
    encoder: BatchEncoder,
    place: RunContext,
    cache: CacheHandle | None,
) -> Iterator[Chunk]:
    """Yield the fingerprints of the pictures at ascending positions, in their order.

    Args:
        opener: of the set.
        positions: to read.
        encoder: its network runs in this process.
        place: where to work.
        cache: how to find what is known; new fingerprints are the caller's to put there.

    Raises:
        VisleakError: the network failed, as for want of memory, or returned no vectors.
    """
    recipe = _Recipe(encoder.name, maker(encoder), encoder.enough, encoder.preparation)
    whole = _Task(place.share(opener), place.share(recipe), cache, positions)
    pace = _Pace()
    line = _Line(encoder)
    for task, found in _in_order(place, whole, pace):
        done = found
        while True:
            pace.saw(done)
            yield from line.take(done)
            if not len(done.rest):
                break
            done = prepare(replace(task, positions=done.rest))
    yield line.end()


def _in_order(place: RunContext, whole: _Task, pace: _Pace) -> Iterator[tuple[_Task, _Prepared]]:
    """Yield tasks with what became of them; later ones are as large as the first ones tell."""
    handed: deque[_Task] = deque()

    def tasks() -> Iterator[_Task]:
        start, total = 0, len(whole.positions)
        while start < total:
            # towards the end smaller ones, so that all workers end together
            share = max(FIRST_CHUNK, (total - start) // (2 * place.workers))
            stop = min(start + min(pace.size, share), total)
            handed.append(replace(whole, positions=whole.positions[start:stop]))
            yield handed[-1]
            start = stop

    for found in place.each(prepare, tasks(), "reading images"):
        yield handed.popleft(), found


@dataclass
class _Pace:
    """How many pictures make a task of about :data:`TASK_BYTES`."""

    size: int = FIRST_CHUNK
    _pictures: int = 0
    _bytes: int = 0

    def saw(self, done: _Prepared) -> None:
        """Learn from a task."""
        self._pictures += len(done.ready) + len(done.unreadable)
        self._bytes += done.bytes
        fitting = TASK_BYTES * self._pictures // max(1, self._bytes)
        self.size = min(MOST, max(1, fitting))


# -- in this process -----------------------------------------------------------------------------


@dataclass
class _Line:
    """Pictures in the order of the set that wait until a batch is full."""

    encoder: BatchEncoder
    _queue: deque[_Ready] = field(default_factory=deque)
    _made: dict[int, Float32 | None] = field(default_factory=dict)
    _waiting: list[_Ready] = field(default_factory=list)
    _bytes: int = 0

    def take(self, done: _Prepared) -> Iterator[Chunk]:
        """Add what a worker prepared; yield the rows that are finished, after each batch."""
        for one in done.ready:
            self._queue.append(one)
            if one.prepared is None:
                continue
            self._waiting.append(one)
            self._bytes += one.prepared.nbytes
            if len(self._waiting) >= self.encoder.batch or self._bytes >= BATCH_BYTES:
                self._compute()
                yield self._finished(())
        yield self._finished(done.unreadable)

    def end(self) -> Chunk:
        """Return what is left."""
        self._compute()
        return self._finished(())

    def _compute(self) -> None:
        if not self._waiting:
            return
        prepared = [one.prepared for one in self._waiting if one.prepared is not None]
        vectors, usable = forwarded(self.encoder, prepared)
        for one, vector, good in zip(self._waiting, vectors, usable, strict=True):
            self._made[one.position] = vector if good else None
        self._waiting, self._bytes = [], 0

    def _finished(self, unreadable: Iterable[Refused]) -> Chunk:
        rows, refused = [], list(unreadable)
        while self._queue and (
            self._queue[0].prepared is None or self._queue[0].position in self._made
        ):
            one = self._queue.popleft()
            if one.prepared is None:
                rows.append(Row(one.position, one.digest, one.print, fresh=False))
                continue
            vector = self._made.pop(one.position)
            if vector is None:
                refused.append((one.position, no_numbers(self.encoder)))
            else:
                made = replace(one.print, vector=vector)
                rows.append(Row(one.position, one.digest, made, fresh=True))
        return Chunk.of(self.encoder.width, rows, refused)


def forwarded(encoder: BatchEncoder, prepared: Sequence[npt.NDArray[Any]]) -> tuple[Float32, Bool]:
    """Return the vectors (n, width) of a batch, and which of them are numbers (n,).

    Raises:
        VisleakError: the network failed, or what it returned is no vectors.
    """
    try:
        vectors = np.asarray(encoder.forward(prepared), np.float32)
    except VisleakError:
        raise
    except Exception as error:
        raise VisleakError(_failure(encoder, len(prepared), error)) from error
    if vectors.shape != (len(prepared), encoder.width):
        raise VisleakError(
            f"{called(encoder)} returned an array {vectors.shape} for {len(prepared)}"
            f" pictures; it must be {(len(prepared), encoder.width)}"
        )
    return vectors, np.asarray(np.isfinite(vectors).all(axis=1))


def _failure(encoder: BatchEncoder, count: int, error: Exception) -> str:
    """Return the line that tells why a network failed, and what to do."""
    said = " ".join(str(error).split())
    lacking = any(words in said.lower() for words in ("out of memory", "failed to allocate"))
    if isinstance(error, MemoryError) or lacking:
        advice = (
            f"use a smaller batch (--batch {count // 2})"
            if count > 1
            else "it takes another device (--device cpu) or a smaller network"
        )
        return (
            f"{called(encoder)} ran out of memory on {encoder.device} with {count} pictures"
            f" at a time; {advice}"
        )
    return (
        f"{called(encoder)} failed on {count} pictures on {encoder.device}"
        f" ({type(error).__name__}: {said[:300]})"
    )


# -- in a worker ---------------------------------------------------------------------------------


def prepare(task: _Task) -> _Prepared:
    """Read, digest, look up, decode and prepare pictures, up to a bound on their bytes."""
    recipe: _Recipe = shared(task.recipe)
    stored = shared(task.opener).read(list(task.positions))
    ready: list[_Ready] = []
    unreadable: list[Refused] = []
    held = 0
    for items in read_items(zip(task.positions, stored, strict=True), unreadable):
        known: Mapping[bytes, bytes] = {}
        if task.cache is not None:
            with task.cache.open() as cache:
                known = cache.get(recipe.maker, [digest for _, _, digest in items])
        for item in items:
            one = _ready(recipe, item, known, unreadable)
            if one is None:
                continue
            ready.append(one)
            held += one.prepared.nbytes if one.prepared is not None else 0
            if held > 2 * TASK_BYTES:
                return _broken_off(task, ready, unreadable)
    unreadable.sort(key=lambda each: each[0])
    return _Prepared(tuple(ready), tuple(unreadable), range(0))


def _broken_off(task: _Task, ready: list[_Ready], unreadable: list[Refused]) -> _Prepared:
    """Return what is done of a task, up to its last picture that is ready."""
    last = ready[-1].position
    rest = task.positions[int(np.searchsorted(np.asarray(task.positions), last)) + 1 :]
    told = sorted((each for each in unreadable if each[0] < last), key=lambda each: each[0])
    return _Prepared(tuple(ready), tuple(told), rest)


def _ready(
    recipe: _Recipe, item: Item, known: Mapping[bytes, bytes], unreadable: list[Refused]
) -> _Ready | None:
    """Return a picture made ready, or note why it cannot be."""
    position, data, digest = item
    if digest in known:
        return _Ready(position, digest, unpack(known[digest]), None)
    picture = decode(data, enough=recipe.enough)
    if isinstance(picture, Unreadable):
        unreadable.append((position, picture))
        return None
    prepared = _tried(recipe, picture)
    if isinstance(prepared, Unreadable):
        unreadable.append((position, prepared))
        return None
    blank = bool(flat([picture])[0])
    made = Print(picture.width, picture.height, blank, np.empty(0, np.float32))
    return _Ready(position, digest, made, prepared)


def _tried(recipe: _Recipe, picture: DecodedImage) -> npt.NDArray[Any] | Unreadable:
    """Return a prepared picture; one that cannot be prepared does not end the run."""
    try:
        return recipe.preparation(picture)
    except VisleakError:
        raise
    except MemoryError:
        return Unreadable("too-large", f"not enough memory to prepare it for {recipe.name}")
    except Exception as error:
        said = " ".join(str(error).split())[:200]
        return Unreadable(
            "unsupported",
            f"it cannot be prepared for {recipe.name} ({type(error).__name__}: {said})",
        )
