"""The part of each component, so that sizes and class shares come close to their targets.

Components are items with one weight per class, parts are bins with one target per class: this is
multi-dimensional bin assignment, which is NP-hard. Large components are assigned first, each where
the deficits are largest; single images then fill the rest, class by class; moves and swaps reduce
the remaining deviations. The tests compare the result with exact solutions of small instances.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from visleak.records import Bool, Int64
from visleak.remedy.balance import Float64, Loads, off, peak, points_of

#: Attempts in other orders: at most this many, and this many components in total.
ATTEMPTS: Final = 100
COMPONENTS: Final = 3_000

#: Attempts in a row without improvement after which the search ends.
PATIENCE: Final = 50

#: Rounds of improvement of one attempt, and numbers computed per round.
ROUNDS: Final = 300
WORK: Final = 400_000

#: A deviation of at most this many images cannot be improved.
HALF_AN_IMAGE: Final = 0.5 + 1e-9

#: Rounds without improvement after which an attempt ends.
IDLE: Final = 3

#: Weight of all deviations together relative to the largest.
EVENNESS: Final = 1e-3


def assign(component: Int64, stratum: Int64, shares: Float64, seed: int = 0) -> Int64:
    """Return a part for every component.

    Args:
        component: ``int64`` (images,): number of each image's component, from 0.
        stratum: ``int64`` (images,): its class, from 0; all 0 if classes do not count.
        shares: ``float64`` (parts,): target share of all images per part, sum 1.
        seed: for tie-breaking.

    Returns:
        ``int64`` (components,): index of the part. The same for the same arguments.
    """
    loads = Loads.of(component, stratum)
    rng = np.random.default_rng(seed)
    single = loads.sizes == 1
    several = max(int((~single).sum()), 1)
    best, lowest, since = np.zeros(len(single), np.int64), np.inf, 0
    for attempt in range(max(1, min(ATTEMPTS, COMPONENTS // several))):
        part = _filled(loads, single, shares, rng, shuffled=attempt > 0)
        part = _improved(loads, single, part, shares, rng)
        counts = loads.counts_of(part, len(shares))
        reached = _score(counts, shares)
        since += 1
        if reached < lowest - 1e-12:
            best, lowest, since = part, reached, 0
        if since > PATIENCE or _is_even(counts, shares):
            break
    return best


# -- a first assignment --------------------------------------------------------------------------


def _filled(
    loads: Loads, single: Bool, shares: Float64, rng: np.random.Generator, *, shuffled: bool
) -> Int64:
    """Assign large components first, each to the largest deficit, and single images last."""
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
    # images are sorted by class: of each, the first ones go to the first part, and so on
    part[by_class] = np.repeat(np.tile(np.arange(len(shares)), loads.width), given.T.ravel())
    return part


def _greedy(loads: Loads, order: Int64, room: Float64, shares: Float64) -> tuple[Int64, Float64]:
    """Return the part of each component in an order, and the remaining deficits.

    A component goes where it adds least to the squared deviations relative to the target, so all
    parts fill at the same pace. Plain Python: loads are sparse, and each step changes the state.
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
    """Return the number of single images of each class for each part, (parts, classes).

    Args:
        supply: ``int64`` (classes,): single images of each class.
        room: ``float64`` (parts, classes): deficits in images; negative if there are too many
            already. The sum of each class is its supply.
        shares: of the parts.
    """
    real = np.maximum(room, 0.0)
    for _ in range(len(shares)):
        # if parts are overfull the others get less, in proportion to their shares
        over = real.sum(axis=0) - supply
        active = real > 0
        weight = (shares[:, None] * active).sum(axis=0)
        real = np.where(
            active, real - shares[:, None] * over / np.where(weight > 0, weight, 1), 0.0
        )
        real = np.maximum(real, 0.0)
    given = np.floor(real + 1e-9).astype(np.int64)
    given -= np.maximum(given - supply, 0)  # rounding never exceeds the supply
    left = room.sum(axis=1) - given.sum(axis=1)
    for name in np.argsort(-supply, kind="stable").tolist():
        for _ in range(int(supply[name] - given[:, name].sum())):
            missing = room[:, name] - given[:, name]
            p = int(np.argmin((1.0 - 2.0 * missing + 1.0 - 2.0 * left) / shares))
            given[p, name] += 1
            left[p] -= 1
    return given


# -- moves and swaps -----------------------------------------------------------------------------


def _improved(
    loads: Loads, single: Bool, part: Int64, shares: Float64, rng: np.random.Generator
) -> Int64:
    part = part.copy()
    counts = loads.counts_of(part, len(shares))
    reached, idle = _score(counts, shares), 0
    # if not all candidates are compared, others are drawn a few times before the search ends
    patience = IDLE if (~single).sum() + loads.width > _most(loads) else 0
    for _ in range(ROUNDS):
        if _is_even(counts, shares) or idle > patience:
            break
        better, changes = _best_change(loads, single, part, counts, shares, rng)
        if better >= reached - 1e-12:
            idle += 1
            continue
        for row, to in changes:
            part[row] = to
        counts = loads.counts_of(part, len(shares))
        reached, idle = better, 0
    return part


def _best_change(
    loads: Loads,
    single: Bool,
    part: Int64,
    counts: Int64,
    shares: Float64,
    rng: np.random.Generator,
) -> tuple[float, list[tuple[int, int]]]:
    """Return the score after the best move or swap of the most deviating part, and the moves."""
    sizes, classes = points_of(counts, shares)
    worst = int(np.argmax(np.maximum(sizes, classes.max(axis=1))))
    most = _most(loads)
    own = _candidates(loads, single, part == worst, most, rng)
    best: tuple[float, list[tuple[int, int]]] = (np.inf, [])
    for other in range(len(shares)):
        if other == worst:
            continue
        others = _candidates(loads, single, part == other, most, rng)
        found, out, into = _best_of(loads, (own, others), (worst, other), counts, shares)
        if found < best[0]:
            moves = [(int(own[out]), other), (int(others[into]), worst)]
            best = found, [move for move in moves if move[0] >= 0]
    return best


def _most(loads: Loads) -> int:
    """Return how many candidates of each side are compared with those of the other."""
    return max(2, int(np.sqrt(WORK / loads.width)))


def _candidates(
    loads: Loads, single: Bool, inside: Bool, most: int, rng: np.random.Generator
) -> Int64:
    """Return what may leave a part: nothing (-1), components, and one single image per class."""
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
    """Return the best score of all exchanges between two parts, and what each side gives."""
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
    scores = highest + EVENNESS * uneven
    out, into = np.unravel_index(int(np.argmin(scores)), scores.shape)
    return float(scores[out, into]), int(out), int(into)


def _score(counts: Int64, shares: Float64) -> float:
    whole = counts.sum(axis=0)
    uneven = _unevenness(counts, shares[:, None], whole, max(int(whole.sum()), 1))
    return peak(counts, shares) + EVENNESS * float(uneven.sum())


def _unevenness(counts: Int64, shares: Float64 | np.float64, whole: Int64, total: int) -> Float64:
    """Return the summed squared deviations from the targets, relative to the sizes."""
    return np.asarray((((counts - shares * whole) / (shares * total)) ** 2).sum(axis=-1))


def _is_even(counts: Int64, shares: Float64) -> bool:
    """Whether no deviation exceeds half an image, so no assignment is better."""
    sizes, classes = off(counts, shares)
    return bool(max(np.abs(sizes).max(), np.abs(classes).max()) <= HALF_AN_IMAGE)
