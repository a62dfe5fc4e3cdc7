"""Sets whose names and vectors follow a known rule."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa

from visleak.grouping import GroupableSet, Sets, infer


class Plain:
    """Makes no other view of an image."""

    views = 1
    digest = name = "plain"


def unit(vectors):
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def walk(count, seed, width=24, step=0.35):
    """Vectors of a recording: each is the one before, changed a little."""
    rng = np.random.default_rng(seed)
    moves = step * rng.normal(size=(count, width))
    moves[0] = rng.normal(size=width)
    return unit(np.cumsum(moves, axis=0))


def strangers(count, seed, width=24):
    return unit(np.random.default_rng(seed).normal(size=(count, width)))


def around(groups, seed, width=24, spread=0.3):
    """Vectors of images of some groups: those of one group are similar."""
    rng = np.random.default_rng(seed)
    names, number = np.unique(groups, return_inverse=True)
    centres = unit(rng.normal(size=(len(names), width)))
    noise = spread * rng.normal(size=(len(groups), width))
    return unit(centres[number] + noise)


def made_set(ids, vectors, name="train", *, tested=False, labels=None, **about):
    digests = [hashlib.blake2b(v.tobytes(), digest_size=16).digest() for v in vectors]
    return GroupableSet(
        name,
        tested,
        pa.array(ids, pa.string()),
        None if labels is None else pa.array(labels, pa.string()),
        about.get("groups"),
        about.get("frames"),
        about.get("timed", False),
        vectors,
        np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 16),
    )


def inferred(*sets):
    """Return what is inferred of some sets, and what of it is believed."""
    found = infer(Sets(tuple(sets), Plain()))
    return found, [each for each in found if each.hypothesis.believed]


def partition(found, sets):
    """Return the groups of a hypothesis as sets of ids."""
    ids = [id_ for each in sets for id_ in each.ids.to_pylist()]
    groups = {}
    for row, group in zip(found.rows.tolist(), found.members.group.tolist(), strict=True):
        groups.setdefault(group, set()).add(ids[row])
    return {frozenset(own) for own in groups.values()}
