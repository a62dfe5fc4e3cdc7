"""The pool of replacements in the order of a keyed digest."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Set
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from visleak.pipeline.comparison import normalised
from visleak.records import Fingerprints, ImageSet, Int64


@dataclass(frozen=True)
class Pool:
    """The images that may replace test images."""

    images: ImageSet
    fingerprints: Fingerprints
    # normalised class to rows of ``fingerprints`` in the order in which they are tried; ``None`` to
    # all of them
    queues: Mapping[str | None, Int64]
    known: int
    repeated: int
    blank: int
    unreadable: int
    seed: int  # of the order

    @property
    def usable(self) -> int:
        """Number of usable images."""
        return len(self.queues[None])


def make_pool(images: ImageSet, prints: Fingerprints, existing: Set[bytes], seed: int) -> Pool:
    """Return a pool without images that are in the audit, repeated or blank.

    Candidates are tried in random order and not by similarity, so that the test set remains
    representative. The order is that of BLAKE2b of the content with the seed as key.
    """
    digests = [bytes(digest) for digest in prints.digests]
    order = sorted(range(len(digests)), key=lambda row: (_rank(digests[row], seed), row))
    known = [row for row in order if digests[row] in existing]
    blank = [row for row in order if prints.flat[row] and digests[row] not in existing]
    out = {*known, *blank}
    # of equal contents the first in the set is tried
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
    """Return a normalised label, ``None`` for none."""
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
