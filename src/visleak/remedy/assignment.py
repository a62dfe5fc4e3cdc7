"""Which part each component goes to, so that sizes and class shares come out as asked.

Components are items with one weight a class, parts are bins with one target a class: assigning
them is multi-dimensional bin assignment, which is NP-hard. Here big components go first, each
where the deficits are largest; single images then fill what is left, class by class; moves and
swaps mend what is still off. The tests compare that with exact solutions of small instances.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from visleak.records import Bool, Int64
from visleak.remedy.balance import Float64
from visleak.remedy.loads import Loads
from visleak.remedy.mending import is_even, mended, score

#: Few components are tried again in other orders: at most so often, and so many in all.
RESTARTS: Final = 100
RETRIED: Final = 3_000

#: Attempts in a row without a better one after which that ends.
PATIENCE: Final = 50


def assign(component: Int64, stratum: Int64, shares: Float64, seed: int = 0) -> Int64:
    """Return a part for every component.

    Args:
        component: ``int64`` (images,): number of each image's component, from 0 on.
        stratum: ``int64`` (images,): its class, from 0 on; all 0 where classes do not count.
        shares: ``float64`` (parts,): of all images that each part should get, sum 1.
        seed: decides among what is equally good.

    Returns:
        ``int64`` (components,): index of the part. The same for the same arguments.
    """
    loads = Loads.of(component, stratum)
    rng = np.random.default_rng(seed)
    single = loads.sizes == 1
    several = max(int((~single).sum()), 1)
    best, lowest, since = np.zeros(len(single), np.int64), np.inf, 0
    for attempt in range(max(1, min(RESTARTS, RETRIED // several))):
        part = _filled(loads, single, shares, rng, shuffled=attempt > 0)
        part = mended(loads, single, part, shares, rng)
        counts = loads.counts_of(part, len(shares))
        reached = score(counts, shares)
        since += 1
        if reached < lowest - 1e-12:
            best, lowest, since = part, reached, 0
        if since > PATIENCE or is_even(counts, shares):
            break
    return best


def _filled(
    loads: Loads, single: Bool, shares: Float64, rng: np.random.Generator, *, shuffled: bool
) -> Int64:
    """Put components into parts, big ones first where most is missing, single images last."""
    part = np.zeros(len(single), np.int64)
    room = shares[:, None] * loads.totals
    big = np.flatnonzero(~single)
    sizes = loads.sizes[big].astype(np.float64)
    if shuffled:
        sizes *= rng.uniform(0.2, 1.8, len(big))
    order = big[np.lexsort((rng.permutation(len(big)), -sizes))]
    part[order], rooms = _greedy(loads, order, room, shares)
    owner = loads.classes[loads.begin[:-1][single]]
    alone = np.flatnonzero(single)
    shuffle = rng.permutation(len(alone))
    alone, owner = alone[shuffle], owner[shuffle]
    by_class = alone[np.argsort(owner, kind="stable")]
    limits = np.searchsorted(np.sort(owner), np.arange(loads.width + 1))
    given = _shared_out(np.diff(limits), rooms, shares)
    # the images of a class stand together: the first of them to the first part, and so on
    part[by_class] = np.repeat(np.tile(np.arange(len(shares)), loads.width), given.T.ravel())
    return part


def _greedy(loads: Loads, order: Int64, room: Float64, shares: Float64) -> tuple[Int64, Float64]:
    """Return the part of each component of an order, and the room that is left after them.

    A component goes where it adds least to the squared deviations, relative to what a part is
    due: so all parts fill at the same pace. Plain Python: the loads are sparse, and the state
    changes with every step.
    """
    rooms, left = room.tolist(), room.sum(axis=1).tolist()
    weights = (1.0 / shares).tolist()
    begin, classes, counts = loads.begin.tolist(), loads.classes.tolist(), loads.counts.tolist()
    chosen = []
    for row in order.tolist():
        entries = [(classes[i], counts[i]) for i in range(begin[row], begin[row + 1])]
        size = sum(count for _, count in entries)
        best, least = 0, np.inf
        for p, weight in enumerate(weights):
            own = rooms[p]
            added = size * (size - 2.0 * left[p])
            for name, count in entries:
                added += count * (count - 2.0 * own[name])
            if added * weight < least:
                best, least = p, added * weight
        chosen.append(best)
        left[best] -= size
        for name, count in entries:
            rooms[best][name] -= count
    return np.array(chosen, np.int64), np.array(rooms).reshape(room.shape)


def _shared_out(supply: Int64, room: Float64, shares: Float64) -> Int64:
    """Return how many single images of each class go to each part, (parts, classes).

    Args:
        supply: ``int64`` (classes,): single images of each class.
        room: ``float64`` (parts, classes): images that are missing; negative where there are too
            many already. Sums up to the supply in every class.
        shares: of the parts.
    """
    real = np.maximum(room, 0.0)
    for _ in range(len(shares)):
        # where parts are overfull the others get less, each by its share
        over = real.sum(axis=0) - supply
        active = real > 0
        weight = (shares[:, None] * active).sum(axis=0)
        real = np.where(
            active, real - shares[:, None] * over / np.where(weight > 0, weight, 1), 0.0
        )
        real = np.maximum(real, 0.0)
    given = np.floor(real + 1e-9).astype(np.int64)
    given -= np.maximum(given - supply, 0)  # rounding never gives more than there is
    left = room.sum(axis=1) - given.sum(axis=1)
    for name in np.argsort(-supply, kind="stable").tolist():
        for _ in range(int(supply[name] - given[:, name].sum())):
            missing = room[:, name] - given[:, name]
            p = int(np.argmin((1.0 - 2.0 * missing + 1.0 - 2.0 * left) / shares))
            given[p, name] += 1
            left[p] -= 1
    return given
