"""``fingerprint(images, encoder) -> Fingerprints``: read, digest, decode, encode; once each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from visleak.cache import Cache
from visleak.images import content_digest, decode
from visleak.pipeline.columns import GrowingColumn
from visleak.pipeline.workplace import Workplace, shared
from visleak.records import (
    Bool,
    Bytes8,
    Encoder,
    Fingerprints,
    Float32,
    ImageSet,
    Int64,
    Picture,
    Problem,
    Unreadable,
)

#: Images a task; small enough for even progress, large enough to pay for the hand-over.
CHUNK: Final = 512

#: Decoded pixels that may wait for the encoder at once; bounds a worker's memory.
PIXELS_WAITING: Final = 32_000_000

#: Stored bytes that may be held at once before they are decoded; bounds a worker's memory.
BYTES_WAITING: Final = 64_000_000


@dataclass(frozen=True, slots=True)
class _Task:
    """A chunk of a set, as it is sent to a worker."""

    opener: Path
    encoder: Path
    cache: Path | None
    positions: range | Int64


@dataclass(frozen=True, slots=True)
class _Chunk:
    """What became of a chunk: readable rows, then who could not be read."""

    rows: Int64
    digests: Bytes8
    sizes: npt.NDArray[np.int32]
    flat: Bool
    matrix: Float32
    fresh: Bool
    unreadable: tuple[tuple[int, Unreadable], ...]


def fingerprint(
    images: ImageSet, encoder: Encoder, place: Workplace, rows: Int64 | None = None
) -> Fingerprints:
    """Return the fingerprints of the readable images of a set, in the set's order.

    Args:
        images: the set.
        encoder: makes the vectors.
        place: where to work.
        rows: positions to take, ascending; default all.
    """
    total = len(images) if rows is None else len(rows)
    opener, shown = place.share(images.opener), place.share(encoder)
    cache = place.cache.path.parent if place.cache else None
    tasks = (_Task(opener, shown, cache, part) for part in _parts(total, rows))
    columns = _Columns(place, encoder.width)
    problems: list[Problem] = []
    done = 0
    step = f"reading {images.name}"
    for chunk in place.each(_work, tasks):
        columns.append(chunk)
        problems.extend(_problems(images, chunk))
        if place.cache is not None and chunk.fresh.any():
            place.cache.put(maker(encoder), _entries(chunk))
        done += len(chunk.rows) + len(chunk.unreadable)
        place.progress(step, done, total)
    return columns.fingerprints(images, encoder.digest, tuple(problems))


def _parts(total: int, rows: Int64 | None) -> Iterator[range | Int64]:
    for start in range(0, total, CHUNK):
        stop = min(start + CHUNK, total)
        yield range(start, stop) if rows is None else rows[start:stop]


def _problems(images: ImageSet, chunk: _Chunk) -> Iterator[Problem]:
    for position, why in chunk.unreadable:
        yield Problem(
            images.name,
            images.ids[position].as_py(),
            images.locators[position].as_py(),
            why.reason,
            why.detail,
        )


class _Columns:
    """The columns of a set's fingerprints while they grow."""

    def __init__(self, place: Workplace, width: int) -> None:
        self._matrix = GrowingColumn(place.file(".matrix"), np.float32, (width,))
        # begins with no rows of the right types: a set may be empty
        none = np.empty(0, np.int64), np.empty((0, 16), np.uint8)
        self._small: list[tuple[Int64, Bytes8, npt.NDArray[np.int32], Bool]] = [
            (*none, np.empty((0, 2), np.int32), np.empty(0, np.bool_))
        ]

    def append(self, chunk: _Chunk) -> None:
        self._matrix.append(chunk.matrix)
        self._small.append((chunk.rows, chunk.digests, chunk.sizes, chunk.flat))

    def fingerprints(
        self, images: ImageSet, encoder: str, problems: tuple[Problem, ...]
    ) -> Fingerprints:
        rows, digests, sizes, flat = (
            np.concatenate(column) for column in zip(*self._small, strict=True)
        )
        ids = images.ids.take(pa.array(rows))
        return Fingerprints(
            set=images.name,
            rows=rows,
            ids=ids,
            matrix=self._matrix.mapped(),
            digests=digests,
            sizes=sizes,
            flat=flat,
            encoder=encoder,
            problems=problems,
        )


# -- in a worker ---------------------------------------------------------------------------------


#: A picture as it was read: position, content, content digest.
_Item = tuple[int, bytes | Bytes8, bytes]


@dataclass(frozen=True, slots=True)
class _Print:
    """The fingerprint of one picture."""

    width: int
    height: int
    flat: bool
    vector: Float32


@dataclass(frozen=True, slots=True)
class _Row:
    """A picture that could be read, and whether its fingerprint was made just now."""

    position: int
    digest: bytes
    print: _Print
    fresh: bool


def _work(task: _Task) -> _Chunk:
    """Read, digest, decode and encode a chunk of a set."""
    encoder: Encoder = shared(task.encoder)
    stored = shared(task.opener).read(list(task.positions))
    rows: list[_Row] = []
    unreadable: list[tuple[int, Unreadable]] = []
    for items in _read(zip(task.positions, stored, strict=True), unreadable):
        known: Mapping[bytes, bytes] = {}
        if task.cache is not None:
            with Cache(task.cache) as cache:
                known = cache.get(maker(encoder), [digest for _, _, digest in items])
        made = dict(_encoded(encoder, [item for item in items if item[2] not in known], unreadable))
        for position, _, digest in items:
            if position in made:
                rows.append(_Row(position, digest, made[position], fresh=True))
            elif digest in known:
                rows.append(_Row(position, digest, _unpack(known[digest]), fresh=False))
    return _chunk(encoder.width, rows, unreadable)


def _read(
    stored: Iterable[tuple[int, bytes | Bytes8 | Unreadable]],
    unreadable: list[tuple[int, Unreadable]],
) -> Iterator[list[_Item]]:
    """Yield what could be read, a bounded number of bytes at a time; note the rest."""
    items: list[_Item] = []
    held = 0
    for position, data in stored:
        if isinstance(data, Unreadable):
            unreadable.append((int(position), data))
            continue
        items.append((int(position), data, content_digest(data)))
        held += len(data) if isinstance(data, bytes) else data.nbytes
        if held > BYTES_WAITING:
            yield items
            items, held = [], 0
    if items:
        yield items


def _encoded(
    encoder: Encoder,
    items: Sequence[_Item],
    unreadable: list[tuple[int, Unreadable]],
) -> Iterator[tuple[int, _Print]]:
    """Yield position and fingerprint of what can be decoded; note the rest."""
    waiting: list[tuple[int, Picture]] = []
    pixels = 0
    for position, data, _ in items:
        picture = decode(data, enough=encoder.enough)
        if isinstance(picture, Unreadable):
            unreadable.append((position, picture))
            continue
        waiting.append((position, picture))
        pixels += picture.pixels.size
        if pixels > PIXELS_WAITING:
            yield from _prints(encoder, waiting)
            waiting, pixels = [], 0
    yield from _prints(encoder, waiting)


def _prints(
    encoder: Encoder, waiting: Iterable[tuple[int, Picture]]
) -> Iterator[tuple[int, _Print]]:
    positions = [position for position, _ in waiting]
    pictures = [picture for _, picture in waiting]
    if not pictures:
        return
    vectors, flat = encoder.encode(pictures)
    for index, (position, picture) in enumerate(zip(positions, pictures, strict=True)):
        yield position, _Print(picture.width, picture.height, bool(flat[index]), vectors[index])


def _chunk(
    width: int, rows: Sequence[_Row], unreadable: Sequence[tuple[int, Unreadable]]
) -> _Chunk:
    prints = [row.print for row in rows]
    matrix = np.stack([p.vector for p in prints]) if rows else np.empty((0, width), np.float32)
    digests = np.frombuffer(b"".join(row.digest for row in rows), np.uint8)
    return _Chunk(
        rows=np.array([row.position for row in rows], np.int64),
        digests=digests.reshape(-1, 16),
        sizes=np.array([(p.width, p.height) for p in prints], np.int32).reshape(-1, 2),
        flat=np.array([p.flat for p in prints], np.bool_),
        matrix=matrix,
        fresh=np.array([row.fresh for row in rows], np.bool_),
        unreadable=tuple(sorted(unreadable, key=lambda item: item[0])),
    )


# -- as cache entries ----------------------------------------------------------------------------


def maker(encoder: Encoder) -> bytes:
    """Return the cache's key of an encoder, whose digest may be any text."""
    return f"fingerprint {encoder.digest}".encode()


def _entries(chunk: _Chunk) -> Iterator[tuple[bytes, bytes]]:
    """Yield the new fingerprints of a chunk as cache entries: 9 bytes of facts, the vector."""
    for index in np.flatnonzero(chunk.fresh):
        facts = chunk.sizes[index].astype("<i4").tobytes() + bytes([int(chunk.flat[index])])
        vector = chunk.matrix[index].astype("<f4").tobytes()
        yield chunk.digests[index].tobytes(), facts + vector


def _unpack(entry: bytes) -> _Print:
    width, height = np.frombuffer(entry, "<i4", 2)
    vector = np.frombuffer(entry, "<f4", offset=9)
    return _Print(int(width), int(height), bool(entry[8]), vector)
