"""Random, class-matched and difficulty-matched controls.

Images that have copies are often easier than others, also for a model without any memory of them.
A higher score on leaked images than on matched controls of the same difficulty is not explained by
that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.stats import rankdata

from visleak.records import Bool, Float64, Int64

#: Numbers of the streams of random numbers, so that none depends on what else is drawn.
_RANDOM, _MATCHED, _PART, _MIX, _MATCHING = range(5)


@dataclass(frozen=True)
class Draws:
    """Scores of parts that were drawn repeatedly."""

    scores: Float64  # (draws, columns): mean of each draw
    images: int  # in each draw
    overlap: float  # share of its images that two draws have in common, on average


def random_draws(columns: Float64, sizes: Sequence[int], draws: int, seed: int) -> list[Draws]:
    """Return the scores of images drawn from all, without replacement.

    Ramos et al. (2025), section 7.3, drew once; here it is repeated. The images of a small draw are
    among those of a larger one of the same number. ``columns`` (n, columns): scores by image.
    """
    rng = np.random.default_rng([seed, _RANDOM])
    scores = np.full((len(sizes), draws, columns.shape[1]), np.nan)
    wanted = [(row, size) for row, size in enumerate(sizes) if size]
    for draw in range(draws if wanted else 0):
        # the front of one permutation serves all sizes
        order = rng.permutation(len(columns))[: max(sizes)]
        sums = np.cumsum(columns[order], axis=0)
        for row, size in wanted:
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
    """Return the scores of images drawn from all with the class mix of some of them.

    ``columns`` (n, columns): scores by image. ``classes`` (n,): number of each image's class.
    ``leaked``: the images whose mix is wanted, (n,) each; one result each. With ``size`` the mix is
    that of as many of the given ones, drawn first.
    """
    order_of_mix = [np.random.default_rng([seed, _MIX, row]) for row in range(len(leaked))]
    rng = np.random.default_rng([seed, _MATCHED])
    every = np.bincount(classes)
    starts = np.cumsum(every) - every
    members = [np.flatnonzero(each) for each in leaked]
    scores = np.full((len(leaked), draws, columns.shape[1]), np.nan)
    for draw in range(draws if any(map(len, members)) else 0):
        # images class by class, in random order within each: the fronts of the classes serve
        # every mix
        order = np.argsort(classes + rng.random(len(classes)), kind="stable")
        sums = np.concatenate([np.zeros((1, columns.shape[1])), np.cumsum(columns[order], axis=0)])
        for row, own in enumerate(members):
            if not len(own):
                continue
            mix = own if size is None else order_of_mix[row].choice(own, min(size, len(own)), False)
            counts = np.bincount(classes[mix], minlength=len(every))
            taken = sums[starts + counts] - sums[starts]
            scores[row, draw] = taken.sum(axis=0) / len(mix)
    found = []
    for row, own in enumerate(members):
        images, common = len(own) if size is None else min(size, len(own)), math.nan
        if len(own):
            # how much of a draw another one has too, if each has the given mix
            shares = np.bincount(classes[own], minlength=len(every)) * images / len(own)
            common = float((shares**2 / np.maximum(every, 1)).sum() / images)
        found.append(Draws(scores[row], images, common))
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


MOST: Final = 5  # most controls per case; more add little where each pair differs by chance anyway

#: Controls differ in difficulty by at most this share of the images between them. A fifth of a
#: standard deviation is the usual limit (Austin 2011); of ranks that is 0.058.
CALIPER: Final = 0.05
LOSS: Final = 0.05  # a further control for all is worth losing this share of the cases


@dataclass(frozen=True)
class Matched:
    """Leaked images and their matched controls."""

    leaked: Int64  # (m,): positions of leaked images that have controls, ascending
    controls: Int64  # (m, k): positions of their controls, each in one place only
    alone: int  # leaked images without
    # mean share of the images that are easier, in [0, 1]: of all leaked images, of all others, of
    # the leaked images with controls, of the controls
    difficulty: tuple[float, float, float, float]

    def sets(self, count: int) -> Int64:
        """Return the number of each image's matched set, -1 for images without one, (count,)."""
        found = np.full(count, -1, np.int64)
        numbers = np.arange(len(self.leaked))
        found[self.leaked], found[self.controls] = numbers, numbers[:, None]
        return found


def matched_controls(
    difficulty: Float64, classes: Int64 | None, leaked: Bool, seed: int = 0
) -> Matched:
    """Choose controls among the images that do not leak, each at most once.

    In each round every leaked image takes the image of its class that is left and nearest in
    difficulty, in random order. An image that finds none within :data:`CALIPER` has no control.

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
    return Matched(chosen, controls, int(leaked.sum()) - len(chosen), levels)


def _enough(own: Int64, found: Int64) -> tuple[Int64, Int64]:
    """Return the leaked images with controls and these, as many each as hardly any image lacks."""
    complete = np.cumprod(found >= 0, axis=1).sum(axis=0)
    if not len(own) or not complete[0]:
        return np.empty(0, np.int64), np.empty((0, 1), np.int64)
    count = int(np.flatnonzero(complete >= (1.0 - LOSS) * complete[0]).max()) + 1
    rows = np.flatnonzero((found[:, :count] >= 0).all(axis=1))
    rows = rows[np.argsort(own[rows])]
    return own[rows], found[rows, :count]


class _Pool:
    """Images of a class that do not leak, by difficulty; each is taken once."""

    def __init__(self, rank: Float64, members: Int64) -> None:
        self._images = members[np.argsort(rank[members], kind="stable")]
        self._ranks = rank[self._images]
        # from each place to the next one to the right that may be free; the last is the end
        self._right = list(range(len(members) + 1))
        # the same to the left, from place - 1; the first is the end
        self._left = list(range(len(members) + 1))

    def take(self, rank: float) -> int:
        """Return the image nearest in difficulty, -1 where none is near enough."""
        start = int(np.searchsorted(self._ranks, rank))
        right, left = _free(self._right, start), _free(self._left, start) - 1
        near = [place for place in (left, right) if 0 <= place < len(self._images)]
        if not near:
            return -1
        nearest = min(near, key=lambda place: abs(float(self._ranks[place]) - rank))
        if abs(float(self._ranks[nearest]) - rank) > CALIPER:
            return -1
        self._right[nearest], self._left[nearest + 1] = nearest + 1, nearest
        return int(self._images[nearest])


def _free(links: list[int], place: int) -> int:
    """Follow links from a place to one that links to itself, and shorten them on the way."""
    end = place
    while links[end] != end:
        end = links[end]
    while links[place] != end:
        links[place], place = end, links[place]
    return end
