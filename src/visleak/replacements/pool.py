"""The pool of replacements in the order of a keyed digest, and what is known of a candidate."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from visleak.pipeline.comparison import normalised
from visleak.pipeline.encoded_set import EncodedSet
from visleak.records import Fingerprints, ImageSet, Int64
from visleak.replacements.checking import Checker, Neighbour, Neighbours, PairCheck


@dataclass(frozen=True)
class Pool:
    """The images that may stand in for test images.

    Attributes:
        images: the set.
        fingerprints: of those that can be read.
        queues: class, as labels are compared, to rows of ``fingerprints`` in the order in which
            they are tried; ``None`` leads to all of them.
        known: images whose content is in the audit already.
        repeated: images whose content another one of the pool has.
        blank: images without anything to see.
        unreadable: images that cannot be read.
        seed: of the order.
    """

    images: ImageSet
    fingerprints: Fingerprints
    queues: Mapping[str | None, Int64]
    known: int
    repeated: int
    blank: int
    unreadable: int
    seed: int

    @property
    def usable(self) -> int:
        """How many images may stand in."""
        return len(self.queues[None])


def make_pool(images: ImageSet, prints: Fingerprints, existing: Set[bytes], seed: int) -> Pool:
    """Return a pool without what is in the audit, repeated or blank.

    Candidates are tried in random order and not by similarity, so that the test set stays as
    representative as it was. The order is that of BLAKE2b of the seed and the content, so it
    depends on nothing but these.

    Args:
        images: the set.
        prints: its fingerprints.
        existing: content digests of all images of the audit.
        seed: of the order.
    """
    digests = [bytes(digest) for digest in prints.digests]
    order = sorted(range(len(digests)), key=lambda row: (_rank(digests[row], seed), row))
    known = [row for row in order if digests[row] in existing]
    blank = [row for row in order if prints.flat[row] and digests[row] not in existing]
    out = {*known, *blank}
    # equal contents are neighbours in the order; the first in the set is the one that is tried
    first = {digests[row]: row for row in reversed(order)}
    usable = [row for row in order if row not in out and first[digests[row]] == row]
    queues: dict[str | None, list[int]] = {None: usable}
    for row, label in zip(usable, _labels(images, prints, usable), strict=True):
        if label is not None:
            queues.setdefault(label, []).append(row)
    return Pool(
        images=images,
        fingerprints=prints,
        queues={label: np.array(rows, np.int64) for label, rows in queues.items()},
        known=len(known),
        repeated=len(order) - len(out) - len(usable),
        blank=len(blank),
        unreadable=len(images.problems) + len(prints.problems),
        seed=seed,
    )


def class_of(label: str | None) -> str | None:
    """Return a label as labels are compared, ``None`` for none."""
    compared: str | None = normalised(pa.array([label], pa.string()))[0].as_py()
    return compared


def _labels(images: ImageSet, prints: Fingerprints, rows: list[int]) -> list[str | None]:
    if images.labels is None:
        return [None] * len(rows)
    positions = pa.array(prints.rows[rows], pa.int64())
    labels: list[str | None] = normalised(images.labels.take(positions)).to_pylist()
    return labels


def _rank(digest: bytes, seed: int) -> bytes:
    return hashlib.blake2b(digest, digest_size=16, key=str(seed).encode()).digest()


#: Neighbours that people see, as in the paper.
SHOWN: Final = 3

#: Candidates looked at together; the answer for one does not depend on the others.
BLOCK: Final = 8

_COPY: Final = {"exact": "exact copy of", "near": "near copy of", "similar": "very similar to"}


@dataclass(frozen=True, slots=True)
class SimilarImage:
    """A neighbour of a candidate, in words.

    Attributes:
        set, id, label: which image.
        similarity: of the encoder, the largest over the views.
        look: what the machine says of the pair.
    """

    set: str
    id: str
    label: str | None
    similarity: float
    look: PairCheck

    @property
    def distance(self) -> float:
        """Euclidean distance of the unit vectors."""
        return distance(self.similarity)


@dataclass(frozen=True, slots=True)
class Candidate:
    """An image of the pool and what is near it.

    Attributes:
        row: of the pool's fingerprints.
        id, label: of the image.
        digest: of its content, hexadecimal.
        near: the neighbours that the machine compared, nearest first.
    """

    row: int
    id: str
    label: str | None
    digest: str
    near: tuple[SimilarImage, ...]

    @property
    def nearest(self) -> tuple[SimilarImage, ...]:
        """The neighbours that people see."""
        return self.near[:SHOWN]

    @property
    def objection(self) -> str:
        """Why it may not be approved; empty where nothing is known against it."""
        for near in self.near:
            if near.look.grade != "different":
                what = _COPY.get(near.look.grade or "", "could not be compared with")
                return f"not eligible: {what} {near.set}/{near.id}"
        return ""


class Examiner:
    """Says what is near the images of a pool.

    Args:
        material: the sets of the audit and the pool, by name.
        pool: name of the pool.
        neighbours: finds what is near.
        checker: compares.
    """

    def __init__(
        self,
        material: Mapping[str, EncodedSet],
        pool: str,
        neighbours: Neighbours,
        checker: Checker,
    ) -> None:
        self.material = material
        self.neighbours = neighbours
        self._own = material[pool]
        self._checker = checker

    def candidates(self, rows: Sequence[int], approved: Int64) -> list[Candidate]:
        """Return rows of the pool as candidates.

        Args:
            rows: of the pool's fingerprints.
            approved: rows that are neighbours too.
        """
        near = {row: self.neighbours.of(row, approved) for row in rows}
        couples = [(row, each) for row, found in near.items() for each in found]
        looks = self._checker.look(couples)
        prints = self._own.fingerprints
        return [
            Candidate(
                row=row,
                id=prints.ids[row].as_py(),
                label=label_of(self._own, row),
                digest=bytes(prints.digests[row]).hex(),
                near=tuple(self._near(each, looks[row, each.set, each.row]) for each in found),
            )
            for row, found in near.items()
        ]

    def prepare(self, rows: Sequence[int]) -> None:
        """PairCheck at rows and the neighbours that they have in the audit, all at once."""
        self.neighbours.search(rows)
        self.candidates(rows, np.empty(0, np.int64))

    def prepared(self, rows: Sequence[int]) -> Iterator[int]:
        """Yield rows in their order; those that follow are prepared a block at a time."""
        for start in range(0, len(rows), BLOCK):
            block = rows[start : start + BLOCK]
            self.prepare(block)
            yield from block

    def _near(self, neighbour: Neighbour, look: PairCheck) -> SimilarImage:
        own = self.material[neighbour.set]
        return SimilarImage(
            set=neighbour.set,
            id=own.fingerprints.ids[neighbour.row].as_py(),
            label=label_of(own, neighbour.row),
            similarity=neighbour.similarity,
            look=look,
        )


def distance(similarity: float) -> float:
    """Return the Euclidean distance of unit vectors of a similarity, as ciFAIR writes it.

    >>> distance(0.5)
    1.0
    """
    return math.sqrt(max(0.0, 2.0 - 2.0 * similarity))


def label_of(own: EncodedSet, row: int) -> str | None:
    """Return the label of a row of a set's fingerprints, ``None`` for none."""
    if own.images.labels is None:
        return None
    label: str | None = own.images.labels[int(own.fingerprints.rows[row])].as_py()
    return label
