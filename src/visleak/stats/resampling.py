"""Intervals by drawing clusters again: rows of one image, query or person stay together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from visleak.errors import UsageError
from visleak.records import Int64


def cluster_draws(clusters: int, resamples: int, seed: int = 0) -> Iterator[Int64]:
    """Yield how often each of the clusters is drawn, (clusters,), once a resample.

    Every resample draws as many clusters as there are, with replacement.
    """
    if clusters < 1 or resamples < 1:
        raise UsageError(
            f"clusters and resamples must be 1 or more; got {clusters} and {resamples}"
        )
    rng = np.random.default_rng(seed)
    for _ in range(resamples):
        drawn = rng.integers(clusters, size=clusters)
        yield np.bincount(drawn, minlength=clusters).astype(np.int64)


def cluster_bootstrap(
    statistic: Callable[[Int64], float],
    clusters: npt.ArrayLike,
    *,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> tuple[float, float]:
    """Return the percentile interval of a statistic, drawing whole clusters.

    ``statistic``: takes row numbers, (k,), of which some occur several times; NaN if it is not
    defined, which leaves the resample out. ``clusters`` (n,): which cluster each row belongs to;
    anything that can be compared. Returns lower and upper end; NaN if no resample defines the
    statistic.

    Source: Davison & Hinkley 1997, "Bootstrap methods and their application", section 3.8.
    """
    if not 0.0 < confidence < 1.0:
        raise UsageError(f"confidence must lie between 0 and 1; got {confidence}")
    _, owner, sizes = np.unique(np.asarray(clusters), return_inverse=True, return_counts=True)
    if not len(owner):
        raise UsageError("nothing to draw from: clusters has no rows")
    order = np.argsort(owner, kind="stable")
    rows = np.split(order, np.cumsum(sizes)[:-1])
    values = []
    for counts in cluster_draws(len(sizes), resamples, seed):
        chosen = np.flatnonzero(counts)
        values.append(statistic(np.concatenate([np.repeat(rows[c], counts[c]) for c in chosen])))
    known = [value for value in values if not math.isnan(value)]
    return percentiles(known, confidence)


def percentiles(values: npt.ArrayLike, confidence: float = 0.95) -> tuple[float, float]:
    """Return the two quantiles that leave out ``1 - confidence`` in equal parts; NaN for none."""
    found = np.asarray(values, np.float64)
    if not found.size:
        return math.nan, math.nan
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(found, [tail, 1.0 - tail])
    return float(low), float(high)
