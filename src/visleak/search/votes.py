"""Candidates by voting: which references share patches with a query, in a consistent place.

Every patch of the query finds similar patches of the references and votes for their images
(Sivic & Zisserman, "Video Google", ICCV 2003). Patches are compared by binary codes, as in Hamming
embedding, and votes that do not agree in turn and scale are void, which is weak geometric
consistency (both Jegou, Douze & Schmid, ECCV 2008). The few images left are checked for a common
place too: the score is the largest weight of matches that one turn, scale and shift explains, so
that unrelated images get next to no votes.

All weights are integers and sums of them exact: no block size, number of threads or order of the
references changes a score. Only references of equal score are ordered by their position.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from visleak.records import Bytes8, Float32, Int8, Int64
from visleak.vectors import parts_of

_BITS: Final = 128
_TABLES: Final = 6
_WORD: Final = 21  # bits of a table's word; six words use 126 of the 128 bits, each once
_CROWD: Final = 256  # a word that is more frequent than this is ignored
_SIMILAR_BITS: Final = 24  # bits by which the codes of two similar patches may differ
Words = npt.NDArray[np.uint32]
Codes = npt.NDArray[np.uint64]


class CodeIndex:
    """Finds features with similar codes.

    Holds 16 bytes of code and 24 bytes of tables per feature, and 50 MB more. Descriptors are
    read once, in blocks, so that they may be memory-mapped.
    """

    def __init__(self, descriptors: Bytes8, *, block: int = 1 << 16) -> None:
        count = len(descriptors)
        self._codes = np.empty((count, _BITS // 64), np.uint64)
        words = [np.empty(count, np.uint32) for _ in range(_TABLES)]
        for rows in parts_of(count, block):
            self._codes[rows], found = binary_codes(descriptors[rows])
            for column, part in zip(words, found, strict=True):
                column[rows] = part
        # One at a time, each list of words freed once its table is made.
        self._tables = [_table(words.pop()) for _ in range(_TABLES)][::-1]

    @property
    def nbytes(self) -> int:
        """Bytes held in memory."""
        tables = sum(table.rows.nbytes + table.starts.nbytes for table in self._tables)
        return self._codes.nbytes + tables

    def similar(self, descriptors: Bytes8) -> tuple[Int64, Int64, Int64]:
        """Return pairs of similar features: row in ``descriptors``, row here, differing bits.

        A pair may occur more than once. Most similar pairs are found, not all.
        """
        values = _projected(descriptors)
        codes = _packed(values)
        found = [np.empty((3, 0), np.int64)]
        for table, words in zip(self._tables, _probes(values), strict=True):
            mine, theirs = table.lookup(words.reshape(-1))
            mine %= len(codes)  # the words are four probes of all descriptors
            bits = _distance(codes[mine], np.take(self._codes, theirs, axis=0))
            near = bits <= _SIMILAR_BITS
            found.append(np.stack([mine[near], theirs[near], bits[near]]))
        mine, theirs, bits = np.concatenate(found, axis=1)
        return mine, theirs, bits


@dataclass(frozen=True)
class _Table:
    """The features ordered by word: those of word ``w`` are ``rows[starts[w]:starts[w + 1]]``."""

    rows: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int32]

    def lookup(self, words: Words) -> tuple[Int64, Int64]:
        """Return all pairs of a position in ``words`` and a feature with the same word."""
        low = self.starts[words].astype(np.int64)
        size = self.starts[words + np.uint32(1)] - low
        size[size > _CROWD] = 0
        position = np.repeat(np.arange(len(words)), size)
        offset = np.arange(len(position)) - np.repeat(np.cumsum(size) - size, size)
        return position, self.rows[low[position] + offset].astype(np.int64)


def _table(words: Words) -> _Table:
    rows = np.argsort(words, kind="stable").astype(np.int32)
    ordered = words[rows]
    new = np.ones(len(rows), np.bool_)
    new[1:] = ordered[1:] != ordered[:-1]
    first = np.flatnonzero(new)
    # all words from the one before to this one start at its first feature
    ends = np.append(ordered[first].astype(np.int64), 1 << _WORD) + 1
    starts = np.append(first, len(rows)).astype(np.int32)
    return _Table(rows, np.repeat(starts, np.diff(ends, prepend=0)))


def binary_codes(descriptors: Bytes8) -> tuple[Codes, Words]:
    """Return codes ``uint64`` (n, 2) and words ``uint32`` (6, n) of descriptors (n, 128).

    Similar descriptors have codes that differ in few bits, and often share one of the six words.

    >>> codes, words = binary_codes(np.zeros((1, 128), np.uint8))
    >>> codes.shape, words.shape
    ((1, 2), (6, 1))
    """
    values = _projected(descriptors)
    return _packed(values), _words(values)


def _mean_descriptor() -> Int64:
    """Return the descriptor that the codes are centred on: the mean of photographs, symmetrised."""
    # of symmetric ones a quarter of the cells and five of the eight directions (to 180°) suffice
    quarter = np.array(
        [[[36, 27, 23, 25, 31], [63, 40, 26, 25, 30]], [[45, 30, 25, 30, 38], [83, 48, 29, 32, 39]]]
    )
    directions = quarter[:, :, [0, 1, 2, 3, 4, 3, 2, 1]]
    return directions[[0, 1, 1, 0]][:, [0, 1, 1, 0]].reshape(-1)


def _projections() -> Float32:
    """Return the (128, 128) integer projections: bytes of a hash, whose sums stay below 2^24."""
    stream = hashlib.shake_256(b"visleak local codes").digest(128 * _BITS)
    return np.frombuffer(stream, np.int8).reshape(128, _BITS).astype(np.float32)


_PROJECTIONS: Final = _projections()
_CENTRE: Final = _mean_descriptor().astype(np.float32) @ _PROJECTIONS
_POWERS: Final = (1 << np.arange(_WORD)).astype(np.float32)


def _projected(descriptors: Bytes8) -> Float32:
    """Return the (n, 128) projections of the centred descriptors; integers, exact."""
    return np.asarray(descriptors, np.float32) @ _PROJECTIONS - _CENTRE


def _packed(values: Float32) -> Codes:
    """Return the codes (n, 2) that the signs of projections (n, 128) spell."""
    return np.packbits(values > 0, axis=1).view(np.uint64)


def _words(values: Float32) -> Words:
    """Return the words (6, n) that the signs of projections (n, 128) spell."""
    signs = values[:, : _TABLES * _WORD].reshape(-1, _TABLES, _WORD) > 0
    return np.asarray(signs @ _POWERS, np.uint32).T


def _probes(values: Float32) -> Words:
    """Return, for projections (n, 128), the words (6, 4, n) to look up.

    The word itself, and those with one or both of the two signs turned over that are least sure
    (Lv et al., "Multi-probe LSH", VLDB 2007).
    """
    parts = values[:, : _TABLES * _WORD].reshape(-1, _TABLES, _WORD)
    unsure = np.argsort(np.abs(parts), axis=2, kind="stable")[:, :, :2]
    one, two = (np.uint32(1) << unsure.astype(np.uint32)).transpose(2, 1, 0)
    word = _words(values)
    return np.stack([word, word ^ one, word ^ two, word ^ one ^ two], axis=1)


_BYTE_COUNTS: Final = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1)


def _distance(first: Codes, second: Codes) -> Int64:
    """Return in how many bits the codes, both (n, 2), differ."""
    changed = first ^ second
    numpy_2 = hasattr(np, "bitwise_count")
    bits = np.bitwise_count(changed) if numpy_2 else _BYTE_COUNTS[changed.view(np.uint8)]
    return np.asarray(bits.sum(axis=1, dtype=np.int64))


#: A candidate's least score. Among 500 photographs a query has 0.02 wrong ones above it, and 0.2
#: above 3 (benchmarks/local_features.py); more references bring more.
LEAST_SCORE: Final = 4.0
DIGEST: Final = "votes-2"  # text that changes whenever any score could change
# images per query (and ties) whose matches are checked for a common place, at least
_CHECKED: Final = 64
_COMMON: Final = 20  # a patch found in more images than this weighs less
_UNIT: Final = 64  # integer weight of a patch that is not common
Float64 = npt.NDArray[np.float64]
Complex = npt.NDArray[np.complex128]


@dataclass(frozen=True)
class FeatureRows:
    """The local features of many images, one after another; may be memory-mapped."""

    descriptors: Bytes8  # uint8 (n, 128)
    keypoints: Float32  # float32 (n, 4): x, y, scale (pixels), angle (degrees clockwise from x)
    starts: Int64  # int64 (images + 1,): image p has the rows starts[p]:starts[p + 1]

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.starts) - 1


@dataclass(frozen=True)
class Votes:
    """Candidates, ordered by query, then by score (highest first), then by reference."""

    query: Int64  # int64 (n,): positions of the images in their FeatureRows
    reference: Int64
    score: Float32  # float32 (n,): about the number of patches the two images share in one place
    # int8 (n,): index into VIEWS: the view of the query that scored best
    view: Int8

    def __len__(self) -> int:
        return len(self.query)

    def only(self, rows: Int64) -> Votes:
        """Return the candidates at some positions, in that order."""
        return Votes(self.query[rows], self.reference[rows], self.score[rows], self.view[rows])

    @classmethod
    def joined(cls, parts: Sequence[Votes]) -> Votes:
        """Return the candidates of all parts, one part after the other."""
        names = ("query", "reference", "score", "view")
        return cls(*(np.concatenate([getattr(each, name) for each in parts]) for name in names))


class LocalIndex:
    """Finds the references that share patches with a query.

    Holds 44 bytes per feature (11 kB for an image of 250) and 50 MB more. Descriptors are read
    once, in blocks, keypoints only where a patch matched, so that both may be memory-mapped.
    """

    def __init__(self, references: FeatureRows, *, block: int = 1 << 16) -> None:
        self._codes = CodeIndex(references.descriptors, block=block)
        self._keypoints = references.keypoints
        positions = np.arange(len(references), dtype=np.int32)
        self._owner = np.repeat(positions, np.diff(references.starts))

    @property
    def nbytes(self) -> int:
        """Bytes held in memory."""
        return self._codes.nbytes + self._owner.nbytes

    def search(
        self,
        views: Mapping[int, FeatureRows],
        *,
        best: int = 20,
        least: float = LEAST_SCORE,
        workers: int = 1,
    ) -> Votes:
        """Return each query's best references, in ``views`` of the queries, 0 among them.

        Within one set the query itself is one of them.
        """

        def one(query: int) -> Votes:
            scores = {
                view: self._scores(queries, query, max(best, _CHECKED))
                for view, queries in sorted(views.items())
            }
            return _merged(query, scores, best=best, least=least)

        # Threads of the linear algebra library would only wait for those of the pool.
        with threadpool_limits(1, "blas"), ThreadPoolExecutor(workers) as pool:
            found = list(pool.map(one, range(len(views[0]))))
        return Votes.joined([_NOTHING, *found])

    def _scores(self, queries: FeatureRows, query: int, most: int) -> tuple[Int64, Int64]:
        """Return about ``most`` references, ascending, and scores of one query in one view."""
        rows = slice(queries.starts[query], queries.starts[query + 1])
        patches, matched, images = self._matches(queries.descriptors[rows])
        weights = _rarity(patches)
        mine = np.asarray(queries.keypoints[rows], np.float64)[patches]
        theirs = self._keypoints[matched].astype(np.float64)
        turn = np.deg2rad(theirs[:, 3] - mine[:, 3])
        zoom = np.log2(theirs[:, 2] / mine[:, 2])
        chosen = _consistent(images, turn, zoom, weights, most)
        here, there = (points[:, 0] + 1j * points[:, 1] for points in (mine, theirs))
        move = np.exp2(zoom) * np.exp(1j * turn)
        lows, highs = (np.searchsorted(images, chosen, side) for side in ("left", "right"))
        scores = [
            _placed(here[low:high], there[low:high], move[low:high], weights[low:high])
            for low, high in zip(lows, highs, strict=True)
        ]
        return chosen, np.array(scores, np.int64)

    def _matches(self, descriptors: Bytes8) -> tuple[Int64, Int64, Int64]:
        """Return pairs of similar patches, ordered by image.

        A patch of the query has at most one match in an image, and a patch of a reference at
        most one in the query: the nearest, then the first. Repeated texture would vote often.
        """
        mine, theirs, bits = self._codes.similar(descriptors)
        first = _first(theirs, bits, mine)
        mine, theirs, bits = mine[first], theirs[first], bits[first]
        owner = self._owner[theirs].astype(np.int64)
        first = _first(owner * len(descriptors) + mine, bits, theirs)
        return mine[first], theirs[first], owner[first]


_NOTHING: Final = Votes(
    np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32), np.empty(0, np.int8)
)


def _first(group: Int64, *keys: Int64) -> Int64:
    """Return the position of each group's smallest entry, by the keys in order; groups ascend."""
    order = np.lexsort((*reversed(keys), group))
    changes = np.diff(group[order], prepend=-1) != 0
    return np.asarray(order[changes])


def _rarity(patches: Int64) -> Int64:
    """Return an integer weight per match: a patch that is found in many images weighs less.

    ``patches`` holds each patch of the query once for every image it was found in. The weight is
    ``_UNIT`` up to ``_COMMON`` images, then falling with the square root of their number
    (Jegou, Douze & Schmid, "On the burstiness of visual elements", CVPR 2009).
    """
    spread = np.bincount(patches)[patches]
    weights = np.rint(_UNIT * np.sqrt(_COMMON / np.maximum(spread, _COMMON)))
    return np.asarray(weights, np.int64)


def _consistent(images: Int64, turn: Float64, zoom: Float64, weights: Int64, most: int) -> Int64:
    """Return the images, ascending, with the most weight in one window of turn and scale.

    Windows are 45 degrees by one octave, and overlap by half, so that no group is cut in two.
    """
    turns = 16
    a = np.floor(turn / (2 * np.pi) * turns).astype(np.int64) % turns
    s = np.clip(np.floor(zoom / 0.5), -15, 15).astype(np.int64) + 16
    keys = np.concatenate(
        [(images * turns + (a + da) % turns) * 64 + s + ds for da in (0, 1) for ds in (0, 1)]
    )
    windows, where = np.unique(keys, return_inverse=True)
    totals = np.bincount(where, np.tile(weights, 4)).astype(np.int64)
    owners = windows // (64 * turns)
    top = _first(owners, -totals)
    owners, totals = owners[top], totals[top]
    enough = totals > 2 * _UNIT
    owners, totals = owners[enough], totals[enough]
    if len(owners) > most:
        # Ties with the last one stay, or the order of the references would matter.
        owners = owners[totals >= np.partition(totals, -most)[-most]]
    return owners


def _placed(here: Complex, there: Complex, move: Complex, weights: Int64) -> int:
    """Return the largest weight of matches that agree with one of them on turn, scale and shift.

    Points are complex numbers, ``move`` is scale and turn as one. Turns may differ by 30 degrees
    and scales by 1.6, as under a change of aspect; a point may lie off by 6 pixels and a fifth of
    the way from the match that predicts it.
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
