"""Crowds: images with very many similar ones, such as the frames of a static scene.

Nearly all pairs of a crowd are candidates, so that screening, ranking and local features would
cost work per pair. Whether an image repeats, and which images form a group, follows from far fewer
pairs. So the pairs of crowded images are verified first, along a spanning forest (Boruvka 1926): in
each step every group of connected images verifies the most similar pair that leads to another
group. A crowd of n copies needs n - 1 pairs. Images that are connected have no further pairs
verified, and only a few representatives of a large group have local features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from visleak.groups import components, rank_within
from visleak.records import Bool, Float32, Int64, Pairs

#: Pairs above the soft threshold from which an image is crowded: more than the best twenty.
CROWDED: Final = 30

#: Connected images from which a group has representatives, and how many of each side.
LARGE: Final = 16
REPRESENTATIVES: Final = 4


def crowded(pairs: Pairs) -> Int64:
    """Return the positions of the pairs of crowded images."""
    many = pairs.total >= CROWDED
    chosen = many[pairs.query]
    if pairs.query_set == pairs.reference_set:
        chosen = chosen & many[pairs.reference]
    return np.flatnonzero(chosen)


class Forest:
    """The spanning forest of some candidate pairs, found step by step.

    A group stops once the pair that it proposes is not near: its other pairs are less similar.

    Args:
        ends: contents of the two images of each pair, (n,).
        similarity: ``float32`` (n,). Ties go to the lower position.
        most: pairs of a first image that are verified at most, if there is a limit.

    Attributes:
        tried, near: ``bool`` (n,): pairs that were verified, and those that are near or exact.
    """

    def __init__(
        self, ends: Sequence[npt.NDArray[np.generic]], similarity: Float32, most: int | None = None
    ) -> None:
        contents, number = np.unique(np.concatenate(ends), return_inverse=True)
        self._left, self._right = number.reshape(2, -1)
        self._order = np.argsort(-similarity, kind="stable")
        self._rank = np.empty(len(similarity), np.int64)
        self._rank[self._order] = np.arange(len(similarity))
        self._stopped: Bool = np.zeros(len(contents), np.bool_)
        self._free: Int64 = np.full(len(contents), len(similarity) if most is None else most)
        self.near, self.tried = np.zeros((2, len(similarity)), np.bool_)
        self._group, self._best, self._due = self._next()

    def due(self) -> Int64:
        """Return the positions of the pairs to verify in this step; none after the last."""
        return self._due

    def proceed(self, near: Bool) -> None:
        """Go to the next step.

        Args:
            near: which of the pairs that were due are near or exact.
        """
        self.tried[self._due], self.near[self._due] = True, near
        failed = np.zeros(len(self._rank) + 1, np.bool_)
        failed[self._rank[self._due[~near]]] = True
        self._stopped |= failed[self._best[self._group]]
        self._group, self._best, self._due = self._next()

    def _next(self) -> tuple[Int64, Int64, Int64]:
        """Return the group of each image, the rank of the pair that each proposes, and the pairs.

        A pair leads to another group, and begins at an image whose group did not stop. A group
        without such a pair proposes none: rank n.
        """
        count = len(self._rank)
        group = components(len(self._stopped), [(self._left[self.near], self._right[self.near])])
        open_ = (group[self._left] != group[self._right]) & ~self.tried
        open_ &= self._free[self._left] > 0
        best = np.full(len(self._stopped), count, np.int64)
        for ends in (self._left, self._right):
            offered = open_ & ~self._stopped[ends]
            np.minimum.at(best, group[ends[offered]], self._rank[offered])
        due = self._order[np.unique(best[best < count])]
        due = due[rank_within(self._left[due]) < self._free[self._left[due]]]
        np.subtract.at(self._free, self._left[due], 1)
        return group, best, np.sort(due)


@dataclass(frozen=True, slots=True)
class Spanning:
    """The pairs of the crowds of one comparison that were verified, and the groups they form.

    Attributes:
        keys: content digests and view of each pair, ascending, 33 bytes.
        table: ``float32`` (n, columns): their evidence.
        near: which are near or exact.
        contents: digests of the contents that near pairs connect, ascending, 16 bytes.
        group: ``int64`` (k,): number of the group of each.
    """

    keys: npt.NDArray[np.void]
    table: Float32
    near: Bool
    contents: npt.NDArray[np.void]
    group: Int64

    @classmethod
    def of(cls, keys: npt.NDArray[np.void], table: Float32, near: Bool) -> Spanning:
        """Return verified pairs with their groups."""
        order = np.argsort(keys)
        keys, near = keys[order], near[order]
        digests = np.ascontiguousarray(keys[near]).view(np.uint8).reshape(-1, 33)[:, :32]
        ends = np.ascontiguousarray(digests).view("V16").ravel()
        contents, number = np.unique(ends, return_inverse=True)
        left, right = number.reshape(-1, 2).T
        return cls(keys, table[order], near, contents, components(len(contents), [(left, right)]))

    def find(self, keys: npt.NDArray[np.void]) -> tuple[Int64, Bool]:
        """Return where pairs stand among those verified, and which do, by their keys."""
        return _find(self.keys, keys)

    def speaks(self, contents: npt.NDArray[np.void]) -> Bool:
        """Return which images of a side are in no large group, or are representatives of it.

        Representatives are the contents of the lowest digests: a random sample, and the same one
        for every order of the images.
        """
        group = self.group_of(contents)
        large = (group >= 0) & (np.bincount(self.group, minlength=1)[group] >= LARGE)
        distinct = np.unique(contents[large])
        own = self.group_of(distinct)
        return ~large | np.isin(contents, distinct[rank_within(own) < REPRESENTATIVES])

    def group_of(self, contents: npt.NDArray[np.void]) -> Int64:
        """Return the group of contents (n,), -1 of those that near pairs connect with none."""
        at, there = _find(self.contents, contents)
        return np.where(there, self.group[at], -1) if len(self.group) else at - 1


def _find(known: npt.NDArray[np.void], asked: npt.NDArray[np.void]) -> tuple[Int64, Bool]:
    """Return where values stand among known ones, which ascend, and which do."""
    if not len(known):
        return np.zeros(len(asked), np.int64), np.zeros(len(asked), np.bool_)
    at = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    return at, np.asarray(known[at] == asked)
