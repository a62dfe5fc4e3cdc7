"""Random orders whose beginnings keep the class proportions.

A plain draw of a tenth of a small test set may hold most of a rare class or nothing of it, and the
class proportions in training then drift from step to step: the paper's own threat to validity
(Babu et al. 2025, section 8).

After Sechidis et al. (2011, "On the stratification of multi-label data"), an image counts for the
rarest class that it shows. These strata are distributed over the parts so that every stratum is
less than one image from its share at the end of every part; further classes of the images are
balanced by random exchanges.

The exact numbers are fractions. They are rounded at random, without bias: the numbers are seen as
a flow through a network, whose fractional arcs always contain a cycle; the flow along it is raised
or lowered until an arc is whole, with probabilities that keep every mean (dependent rounding;
Gandhi et al. 2006, "Dependent rounding and its applications to approximation algorithms"; the
cycles are those of Cox 1987, "A constructive procedure for unbiased controlled rounding").
"""

from __future__ import annotations

from typing import Final

import numpy as np

from visleak.records import Int64

#: Exchanges that are tried to balance the further classes, and candidates for each.
EXCHANGES: Final = 4000
CANDIDATES: Final = 32


def stratified_order(counts: Int64, parts: int, rng: np.random.Generator) -> Int64:
    """Return a random order of images whose first k parts hold close to k/parts of each class.

    Part k ends after n * k / parts images, halves up. Where images show one object of one class
    each, the number of each class is less than one from its share at the end of every part.

    Args:
        counts: ``int64`` (n, classes), number of objects of each class in each image.
        parts: number of equal parts, 1 or more.
        rng: random numbers.

    Returns:
        ``int64`` (n,), a permutation.

    Raises:
        ValueError: ``parts`` is below 1.
    """
    if parts < 1:
        raise ValueError(f"parts must be 1 or more, not {parts}")
    ends = (2 * len(counts) * np.arange(parts + 1) + parts) // (2 * parts)
    part = _distributed(_strata(counts), ends, rng)
    shown = counts.sum(axis=1)
    if len(counts) and shown.max(initial=0) > 1:
        _balance(part, counts, ends, rng)
    order: Int64 = np.lexsort((rng.random(len(counts)), part))
    return order


def _strata(counts: Int64) -> Int64:
    """Return the rarest class in each image; the number of classes for those without any."""
    images, classes = counts.shape
    if not classes:
        return np.zeros(images, np.int64)
    totals = counts.sum(axis=0)
    rarest = np.where(counts > 0, totals, totals.sum() + 1).argmin(axis=1)
    rarest[~counts.any(axis=1)] = classes
    return np.asarray(rarest, np.int64)


def _distributed(strata: Int64, ends: Int64, rng: np.random.Generator) -> Int64:
    """Return the part of each image, so that strata keep their shares at the end of each part."""
    _, sizes = np.unique(strata, return_counts=True)
    held = distribute(sizes, ends, rng)
    parts = np.tile(np.arange(held.shape[1]), len(sizes))
    part = np.empty(len(strata), np.int64)
    part[np.lexsort((rng.random(len(strata)), strata))] = np.repeat(parts, held.reshape(-1))
    return part


def _balance(part: Int64, counts: Int64, ends: Int64, rng: np.random.Generator) -> None:
    """Exchange images of two parts, in place, if that brings classes closer to their shares.

    Minimizes the sum, over classes and ends of parts, of the squared deviation in
    units of a plain draw's: ``(first parts' objects - share)^2 / sum of squared counts``. Classes
    with fewer objects than parts are excluded: their minimum is in the middle parts, so that they
    would never leak early.
    """
    images, parts = len(part), len(ends) - 1
    totals = counts.sum(axis=0)
    weight = (totals >= parts) / np.maximum(np.einsum("ic,ic->c", counts, counts), 1)
    held = np.zeros((parts, counts.shape[1]))
    np.add.at(held, part, counts)
    off = np.cumsum(held, axis=0) - np.outer(ends[1:] / images, totals)
    # sums of deviations up to each part: an exchange changes a difference of two rows
    sums = np.concatenate([np.zeros((1, off.shape[1])), np.cumsum(off, axis=0)])
    for one in rng.integers(images, size=min(EXCHANGES, 2 * images)):
        others = rng.integers(images, size=CANDIDATES)
        gain = (counts[others] - counts[one]).astype(np.float64)
        met = sums[part[others]] - sums[part[one]]
        change = 2 * (gain * met) @ weight
        change += np.abs(part[others] - part[one]) * (gain**2 @ weight)
        best = int(change.argmin())
        if change[best] < 0:
            other = int(others[best])
            low, high = sorted((int(part[one]), int(part[other])))
            sign = 1 if part[one] == low else -1
            steps = np.arange(1, high - low + 1)[:, None]
            sums[low + 1 : high + 1] += sign * steps * gain[best]
            sums[high + 1 :] += sign * (high - low) * gain[best]
            part[one], part[other] = part[other], part[one]


def distribute(sizes: Int64, ends: Int64, rng: np.random.Generator) -> Int64:
    """Return the number of images of each stratum in each part, at random.

    At the end of each part the parts so far hold a stratum's share rounded up or down, and each
    part alone does, too. Means are the exact shares.

    Args:
        sizes: ``int64`` (strata,), images of each; their sum is n.
        ends: ``int64`` (parts + 1,), images up to the end of each part, from 0 to n.
        rng: random numbers.

    Returns:
        ``int64`` (strata, parts): columns add up to the sizes of the parts, rows to ``sizes``.
    """
    whole = int(ends[-1])
    if not whole:
        return np.zeros((len(sizes), len(ends) - 1), np.int64)
    # in units of 1/n images, so that all arithmetic is exact
    flow = _Flow(np.outer(sizes, np.diff(ends)), np.outer(sizes, ends[1:-1]), whole)
    flow.round(rng)
    return flow.cells()


class _Flow:
    """A flow through columns (parts) into one chain of nodes per stratum, where it accumulates.

    Args:
        cells: (strata, parts), flow from each column into each chain, in 1/unit.
        carried: (strata, parts - 1), flow along each chain to the next part's node.
        unit: numerators of one image.
    """

    def __init__(self, cells: Int64, carried: Int64, unit: int) -> None:
        self._strata, self._parts = cells.shape
        self._unit = unit
        self._flow: list[int] = [*cells.reshape(-1).tolist(), *carried.reshape(-1).tolist()]
        node = np.arange(cells.size).reshape(cells.shape)
        column = np.broadcast_to(cells.size + np.arange(self._parts), cells.shape)
        self._tail: list[int] = np.concatenate([column.ravel(), node[:, :-1].ravel()]).tolist()
        self._head: list[int] = np.concatenate([node.ravel(), node[:, 1:].ravel()]).tolist()
        # a dict keeps the order of its keys, and so the result
        self._open: list[dict[int, None]] = [{} for _ in range(cells.size + self._parts)]
        for arc, value in enumerate(self._flow):
            if value % unit:
                self._open[self._tail[arc]][arc] = None
                self._open[self._head[arc]][arc] = None

    def cells(self) -> Int64:
        """Return the whole numbers from columns into chains."""
        count = self._strata * self._parts
        return np.array(self._flow[:count], np.int64).reshape(self._strata, -1) // self._unit

    def round(self, rng: np.random.Generator) -> None:
        """Make all flows whole.

        The flow in and out of a node is whole in sum, so that a walk along fractional arcs
        always closes a cycle.
        """
        for start in range(len(self._open)):
            walk: list[tuple[int, bool]] = []
            nodes: dict[int, int] = {}
            node = start
            while self._open[node]:
                nodes[node] = len(walk)
                last = walk[-1][0] if walk else -1
                arc = next(arc for arc in self._open[node] if arc != last)
                along = self._tail[arc] == node
                walk.append((arc, along))
                node = self._head[arc] if along else self._tail[arc]
                if node in nodes:
                    begin = nodes[node]
                    self._push(walk[begin:], rng)
                    del walk[begin:]
                    nodes = {known: at for known, at in nodes.items() if at < begin}

    def _push(self, cycle: list[tuple[int, bool]], rng: np.random.Generator) -> None:
        """Raise or lower the flow along a cycle until an arc is whole."""
        unit, flow = self._unit, self._flow
        over = [(flow[arc] % unit, along) for arc, along in cycle]
        up = min(unit - part if along else part for part, along in over)
        down = min(part if along else unit - part for part, along in over)
        change = up if rng.random() * (up + down) < down else -down
        for arc, along in cycle:
            flow[arc] += change if along else -change
            if not flow[arc] % unit:
                del self._open[self._tail[arc]][arc], self._open[self._head[arc]][arc]
