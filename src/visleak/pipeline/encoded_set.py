"""Sets with their fingerprints. Images that are read again must be what they were.

Between the fingerprint of an image and the verification of its pairs a disk may be unmounted or a
file overwritten. Findings on such an image must not be counted, least of all as "no leak".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import VisleakError
from visleak.formats.files import chosen
from visleak.images import DECODING, content_digest
from visleak.pipeline.context import CacheHandle, Handle, RunContext
from visleak.records import (
    Bool,
    Bytes8,
    Encoder,
    FileCount,
    Fingerprints,
    Float32,
    ImageSet,
    Int64,
    Opener,
    Problem,
    Unreadable,
)
from visleak.vectors import parts_of

#: Reasons why an image cannot be read again; both may be temporary.
GONE: Final = "gone"
CHANGED: Final = "changed"
#: Reasons of the first pass that may be gone the next time.
PASSING: Final = ("missing", "no-permission", "io-error")
TRIED: Final = 100  # images that are tried, to see whether they are back
CHUNK: Final = 4096  # vectors copied at a time; only bounds memory
#: Stored bytes that may be held at once before they are decoded; bounds a worker's memory.
BYTES_WAITING: Final = 64_000_000
#: An image as it was read: position, content, content digest.
Item = tuple[int, bytes | Bytes8, bytes]
#: Position of an image that has no fingerprint, and why.
Refused = tuple[int, Unreadable]


class ImagesLost(VisleakError):
    """Images that could be read at first could not be read again."""

    def __init__(self, name: str, refused: Sequence[Refused]) -> None:
        super().__init__(_not_again(name, len(refused), refused[0][1]))
        self.name = name
        self.refused = tuple(refused)

    def __reduce__(self) -> tuple[type[ImagesLost], tuple[str, tuple[Refused, ...]]]:
        # workers send errors by pickle, which would keep the message alone
        return type(self), (self.name, self.refused)


def _not_again(name: str, count: int, why: Problem | Unreadable) -> str:
    detail = f": {why.detail}" if why.detail else ""
    return (
        f"images of set {name!r} could be read at first, and not again ({count:,};"
        f" {why.reason}{detail}); run the command again when the source is whole and nothing"
        " writes to it"
    )


def lost(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the problems of images that could be read at first, and not again."""
    return tuple(problem for problem in problems if problem.reason in (GONE, CHANGED))


def are_back(opener: Opener, ids: pa.StringArray, problems: Iterable[Problem]) -> bool:
    """Whether images of a set that were away can be read now; of many, some are tried."""
    away = [each.id for each in problems if each.reason in PASSING]
    tried = pa.array(away[:: -(-len(away) // TRIED) or 1], pa.string())
    places = pc.index_in(tried, ids).drop_null()
    found = opener.read(sorted(set(places.to_pylist())))
    return any(not isinstance(each, Unreadable) for each in found)


def refuse_lost(name: str, found: Iterable[object]) -> None:
    """Refuse a result some images of which could be read at first, and not again."""
    away = [
        each
        for each in found
        if isinstance(each, Problem | Unreadable) and each.reason in (GONE, CHANGED)
    ]
    if away:
        raise VisleakError(_not_again(name, len(away), away[0]))


@dataclass(frozen=True)
class UnchangedOpener:
    """Reads images again; an image that is not what it was is unreadable."""

    opener: Opener  # reads them
    positions: Int64  # int64 (n,), ascending: of the images that could be read
    digests: Bytes8  # uint8 (n, 16): of what was stored there

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield what is stored at some of the positions, see :class:`visleak.records.Opener`."""
        known = np.isin(positions, self.positions)
        rows = np.searchsorted(self.positions, positions)
        for was, row, stored in zip(known, rows, self.opener.read(positions), strict=True):
            if not was:
                away = Unreadable(CHANGED, "it could not be read at first")
                yield stored if isinstance(stored, Unreadable) else away
            elif isinstance(stored, Unreadable):
                detail = f"{stored.reason}, {stored.detail}" if stored.detail else stored.reason
                yield Unreadable(GONE, detail)
            elif content_digest(stored) != self.digests[row].tobytes():
                yield Unreadable(CHANGED, "it is another image than when it was read first")
            else:
                yield stored


@dataclass(frozen=True, slots=True)
class EmbeddingCounts:
    """Counts of a whole set of embeddings."""

    vectors: int  # of the set
    rescaled: int  # vectors that were not of unit length
    streamed: bool  # only the images that are in a pair have fingerprints
    files: FileCount | None = None  # how many of the set's files are present, or None


@dataclass(frozen=True, slots=True)
class EncodedSet:
    """A set with the fingerprints of its readable images."""

    images: ImageSet
    fingerprints: Fingerprints  # of its readable images
    embeddings: EmbeddingCounts | None = field(default=None, kw_only=True)  # of a set of these

    @property
    def name(self) -> str:
        """Name of the set."""
        return self.images.name

    @property
    def streamed(self) -> bool:
        """Whether only the images that are in a pair have fingerprints."""
        return self.embeddings is not None and self.embeddings.streamed

    @property
    def readable_count(self) -> int:
        """Number of its readable images, also of those without a fingerprint."""
        if self.embeddings is None or not self.embeddings.streamed:
            return len(self.fingerprints)
        return self.embeddings.vectors - len(self.fingerprints.problems)

    @property
    def contents(self) -> npt.NDArray[np.void]:
        """The digests of the contents, 16 bytes each, one per fingerprint."""
        return np.ascontiguousarray(self.fingerprints.digests).view("V16").ravel()

    @property
    def opener(self) -> Opener:
        """An opener of the images as they were when the fingerprints were made."""
        if not self.fingerprints.of_bytes:
            return self.images.opener
        fingerprints = self.fingerprints
        return UnchangedOpener(self.images.opener, fingerprints.rows, fingerprints.digests)

    def readable(self) -> EncodedSet:
        """Return the readable images as a set of their own, whose content must not change."""
        rows = self.fingerprints.rows
        images = chosen(replace(self.images, opener=self.opener), rows, self.name)
        fingerprints = replace(self.fingerprints, rows=np.arange(len(rows)), problems=())
        return EncodedSet(images, fingerprints)

    def without(self, refused: Sequence[Refused], context: RunContext) -> EncodedSet:
        """Return the set with some readable images as unreadable ones."""
        whole = self.fingerprints
        keep = ~np.isin(whole.rows, [position for position, _ in refused])
        refused = sorted(refused, key=lambda each: each[0])
        with context.column(".matrix", np.float32, whole.matrix.shape[1:]) as matrix:
            for part in parts_of(len(whole), CHUNK):
                matrix.append(whole.matrix[part][keep[part]])
            columns = {n: getattr(whole, n)[keep] for n in ("rows", "digests", "sizes", "flat")}
            fingerprints = replace(
                whole,
                **columns,
                ids=whole.ids.filter(pa.array(keep)),
                matrix=matrix.mapped(),
                problems=(*whole.problems, *problems_of(self.images, refused)),
            )
        return EncodedSet(self.images, fingerprints, embeddings=self.embeddings)


def numbered_contents(query: EncodedSet, reference: EncodedSet) -> tuple[Int64, Int64]:
    """Return the number of the content of each fingerprint of two sets."""
    contents = np.concatenate([query.contents, reference.contents])
    number = np.unique(contents, return_inverse=True)[1].astype(np.int64)
    own, others = np.split(number, [len(query.fingerprints)])
    return own, others


@dataclass(frozen=True, slots=True)
class Side(EncodedSet):
    """A set as one side of a comparison."""

    background: Float32  # float32 (n,): mean similarity to the nearest images of the cohort
    order: Int64  # int64 (n,): ranks of the ids, for ties


def files_of(images: ImageSet) -> pa.Array:
    """Return the files of a set; a locator inside one is FILE!MEMBER."""
    return pc.unique(pc.list_element(pc.split_pattern(images.locators, "!", max_splits=1), 0))


def ranks_of(ids: pa.StringArray) -> Int64:
    """Return the rank of each id, from 0."""
    ranks = np.empty(len(ids), np.int64)
    ranks[pc.sort_indices(ids).to_numpy()] = np.arange(len(ids))
    return ranks


def reasons_of(problems: Sequence[Problem]) -> str:
    """Return how many images could not be read for which reason, with the first as an example."""
    reasons = Counter(problem.reason for problem in problems).most_common()
    counted = ", ".join(f"{count:,} {reason}" for reason, count in reasons)
    first = problems[0]
    detail = f" ({first.detail})" if first.detail else ""
    return f"({counted}), such as {first.id!r}{detail}"


# -- parts of a set -------------------------------------------------------------------------------


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReadTask(Generic[T]):
    """Images that a worker reads and encodes, or prepares for an encoder."""

    opener: Handle[Opener]
    encoder: T  # what makes the fingerprints, in the form that a worker needs
    cache: CacheHandle | None
    positions: range | Int64


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
    return f"fingerprint {DECODING} {encoder.digest} {precision}".rstrip().encode()


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
