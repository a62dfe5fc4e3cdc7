"""Encoders that take batches: workers decode and prepare images, this process runs the network.

They work a bounded number of bytes ahead of it. Batches are formed in the order of the set, so
neither chunks nor workers change which images are in one batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from visleak.encoders.builtin import flat
from visleak.errors import VisleakError, brief
from visleak.images import decode
from visleak.pipeline.context import CacheHandle, Handle, RunContext, known_entries
from visleak.pipeline.encoded_set import (
    Chunk,
    ImageFingerprint,
    Item,
    ReadTask,
    Refused,
    Row,
    label_of,
    maker,
    not_finite,
    read_items,
    unpack,
)
from visleak.records import BatchEncoder, Bool, Float32, Int64, Opener, Preparation, Unreadable

#: Images of the first tasks, and the limit of later ones: the network waits for whole tasks.
FIRST_CHUNK: Final = 16
MOST: Final = 128
#: Bytes of prepared images a task should return; bounds memory: a few tasks per worker wait.
TASK_BYTES: Final = 32_000_000
#: Bytes of prepared images that make a batch full, however few they are.
BATCH_BYTES: Final = 512_000_000


@dataclass(frozen=True, slots=True)
class _Recipe:
    """The part of an encoder that a worker needs."""

    name: str
    maker: bytes
    enough: int
    preparation: Preparation


_Task = ReadTask[Handle[_Recipe]]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """The network's input of an image, or its fingerprint if the cache has it."""

    position: int
    digest: bytes
    fingerprint: ImageFingerprint
    input: npt.NDArray[np.generic] | None


@dataclass(frozen=True, slots=True)
class _Done:
    """The images of a task; ``rest`` are positions left because the images were too large."""

    prepared: tuple[_Prepared, ...]
    unreadable: tuple[Refused, ...]
    rest: range | Int64

    @property
    def bytes(self) -> int:
        """Bytes of the network's inputs."""
        return sum(each.input.nbytes for each in self.prepared if each.input is not None)


def batched(
    opener: Opener,
    positions: range | Int64,
    encoder: BatchEncoder,
    context: RunContext,
    cache: CacheHandle | None,
) -> Iterator[Chunk]:
    """Yield the fingerprints of the images at ascending positions, in their order."""
    recipe = _Recipe(encoder.name, maker(encoder), encoder.enough, encoder.preparation)
    whole = ReadTask(context.share(opener), context.share(recipe), cache, positions)
    queue, submitted = _Queue(encoder), deque[_Task]()
    size, count, held = FIRST_CHUNK, 0, 0

    def tasks() -> Iterator[_Task]:
        start, total = 0, len(positions)
        while start < total:
            # smaller ones towards the end, so that all workers end together
            share = max(FIRST_CHUNK, (total - start) // (2 * context.workers))
            stop = min(start + min(size, share), total)
            submitted.append(replace(whole, positions=positions[start:stop]))
            yield submitted[-1]
            start = stop

    for found in context.each(prepare, tasks(), "reading images"):
        task, done = submitted.popleft(), found
        while True:
            # later tasks return about as many bytes as they should
            count += len(done.prepared) + len(done.unreadable)
            held += done.bytes
            size = min(MOST, max(1, TASK_BYTES * count // max(1, held)))
            yield from queue.add(done)
            if not len(done.rest):
                break
            done = prepare(replace(task, positions=done.rest))
    yield queue.end()


@dataclass
class _Queue:
    """Images in the order of the set that wait until a batch is full."""

    encoder: BatchEncoder
    _images: deque[_Prepared] = field(default_factory=deque)
    _vectors: dict[int, Float32 | None] = field(default_factory=dict)
    _batch: list[_Prepared] = field(default_factory=list)
    _bytes: int = 0

    def add(self, done: _Done) -> Iterator[Chunk]:
        """Add the images of a task; yield the rows that are finished, after each batch."""
        for each in done.prepared:
            self._images.append(each)
            if each.input is None:
                continue
            self._batch.append(each)
            self._bytes += each.input.nbytes
            if len(self._batch) >= self.encoder.batch or self._bytes >= BATCH_BYTES:
                self._compute()
                yield self._finished(())
        yield self._finished(done.unreadable)

    def end(self) -> Chunk:
        self._compute()
        return self._finished(())

    def _compute(self) -> None:
        if not self._batch:
            return
        inputs = [each.input for each in self._batch if each.input is not None]
        vectors, finite = forwarded(self.encoder, inputs)
        for each, vector, good in zip(self._batch, vectors, finite, strict=True):
            self._vectors[each.position] = vector if good else None
        self._batch, self._bytes = [], 0

    def _finished(self, unreadable: Iterable[Refused]) -> Chunk:
        rows, refused = [], list(unreadable)
        while self._images and (
            self._images[0].input is None or self._images[0].position in self._vectors
        ):
            each = self._images.popleft()
            made, fresh = each.fingerprint, each.input is not None
            if fresh:
                vector = self._vectors.pop(each.position)
                if vector is None:
                    refused.append((each.position, not_finite(self.encoder)))
                    continue
                made = replace(made, vector=vector)
            rows.append(Row(each.position, each.digest, made, fresh))
        return Chunk.of(self.encoder.width, rows, refused)


def forwarded(
    encoder: BatchEncoder, prepared: Sequence[npt.NDArray[np.generic]]
) -> tuple[Float32, Bool]:
    """Return the vectors (n, width) of a batch, and which of them are finite (n,)."""
    try:
        vectors = np.asarray(encoder.forward(prepared), np.float32)
    except VisleakError:
        raise
    except Exception as error:
        raise VisleakError(_failure(encoder, len(prepared), error)) from error
    if vectors.shape != (len(prepared), encoder.width):
        raise VisleakError(
            f"{label_of(encoder)} returned an array {vectors.shape} for {len(prepared)}"
            f" images; it must be {(len(prepared), encoder.width)}"
        )
    return vectors, np.asarray(np.isfinite(vectors).all(axis=1))


def _failure(encoder: BatchEncoder, count: int, error: Exception) -> str:
    text = " ".join(str(error).split())
    lacking = any(words in text.lower() for words in ("out of memory", "failed to allocate"))
    if isinstance(error, MemoryError) or lacking:
        advice = "it needs another device (--device cpu) or a smaller network"
        if count > 1:
            advice = f"use a smaller batch (--batch {count // 2})"
        return (
            f"{label_of(encoder)} ran out of memory on {encoder.device} with {count} images"
            f" at a time; {advice}"
        )
    return (
        f"{label_of(encoder)} failed on {count} images on {encoder.device}"
        f" ({type(error).__name__}: {text[:300]})"
    )


def prepare(task: _Task) -> _Done:
    """Read, digest, look up, decode and prepare images, up to a bound on their bytes."""
    recipe = task.encoder.load()
    stored = task.opener.load().read(list(task.positions))
    prepared: list[_Prepared] = []
    unreadable: list[Refused] = []
    held = 0
    for items in read_items(zip(task.positions, stored, strict=True), unreadable):
        known = known_entries(task.cache, recipe.maker, [digest for _, _, digest in items])
        for item in items:
            each = _prepared(recipe, item, known)
            if isinstance(each, Unreadable):
                unreadable.append((item[0], each))
                continue
            prepared.append(each)
            held += each.input.nbytes if each.input is not None else 0
            if held > 2 * TASK_BYTES:
                # the images up to this one; what follows is another task
                last = each.position
                rest = task.positions[int(np.searchsorted(np.asarray(task.positions), last)) + 1 :]
                return _Done(tuple(prepared), _sorted(r for r in unreadable if r[0] < last), rest)
    return _Done(tuple(prepared), _sorted(unreadable), range(0))


def _sorted(unreadable: Iterable[Refused]) -> tuple[Refused, ...]:
    return tuple(sorted(unreadable, key=lambda each: each[0]))


def _prepared(recipe: _Recipe, item: Item, known: Mapping[bytes, bytes]) -> _Prepared | Unreadable:
    position, data, digest = item
    if digest in known:
        return _Prepared(position, digest, unpack(known[digest]), None)
    image = decode(data, enough=recipe.enough)
    if isinstance(image, Unreadable):
        return image
    # a failure does not end the run
    try:
        made = recipe.preparation(image)
    except VisleakError:
        raise
    except MemoryError:
        return Unreadable("too-large", f"not enough memory to prepare it for {recipe.name}")
    except Exception as error:
        why = f"it cannot be prepared for {recipe.name} ({brief(error)})"
        return Unreadable("unsupported", why)
    blank = bool(flat([image])[0])
    facts = ImageFingerprint(image.width, image.height, blank, np.empty(0, np.float32))
    return _Prepared(position, digest, facts, made)
