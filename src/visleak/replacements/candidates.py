"""Candidates: images of a pool, with what is near them and what the machine says of that."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from visleak.pipeline.material import Material
from visleak.records import Int64
from visleak.replacements.checking import Checker, Look
from visleak.replacements.neighbours import Neighbour, Neighbours

#: Neighbours that people see, as in the paper.
SHOWN: Final = 3

#: Candidates looked at together; the answer for one does not depend on the others.
BLOCK: Final = 8

_COPY: Final = {"exact": "exact copy of", "near": "near copy of", "similar": "very similar to"}


@dataclass(frozen=True, slots=True)
class Near:
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
    look: Look

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
    near: tuple[Near, ...]

    @property
    def nearest(self) -> tuple[Near, ...]:
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
        material: Mapping[str, Material],
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
        prints = self._own.prints
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
        """Look at rows and the neighbours that they have in the audit, all at once."""
        self.neighbours.search(rows)
        self.candidates(rows, np.empty(0, np.int64))

    def prepared(self, rows: Sequence[int]) -> Iterator[int]:
        """Yield rows in their order; those that follow are prepared a block at a time."""
        for start in range(0, len(rows), BLOCK):
            block = rows[start : start + BLOCK]
            self.prepare(block)
            yield from block

    def _near(self, neighbour: Neighbour, look: Look) -> Near:
        own = self.material[neighbour.set]
        return Near(
            set=neighbour.set,
            id=own.prints.ids[neighbour.row].as_py(),
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


def label_of(own: Material, row: int) -> str | None:
    """Return the label of a row of a set's fingerprints, ``None`` for none."""
    if own.images.labels is None:
        return None
    label: str | None = own.images.labels[int(own.prints.rows[row])].as_py()
    return label
