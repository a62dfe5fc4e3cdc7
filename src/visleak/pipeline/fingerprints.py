"""``fingerprint(images, encoder) -> Fingerprints``: read, digest, decode, encode; once each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from visleak.encoders.builtin import BuiltinEncoder
from visleak.images import decode
from visleak.pipeline.batches import batched
from visleak.pipeline.chunks import (
    Chunk,
    Item,
    Print,
    Refused,
    Row,
    entries,
    maker,
    no_numbers,
    problems_of,
    read_items,
    unpack,
)
from visleak.pipeline.context import CacheHandle, GrowingColumn, Handle, RunContext, shared
from visleak.pipeline.remote import batched_remotely, opener_for, travels
from visleak.records import (
    BatchEncoder,
    Bool,
    Bytes8,
    DecodedImage,
    Encoder,
    Fingerprints,
    ImageSet,
    Int64,
    Opener,
    Problem,
    Unreadable,
)

#: Longest side of images whose built-in fingerprint and screens are not kept in the cache: they are
#: ten times as large as the image, and made in two milliseconds.
TINIEST: Final = 16

#: Images a task; small enough for even progress, large enough to pay for the hand-over.
CHUNK: Final = 512

#: Decoded pixels that may wait for the encoder at once; bounds a worker's memory.
PIXELS_WAITING: Final = 32_000_000


def fingerprint(
    images: ImageSet, encoder: Encoder, place: RunContext, rows: Int64 | None = None
) -> Fingerprints:
    """Return the fingerprints of the readable images of a set, in the set's order.

    Args:
        images: the set.
        encoder: makes the vectors; where it takes batches, in this process or in a
            cluster's workers.
        place: where to work.
        rows: positions to take, ascending; default all.
    """
    positions = range(len(images)) if rows is None else rows
    # what only this very run knows again is not worth keeping
    cache = place.cache if getattr(encoder, "lasting", True) else None
    reach = place.reach() if cache is not None else None
    beyond = TINIEST if isinstance(encoder, BuiltinEncoder) else 0
    opener = opener_for(images, positions, place)
    made = _made(opener, positions, encoder, place, reach)
    refused: list[Refused] = []
    done = 0
    with GrowingColumn(place.file(".matrix"), np.float32, (encoder.width,)) as matrix:
        columns = _Columns(matrix)
        for chunk in made:
            columns.append(chunk)
            refused.extend(chunk.unreadable)
            if cache is not None and chunk.fresh.any():
                cache.put(maker(encoder), entries(chunk, beyond))
            done += len(chunk.rows) + len(chunk.unreadable)
            place.progress(f"reading {images.name}", done, len(positions))
        refused.sort(key=lambda each: each[0])
        return columns.fingerprints(images, encoder.digest, tuple(problems_of(images, refused)))


def _made(
    opener: Opener,
    positions: range | Int64,
    encoder: Encoder,
    place: RunContext,
    cache: CacheHandle | None,
) -> Iterator[Chunk]:
    """Yield what became of each part of a set, made where the encoder is best run."""
    if not hasattr(encoder, "forward"):
        return _encoded_in_workers(opener, positions, encoder, place, cache)
    network = cast(BatchEncoder, encoder)
    if place.executor.here or not travels(network):
        return batched(opener, positions, network, place, cache)
    return batched_remotely(opener, positions, network, place, cache)


class _Columns:
    """The columns of a set's fingerprints while they grow."""

    def __init__(self, matrix: GrowingColumn) -> None:
        self._matrix = matrix
        # begins with no rows of the right types: a set may be empty
        none = np.empty(0, np.int64), np.empty((0, 16), np.uint8)
        self._small: list[tuple[Int64, Bytes8, npt.NDArray[np.int32], Bool]] = [
            (*none, np.empty((0, 2), np.int32), np.empty(0, np.bool_))
        ]

    def append(self, chunk: Chunk) -> None:
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


@dataclass(frozen=True, slots=True)
class _Task:
    """A chunk of a set, as it is sent to a worker."""

    opener: Handle
    encoder: Handle
    cache: CacheHandle | None
    positions: range | Int64


def _encoded_in_workers(
    opener: Opener,
    positions: range | Int64,
    encoder: Encoder,
    place: RunContext,
    cache: CacheHandle | None,
) -> Iterator[Chunk]:
    """Yield what became of each chunk of a set."""
    read, shown = place.share(opener), place.share(encoder)
    parts = (positions[start : start + CHUNK] for start in range(0, len(positions), CHUNK))
    return place.each(_work, (_Task(read, shown, cache, part) for part in parts), "reading images")


def _work(task: _Task) -> Chunk:
    """Read, digest, decode and encode a chunk of a set."""
    encoder: Encoder = shared(task.encoder)
    stored = shared(task.opener).read(list(task.positions))
    rows: list[Row] = []
    unreadable: list[Refused] = []
    for items in read_items(zip(task.positions, stored, strict=True), unreadable):
        known: Mapping[bytes, bytes] = {}
        if task.cache is not None:
            with task.cache.open() as cache:
                known = cache.get(maker(encoder), [digest for _, _, digest in items])
        # equal contents are encoded once
        leads: dict[bytes, int] = {}
        for position, _, digest in items:
            leads.setdefault(digest, position)
        new = [item for item in items if item[2] not in known and leads[item[2]] == item[0]]
        refused: list[Refused] = []
        made = dict(_encoded(encoder, new, refused))
        why = dict(refused)
        for position, _, digest in items:
            lead = leads[digest]
            if digest in known:
                rows.append(Row(position, digest, unpack(known[digest]), fresh=False))
            elif lead in made:
                rows.append(Row(position, digest, made[lead], fresh=position == lead))
            else:
                unreadable.append((position, why[lead]))
    return Chunk.of(encoder.width, rows, unreadable)


def _encoded(
    encoder: Encoder,
    items: Sequence[Item],
    unreadable: list[Refused],
) -> Iterator[tuple[int, Print]]:
    """Yield position and fingerprint of what can be decoded; note the rest."""
    waiting: list[tuple[int, DecodedImage]] = []
    pixels = 0
    for position, data, _ in items:
        picture = decode(data, enough=encoder.enough)
        if isinstance(picture, Unreadable):
            unreadable.append((position, picture))
            continue
        waiting.append((position, picture))
        pixels += picture.pixels.size
        if pixels > PIXELS_WAITING:
            yield from _prints(encoder, waiting, unreadable)
            waiting, pixels = [], 0
    yield from _prints(encoder, waiting, unreadable)


def _prints(
    encoder: Encoder, waiting: Iterable[tuple[int, DecodedImage]], unreadable: list[Refused]
) -> Iterator[tuple[int, Print]]:
    positions = [position for position, _ in waiting]
    pictures = [picture for _, picture in waiting]
    if not pictures:
        return
    vectors, flat = encoder.encode(pictures)
    usable = np.asarray(np.isfinite(vectors).all(axis=1))
    for index, (position, picture) in enumerate(zip(positions, pictures, strict=True)):
        if not usable[index]:
            unreadable.append((position, no_numbers(encoder)))
            continue
        yield position, Print(picture.width, picture.height, bool(flat[index]), vectors[index])
