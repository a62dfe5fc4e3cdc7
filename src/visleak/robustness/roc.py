"""Receiver operating characteristics over more pairs than fit into memory, and still exact.

The similarities of the true pairs are known first: there are only as many as queries. Then the
others stream by, and of each only the place between those of the true pairs is counted. That
gives the curve at every point where it bends and the area under it exactly. The largest others
are kept as they are, with the two pictures they belong to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from visleak.records import Float32, Int64

#: Similarities at which others are counted even where no true pair lies, for any threshold.
GRID: Final = np.round(np.linspace(-1.0, 1.0, 2001), 3).astype(np.float32)


@dataclass(frozen=True)
class Roc:
    """How true pairs and others are told apart by similarity.

    Attributes:
        positives: ``float32`` (p,), rising: similarities of the true pairs.
        edges: ``float32`` (e,), rising, distinct: similarities at which others were counted; those
            of the positives are among them.
        reached: ``int64`` (e,): others at or above each edge.
        equal: ``int64`` (e,): others that lie on the edge.
        total: how many others there are.
    """

    positives: Float32
    edges: Float32
    reached: Int64
    equal: Int64
    total: int

    @classmethod
    def pooled(cls, curves: Sequence[Roc]) -> Roc:
        """Return the curve of all pairs of several curves that were counted at the same edges."""
        first = curves[0]
        if any(each.edges is not first.edges for each in curves):
            raise ValueError("curves can be pooled only if they were counted at the same edges")
        return cls(
            np.sort(np.concatenate([each.positives for each in curves])),
            first.edges,
            np.sum([each.reached for each in curves], axis=0),
            np.sum([each.equal for each in curves], axis=0),
            sum(each.total for each in curves),
        )

    @property
    def auc(self) -> float:
        """Chance that a true pair is more alike than another, ties counting half; NaN if none."""
        if not len(self.positives) or not self.total:
            return math.nan
        place = np.searchsorted(self.edges, self.positives)
        above = self.reached[place] - self.equal[place]
        wrong = 2 * int(above.sum()) + int(self.equal[place].sum())
        return 1.0 - wrong / (2 * len(self.positives) * self.total)

    def true(self, threshold: float) -> int:
        """Return how many true pairs reach a threshold."""
        left = np.searchsorted(self.positives, np.float32(threshold), side="left")
        return len(self.positives) - int(left)

    def false(self, threshold: float) -> int:
        """Return how many others reach a threshold.

        Exact at the edges, among which are all true pairs, all multiples of 0.001 and what was
        asked for beforehand. In between it is the count at the edge below: never too few.
        """
        place = int(np.searchsorted(self.edges, np.float32(threshold), side="right")) - 1
        return self.total if place < 0 else int(self.reached[place])

    def points(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], Float32]:
        """Return false- and true-positive rates and thresholds, from the strictest on."""
        true = len(self.positives) - np.searchsorted(self.positives, self.edges, side="left")
        with np.errstate(invalid="ignore", divide="ignore"):
            tpr = true[::-1] / np.float64(len(self.positives))
            fpr = self.reached[::-1] / np.float64(self.total)
        return fpr, tpr, self.edges[::-1]


def edges_for(positives: Float32, thresholds: tuple[float, ...] = ()) -> Float32:
    """Return where to count others: at true pairs, at thresholds, and at multiples of 0.001."""
    return np.unique(np.concatenate([GRID, np.array(thresholds, np.float32), positives]))


class Tally:
    """Counts others between edges.

    Args:
        edges: ``float32`` (e,), rising and distinct.
    """

    def __init__(self, edges: Float32) -> None:
        self._edges = edges
        self._bins = np.zeros(len(edges) + 1, np.int64)
        self._equal = np.zeros(len(edges), np.int64)

    def add(self, similarity: Float32) -> None:
        """Count some others, (n,)."""
        if not len(similarity):
            return
        place = np.searchsorted(self._edges, similarity, side="right")
        self._bins += np.bincount(place, minlength=len(self._bins))
        inside = place > 0
        on = self._edges[place[inside] - 1] == similarity[inside]
        self._equal += np.bincount(place[inside][on] - 1, minlength=len(self._equal))

    def roc(self, positives: Float32) -> Roc:
        """Return the curve for true pairs, all of which lie on edges."""
        reached = self._bins[::-1].cumsum()[::-1][1:]
        return Roc(np.sort(positives), self._edges, reached, self._equal, int(self._bins.sum()))


@dataclass(frozen=True)
class Largest:
    """The largest others.

    Attributes:
        similarity: ``float32`` (n,), falling.
        query: ``int64`` (n,): row of the changed picture.
        reference: ``int64`` (n,): row of the reference.
    """

    similarity: Float32
    query: Int64
    reference: Int64


class Keeper:
    """Keeps the largest of a stream; of equal ones those of the lowest rows.

    Args:
        count: how many.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._parts: list[tuple[Float32, Int64, Int64]] = []
        self._held = 0
        #: No similarity below this is among the largest.
        self.floor = np.float32(-np.inf)

    def add(self, similarity: Float32, query: Int64, reference: Int64) -> None:
        """Take note of some others, (n,) each."""
        keep = similarity >= self.floor
        self._parts.append((similarity[keep], query[keep], reference[keep]))
        self._held += int(keep.sum())
        if self._held > 2 * self._count + 65_536:
            self._settle()

    def _settle(self) -> None:
        similarity, query, reference = (
            np.concatenate(column) for column in zip(*self._parts, strict=True)
        )
        order = np.lexsort((reference, query, -similarity))[: self._count]
        self._parts = [(similarity[order], query[order], reference[order])]
        self._held = len(order)
        if self._held == self._count and self._count:
            self.floor = similarity[order[-1]]

    def largest(self) -> Largest:
        """Return them."""
        if not self._parts:
            none: Int64 = np.empty(0, np.int64)
            return Largest(np.empty(0, np.float32), none, none)
        self._settle()
        return Largest(*self._parts[0])
