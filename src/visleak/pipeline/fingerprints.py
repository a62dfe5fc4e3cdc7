"""``fingerprint(images, encoder) -> Fingerprints``: read, digest, decode, encode; each once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, cast

import numpy as np
import pyarrow as pa

from visleak.encoders.builtin import BuiltinEncoder
from visleak.images import decode
from visleak.pipeline.batches import batched
from visleak.pipeline.context import CacheHandle, Handle, RunContext, known_entries
from visleak.pipeline.encoded_set import (
    Chunk,
    ImageFingerprint,
    Item,
    ReadTask,
    Refused,
    Row,
    entries,
    maker,
    not_finite,
    problems_of,
    read_items,
    unpack,
)
from visleak.pipeline.remote import batched_remotely, is_loadable, opener_for
from visleak.records import (
    BatchEncoder,
    DecodedImage,
    Encoder,
    Fingerprints,
    ImageSet,
    Int64,
    Opener,
    Unreadable,
)
from visleak.vectors import parts_of

#: Longest side of images whose built-in fingerprints and screens are not cached: the entries are
#: ten times as large as the image, and are made in two milliseconds.
TINIEST: Final = 16
#: Images per task: few for even progress, enough to pay for the transfer.
CHUNK: Final = 512
#: Decoded pixels that may wait for the encoder at once; bounds a worker's memory.
PIXELS_WAITING: Final = 32_000_000


def fingerprint(
    images: ImageSet, encoder: Encoder, context: RunContext, rows: Int64 | None = None
) -> Fingerprints:
    """Return the fingerprints of the readable images of a set, in its order; of some ``rows`` only.

    An encoder that takes batches is run in this process, or in the workers of a cluster.
    """
    positions = range(len(images)) if rows is None else rows
    # the vectors of an encoder that only exists in this run are not cached
    cache = context.cache if getattr(encoder, "lasting", True) else None
    handle = context.cache_handle() if cache is not None else None
    beyond = TINIEST if isinstance(encoder, BuiltinEncoder) else 0
    opener = opener_for(images, positions, context)
    # an empty chunk gives the columns their types
    small = [Chunk.of(encoder.width, (), ())]
    refused: list[Refused] = []
    done = 0
    with context.column(".matrix", np.float32, (encoder.width,)) as matrix:
        for chunk in _chunks(opener, positions, encoder, context, handle):
            matrix.append(chunk.matrix)
            small.append(chunk)
            refused.extend(chunk.unreadable)
            if cache is not None and chunk.fresh.any():
                cache.put(maker(encoder), entries(chunk, beyond))
            done += len(chunk.rows) + len(chunk.unreadable)
            context.progress(f"reading {images.name}", done, len(positions))
        refused.sort(key=lambda each: each[0])
        found = np.concatenate([chunk.rows for chunk in small])
        return Fingerprints(
            set=images.name,
            rows=found,
            ids=images.ids.take(pa.array(found)),
            matrix=matrix.mapped(),
            digests=np.concatenate([chunk.digests for chunk in small]),
            sizes=np.concatenate([chunk.sizes for chunk in small]),
            flat=np.concatenate([chunk.flat for chunk in small]),
            encoder=encoder.digest,
            problems=tuple(problems_of(images, refused)),
        )


def _chunks(
    opener: Opener,
    positions: range | Int64,
    encoder: Encoder,
    context: RunContext,
    cache: CacheHandle | None,
) -> Iterator[Chunk]:
    """Yield the fingerprints of each part of a set, made where the encoder is best run."""
    if hasattr(encoder, "forward"):
        network = cast(BatchEncoder, encoder)
        remote = not context.executor.local and is_loadable(network)
        make = batched_remotely if remote else batched
        return make(opener, positions, network, context, cache)
    handles = context.share(opener), context.share(encoder)
    parts = parts_of(len(positions), CHUNK)
    tasks = (ReadTask(*handles, cache, positions[part]) for part in parts)
    return context.each(_encode, tasks, "reading images")


def _encode(task: ReadTask[Handle[Encoder]]) -> Chunk:
    encoder = task.encoder.load()
    stored = task.opener.load().read(list(task.positions))
    rows: list[Row] = []
    unreadable: list[Refused] = []
    for items in read_items(zip(task.positions, stored, strict=True), unreadable):
        known = known_entries(task.cache, maker(encoder), [digest for _, _, digest in items])
        # equal contents are encoded once
        leads: dict[bytes, int] = {}
        for position, _, digest in items:
            leads.setdefault(digest, position)
        new = [item for item in items if item[2] not in known and leads[item[2]] == item[0]]
        refused: list[Refused] = []
        made = dict(encoded(encoder, new, refused))
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


def encoded(
    encoder: Encoder, items: Iterable[Item], unreadable: list[Refused]
) -> Iterator[tuple[int, ImageFingerprint]]:
    """Yield position and fingerprint of the images that can be decoded; note the others."""
    waiting: list[tuple[int, DecodedImage]] = []
    pixels = 0
    for position, data, _ in items:
        image = decode(data, enough=encoder.enough)
        if isinstance(image, Unreadable):
            unreadable.append((position, image))
            continue
        waiting.append((position, image))
        pixels += image.pixels.size
        if pixels > PIXELS_WAITING:
            yield from _fingerprints(encoder, waiting, unreadable)
            waiting, pixels = [], 0
    yield from _fingerprints(encoder, waiting, unreadable)


def _fingerprints(
    encoder: Encoder, waiting: Sequence[tuple[int, DecodedImage]], unreadable: list[Refused]
) -> Iterator[tuple[int, ImageFingerprint]]:
    if not waiting:
        return
    vectors, flat = encoder.encode([image for _, image in waiting])
    finite = np.asarray(np.isfinite(vectors).all(axis=1))
    for index, (position, image) in enumerate(waiting):
        if finite[index]:
            facts = image.width, image.height, bool(flat[index])
            yield position, ImageFingerprint(*facts, vectors[index])
        else:
            unreadable.append((position, not_finite(encoder)))
