"""Which part each component goes to, so that sizes and class shares come out as asked.

Components are items with one weight a class, parts are bins with one target a class: assigning
them is multi-dimensional bin assignment, which is NP-hard. Here big components go first, each
where the deficits are largest; single images then fill what is left, class by class; moves and
swaps mend what is still off. The tests compare that with exact solutions of small instances.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from visleak.records import Bool, Int64
from visleak.remedy.balance import Float64, off, peak, points_of

#: Most rounds of mending, and numbers that a round works out.
ROUNDS: Final = 300
WORK: Final = 400_000

#: Few components are tried again in other orders: at most so often, and so many in all.
RESTARTS: Final = 60
RETRIED: Final = 3_000

#: What is off by this much at most is as good as it gets.
HALF_AN_IMAGE: Final = 0.5 + 1e-9

#: Rounds without a better change after which mending ends.
IDLE: Final = 3

#: How much all deviations together count beside the largest.
EVENNESS: Final = 1e-3


@dataclass(frozen=True)
class Loads:
    """How many images of each class every component has, row by row.

    Attributes:
        begin: ``int64`` (components + 1,): where each component's entries begin.
        classes, counts: ``int64``: class and number of images of each entry.
        width: number of classes.
    """

    begin: Int64
    classes: Int64
    counts: Int64
    width: int

    @classmethod
    def of(cls, component: Int64, stratum: Int64) -> Loads:
        """Return the loads of images with a component and a class each, both from 0 on."""
        width = int(stratum.max(initial=0)) + 1
        keys, counts = np.unique(component * width + stratum, return_counts=True)
        number = int(component.max(initial=-1)) + 1
        begin = np.searchsorted(keys, np.arange(number + 1) * width)
        return cls(begin, keys % width, counts.astype(np.int64), width)

    @property
    def sizes(self) -> Int64:
        """Images a component."""
        sums = np.concatenate([[0], np.cumsum(self.counts)])
        return np.asarray(np.diff(sums[self.begin]))

    @property
    def totals(self) -> Int64:
        """Images a class."""
        return np.bincount(self.classes, self.counts, self.width).astype(np.int64)

    def counts_of(self, part: Int64, parts: int) -> Int64:
        """Return images by part and class, (parts, classes)."""
        owner = np.repeat(part, np.diff(self.begin))
        flat = np.bincount(owner * self.width + self.classes, self.counts, parts * self.width)
        return flat.astype(np.int64).reshape(parts, self.width)

    def dense(self, rows: Int64) -> Int64:
        """Return some components as rows over all classes."""
        result = np.zeros((len(rows), self.width), np.int64)
        for place, row in enumerate(rows.tolist()):
            span = slice(self.begin[row], self.begin[row + 1])
            result[place, self.classes[span]] = self.counts[span]
        return result


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
    best, lowest = np.zeros(len(single), np.int64), np.inf
    for attempt in range(max(1, min(RESTARTS, RETRIED // several))):
        part = _filled(loads, single, shares, rng, shuffled=attempt > 0)
        part = _mended(loads, single, part, shares, rng)
        counts = loads.counts_of(part, len(shares))
        reached = _score(counts, shares)
        if reached < lowest:
            best, lowest = part, reached
        if _is_even(counts, shares):
            break
    return best


def _score(counts: Int64, shares: Float64) -> float:
    """Return what is made small: the largest deviation, and a little of all of them."""
    whole = counts.sum(axis=0)
    uneven = _unevenness(counts, shares[:, None], whole, max(int(whole.sum()), 1))
    return peak(counts, shares) + EVENNESS * float(uneven.sum())


def _unevenness(counts: Int64, shares: Float64 | np.float64, whole: Int64, total: int) -> Float64:
    """Return the summed squared deviations from what parts are due, as shares of their sizes.

    Args:
        counts: ``int64`` (.., classes).
        shares: of the parts, such that they fit ``counts``.
        whole: images a class, (classes,).
        total: images in all.
    """
    return np.asarray((((counts - shares * whole) / (shares * total)) ** 2).sum(axis=-1))


def _is_even(counts: Int64, shares: Float64) -> bool:
    """Whether nothing is off by more than half an image, so nothing could be better."""
    sizes, classes = off(counts, shares)
    return bool(max(np.abs(sizes).max(), np.abs(classes).max()) <= HALF_AN_IMAGE)


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


def _mended(
    loads: Loads, single: Bool, part: Int64, shares: Float64, rng: np.random.Generator
) -> Int64:
    """Return the assignment after moves and swaps that lessen the largest deviation."""
    part = part.copy()
    counts = loads.counts_of(part, len(shares))
    reached, idle = _score(counts, shares), 0
    for _ in range(ROUNDS):
        # other candidates are drawn a few times before it is given up
        if _is_even(counts, shares) or idle > IDLE:
            break
        score, changes = _best_change(loads, single, part, counts, shares, rng)
        if score >= reached - 1e-12:
            idle += 1
            continue
        for row, to in changes:
            part[row] = to
        counts = loads.counts_of(part, len(shares))
        reached, idle = score, 0
    return part


def _best_change(
    loads: Loads,
    single: Bool,
    part: Int64,
    counts: Int64,
    shares: Float64,
    rng: np.random.Generator,
) -> tuple[float, list[tuple[int, int]]]:
    """Return the best move or swap between the part that is furthest off and another one.

    Returns:
        The score after it, and the components with their new parts.
    """
    sizes, classes = points_of(counts, shares)
    worst = int(np.argmax(np.maximum(sizes, classes.max(axis=1))))
    most = max(2, int(np.sqrt(WORK / loads.width)))
    own = _candidates(loads, single, part == worst, most, rng)
    best: tuple[float, list[tuple[int, int]]] = (np.inf, [])
    for other in range(len(shares)):
        if other == worst:
            continue
        others = _candidates(loads, single, part == other, most, rng)
        score, out, into = _best_of(loads, (own, others), (worst, other), counts, shares)
        if score < best[0]:
            moves = [(int(own[out]), other), (int(others[into]), worst)]
            best = score, [move for move in moves if move[0] >= 0]
    return best


def _candidates(
    loads: Loads, single: Bool, inside: Bool, most: int, rng: np.random.Generator
) -> Int64:
    """Return components of a part that might leave it: nobody (-1), several, one image a class."""
    several = np.flatnonzero(inside & ~single)
    alone = np.flatnonzero(inside & single)
    _, first = np.unique(loads.classes[loads.begin[alone]], return_index=True)
    chosen = np.concatenate([several, alone[first]])
    if len(chosen) > most - 1:
        chosen = np.sort(rng.choice(chosen, most - 1, replace=False))
    return np.concatenate([[-1], chosen]).astype(np.int64)


def _best_of(
    loads: Loads,
    candidates: tuple[Int64, Int64],
    between: tuple[int, int],
    counts: Int64,
    shares: Float64,
) -> tuple[float, int, int]:
    """Return the best score of all exchanges between two parts, and which of each side move."""
    leaving, coming = (
        np.concatenate([np.zeros((1, loads.width), np.int64), loads.dense(rows[1:])])
        for rows in candidates
    )
    whole, total = counts.sum(axis=0), int(counts.sum())
    change = coming[None, :, :] - leaving[:, None, :]
    rest = np.delete(np.arange(len(shares)), between)
    highest = np.zeros(change.shape[:2])
    uneven = np.zeros(change.shape[:2])
    if len(rest):
        sizes, classes = points_of(counts, shares)
        highest[:] = max(sizes[rest].max(), classes[rest].max())
        uneven[:] = _unevenness(counts[rest], shares[rest, None], whole, total).sum()
    for p, sign in zip(between, (1, -1), strict=True):
        new = counts[p] + sign * change
        size = new.sum(axis=2)
        np.maximum(highest, np.abs(size / (shares[p] * total) - 1.0), out=highest)
        points = np.abs(new / np.maximum(size, 1)[:, :, None] - whole / total)
        np.maximum(highest, points.max(axis=2), out=highest)
        uneven += _unevenness(new, shares[p], whole, total)
    score = highest + EVENNESS * uneven
    out, into = np.unravel_index(int(np.argmin(score)), score.shape)
    return float(score[out, into]), int(out), int(into)
