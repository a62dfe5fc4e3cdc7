"""Sets whose names and vectors follow a known rule."""

import hashlib
from types import SimpleNamespace

import numpy as np
import pyarrow as pa

from visleak.grouping import GroupableSet, Sets, infer

WIDTH = 24


def unit(vectors):
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def walk(count, seed):
    """Vectors of a recording: each is the one before, changed a little."""
    rng = np.random.default_rng(seed)
    moves = 0.35 * rng.normal(size=(count, WIDTH))
    moves[0] = rng.normal(size=WIDTH)
    return unit(np.cumsum(moves, axis=0))


def around(groups, seed, spread=0.3):
    """Vectors of images of some groups: those of one group are similar."""
    rng = np.random.default_rng(seed)
    names, number = np.unique(groups, return_inverse=True)
    centres = unit(rng.normal(size=(len(names), WIDTH)))
    return unit(centres[number] + spread * rng.normal(size=(len(number), WIDTH)))


def made_set(ids, vectors, name="train", *, tested=False, labels=None):
    digests = [hashlib.blake2b(v.tobytes(), digest_size=16).digest() for v in vectors]
    digests = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 16)
    labels = None if labels is None else pa.array(labels, pa.string())
    ids = pa.array(ids, pa.string())
    return GroupableSet(name, tested, ids, labels, None, None, False, vectors, digests)


def inferred(*sets):
    """Return what is inferred of some sets, and what of it is believed."""
    found = infer(Sets(tuple(sets), SimpleNamespace(views=1, digest="plain", name="plain")))
    return found, [each for each in found if each.hypothesis.believed]


def partition(found, sets):
    """Return the groups of a hypothesis as sets of ids."""
    ids = np.array([id_ for each in sets for id_ in each.ids.to_pylist()])
    return groups_of(ids[found.rows], found.members.group)


def groups_of(ids, truth):
    return {frozenset(np.array(ids)[truth == n].tolist()) for n in np.unique(truth)}
