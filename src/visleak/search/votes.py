"""Candidates by voting: which references share patches with a query, in a consistent place.

Every patch of the query looks for alike patches of the references and votes for their pictures
(Sivic & Zisserman, "Video Google", ICCV 2003). Patches are compared by binary codes, as in Hamming
embedding, and votes that do not agree in turn and scale are void, which is weak geometric
consistency (both Jegou, Douze & Schmid, ECCV 2008). The few pictures left are checked for a common
place too: the score is the largest weight of matches that one turn, scale and shift explains, so
that unrelated pictures get next to no votes.

The codes are signs of projections with fixed small integers. Such sums are exact in ``float32``,
so no block size, linear algebra library or number of threads ever changes a code; all weights
are integers, so neither they nor the order of references change a score.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from visleak.errors import VisleakError
from visleak.records import Bytes8, Float32, Int8, Int64

#: A candidate's least score: on photographs, a query has fewer than two wrong ones (benchmarks).
LEAST_SCORE: Final = 4.0

#: Text that changes whenever any score could change.
DIGEST: Final = "votes-1"

_BITS: Final = 128
_TABLES: Final = 6
_WORD: Final = 21  # bits of a table's word; six words use 126 of the 128 bits, each once
_HAMMING: Final = 24  # bits by which the codes of two alike patches may differ
_CROWD: Final = 4096  # a word that is more frequent than this tells nothing and is dropped
_CHECKED: Final = 64  # pictures a query whose matches are checked for a common place
_COMMON: Final = 20  # a patch found in more pictures than this weighs less
_UNIT: Final = 64  # integer weight of a patch that is not common

Words = npt.NDArray[np.uint32]
Codes = npt.NDArray[np.uint64]
Complex = npt.NDArray[np.complex128]


@dataclass(frozen=True)
class FeatureRows:
    """The local features of many pictures, one after another; may be memory-mapped.

    Attributes:
        descriptors: ``uint8`` (n, 128).
        keypoints: ``float32`` (n, 4): x, y, scale (pixels), angle (degrees clockwise from x).
        starts: ``int64`` (pictures + 1,): picture ``p`` has the rows ``starts[p]:starts[p + 1]``.
    """

    descriptors: Bytes8
    keypoints: Float32
    starts: Int64

    def __post_init__(self) -> None:
        n = len(self.descriptors)
        if self.descriptors.shape != (n, 128) or self.descriptors.dtype != np.uint8:
            raise ValueError(f"descriptors must be uint8 (n, 128), got {self.descriptors.shape}")
        if self.keypoints.shape != (n, 4):
            raise ValueError(f"keypoints must be ({n}, 4), got {self.keypoints.shape}")
        ends = (self.starts[0], self.starts[-1]) if len(self.starts) else (None, None)
        if ends != (0, n) or (np.diff(self.starts) < 0).any():
            raise ValueError(f"starts must ascend from 0 to {n}")

    def __len__(self) -> int:
        """Return the number of pictures."""
        return len(self.starts) - 1


@dataclass(frozen=True)
class Votes:
    """Candidates, ordered by query, then by score (highest first), then by reference.

    Attributes:
        query, reference: ``int64`` (n,): positions of the pictures in their :class:`FeatureRows`.
        score: ``float32`` (n,): about the number of patches the two pictures share in one place.
        view: ``int8`` (n,): index into :data:`visleak.records.VIEWS`: the view of the query that
            scored best.
    """

    query: Int64
    reference: Int64
    score: Float32
    view: Int8

    def __len__(self) -> int:
        return len(self.query)


class LocalIndex:
    """Finds the references that share patches with a query.

    Holds 16 bytes of code, 4 bytes for the picture and 24 bytes of tables a feature (44 bytes, or
    11 kB for a picture of 250) and 50 MB besides; descriptors are read once, in blocks, keypoints
    only where a patch matched, so that both may be memory-mapped.

    Args:
        references: features of the references, in the caller's order.
        block: features whose codes are computed at once.
    """

    def __init__(self, references: FeatureRows, *, block: int = 1 << 16) -> None:
        count = len(references.descriptors)
        if count >= 1 << 31:
            raise VisleakError(f"{count:,} local features are more than an index holds (2^31)")
        self._starts = references.starts
        self._keypoints = references.keypoints
        self._owner = np.repeat(
            np.arange(len(references), dtype=np.int32), np.diff(references.starts)
        )
        self._codes = np.empty((count, _BITS // 64), np.uint64)
        words = np.empty((_TABLES, count), np.uint32)
        for start in range(0, count, block):
            rows = slice(start, start + block)
            self._codes[rows], words[:, rows] = binary_codes(references.descriptors[rows])
        self._tables = [_table(column) for column in words]

    def search(
        self,
        views: Mapping[int, FeatureRows],
        *,
        best: int = 20,
        least: float = LEAST_SCORE,
        workers: int = 1,
    ) -> Votes:
        """Return each query's best references.

        Where queries and references are one set, each query also finds itself.

        Args:
            views: features of the same queries, seen in several views: an index into
                :data:`visleak.records.VIEWS` to the features. Turns need no view.
            best: the most candidates a query.
            least: the least score of a candidate.
            workers: threads; never changes the result.
        """
        lengths = {len(queries) for queries in views.values()}
        if len(lengths) != 1:
            raise ValueError(f"views must be of the same queries, got {sorted(lengths)} pictures")

        def one(query: int) -> Votes:
            return _merged(
                query,
                {view: self._scores(queries, query) for view, queries in sorted(views.items())},
                best=best,
                least=least,
            )

        with ThreadPoolExecutor(workers) as pool:
            found = list(pool.map(one, range(lengths.pop())))
        columns = [
            np.concatenate([getattr(votes, name) for votes in [_NOTHING, *found]])
            for name in ("query", "reference", "score", "view")
        ]
        return Votes(*columns)

    def _scores(self, queries: FeatureRows, query: int) -> tuple[Int64, Int64]:
        """Return references, ascending, and integer scores of one query in one view."""
        rows = slice(queries.starts[query], queries.starts[query + 1])
        nothing = np.empty(0, np.int64), np.empty(0, np.int64)
        patches, matched = self._matches(queries.descriptors[rows])
        if not len(patches):
            return nothing
        pictures = self._owner[matched].astype(np.int64)
        weights = _rarity(patches, pictures)
        mine = np.asarray(queries.keypoints[rows])[patches]
        theirs = np.asarray(self._keypoints[matched])
        turn = np.deg2rad(theirs[:, 3].astype(np.float64) - mine[:, 3])
        zoom = np.log2(theirs[:, 2].astype(np.float64) / mine[:, 2])
        chosen = _consistent(pictures, turn, zoom, weights)
        move = np.exp2(zoom) * np.exp(1j * turn)
        here = mine[:, 0] + 1j * mine[:, 1].astype(np.float64)
        there = theirs[:, 0] + 1j * theirs[:, 1].astype(np.float64)
        scores = []
        order = np.argsort(pictures, kind="stable")
        lows = np.searchsorted(pictures, chosen, sorter=order)
        highs = np.searchsorted(pictures, chosen, side="right", sorter=order)
        for low, high in zip(lows, highs, strict=True):
            of = order[low:high]
            scores.append(_placed(here[of], there[of], move[of], weights[of], matched[of]))
        return chosen, np.array(scores, np.int64).reshape(-1)

    def _matches(self, descriptors: Bytes8) -> tuple[Int64, Int64]:
        """Return pairs of alike patches: row of the query's, row of the references'.

        A patch of the query has at most one match in a picture, and a patch of a reference at
        most one in the query: the nearest, then the first. Repeated texture would vote often.
        """
        codes, words = binary_codes(np.asarray(descriptors))
        keys = []
        for table, column in zip(self._tables, words, strict=True):
            patches, matched = table.lookup(column)
            distance = _distance(codes[patches], np.take(self._codes, matched, axis=0))
            near = distance <= _HAMMING
            keys.append(np.stack([patches[near], matched[near], distance[near]]))
        patches, matched, distance = np.concatenate(keys, axis=1)
        first = _first(matched, distance, patches)
        patches, matched, distance = patches[first], matched[first], distance[first]
        first = _first(self._owner[matched] * np.int64(len(codes)) + patches, distance, matched)
        first = first[np.lexsort((matched[first], patches[first]))]
        return patches[first], matched[first]


_NOTHING: Final = Votes(
    np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32), np.empty(0, np.int8)
)


@dataclass(frozen=True)
class _Table:
    """The features ordered by word: those of word ``w`` are ``rows[starts[w]:starts[w + 1]]``."""

    rows: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int32]

    def lookup(self, words: Words) -> tuple[Int64, Int64]:
        """Return all pairs of a position in ``words`` and a feature with the same word."""
        low = self.starts[words].astype(np.int64)
        size = self.starts[words + 1] - low
        size[size > _CROWD] = 0
        position = np.repeat(np.arange(len(words)), size)
        offset = np.arange(len(position)) - np.repeat(np.cumsum(size) - size, size)
        return position, self.rows[low[position] + offset].astype(np.int64)


def _table(words: Words) -> _Table:
    rows = np.argsort(words, kind="stable").astype(np.int32)
    counts = np.bincount(words, minlength=1 << _WORD)
    return _Table(rows, np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))


def _mean_descriptor() -> Int64:
    """Return the descriptor that the codes are centred on: the mean of photographs, symmetrised.

    It is symmetric under mirroring and inversion, so a quarter of the cells (rows, columns) and
    five of the eight directions (0 to 180 degrees) say all.
    """
    quarter = np.array(
        [
            [[36, 27, 23, 25, 31], [63, 40, 26, 25, 30]],
            [[45, 30, 25, 30, 38], [83, 48, 29, 32, 39]],
        ]
    )
    directions = quarter[:, :, [0, 1, 2, 3, 4, 3, 2, 1]]
    return directions[[0, 1, 1, 0]][:, [0, 1, 1, 0]].reshape(-1)


def _projections() -> Float32:
    """Return the (128, 128) integer projections: bytes of a hash, the same for ever.

    128 products of at most 255 times 128 stay below 2^24: every partial sum is exact.
    """
    stream = hashlib.shake_256(b"visleak local codes").digest(128 * _BITS)
    return np.frombuffer(stream, np.int8).reshape(128, _BITS).astype(np.float32)


_PROJECTIONS: Final = _projections()
_CENTRE: Final = _mean_descriptor() @ _PROJECTIONS
_POWERS: Final = (1 << np.arange(_WORD)).astype(np.float32)


def binary_codes(descriptors: Bytes8) -> tuple[Codes, Words]:
    """Return codes ``uint64`` (n, 2) and words ``uint32`` (6, n) of descriptors (n, 128).

    Alike descriptors have codes that differ in few bits, and often share one of the six words.

    >>> codes, words = binary_codes(np.zeros((1, 128), np.uint8))
    >>> codes.shape, words.shape
    ((1, 2), (6, 1))
    """
    bits = descriptors.astype(np.float32) @ _PROJECTIONS > _CENTRE
    codes = np.packbits(bits, axis=1).view(np.uint64)
    parts = bits[:, : _TABLES * _WORD].reshape(-1, _TABLES, _WORD)
    return codes, (parts @ _POWERS).astype(np.uint32).T


_BYTE_COUNTS: Final = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1)


def _distance(first: Codes, second: Codes) -> Int64:
    """Return in how many bits the codes, both (n, 2), differ."""
    changed = first ^ second
    if hasattr(np, "bitwise_count"):
        return np.bitwise_count(changed).sum(axis=1, dtype=np.int64)
    return _BYTE_COUNTS[changed.view(np.uint8)].sum(axis=1, dtype=np.int64)


def _first(group: Int64, *keys: Int64) -> Int64:
    """Return the position of the smallest entry of each group, by the keys in order."""
    order = np.lexsort((*reversed(keys), group))
    ordered = group[order]
    return order[np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]][: len(order)])]


def _rarity(patches: Int64, pictures: Int64) -> Int64:
    """Return an integer weight a match: a patch that is found in many pictures says less.

    ``_UNIT`` up to ``_COMMON`` pictures, then falling with the square root of their number
    (Jegou, Douze & Schmid, "On the burstiness of visual elements", CVPR 2009).
    """
    spread = np.bincount(patches)[patches]
    return np.rint(_UNIT * np.sqrt(_COMMON / np.maximum(spread, _COMMON))).astype(np.int64)


def _consistent(
    pictures: Int64, turn: npt.NDArray[np.float64], zoom: npt.NDArray[np.float64], weights: Int64
) -> Int64:
    """Return the pictures, ascending, with the most weight in one window of turn and scale.

    Windows are 45 degrees by one octave, and overlap by half, so that no group is cut in two.
    """
    turns = 16
    a = np.floor(turn / (2 * np.pi) * turns).astype(np.int64) % turns
    s = np.clip(np.floor(zoom / 0.5), -15, 15).astype(np.int64) + 16
    keys = np.concatenate(
        [
            (pictures * turns + (a + da) % turns) * 64 + s + ds
            for da in (0, 1)
            for ds in (0, 1)
        ]
    )
    windows, where = np.unique(keys, return_inverse=True)
    totals = np.bincount(where, np.tile(weights, 4)).astype(np.int64)
    owners = windows // (64 * turns)
    top = _first(owners, -totals)
    owners, totals = owners[top], totals[top]
    enough = totals > 2 * _UNIT
    owners, totals = owners[enough], totals[enough]
    return np.sort(owners[np.lexsort((owners, -totals))[:_CHECKED]])


def _placed(here: Complex, there: Complex, move: Complex, weights: Int64, matched: Int64) -> int:
    """Return the largest weight of matches that agree with one of them on turn, scale and shift.

    Points are complex numbers, ``move`` is scale and turn as one. Turns may differ by 30 degrees
    and scales by 1.6, as under a change of aspect; a point may lie off by 6 pixels and a fifth of
    the way from the match that foretells it.
    """
    way = there[None, :] - there[:, None]
    error = np.abs(way - move[:, None] * (here[None, :] - here[:, None]))
    ratio = move[None, :] / move[:, None]
    agree = error <= 6 + 0.2 * np.abs(way)
    agree &= np.abs(np.angle(ratio)) <= np.deg2rad(30)
    agree &= np.abs(np.log(np.abs(ratio))) <= np.log(1.6)
    return int((agree @ weights).max())


def _merged(
    query: int, scores: Mapping[int, tuple[Int64, Int64]], *, best: int, least: float
) -> Votes:
    """Return the candidates of one query: of each reference the view that scored best."""
    reference = np.concatenate([chosen for chosen, _ in scores.values()])
    score = np.concatenate([score for _, score in scores.values()])
    view = np.repeat(list(scores), [len(chosen) for chosen, _ in scores.values()])
    enough = score >= least * _UNIT
    reference, score, view = reference[enough], score[enough], view[enough]
    top = _first(reference, -score, view)
    top = top[np.lexsort((reference[top], -score[top]))[:best]]
    return Votes(
        np.full(len(top), query, np.int64),
        reference[top],
        (score[top] / _UNIT).astype(np.float32),
        view[top].astype(np.int8),
    )
