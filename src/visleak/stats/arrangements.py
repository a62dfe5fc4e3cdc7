"""Which rows are drawn, if so many of each stratum are drawn at random, each at most once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]

#: Rows of all draws that are made at once, together.
BLOCK: Final = 200_000

#: From so many rows a stratum on, numpy's own draw is faster than the one of many strata at once.
CROWD: Final = 400


def stratified_draws(sizes: Int64, drawn: Int64, draws: int, seed: int = 0) -> Iterator[Int64]:
    """Yield rows drawn from strata without replacement, all sets of so many being equally likely.

    Best where at most half of a stratum is drawn.

    ``sizes`` (strata,): rows of each; those of the first come first. ``drawn`` (strata,): how many
    to draw of each, at most its size. Yields (block, ``drawn.sum()``): row numbers of some draws,
    stratum by stratum, in no order within; a block has as many draws as suit.

    >>> drawn = np.concatenate(list(stratified_draws(np.array([3, 2]), np.array([3, 1]), 4)))
    >>> np.sort(drawn[:, :3]).tolist() == [[0, 1, 2]] * 4, sorted({3, 4} | set(drawn[:, 3]))
    (True, [3, 4])
    """
    rng = np.random.default_rng(seed)
    if drawn.sum() >= CROWD * len(sizes):
        return _one_by_one(sizes, drawn, draws, rng)
    return _all_at_once(sizes, drawn, draws, rng)


def _one_by_one(
    sizes: Int64, drawn: Int64, draws: int, rng: np.random.Generator
) -> Iterator[Int64]:
    """Draw from one stratum after the other."""
    strata = list(zip(np.cumsum(sizes) - sizes, sizes, drawn, strict=True))
    for _ in range(draws):
        chosen = [
            first + rng.choice(size, few, replace=False, shuffle=False)
            for first, size, few in strata
        ]
        yield np.concatenate(chosen)[None]


def _all_at_once(
    sizes: Int64, drawn: Int64, draws: int, rng: np.random.Generator
) -> Iterator[Int64]:
    """Draw from all strata at once.

    Each place is filled with a random row of its stratum. Where several places got one row, one
    of them keeps it and the others try again. The rows of a stratum are treated equally, so all
    sets of the same size are equally likely.
    """
    rows, places = int(sizes.sum()), int(drawn.sum())
    first = np.repeat(np.cumsum(sizes) - sizes, drawn)
    width = np.repeat(sizes, drawn)
    block = max(1, BLOCK // rows)
    keeper = np.full(block * rows, -1, np.int64)
    for begin in range(0, draws, block):
        now = min(block, draws - begin)
        start = np.add.outer(np.arange(now) * rows, first).ravel()
        widths = np.tile(width, now)
        taken = np.empty(now * places, np.int64)
        waiting = np.arange(now * places)
        while waiting.size:
            tried = start[waiting] + (rng.random(waiting.size) * widths[waiting]).astype(np.int64)
            free = keeper[tried] < 0
            # where several write to one row, one of them stands there afterwards
            keeper[tried[free]] = waiting[free]
            taken[waiting] = tried
            waiting = waiting[keeper[tried] != waiting]
        keeper[taken] = -1
        yield taken.reshape(now, places) - (np.arange(now) * rows)[:, None]
