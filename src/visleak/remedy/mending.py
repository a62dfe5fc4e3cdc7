"""Moves and swaps between parts that lessen the largest deviation."""

from __future__ import annotations

from typing import Final

import numpy as np

from visleak.records import Bool, Int64
from visleak.remedy.balance import Float64, off, peak, points_of
from visleak.remedy.loads import Loads

#: Most rounds of mending, and numbers that a round works out.
ROUNDS: Final = 300
WORK: Final = 400_000

#: What is off by this much at most is as good as it gets.
HALF_AN_IMAGE: Final = 0.5 + 1e-9

#: Rounds without a better change after which mending ends.
IDLE: Final = 3

#: How much all deviations together count beside the largest.
EVENNESS: Final = 1e-3


def mended(
    loads: Loads, single: Bool, part: Int64, shares: Float64, rng: np.random.Generator
) -> Int64:
    """Return the assignment after moves and swaps that lessen the largest deviation."""
    part = part.copy()
    counts = loads.counts_of(part, len(shares))
    reached, idle = score(counts, shares), 0
    # where not all candidates are looked at, others are drawn a few times before it is given up
    patience = IDLE if (~single).sum() + loads.width > _most(loads) else 0
    for _ in range(ROUNDS):
        if is_even(counts, shares) or idle > patience:
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
    """Return the best move or swap between the part that is furthest off and another one.

    Returns:
        The score after it, and the components with their new parts.
    """
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
    """Return how many candidates of a side are compared with those of the other."""
    return max(2, int(np.sqrt(WORK / loads.width)))


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
    scores = highest + EVENNESS * uneven
    out, into = np.unravel_index(int(np.argmin(scores)), scores.shape)
    return float(scores[out, into]), int(out), int(into)


def score(counts: Int64, shares: Float64) -> float:
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


def is_even(counts: Int64, shares: Float64) -> bool:
    """Whether nothing is off by more than half an image, so nothing could be better."""
    sizes, classes = off(counts, shares)
    return bool(max(np.abs(sizes).max(), np.abs(classes).max()) <= HALF_AN_IMAGE)
