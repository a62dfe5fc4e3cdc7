"""The fingerprint of a picture while it travels: from what was read to rows and cache entries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from visleak.images import DECODING, content_digest
from visleak.records import (
    Bool,
    Bytes8,
    Encoder,
    Float32,
    ImageSet,
    Int64,
    Problem,
    Unreadable,
)

#: Stored bytes that may be held at once before they are decoded; bounds a worker's memory.
BYTES_WAITING: Final = 64_000_000

#: A picture as it was read: position, content, content digest.
Item = tuple[int, bytes | Bytes8, bytes]

#: Why a picture at a position has no fingerprint.
Refused = tuple[int, Unreadable]


@dataclass(frozen=True, slots=True)
class Print:
    """The fingerprint of one picture: full size in pixels, whether it is flat, its vector."""

    width: int
    height: int
    flat: bool
    vector: Float32


@dataclass(frozen=True, slots=True)
class Row:
    """A picture that could be read, and whether its fingerprint was made just now."""

    position: int
    digest: bytes
    print: Print
    fresh: bool


@dataclass(frozen=True, slots=True)
class Chunk:
    """What became of a part of a set: readable rows, then who could not be read."""

    rows: Int64
    digests: Bytes8
    sizes: npt.NDArray[np.int32]
    flat: Bool
    matrix: Float32
    fresh: Bool
    unreadable: tuple[Refused, ...]

    @classmethod
    def of(cls, width: int, rows: Sequence[Row], unreadable: Iterable[Refused]) -> Chunk:
        """Return the columns of rows whose vectors have ``width`` coordinates."""
        prints = [row.print for row in rows]
        matrix = np.stack([p.vector for p in prints]) if rows else np.empty((0, width), np.float32)
        digests = np.frombuffer(b"".join(row.digest for row in rows), np.uint8)
        return cls(
            rows=np.array([row.position for row in rows], np.int64),
            digests=digests.reshape(-1, 16),
            sizes=np.array([(p.width, p.height) for p in prints], np.int32).reshape(-1, 2),
            flat=np.array([p.flat for p in prints], np.bool_),
            matrix=matrix,
            fresh=np.array([row.fresh for row in rows], np.bool_),
            unreadable=tuple(unreadable),
        )


def read_items(
    stored: Iterable[tuple[int, bytes | Bytes8 | Unreadable]], unreadable: list[Refused]
) -> Iterator[list[Item]]:
    """Yield what could be read, a bounded number of bytes at a time; note the rest."""
    items: list[Item] = []
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


def problems_of(images: ImageSet, refused: Iterable[Refused]) -> Iterator[Problem]:
    """Yield who it is at the positions that could not be read, and why."""
    for position, why in refused:
        yield Problem(
            images.name,
            images.ids[position].as_py(),
            images.locators[position].as_py(),
            why.reason,
            why.detail,
        )


def no_numbers(encoder: Encoder) -> Unreadable:
    """Return why a picture is left out for which an encoder returned NaN or infinity."""
    precision = getattr(encoder, "precision", "")
    advice = f" in {precision}; use --precision fp32" if precision in ("fp16", "bf16") else ""
    return Unreadable("unsupported", f"the {called(encoder)} made no numbers of it{advice}")


def called(encoder: Encoder) -> str:
    """Return what an encoder is called in messages; what is fed like one may be of another kind."""
    return f"{getattr(encoder, 'kind', 'encoder')} {encoder.name}"


def maker(encoder: Encoder) -> bytes:
    """Return the cache's key of an encoder, whose digest may be any text, and of its pixels.

    Vectors of another precision mean the same and are no other encoder's, but they are not these.
    """
    precision = getattr(encoder, "precision", "")
    about = f"{encoder.digest}{' ' if precision else ''}{precision}"
    return f"fingerprint {DECODING} {about}".encode()


def entries(chunk: Chunk, beyond: int = 0) -> Iterator[tuple[bytes, bytes]]:
    """Yield the new fingerprints of a chunk as cache entries: 9 bytes of facts, the vector.

    Args:
        chunk: of images.
        beyond: only those of a longer side, pixels.
    """
    for index in np.flatnonzero(chunk.fresh & (chunk.sizes.max(axis=1, initial=0) > beyond)):
        facts = chunk.sizes[index].astype("<i4").tobytes() + bytes([int(chunk.flat[index])])
        vector = chunk.matrix[index].astype("<f4").tobytes()
        yield chunk.digests[index].tobytes(), facts + vector


def unpack(entry: bytes) -> Print:
    """Return the fingerprint of a cache entry."""
    width, height = np.frombuffer(entry, "<i4", 2)
    vector = np.frombuffer(entry, "<f4", offset=9)
    return Print(int(width), int(height), bool(entry[8]), vector)
