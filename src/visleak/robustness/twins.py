"""Pictures of a collection that show the same: they are no wrong answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from visleak import pipeline
from visleak.encoders import load_encoder
from visleak.pipeline import Workplace
from visleak.pipeline.material import refuse_lost
from visleak.records import GRADES, Fingerprints, Grade, ImageSet, Int64
from visleak.settings import Settings


@dataclass(frozen=True)
class Twins:
    """Pairs of one collection that an audit within it grades near or exact.

    Attributes:
        left, right: ``int64`` (n,): positions in the collection, ``left < right``.
        graded: the pictures were looked at; else only equal bytes are known.
    """

    left: Int64
    right: Int64
    graded: bool

    def __len__(self) -> int:
        return len(self.left)

    def of(self, positions: Iterable[int]) -> set[int]:
        """Return the twins of some positions, and these."""
        own = {int(place) for place in positions}
        wanted = np.array(sorted(own), np.int64)
        found = set(own)
        found.update(map(int, self.right[np.isin(self.left, wanted)]))
        found.update(map(int, self.left[np.isin(self.right, wanted)]))
        return found


def find_twins(
    images: ImageSet, prints: Fingerprints, place: Workplace, *, verify: bool = True
) -> Twins:
    """Return the pairs within a collection that are one picture twice.

    By the ordinary audit: built-in fingerprint, local features, verification, grade. Blank
    pictures count as twins where their colour agrees, because nothing could tell them apart.

    Args:
        images: the collection.
        prints: its fingerprints, by any encoder.
        place: where to work.
        verify: look at the pictures; without it only equal bytes are found.
    """
    pairs = _equal_bytes(prints)
    if verify and len(prints) > 1:
        outcome = pipeline.run([images], [], load_encoder(), Settings(), place)
        compared, own = outcome.compared[0], outcome.sides[images.name].prints
        refuse_lost(images.name, own.problems)
        if compared.grades is not None:
            flat = own.flat[compared.pairs.query] & own.flat[compared.pairs.reference]
            same = (compared.grades.grade <= GRADES.index(Grade.NEAR)) | flat
            found = compared.pairs.query[same], compared.pairs.reference[same]
            pairs = np.concatenate([pairs, np.stack([own.rows[side] for side in found], axis=1)])
    pairs = np.unique(np.sort(pairs, axis=1), axis=0)
    return Twins(pairs[:, 0], pairs[:, 1], verify)


def _equal_bytes(prints: Fingerprints) -> Int64:
    """Return the pairs of positions with the same content, (n, 2)."""
    _, group = np.unique(prints.digests, axis=0, return_inverse=True)
    order = np.argsort(group.ravel(), kind="stable")
    parts = np.split(prints.rows[order], np.flatnonzero(np.diff(group.ravel()[order])) + 1)
    found = [
        np.stack([part[a] for a in np.triu_indices(len(part), 1)], axis=1)
        for part in parts
        if len(part) > 1
    ]
    return np.concatenate([np.empty((0, 2), np.int64), *found])
