"""The fingerprints of a part of a set, and the cache entries of single images."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from visleak.images import DECODING, content_digest
from visleak.records import Bool, Bytes8, Encoder, Float32, ImageSet, Int64, Problem, Unreadable

#: Stored bytes that may be held at once before they are decoded; bounds a worker's memory.
BYTES_WAITING: Final = 64_000_000
#: An image as it was read: position, content, content digest.
Item = tuple[int, bytes | Bytes8, bytes]
#: Position of an image that has no fingerprint, and why.
Refused = tuple[int, Unreadable]


@dataclass(frozen=True, slots=True)
class ImageFingerprint:
    """The fingerprint of one image: full size in pixels, whether it is flat, its vector."""

    width: int
    height: int
    flat: bool
    vector: Float32


@dataclass(frozen=True, slots=True)
class Row:
    """A readable image; ``fresh`` if its fingerprint is not from the cache or a copy's."""

    position: int
    digest: bytes
    fingerprint: ImageFingerprint
    fresh: bool


@dataclass(frozen=True, slots=True)
class Chunk:
    """The fingerprints of a part of a set, and its unreadable images."""

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
        made = [row.fingerprint for row in rows]
        matrix = np.stack([m.vector for m in made]) if rows else np.empty((0, width), np.float32)
        digests = np.frombuffer(b"".join(row.digest for row in rows), np.uint8)
        return cls(
            rows=np.array([row.position for row in rows], np.int64),
            digests=digests.reshape(-1, 16),
            sizes=np.array([(m.width, m.height) for m in made], np.int32).reshape(-1, 2),
            flat=np.array([m.flat for m in made], np.bool_),
            matrix=matrix,
            fresh=np.array([row.fresh for row in rows], np.bool_),
            unreadable=tuple(unreadable),
        )


def read_items(
    stored: Iterable[tuple[int, bytes | Bytes8 | Unreadable]], unreadable: list[Refused]
) -> Iterator[list[Item]]:
    """Yield the readable images, a bounded number of bytes at a time; note the others."""
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
    """Yield the rows of ``unreadable.csv`` of some positions."""
    for position, why in refused:
        id_, locator = images.ids[position].as_py(), images.locators[position].as_py()
        yield Problem(images.name, id_, locator, why.reason, why.detail)


def not_finite(encoder: Encoder) -> Unreadable:
    """Return why an image is excluded whose vector has NaN or infinity."""
    precision = getattr(encoder, "precision", "")
    advice = f" in {precision}; use --precision fp32" if precision in ("fp16", "bf16") else ""
    return Unreadable("unsupported", f"the {label_of(encoder)} made no numbers of it{advice}")


def label_of(encoder: Encoder) -> str:
    """Return kind and name of an encoder, for messages."""
    return f"{getattr(encoder, 'kind', 'encoder')} {encoder.name}"


def maker(encoder: Encoder) -> bytes:
    """Return the cache's key of an encoder and of the decoding of its images.

    Vectors of another precision have the same meaning and digest, but other values.
    """
    precision = getattr(encoder, "precision", "")
    about = f"{encoder.digest}{' ' if precision else ''}{precision}"
    return f"fingerprint {DECODING} {about}".encode()


def entries(chunk: Chunk, beyond: int = 0) -> Iterator[tuple[bytes, bytes]]:
    """Yield the new fingerprints of a chunk as cache entries: size, flatness, the vector."""
    for index in np.flatnonzero(chunk.fresh & (chunk.sizes.max(axis=1, initial=0) > beyond)):
        facts = chunk.sizes[index].astype("<i4").tobytes() + bytes([int(chunk.flat[index])])
        vector = chunk.matrix[index].astype("<f4").tobytes()
        yield chunk.digests[index].tobytes(), facts + vector


def unpack(entry: bytes) -> ImageFingerprint:
    """Return the fingerprint of a cache entry."""
    width, height = np.frombuffer(entry, "<i4", 2)
    vector = np.frombuffer(entry, "<f4", offset=9)
    return ImageFingerprint(int(width), int(height), bool(entry[8]), vector)
