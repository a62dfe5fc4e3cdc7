"""Binary codes of local descriptors, and tables that find alike codes without comparing all.

A code is the signs of 128 projections (Charikar, "Similarity estimation techniques from rounding
algorithms", STOC 2002), its distance the Hamming distance, as in Hamming embedding (Jegou, Douze &
Schmid, ECCV 2008). The projections are fixed small integers. Sums of their products with bytes are
exact in ``float32``, so no block size, linear algebra library or thread count ever changes a code.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from visleak.errors import VisleakError
from visleak.records import Bytes8, Float32, Int64

_BITS: Final = 128
_TABLES: Final = 6
_WORD: Final = 21  # bits of a table's word; six words use 126 of the 128 bits, each once
_CROWD: Final = 256  # a word that is more frequent than this tells little and is dropped
_ALIKE: Final = 24  # bits by which the codes of two alike patches may differ

Words = npt.NDArray[np.uint32]
Codes = npt.NDArray[np.uint64]


class CodeIndex:
    """Finds the features whose codes are alike.

    Holds 16 bytes of code and 24 bytes of tables a feature, and 50 MB besides. Descriptors are
    read once, in blocks, so that they may be memory-mapped.

    Args:
        descriptors: ``uint8`` (n, 128).
        block: descriptors whose codes are computed at once; never changes a result.
    """

    def __init__(self, descriptors: Bytes8, *, block: int = 1 << 16) -> None:
        count = len(descriptors)
        if count >= 1 << 31:
            raise VisleakError(
                f"{count:,} local features are more than one index holds (2^31 - 1): split the set"
            )
        self._codes = np.empty((count, _BITS // 64), np.uint64)
        words = [np.empty(count, np.uint32) for _ in range(_TABLES)]
        for start in range(0, count, block):
            rows = slice(start, start + block)
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

    def alike(self, descriptors: Bytes8) -> tuple[Int64, Int64, Int64]:
        """Return pairs of alike features: row in ``descriptors``, row here, differing bits.

        A pair may occur more than once. Not all alike pairs are found, but most.
        """
        values = _projected(descriptors)
        codes = _packed(values)
        found = [np.empty((3, 0), np.int64)]
        for table, words in zip(self._tables, _probes(values), strict=True):
            mine, theirs = table.lookup(words.reshape(-1))
            mine %= len(codes)  # the words are four probes of all descriptors
            bits = _distance(codes[mine], np.take(self._codes, theirs, axis=0))
            near = bits <= _ALIKE
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
    counts = np.bincount(words, minlength=1 << _WORD)
    return _Table(rows, np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))


def binary_codes(descriptors: Bytes8) -> tuple[Codes, Words]:
    """Return codes ``uint64`` (n, 2) and words ``uint32`` (6, n) of descriptors (n, 128).

    Alike descriptors have codes that differ in few bits, and often share one of the six words.

    >>> codes, words = binary_codes(np.zeros((1, 128), np.uint8))
    >>> codes.shape, words.shape
    ((1, 2), (6, 1))
    """
    values = _projected(descriptors)
    return _packed(values), _words(values)


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
    """Return, for projections (n, 128), the words (6, 4, n) to look under.

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
    if hasattr(np, "bitwise_count"):
        bits = np.bitwise_count(changed)
    else:  # NumPy 1
        bits = _BYTE_COUNTS[changed.view(np.uint8)]
    return np.asarray(bits.sum(axis=1, dtype=np.int64))
