"""How many pairs of images a listed pair stands for, where images are copies of each other.

Of contents with many copies only a few pairs are listed (:mod:`visleak.pipeline.candidates`). All
pairs of copies of the same two contents have one grade, so their number is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from visleak.groups import components
from visleak.pipeline.candidates import Side
from visleak.records import Int64, Pairs


@dataclass(frozen=True, slots=True)
class ContentPairs:
    """The contents of listed pairs.

    Attributes:
        left, right: ``int64`` (n,): numbers of the two contents; within a set in ascending order.
        many: ``int64`` (n,): pairs of images that have these two contents.
        copies: ``int64`` (2, n): images of either content in its set.
    """

    left: Int64
    right: Int64
    many: Int64
    copies: Int64

    @classmethod
    def of_sides(cls, pairs: Pairs, query: Side, reference: Side) -> ContentPairs:
        """Return the contents of the pairs of a comparison."""
        digests = [query.prints.digests, reference.prints.digests]
        keys = np.ascontiguousarray(np.concatenate(digests)).view("V16").ravel()
        number = np.unique(keys, return_inverse=True)[1].astype(np.int64)
        own, others = np.split(number, [len(query.prints)])
        size = int(number.max(initial=-1)) + 1
        copies = [np.bincount(side, minlength=size) for side in (own, others)]
        left, right = own[pairs.query], others[pairs.reference]
        return cls._of(left, right, copies[0][left], copies[1][right], query is reference)

    @classmethod
    def of_tables(cls, pairs: pa.Table, images: pa.Table) -> ContentPairs:
        """Return the contents of the rows of a table of pairs of any sets.

        Args:
            pairs: with columns ``query_set``, ``query``, ``reference_set``, ``reference``.
            images: with columns ``set``, ``id``, ``digest``. An image without a digest, or that is
                not listed, is a content of its own.
        """
        names = _joined(images["set"], images["id"])
        digests = pc.coalesce(images["digest"].cast(pa.string()), names)
        # a content of two sets is two: its pairs within a set and across sets are counted apart
        _, number, copies = np.unique(
            np.stack([_numbers(images["set"]), _numbers(digests)]),
            axis=1,
            return_inverse=True,
            return_counts=True,
        )
        number = number.ravel()
        ends = []
        for end in ("query", "reference"):
            asked = _joined(pairs[f"{end}_set"], pairs[end])
            row = pc.fill_null(pc.index_in(asked, names.combine_chunks()), -1).to_numpy()
            alone = -1 - _numbers(asked)
            known = row >= 0
            content = np.where(known, number[row], alone) if len(number) else alone
            size = np.where(known, copies[number][row], 1) if len(number) else alone * 0 + 1
            ends.append((content.astype(np.int64), size.astype(np.int64)))
        same = pc.equal(pairs["query_set"], pairs["reference_set"]).to_numpy()
        (left, wide), (right, tall) = ends
        return cls._of(left, right, wide, tall, np.asarray(same, np.bool_))

    @classmethod
    def _of(
        cls, left: Int64, right: Int64, wide: Int64, tall: Int64, same: bool | npt.NDArray[Any]
    ) -> ContentPairs:
        backwards = np.asarray(same) & (left > right)
        equal = np.asarray(same) & (left == right)
        many = np.where(equal, wide * (wide - 1) // 2, wide * tall)
        low, high = np.where(backwards, right, left), np.where(backwards, left, right)
        copies = np.stack([np.where(backwards, tall, wide), np.where(backwards, wide, tall)])
        return cls(low, high, many.astype(np.int64), copies)

    def groups(self, near: npt.NDArray[np.bool_], *, within: bool) -> Int64:
        """Return how many images each group that near pairs form has, largest first.

        Images of equal content are of one group, listed pairs or not.

        Args:
            near: which of the pairs, (n,), all of one comparison, are near or exact.
            within: both sides are one set.
        """
        ends = np.stack([self.left, self.right])[:, near]
        # equal contents of two sets are two nodes
        if not within:
            ends = 2 * ends + np.array([[0], [1]])
        nodes, number = np.unique(ends, return_inverse=True)
        left, right = number.reshape(2, -1)
        images = np.zeros(len(nodes), np.int64)
        images[left], images[right] = self.copies[:, near]
        sizes = np.bincount(components(len(nodes), [(left, right)]), images)
        return np.sort(sizes.astype(np.int64))[::-1]

    def stand_for(self, code: npt.NDArray[Any]) -> Int64:
        """Return how many pairs of images each listed pair stands for, (n,).

        Of the listed pairs of the same two contents one stands for all, that of the lowest code.

        Args:
            code: of each pair.
        """
        order = np.lexsort((code, self.right, self.left))
        new = (np.diff(self.left[order], prepend=-(2**62)) != 0) | (
            np.diff(self.right[order], prepend=-(2**62)) != 0
        )
        result = np.zeros(len(order), np.int64)
        result[order[new]] = self.many[order[new]]
        return result


def _joined(sets: pa.ChunkedArray, ids: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a name of each image over all sets."""
    return pc.binary_join_element_wise(sets.cast(pa.string()), ids.cast(pa.string()), "\0")


def _numbers(texts: pa.ChunkedArray) -> Int64:
    """Return a number for each text, equal where the texts are."""
    encoded = pc.dictionary_encode(texts.combine_chunks())
    return np.asarray(encoded.indices.to_numpy(zero_copy_only=False), np.int64)
