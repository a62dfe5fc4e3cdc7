"""The figures of a comparison: one row a method, intervals over seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from visleak.memorization.baselines.records import Attempt, Comparison
from visleak.stats.means import t_interval


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over seeds.

    Attributes:
        value: the mean.
        low, high: ends of Student's 95 % interval over seeds; NaN with fewer than two.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Row:
    """A method over all seeds.

    Attributes:
        method: its name.
        seeds: how many.
        found: distinct memorized images, verified, of a seed.
        candidates: prompts that images were made of, of a seed.
        clustered: candidates whose images gave a cluster.
        search_calls, image_calls: passes of a seed.
        seconds: of search, images and verification.
        calls_an_image, seconds_an_image: all passes and seconds of all seeds by all images found;
            NaN where there is none.
        best_d, median_d: highest and median D of a seed's candidates, under noises that no search
            has met.
        complete: whether every search ran to its own end.
    """

    method: str
    seeds: int
    found: Mean
    candidates: float
    clustered: Mean
    search_calls: float
    image_calls: float
    seconds: float
    calls_an_image: float
    seconds_an_image: float
    best_d: Mean
    median_d: Mean
    complete: bool


def rows_of(result: Comparison) -> list[Row]:
    """Return a row a method, in the order they were asked for."""
    return [row_of(name, result.of(name)) for name in result.methods]


def row_of(method: str, attempts: Sequence[Attempt]) -> Row:
    """Return the figures of one method's attempts, one a seed."""
    images = sum(each.found for each in attempts)
    return Row(
        method=method,
        seeds=len(attempts),
        found=mean_of((each.found for each in attempts), 0.0),
        candidates=mean_of(len(each.candidates) for each in attempts).value,
        clustered=mean_of(
            (len(each.verified.clustered) for each in attempts),
            *(0.0, max((len(each.candidates) for each in attempts), default=math.inf)),
        ),
        search_calls=mean_of(each.search_calls for each in attempts).value,
        image_calls=mean_of(each.verified.calls for each in attempts).value,
        seconds=mean_of(each.seconds for each in attempts).value,
        calls_an_image=_by(sum(each.calls for each in attempts), images),
        seconds_an_image=_by(sum(each.seconds for each in attempts), images),
        best_d=mean_of((max(each.checked, default=math.nan) for each in attempts), 0.0),
        median_d=mean_of(
            (float(np.median(each.checked)) if each.checked else math.nan for each in attempts),
            0.0,
        ),
        complete=all(each.complete for each in attempts),
    )


def mean_of(values: Iterable[float], least: float = -math.inf, most: float = math.inf) -> Mean:
    """Return the mean with its interval over seeds; what is not known (NaN) is left out.

    Args:
        values: one a seed.
        least, most: that a value can be, where the interval ends.

    >>> mean_of([2.0, 4.0]).value, mean_of([0.0, 4.0], 0.0).low
    (3.0, 0.0)
    """
    known = [value for value in map(float, values) if not math.isnan(value)]
    if not known:
        return Mean(math.nan, math.nan, math.nan)
    low, high = t_interval(known)
    low, high = (least if low < least else low), (most if high > most else high)
    return Mean(sum(known) / len(known), low, high)


def _by(total: float, count: int) -> float:
    return total / count if count else math.nan
