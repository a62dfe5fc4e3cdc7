"""Evidence on pairs: the table that verification fills in, and its entries in the cache.

A row has the screen and the placement it found, the checks, and the geometric relation. Evidence
belongs to contents, so pairs of equal contents share a row.
"""

from __future__ import annotations

import hashlib
import itertools
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from visleak.images import DECODING
from visleak.pipeline.context import RunContext, trim_heap
from visleak.pipeline.encoded_set import EncodedSet, numbered_contents
from visleak.pipeline.fingerprints import TINIEST
from visleak.pipeline.selection import CONNECTED, Clusters
from visleak.records import Bool, Evidence, Float32, Int8, Int32, Int64, Pairs
from visleak.storage.cache import Cache
from visleak.vectors import forget, parts_of
from visleak.verification import check
from visleak.verification.measures import CHECKS, NO_OVERLAP

#: Pairs looked up in the cache, or stored there, at a time; rows of evidence held in memory; and
#: queries whose screens are looked up at a time. They only bound memory.
KNOWN_CHUNK: Final = 16_384
MEMORY_ROWS: Final = 16_384
SCREEN_CHUNK: Final = 1024
#: Columns of the table; the nine values of the relation follow.
COLUMNS: Final = ("screen", "across", "down", "wider", "higher", *CHECKS)
SCREEN: Final = slice(0, 5)
CHECK: Final = slice(5, len(COLUMNS))
RELATION: Final = slice(len(COLUMNS), len(COLUMNS) + 9)
#: The columns of a full check, which are cached together.
CHECKED: Final = slice(CHECK.start, RELATION.stop)
#: Their values where nothing was found, which are not stored in the cache.
_USUAL: Final = np.array([*astuple(NO_OVERLAP), *np.eye(3).ravel()], "<f4")
#: Bytes of a key, ways in which a pair is checked, and the prefix of the makers of screens.
_KEY: Final = 33
_WAYS: Final = 32
_SCREENS: Final = b"screens "


class EvidenceTable:
    """The evidence on some pairs: the screens of all, and the checks of those that were checked.

    Few candidates are checked, and a check has many columns: they are stored one after the other.
    The rows of many pairs are in a scratch file, whose memory is released after each use.
    """

    def __init__(self, count: int, context: RunContext) -> None:
        shapes = (count, SCREEN.stop), (count, CHECKED.stop - CHECKED.start)
        self._screens, self._checks = (self._rows(shape, context) for shape in shapes)
        for part in parts_of(count, MEMORY_ROWS):
            self._screens[part] = np.nan
            forget(self._screens)
        self._place = np.full(count, -1, np.int32)
        self._count = 0

    @staticmethod
    def _rows(shape: tuple[int, int], context: RunContext) -> Float32:
        if shape[0] <= MEMORY_ROWS:
            return np.empty(shape, np.float32)
        return np.memmap(context.file(".evidence"), np.float32, mode="w+", shape=shape)

    def rows(self, index: Int64 | Int32) -> Float32:
        """Return all columns of some pairs, NaN where nothing is known."""
        table = np.full((len(index), RELATION.stop), np.nan, np.float32)
        table[:, SCREEN] = self._screens[index]
        checked = np.flatnonzero(self.checked(index))
        table[checked, CHECKED] = self._checks[self._place[index[checked]]]
        self.forget()
        return table

    def checked(self, index: Int64 | Int32) -> Bool:
        """Return which of some pairs were checked."""
        return np.asarray(self._place[index] >= 0)

    def unscreened(self, index: Int64) -> Bool:
        """Return which of some pairs were not screened."""
        missing = np.empty(len(index), np.bool_)
        for part in parts_of(len(index), MEMORY_ROWS):
            missing[part] = np.isnan(self._screens[index[part], 0])
        self.forget()
        return missing

    def screens(self, index: Int64) -> Float32:
        """Return the columns of the screen of some pairs."""
        return self._screens[index]

    def put_screens(self, index: Int64, screens: Float32) -> None:
        """Store the columns of the screen of some pairs."""
        self._screens[index] = screens
        forget(self._screens)

    def put_checks(self, index: Int64, checks: Float32) -> None:
        """Store the columns of a full check of some pairs."""
        new = index[~self.checked(index)]
        self._place[new] = np.arange(self._count, self._count + len(new))
        self._count += len(new)
        self._checks[self._place[index]] = checks

    def forget(self) -> None:
        """Release the memory of scratch files."""
        forget(self._screens)
        forget(self._checks)


@dataclass(frozen=True, slots=True)
class DistinctPairs:
    """The distinct pairs of contents of one comparison, and the evidence on them."""

    pairs: Pairs  # one pair per pair of contents, the first of it in the order of pairs
    sides: tuple[EncodedSet, EncodedSet]  # the sets of query and reference
    numbers: tuple[Int64, Int64]  # int64: number of the content of each fingerprint of either side
    of: Int32  # int32 (n,): the distinct pair of each pair of the comparison
    table: EvidenceTable  # of the distinct pairs
    equal: Bool  # pairs of equal bytes, which need no check
    tried: Bool  # pairs of clusters that were verified
    near: Bool  # and those of them that are near or exact
    connected: Bool  # pairs whose images are connected by near pairs of clusters

    @classmethod
    def of_pairs(
        cls,
        pairs: Pairs,
        sets: Mapping[str, EncodedSet],
        context: RunContext,
        clusters: Clusters | None = None,
    ) -> DistinctPairs:
        """Return the distinct pairs of a comparison with the evidence that is known already."""
        sides = sets[pairs.query_set], sets[pairs.reference_set]
        own, others = numbered_contents(*sides)
        distinct, of = _distinct(pairs, own, others)
        trim_heap()
        table = _known(distinct, sides, context)
        equal = own[distinct.query] == others[distinct.reference]
        tried, near, connected = np.zeros((3, len(distinct)), np.bool_)
        if clusters is not None and len(clusters.keys):
            keys = keys_of(distinct, np.arange(len(distinct)), sides, by_way=False)
            at, tried = clusters.find(keys)
            near = tried & clusters.near[at]
            if pairs.votes is not None:
                # clusters are verified without local features: pairs that share some, once more
                tried &= near | ~uses_features(distinct, slice(None))
            index, rows = np.flatnonzero(tried), clusters.table[at[tried]]
            table.put_screens(index, rows[:, SCREEN])
            checked = ~np.isnan(rows[:, COLUMNS.index("side")])
            table.put_checks(index[checked], rows[checked, CHECKED])
            one = clusters.group_of(sides[0].contents)[distinct.query]
            other = clusters.group_of(sides[1].contents)[distinct.reference]
            connected = (one == other) & (one >= 0)
        return cls(distinct, sides, (own, others), of, table, equal, tried, near, connected)


def _distinct(pairs: Pairs, own: Int64, others: Int64) -> tuple[Pairs, Int32]:
    """Return one pair per pair of contents and way, the first of it, and that of each pair."""
    code = own[pairs.query]
    code *= own.max(initial=0) + others.max(initial=0) + 1
    code += others[pairs.reference]
    code *= _WAYS
    code += _ways(pairs, slice(None))
    order = np.argsort(code, kind="stable")
    new = np.diff(code[order], prepend=-1) != 0
    del code
    if new.all():
        # the usual case, in which nothing has to be copied
        return pairs, np.arange(len(pairs), dtype=np.int32)
    first = order[new]
    # in the order of pairs, which decides ties
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    of = np.empty(len(pairs), np.int32)
    of[order] = rank[np.cumsum(new) - 1]
    distinct = pairs.only(np.sort(first))
    if pairs.votes is not None:
        votes = np.zeros(len(first), np.float32)
        np.maximum.at(votes, of, pairs.votes)
        distinct = replace(distinct, votes=votes)
    return distinct, of


@dataclass(frozen=True, slots=True)
class VerifiedPairs:
    """The evidence on all pairs of one comparison."""

    distinct: DistinctPairs
    skipped: Int8 | None  # int8, of the distinct pairs, as in Evidence, or None

    @property
    def skipped_pairs(self) -> Int8 | None:
        """Which pairs were not verified, as in Evidence; ``None`` where none could be skipped."""
        return None if self.skipped is None else self.skipped[self.distinct.of]

    def evidence(self, part: slice = slice(None)) -> Evidence:
        """Return the evidence on some pairs; skipped ones have the screen's."""
        rows = self.distinct.of[part]
        table = self.distinct.table.rows(rows)
        if self.skipped is None:
            return as_evidence(table)
        skipped = self.skipped[rows]
        table[skipped > 0, CHECKED] = np.nan
        # of a cluster not all pairs were screened
        table[skipped == CONNECTED] = np.nan
        return as_evidence(table, skipped)


def as_evidence(table: Float32, skipped: Int8 | None = None) -> Evidence:
    """Return rows of the table as evidence."""
    columns = {name: table[:, place] for place, name in enumerate(COLUMNS)}
    return Evidence(columns, table[:, RELATION], skipped)


@dataclass(frozen=True, slots=True)
class Subset:
    """Some of the distinct pairs of one comparison."""

    own: DistinctPairs  # all of them
    index: Int64  # int64 (n,): positions of some, ascending

    def __len__(self) -> int:
        return len(self.index)

    def only(self, keep: Bool | slice) -> Subset:
        """Return some of the pairs."""
        if isinstance(keep, np.ndarray) and keep.all():
            # the usual case of millions, whose positions are not copied
            return self
        return Subset(self.own, self.index[keep])

    def parts(self) -> Iterator[tuple[slice, Subset]]:
        """Yield slices of the pairs, and the pairs in them: columns of all would fill memory."""
        for part in parts_of(len(self), MEMORY_ROWS):
            yield part, self.only(part)

    @property
    def sides(self) -> tuple[EncodedSet, EncodedSet]:
        """The sets of query and reference."""
        return self.own.sides

    @property
    def query(self) -> Int64:
        """Rows of the query's fingerprints."""
        return self.own.pairs.query[self.index]

    @property
    def reference(self) -> Int64:
        """Rows of the reference's fingerprints."""
        return self.own.pairs.reference[self.index]

    @property
    def table(self) -> Float32:
        """A copy of the evidence."""
        return self.own.table.rows(self.index)

    @property
    def votes(self) -> Float32:
        """Local features in agreement, 0 where none were compared."""
        votes = self.own.pairs.votes
        return np.zeros(len(self), np.float32) if votes is None else votes[self.index]

    @property
    def agreement(self) -> Float32:
        """How well each pair agrees in its check; NaN where no fine comparison is needed."""
        (found,) = self._columns("alignment")
        return np.where(found < 0, np.float32(np.nan), found)

    @property
    def open(self) -> Bool:
        """Checked pairs that resemble each other and were not compared in fine detail yet."""
        alignment, closer = self._columns("alignment", "close_side")
        return np.asarray((alignment >= 0) & (closer < 0))

    def _columns(self, *names: str) -> Float32:
        """Return some columns of the evidence, (columns, n); the others are read in parts."""
        places = [COLUMNS.index(name) for name in names]
        found = np.empty((len(names), len(self)), np.float32)
        for part, some in self.parts():
            found[:, part] = some.table[:, places].T
        return found

    @property
    def sizes(self) -> tuple[Int32, Int32]:
        """Width and height of either image, each (n, 2)."""
        left, right = (side.fingerprints.sizes for side in self.own.sides)
        return left[self.query], right[self.reference]

    @property
    def longest(self) -> tuple[Int32, Int32]:
        """The long side of either image, each (n,)."""
        left, right = (side.fingerprints.sizes.max(axis=1, initial=0) for side in self.own.sides)
        return left[self.query], right[self.reference]

    @property
    def flat(self) -> Bool:
        """Pairs of blank images."""
        return self.own.sides[0].fingerprints.flat[self.query]

    def cache_keys(self) -> npt.NDArray[np.void]:
        """Return the cache keys of the pairs, see :func:`keys_of`."""
        return keys_of(self.own.pairs, self.index, self.own.sides)


# -- keys ----------------------------------------------------------------------------------------


def keys_of(
    pairs: Pairs, index: Int64, sides: tuple[EncodedSet, EncodedSet], *, by_way: bool = True
) -> npt.NDArray[np.void]:
    """Return keys of pairs: two content digests and the view; ``by_way``: and use of features."""
    left = sides[0].fingerprints.digests[pairs.query[index]]
    right = sides[1].fingerprints.digests[pairs.reference[index]]
    way = _ways(pairs, index) if by_way else pairs.view[index]
    view = way.astype(np.uint8)[:, None]
    return np.ascontiguousarray(np.concatenate([left, right, view], axis=1)).view("V33").ravel()


def _ways(pairs: Pairs, index: Int64 | slice) -> Int8:
    """Return how pairs are checked: the view, and whether local features are used."""
    return np.asarray(pairs.view[index] + _WAYS // 2 * uses_features(pairs, index), np.int8)


def uses_features(pairs: Pairs, index: Int64 | slice) -> Bool:
    """Return the pairs to be aligned by local features.

    If local features were compared to find candidates, only pairs with votes share any.
    """
    if pairs.votes is None:
        return np.ones(len(pairs.view[index]), np.bool_)
    return np.asarray(pairs.votes[index] > 0)


# -- full checks in the cache --------------------------------------------------------------------


def _maker() -> bytes:
    usual = hashlib.blake2b(_USUAL.tobytes(), digest_size=4).digest()
    return check.digest() + bytes([DECODING]) + usual


def _known(
    pairs: Pairs, sides: tuple[EncodedSet, EncodedSet], context: RunContext
) -> EvidenceTable:
    """Return a table with the evidence that the cache has."""
    table = EvidenceTable(len(pairs), context)
    if context.cache is None:
        return table
    every = np.arange(len(pairs))
    for part in parts_of(len(pairs), KNOWN_CHUNK):
        index = every[part]
        names = [key.tobytes() for key in keys_of(pairs, index, sides)]
        found = context.cache.get(_maker(), names)
        known = [row for row, name in enumerate(names) if name in found]
        if known:
            checks = np.stack([unpacked(found[names[row]], _USUAL) for row in known])
            table.put_checks(index[known], checks)
    table.forget()
    return table


def remember(rows: Subset, cache: Cache | None) -> None:
    """Store the full checks of pairs in the cache."""
    if cache is None:
        return
    for part in parts_of(len(rows), KNOWN_CHUNK):
        some = rows.only(part)
        checks = packed(some.table[:, CHECKED], _USUAL)
        cache.put(_maker(), zip((key.tobytes() for key in some.cache_keys()), checks, strict=True))


def packed(rows: Float32, usual: Float32) -> Iterator[bytes]:
    """Yield each row (n, columns) as bytes: which values differ from the usual ones, and these.

    >>> [len(entry) for entry in packed(np.ones((1, 9), np.float32), np.ones(9, np.float32))]
    [2]
    """
    rows = np.ascontiguousarray(rows, "<f4")
    # compared as bits: NaN and minus zero are values like any other
    other = rows.view("<u4") != np.asarray(usual, "<f4").view("<u4")
    masks = np.packbits(other, axis=1)
    for mask, own, row in zip(masks, other, rows, strict=True):
        yield mask.tobytes() + row[own].tobytes()


def unpacked(entry: bytes, usual: Float32) -> Float32:
    """Return the row (columns,) of an entry; the usual values are those it was made with."""
    row = np.array(usual, "<f4")
    mask = -(-len(row) // 8)
    other = np.unpackbits(np.frombuffer(entry, np.uint8, mask), count=len(row)).astype(np.bool_)
    row[other] = np.frombuffer(entry, "<f4", offset=mask)
    return np.asarray(row, np.float32)


# -- screens in the cache ------------------------------------------------------------------------


def recall_screens(rows: Subset, cache: Cache | None) -> None:
    """Fill in the screens of pairs from the cache."""
    if cache is None:
        return
    table = rows.own.table
    for entries in _screens(rows):
        found = cache.get(_SCREENS + _maker(), [key for key, _ in entries])
        for key, index in entries:
            if key in found:
                stored = np.frombuffer(zlib.decompress(found[key]), "<f4")
                new = np.isnan(table.screens(index)[:, 0])
                table.put_screens(index[new], stored.reshape(SCREEN.stop, -1).T[new])


def remember_screens(rows: Subset, fresh: Subset, cache: Cache | None) -> None:
    """Store the screens of the queries that have fresh ones in the cache."""
    if cache is None:
        return
    changed = np.zeros(len(rows.own.sides[0].fingerprints), np.bool_)
    changed[fresh.query] = True

    def entry(index: Int64) -> bytes:
        return zlib.compress(rows.own.table.screens(index).T.astype("<f4").tobytes(), 1)

    for entries in _screens(rows.only(changed[rows.query])):
        cache.put(_SCREENS + _maker(), ((key, entry(index)) for key, index in entries))


def _screens(rows: Subset) -> Iterator[list[tuple[bytes, Int64]]]:
    """Yield, in blocks, the pairs of each query, and the key of their screens, which are one entry.

    Screens of the tiniest images are not cached.
    """
    rows = rows.only(rows.longest[0] > TINIEST)
    edges = np.flatnonzero(np.diff(rows.query, prepend=-1, append=-1)).tolist()
    for start in range(0, len(edges) - 1, SCREEN_CHUNK):
        cut = edges[start : start + SCREEN_CHUNK + 1]
        block = rows.only(slice(cut[0], cut[-1]))
        keys = block.cache_keys().view(np.uint8).reshape(-1, _KEY)
        bounds = itertools.pairwise(edge - cut[0] for edge in cut)
        yield [
            (hashlib.blake2b(keys[a:b].tobytes(), digest_size=16).digest(), block.index[a:b])
            for a, b in bounds
        ]
