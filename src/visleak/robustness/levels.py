"""A threshold at a false-positive rate, with what is known about that rate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from visleak.errors import VisleakError
from visleak.records import Float32, Int64
from visleak.robustness.curves import plain
from visleak.robustness.direct import Searched
from visleak.robustness.queries import Changed
from visleak.stats import Rate
from visleak.stats.binomial import chernoff_upper, clopper_pearson_upper, clustered_upper
from visleak.stats.resampling import cluster_draws, percentiles

#: Thresholds are rounded up to whole multiples of this.
STEP: Final = 1e-4

#: Resamples behind the bootstrap interval.
RESAMPLES: Final = 1000


@dataclass(frozen=True)
class Level:
    """One threshold and what is known about it.

    Attributes:
        name: ``hard`` or ``soft``.
        asked: false-positive rate asked for.
        threshold: similarity.
        supported: there are at least ``1 / asked`` pairs of different pictures to read the rate
            off; if not, the threshold lies just above the largest similarity seen.
        false, pairs: wrong pairs at or above it, of all: one pair of pictures counts once for
            each condition and either way round.
        pictures: pairs of different pictures, each counted once.
        upper_pairs: one-sided 95 % upper bound of the rate, as if all ``pairs`` were independent
            (Clopper & Pearson). They are not: take it as the lower end of what may be.
        upper_pictures: the same, as if the ``pictures`` were independent of each other.
        upper_images: the same, however the pairs of an image depend on each other (Hoeffding).
        interval: 95 % bootstrap interval of the rate over images; ``None`` where nothing was seen.
        original: share of the untransformed pictures at or above it.
        changed: share of the transformed ones.
        conditions: the share by condition.
    """

    name: str
    asked: float
    threshold: float
    supported: bool
    false: int
    pairs: int
    pictures: int
    upper_pairs: float
    upper_pictures: float
    upper_images: float
    interval: tuple[float, float] | None
    original: Rate
    changed: Rate
    conditions: dict[str, Rate]

    @property
    def rate(self) -> float:
        """False-positive rate seen."""
        return self.false / self.pairs

    def as_dict(self) -> dict[str, Any]:
        """Return what is stored."""
        return {
            "asked": self.asked,
            "threshold": self.threshold,
            "supported": self.supported,
            "false_positives": self.false,
            "pairs": self.pairs,
            "rate": self.rate,
            "pairs_of_pictures": self.pictures,
            "upper_95_pairs": self.upper_pairs,
            "upper_95_pictures": self.upper_pictures,
            "upper_95_images": self.upper_images,
            "bootstrap_95_images": self.interval and [plain(end) for end in self.interval],
            "tpr_original": self.original.as_dict(),
            "tpr_changed": self.changed.as_dict(),
            "tpr": {name: plain(rate.share) for name, rate in self.conditions.items()},
        }


def level_at(name: str, rate: float, found: Searched, changed: Changed, rows: Int64) -> Level:
    """Return the threshold at a rate, with all that is known about it.

    Args:
        name: ``hard`` or ``soft``.
        rate: false-positive rate asked for.
        found: what direct search found, with the largest wrong pairs.
        changed: what the queries were.
        rows: ``int64``: positions of the readable pictures, ascending.
    """
    pairs, images = int(found.others.sum()), len(changed.queries)
    ordered = _ordered_pairs(found, images)
    # with both pictures among the queries a pair comes either way round
    pictures = round(ordered * (1 - (images - 1) / (2 * max(1, len(rows) - 1))))
    supported = rate * pictures >= 1.0
    threshold = threshold_at(found.largest.similarity, math.floor(rate * pairs) * supported)
    above = found.largest.similarity >= np.float32(threshold)
    query = found.query[found.largest.query[above]]
    owner, other = changed.queries[query], found.largest.reference[above]
    false = int(above.sum())
    # each pair of pictures counts once, by the share of its conditions that are wrong
    weight = 1.0 / np.bincount(found.query, minlength=images)[query]
    share = min(1.0, float(weight.sum()) / ordered)
    by_name = {
        condition.name: _reaching(found.own[found.condition == number], threshold)
        for number, condition in enumerate(changed.conditions)
    }
    moved = np.array([c.name != "original" for c in changed.conditions])[found.condition]
    return Level(
        name=name,
        asked=rate,
        threshold=threshold,
        supported=supported,
        false=false,
        pairs=pairs,
        pictures=pictures,
        upper_pairs=clopper_pearson_upper(false, pairs),
        upper_pictures=chernoff_upper(share, pictures),
        upper_images=clustered_upper(share, images),
        interval=_bootstrap(owner, other, rows, pairs) if false else None,
        original=_reaching(found.own[~moved], threshold),
        changed=_reaching(found.own[moved], threshold),
        conditions=by_name,
    )


def _reaching(similarity: Float32, threshold: float) -> Rate:
    return Rate.of(int((similarity >= np.float32(threshold)).sum()), len(similarity))


def _ordered_pairs(found: Searched, images: int) -> float:
    """Return how many (query, other picture) there are, whatever the number of conditions."""
    counts = np.bincount(found.query, minlength=images)
    sums = np.bincount(found.query, found.others, minlength=images)
    return float((sums[counts > 0] / counts[counts > 0]).sum())


def threshold_at(largest: Float32, allowed: int) -> float:
    """Return the lowest multiple of 0.0001 that at most ``allowed`` wrong pairs reach.

    Args:
        largest: ``float32`` (n,), falling: the largest similarities of wrong pairs, at least one
            more than are allowed, or all there are.
        allowed: how many may remain.

    Raises:
        VisleakError: even the highest similarity there is leaves too many.

    >>> threshold_at(np.array([0.9, 0.7, 0.5], np.float32), 1)
    0.7001
    """
    if allowed >= len(largest):
        return -1.0
    barred = float(largest[allowed])
    threshold = round(math.floor(barred / STEP + 1) * STEP, 4)
    if np.float32(threshold) <= largest[allowed]:  # rounding met the very value
        threshold = round(threshold + STEP, 4)
    if threshold > 1.0:
        raise VisleakError(
            f"no threshold leaves so few: {allowed + 1:,} pairs of different pictures have a"
            f" similarity of {barred:.5f} or more; the encoder cannot tell them apart, or the set"
            " holds pictures twice"
        )
    return threshold


def _bootstrap(owner: Int64, other: Int64, rows: Int64, pairs: int) -> tuple[float, float]:
    """Return the interval of the rate when whole pictures are drawn again, as either side."""
    left, right = np.searchsorted(rows, owner), np.searchsorted(rows, other)
    count = len(rows)
    values = []
    for drawn_ in cluster_draws(count, RESAMPLES):
        weight = (drawn_[left] * drawn_[right]).sum()
        # a picture drawn twice makes no pair with itself
        scale = (count * count - (drawn_**2).sum()) / (count * (count - 1))
        if scale > 0:
            values.append(weight / (pairs * scale))
    return percentiles(values)
