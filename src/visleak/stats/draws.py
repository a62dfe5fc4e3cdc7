"""Random, class-matched and difficulty-matched controls.

Images that have copies are often easier than others, even for a model that did not memorize them.
Matched controls of the same difficulty exclude this explanation of a higher score.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.stats import rankdata

from visleak.records import Bool, Float64, Int64

#: One stream of random numbers per purpose, so that no draw depends on the others.
_RANDOM, _MATCHED, _PART, _MIX, _MATCHING = range(5)


@dataclass(frozen=True)
class Draws:
    """Scores of repeated random draws."""

    scores: Float64  # (draws, columns): mean of each draw
    images: int  # per draw
    overlap: float  # expected share of images that two draws have in common


def random_draws(columns: Float64, sizes: Sequence[int], draws: int, seed: int) -> list[Draws]:
    """Return the scores of images drawn from all, without replacement, for each size.

    Ramos et al. (2025), section 7.3, drew once; here it is repeated. A smaller draw is a subset of
    the larger draw of the same number. ``columns`` (n, columns): scores by image.
    """
    rng = np.random.default_rng([seed, _RANDOM])
    scores = np.full((len(sizes), draws, columns.shape[1]), np.nan)
    for draw in range(draws if any(sizes) else 0):
        # the first images of one permutation are the draw of every size
        order = rng.permutation(len(columns))[: max(sizes)]
        sums = np.cumsum(columns[order], axis=0)
        for row, size in enumerate(sizes):
            if size:
                scores[row, draw] = sums[size - 1] / size
    return [Draws(own, size, size / len(columns)) for own, size in zip(scores, sizes, strict=True)]


def matched_draws(
    columns: Float64,
    classes: Int64,
    leaked: Sequence[Bool],
    draws: int,
    seed: int,
    size: int | None = None,
) -> list[Draws]:
    """Return the scores of images drawn from all with the class mix of leaked images.

    ``columns`` (n, columns): scores by image. ``classes`` (n,): number of each image's class.
    ``leaked``: (n,) each, one result each. With ``size`` the mix is that of a random sample of the
    leaked images of this size.
    """
    mix_rngs = [np.random.default_rng([seed, _MIX, row]) for row in range(len(leaked))]
    rng = np.random.default_rng([seed, _MATCHED])
    every = np.bincount(classes)
    starts = np.cumsum(every) - every
    members = [np.flatnonzero(each) for each in leaked]
    scores = np.full((len(leaked), draws, columns.shape[1]), np.nan)
    for draw in range(draws if any(map(len, members)) else 0):
        # images sorted by class, in random order within each: a mix is the first images of each
        order = np.argsort(classes + rng.random(len(classes)), kind="stable")
        sums = np.concatenate([np.zeros((1, columns.shape[1])), np.cumsum(columns[order], axis=0)])
        for row, own in enumerate(members):
            if not len(own):
                continue
            mix = own if size is None else mix_rngs[row].choice(own, min(size, len(own)), False)
            counts = np.bincount(classes[mix], minlength=len(every))
            taken = sums[starts + counts] - sums[starts]
            scores[row, draw] = taken.sum(axis=0) / len(mix)
    found = []
    for row, own in enumerate(members):
        images, overlap = len(own) if size is None else min(size, len(own)), math.nan
        if len(own):
            expected = np.bincount(classes[own], minlength=len(every)) * images / len(own)
            overlap = float((expected**2 / np.maximum(every, 1)).sum() / images)
        found.append(Draws(scores[row], images, overlap))
    return found


def part_draws(columns: Float64, part: Bool, size: int, draws: int, seed: int) -> Draws:
    """Return the scores (draws, columns) of ``size`` images drawn from a part, without replacement.

    A part (n,) of no more images is used as it is, once.
    """
    own = np.flatnonzero(part)
    if len(own) <= size:
        return Draws(columns[own].mean(axis=0)[None], len(own), 1.0)
    rng = np.random.default_rng([seed, _PART])
    scores = np.stack([columns[rng.choice(own, size, False)].mean(axis=0) for _ in range(draws)])
    return Draws(scores, size, size / len(own))


MOST: Final = 5  # controls per case; further ones add little precision

#: Maximum difference in difficulty, in ranks as a share of the images. The usual limit is a fifth
#: of a standard deviation (Austin 2011), which is 0.058 for ranks.
CALIPER: Final = 0.05
LOSS: Final = 0.05  # share of the cases that may be lost for one more control each


@dataclass(frozen=True)
class MatchedControls:
    """Leaked images and their matched controls."""

    leaked: Int64  # (m,): positions of leaked images that have controls, ascending
    controls: Int64  # (m, k): positions of their controls, all distinct
    alone: int  # leaked images without controls
    # mean relative rank in [0, 1], 1 being hardest: of all leaked images, of all others, of the
    # leaked images with controls, of the controls
    difficulty: tuple[float, float, float, float]

    def sets(self, count: int) -> Int64:
        """Return the number of each image's matched set, -1 for images without one, (count,)."""
        found = np.full(count, -1, np.int64)
        numbers = np.arange(len(self.leaked))
        found[self.leaked], found[self.controls] = numbers, numbers[:, None]
        return found


def matched_controls(
    difficulty: Float64, classes: Int64 | None, leaked: Bool, seed: int = 0
) -> MatchedControls:
    """Choose controls among the images that do not leak, each at most once.

    Greedy nearest-neighbour matching in rounds: in random order, every leaked image gets the free
    image of its class that is nearest in difficulty, if there is one within :data:`CALIPER`.

    ``difficulty`` (n,): larger is harder, NaN if it is not known; only the order counts.
    ``classes`` (n,): number of each image's class, or ``None``. ``leaked`` (n,): which images leak.
    """
    known = ~np.isnan(difficulty)
    rank = np.full(len(difficulty), np.nan)
    if known.any():
        rank[known] = (rankdata(difficulty[known]) - 0.5) / int(known.sum())
    group = np.zeros(len(rank), np.int64) if classes is None else classes
    rng = np.random.default_rng([seed, _MATCHING])
    own = rng.permutation(np.flatnonzero(leaked & known))
    pools = {
        int(each): _Pool(rank, rng.permutation(np.flatnonzero(~leaked & known & (group == each))))
        for each in np.unique(group[own])
    }
    found = np.full((len(own), MOST), -1, np.int64)
    alive = np.ones(len(own), np.bool_)
    for turn in range(MOST):
        for row in rng.permutation(np.flatnonzero(alive)):
            image = int(own[row])
            found[row, turn] = pools[int(group[image])].take(float(rank[image]))
        alive &= found[:, turn] >= 0
    chosen, controls = _enough(own, found)

    def mean(rows: Bool | Int64) -> float:
        return float(rank[rows].mean()) if rank[rows].size else math.nan

    sides = (leaked & known, ~leaked & known)
    levels = (mean(sides[0]), mean(sides[1]), mean(chosen), mean(controls.ravel()))
    return MatchedControls(chosen, controls, int(leaked.sum()) - len(chosen), levels)


def _enough(own: Int64, found: Int64) -> tuple[Int64, Int64]:
    """Return the leaked images with controls and these: as many each as :data:`LOSS` allows."""
    complete = np.cumprod(found >= 0, axis=1).sum(axis=0)
    if not len(own) or not complete[0]:
        return np.empty(0, np.int64), np.empty((0, 1), np.int64)
    count = int(np.flatnonzero(complete >= (1.0 - LOSS) * complete[0]).max()) + 1
    rows = np.flatnonzero((found[:, :count] >= 0).all(axis=1))
    rows = rows[np.argsort(own[rows])]
    return own[rows], found[rows, :count]


class _Pool:
    """Free images of a class that do not leak, by difficulty."""

    def __init__(self, rank: Float64, members: Int64) -> None:
        ordered = members[np.argsort(rank[members], kind="stable")]
        self._images: list[int] = ordered.tolist()
        self._ranks: list[float] = rank[ordered].tolist()

    def take(self, rank: float) -> int:
        """Remove and return the image nearest in difficulty, -1 where none is near enough."""
        start = bisect_left(self._ranks, rank)
        near = [place for place in (start - 1, start) if 0 <= place < len(self._ranks)]
        nearest = min(near, key=lambda place: abs(self._ranks[place] - rank), default=-1)
        if nearest < 0 or abs(self._ranks[nearest] - rank) > CALIPER:
            return -1
        del self._ranks[nearest]
        return self._images.pop(nearest)
