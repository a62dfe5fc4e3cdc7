"""Which image of one audit is which of the other, by id and content."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.diff.sides import Side
from visleak.records import Bool, Int8, Int64


class Fate(IntEnum):
    """What an image of one audit is in the other."""

    #: Not there.
    GONE = 0
    #: There, with the same id and content.
    SAME = 1
    #: There, with the same content and another id.
    RENAMED = 2
    #: Its id is there, with another content.
    CHANGED = 3


@dataclass(frozen=True)
class Matching:
    """For each image of an audit, who it is in the other.

    Attributes:
        partner: row of the other's images; -1 where it is gone.
        fate: a :class:`Fate`.
    """

    partner: Int64
    fate: Int8

    @property
    def same_content(self) -> Bool:
        """Which images are there with the same content."""
        found: Bool = (self.fate == Fate.SAME) | (self.fate == Fate.RENAMED)
        return found


def match_images(before: Side, after: Side, sets: Mapping[str, str]) -> tuple[Matching, Matching]:
    """Match the images of two audits, each with one at most: from before, and from after.

    First by id and content, then by content alone, in the order of ids; what is left, by id.
    Where only vectors are left of a set, content is not known, and the id alone says who it is.

    Args:
        before, after: the audits.
        sets: which set is which.
    """
    forth, back = _unmatched(before), _unmatched(after)
    for old, new in sets.items():
        left, right = before.rows[old], after.rows[new]
        for fate, mine, theirs in _matched(before, after, left, right):
            rows, partners = left[mine], right[theirs]
            forth.partner[rows], forth.fate[rows] = partners, fate
            back.partner[partners], back.fate[partners] = rows, fate
    return forth, back


def _unmatched(side: Side) -> Matching:
    count = side.images.num_rows
    return Matching(np.full(count, -1, np.int64), np.full(count, Fate.GONE, np.int8))


def _matched(
    before: Side, after: Side, left: Int64, right: Int64
) -> list[tuple[Fate, Int64, Int64]]:
    """Return the matches of two sets, as places in ``left`` and ``right``."""
    ids = before.column("id", left), after.column("id", right)
    digests = before.column("digest", left), after.column("digest", right)
    mine, theirs = paired(*ids)
    if digests[0].null_count or digests[1].null_count:
        return [(Fate.SAME, mine, theirs)]
    equal = pc.equal(digests[0].take(pa.array(mine)), digests[1].take(pa.array(theirs)))
    same = np.asarray(equal.to_numpy(zero_copy_only=False), bool)
    found = [(Fate.SAME, mine[same], theirs[same])]
    free = np.ones(len(left), bool), np.ones(len(right), bool)
    free[0][mine[same]], free[1][theirs[same]] = False, False
    rest = np.flatnonzero(free[0]), np.flatnonzero(free[1])
    a, b = paired(digests[0].take(pa.array(rest[0])), digests[1].take(pa.array(rest[1])))
    found.append((Fate.RENAMED, rest[0][a], rest[1][b]))
    free[0][rest[0][a]], free[1][rest[1][b]] = False, False
    changed = free[0][mine] & free[1][theirs]
    found.append((Fate.CHANGED, mine[changed], theirs[changed]))
    return found


def paired(left: pa.Array, right: pa.Array) -> tuple[Int64, Int64]:
    """Return places of equal values, each used once; the first with the first.

    >>> paired(pa.array(["a", "b", "b"]), pa.array(["b", "c", "b", "b"]))
    (array([1, 2]), array([0, 2]))
    """
    both = pa.chunked_array([left, right]).dictionary_encode().combine_chunks()
    codes = both.indices.to_numpy().astype(np.int64)
    first, second = _wide(_numbered(codes[: len(left)]), _numbered(codes[len(left) :]))
    _, mine, theirs = np.intersect1d(first, second, assume_unique=True, return_indices=True)
    return mine, theirs


def _numbered(codes: Int64) -> tuple[Int64, Int64]:
    """Return codes, and for each how many equal ones stand before it."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    lengths = np.diff(starts, append=len(codes))
    rank = np.empty(len(codes), np.int64)
    rank[order] = np.arange(len(codes)) - np.repeat(starts, lengths)
    return codes, rank


def _wide(left: tuple[Int64, Int64], right: tuple[Int64, Int64]) -> tuple[Int64, Int64]:
    """Return one number for each code and rank."""
    most = 1 + max((int(rank.max()) for _, rank in (left, right) if len(rank)), default=0)
    return left[0] * most + left[1], right[0] * most + right[1]
