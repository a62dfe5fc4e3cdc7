"""Random controls: mean scores of parts drawn from all images, or with a given class mix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from visleak.records import Bool, Float64, Int64

#: Numbers of the streams of random numbers, so that none depends on what else is drawn.
_RANDOM, _MATCHED, _PART, _MIX = range(4)


@dataclass(frozen=True)
class Draws:
    """Scores of parts that were drawn repeatedly."""

    scores: Float64  # (draws, columns): mean of each draw
    images: int  # in each draw
    overlap: float  # share of its images that two draws have in common, on average


def random_draws(columns: Float64, sizes: Sequence[int], draws: int, seed: int) -> list[Draws]:
    """Return the scores of images drawn from all, without replacement.

    Ramos et al. (2025), section 7.3, drew once; here it is repeated. The images of a small draw
    are among those of a larger one with the same number.

    ``columns`` (n, columns): scores by image, one column per model and metric.
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
    ``leaked``: the images whose mix is wanted, such as leaked ones, (n,) each; one result each.
    With ``size`` the mix is that of as many of the given ones, drawn first.
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
    return [
        Draws(scores[row], _size(own, size), _common(classes, own, every, size))
        for row, own in enumerate(members)
    ]


def part_draws(columns: Float64, part: Bool, size: int, draws: int, seed: int) -> Draws:
    """Return the scores of ``size`` images drawn from a part, without replacement.

    A part of no more images is used as it is, once.

    ``columns`` (n, columns): scores by image. ``part`` (n,): its images.
    """
    own = np.flatnonzero(part)
    if len(own) <= size:
        return Draws(columns[own].mean(axis=0)[None], len(own), 1.0)
    rng = np.random.default_rng([seed, _PART])
    scores = np.stack([columns[rng.choice(own, size, False)].mean(axis=0) for _ in range(draws)])
    return Draws(scores, size, size / len(own))


def _size(own: Int64, size: int | None) -> int:
    return len(own) if size is None else min(size, len(own))


def _common(classes: Int64, own: Int64, every: Int64, size: int | None) -> float:
    """Return how much of a draw another one has too, if each has the given mix."""
    if not len(own):
        return float("nan")
    counts = np.bincount(classes[own], minlength=len(every)) * _size(own, size) / len(own)
    return float((counts**2 / np.maximum(every, 1)).sum() / _size(own, size))
