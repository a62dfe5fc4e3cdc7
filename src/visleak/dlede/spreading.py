"""How many of each stratum every part holds, so that strata keep their shares all along.

The exact numbers are fractions. They are rounded at random, without a bias: the numbers are seen
as a flow through a network, whose fractional arcs always hold a circle; what flows round it is
raised or lowered until an arc is whole, with chances that keep every number's mean (dependent
rounding; Gandhi et al. 2006, "Dependent rounding and its applications to approximation
algorithms"; the circles are those of Cox 1987, "A constructive procedure for unbiased controlled
rounding").
"""

from __future__ import annotations

import numpy as np

from visleak.records import Int64


def spread(sizes: Int64, ends: Int64, rng: np.random.Generator) -> Int64:
    """Return how many images of each stratum each part holds, at random.

    At the end of each part the parts so far hold a stratum's share rounded up or down, and each
    part alone does, too. Means are the exact shares: no stratum comes early or late by rule.

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
    """A flow through columns (parts) into a chain of nodes a stratum, along which it adds up.

    Args:
        cells: (strata, parts), what flows from each column into each chain, in 1/unit.
        carried: (strata, parts - 1), what flows along each chain to the next part's node.
        unit: numerators that make one image.
    """

    def __init__(self, cells: Int64, carried: Int64, unit: int) -> None:
        self._strata, self._parts = cells.shape
        self._unit = unit
        self._flow: list[int] = [*cells.reshape(-1).tolist(), *carried.reshape(-1).tolist()]
        node = np.arange(cells.size).reshape(cells.shape)
        column = np.broadcast_to(cells.size + np.arange(self._parts), cells.shape)
        self._tail: list[int] = np.concatenate([column.ravel(), node[:, :-1].ravel()]).tolist()
        self._head: list[int] = np.concatenate([node.ravel(), node[:, 1:].ravel()]).tolist()
        # a dict keeps the order of its keys, and so the answer
        self._open: list[dict[int, None]] = [{} for _ in range(cells.size + self._parts)]
        for arc, value in enumerate(self._flow):
            if value % unit:
                self._open[self._tail[arc]][arc] = None
                self._open[self._head[arc]][arc] = None

    def cells(self) -> Int64:
        """Return the whole numbers that flow from columns into chains."""
        count = self._strata * self._parts
        return np.array(self._flow[:count], np.int64).reshape(self._strata, -1) // self._unit

    def round(self, rng: np.random.Generator) -> None:
        """Make all flows whole.

        What flows in and out of a node is whole in sum, so that a walk along fractional arcs
        never ends before it meets itself.
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

    def _push(self, circle: list[tuple[int, bool]], rng: np.random.Generator) -> None:
        """Raise or lower what flows round a circle until an arc is whole."""
        unit, flow = self._unit, self._flow
        over = [(flow[arc] % unit, along) for arc, along in circle]
        up = min(unit - part if along else part for part, along in over)
        down = min(part if along else unit - part for part, along in over)
        change = up if rng.random() * (up + down) < down else -down
        for arc, along in circle:
            flow[arc] += change if along else -change
            if not flow[arc] % unit:
                del self._open[self._tail[arc]][arc], self._open[self._head[arc]][arc]
