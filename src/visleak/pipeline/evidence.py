"""Evidence on a pair as an entry of the cache: only the values that differ from usual ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from visleak.records import Float32


def packed(rows: Float32, usual: Float32) -> Iterator[bytes]:
    """Yield each row (n, columns) as bytes: which values differ from the usual ones, and these.

    >>> [len(entry) for entry in packed(np.ones((1, 9), np.float32), np.ones(9, np.float32))]
    [2]
    """
    rows = np.ascontiguousarray(rows, "<f4")
    # by their bits: NaN is a value like any other, and so is minus zero
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
