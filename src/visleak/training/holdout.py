"""Which pictures a network does not learn from, so that it can be asked about them."""

from __future__ import annotations

from typing import Final

import numpy as np

from visleak.records import Bool, Int64

#: Share of the pictures that is held out, and how many at most.
SHARE: Final = 0.1
MOST: Final = 10_000


def held_out(classes: Int64, groups: Int64, seed: int) -> Bool:
    """Return which pictures to hold out: the same share of each class, and whole groups.

    Groups are taken in an order drawn with the seed, as long as no class gives more than its
    share. Where groups are so large that less than half of what is wanted can be had so, those
    are taken too of which a class gives up to half of its pictures.

    Args:
        classes: ``int64`` (n,), counted from 0; all 0 where there are none.
        groups: ``int64`` (n,): pictures of one group stay together.
        seed: of the order.

    Returns:
        ``bool`` (n,); a class of one group is never held out.
    """
    sizes = np.bincount(classes)
    share = min(SHARE, MOST / max(len(classes), 1))
    wanted = np.maximum(np.floor(sizes * share), sizes > 1).astype(np.int64)
    members = np.argsort(groups, kind="stable")
    parts = np.split(members, np.flatnonzero(np.diff(groups[members])) + 1)
    order = np.random.default_rng(seed).permutation(len(parts))
    held = np.zeros(len(classes), np.bool_)
    left = wanted.copy()
    for limit in (wanted, sizes // 2):
        if 2 * held.sum() >= wanted.sum():
            break
        room = limit - (wanted - left)
        for part in (parts[number] for number in order):
            if held[part[0]] or left.sum() <= 0:
                continue
            taken = np.bincount(classes[part], minlength=len(sizes))
            if (taken <= room).all() and (left[taken > 0] > 0).any():
                held[part] = True
                left, room = left - taken, room - taken
    return held
