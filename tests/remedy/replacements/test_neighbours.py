"""Which images are compared with a candidate: the nearest of each set, by both rankings."""

from __future__ import annotations

import numpy as np
from made_sets import made_set

from visleak.encoders import load_encoder
from visleak.pipeline.encoded_set import Side
from visleak.remedy.selection import COMPARED, SHOWN, Neighbours


def side(name: str, count: int, seed: int) -> Side:
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(count, 560)).astype(np.float32)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    ids, digests = [f"{row:03d}" for row in range(count)], rng.integers(0, 256, (count, 16))
    images, prints = made_set(name, ids, digests, matrix=matrix)
    background = rng.uniform(0, 0.2, count).astype(np.float32)
    return Side(images, prints, background, np.arange(count))


def test_an_audits_candidates_are_all_compared() -> None:
    """Against all similarities: a copy behind three images of the like is not passed by."""
    existing = {name: side(name, 90, seed) for seed, name in enumerate(("test", "train"))}
    pool = side("pool", 40, 7)
    neighbours = Neighbours(existing, pool, load_encoder("builtin"), (0,), 1)
    approved = np.arange(1, 40)
    found = neighbours.of(0, approved)
    compared = {(near.set, near.row) for near in found}
    query = pool.fingerprints.matrix[0].astype(np.float64)
    want = set()
    for name, own in existing.items():
        alike = own.fingerprints.matrix.astype(np.float64) @ query
        for score in (alike, alike - own.background / 2):
            want |= {(name, int(row)) for row in np.argsort(-score)[:COMPARED]}
    others = pool.fingerprints.matrix.astype(np.float64) @ query
    others[0] = -2.0
    want |= {("pool", int(row)) for row in np.argsort(-others)[:COMPARED]}
    assert compared == want
    assert len(want) > 3 * COMPARED  # the two rankings differ
    similarities = [near.similarity for near in found]
    assert similarities == sorted(similarities, reverse=True)
    assert len(found) == len(compared) > SHOWN
