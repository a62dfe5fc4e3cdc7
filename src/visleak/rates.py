"""Shares of a count and their intervals: a test set is a sample."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from visleak.errors import UsageError


def wilson(
    k: int, n: int, confidence: float = 0.95, population: int | None = None
) -> tuple[float, float]:
    """Return the score interval of a share ``k / n``, both ends within [0, 1].

    Args:
        k: how many of them, between 0 and ``n``.
        n: how many there are; 0 gives ``(nan, nan)``, because nothing is known.
        confidence: between 0 and 1, both excluded.
        population: of how many the ``n`` were drawn, each at most once: the interval is of the
            share in these, narrower by the finite population correction (``n`` counts as
            ``n (population - 1) / (population - n)``). By default they are endlessly many.

    Raises:
        UsageError: ``k`` does not lie between 0 and ``n``, ``confidence`` not between 0 and 1, or
            ``n`` were never drawn of so few.

    Source: Wilson 1927, "Probable inference, the law of succession, and statistical inference";
    Cochran 1977, "Sampling techniques", section 2.6, for the correction.

    >>> tuple(round(end, 4) for end in wilson(289, 10_000))
    (0.0258, 0.0324)
    >>> wilson(0, 100)[0], wilson(100, 100)[1]
    (0.0, 1.0)
    >>> wilson(0, 0)
    (nan, nan)
    >>> tuple(round(end, 4) for end in wilson(14, 500, population=1_000))
    (0.0194, 0.0402)
    """
    check_counts(k, n, confidence)
    if population is not None and population < n:
        raise UsageError(f"population must be at least n = {n}; got {population}")
    if n == 0:
        return math.nan, math.nan
    if population is not None:
        return _finite(k, n, confidence, population)
    return score_interval(k / n, n, confidence)


def check_counts(k: int, n: int, confidence: float) -> None:
    """Refuse impossible counts, and invalid confidence levels."""
    if not 0 <= k <= n:
        raise UsageError(f"k must lie between 0 and n = {n}; got {k}")
    check_confidence(confidence)


def check_confidence(confidence: float) -> None:
    """Refuse an invalid confidence level: it must be between 0 and 1, both excluded."""
    if not 0.0 < confidence < 1.0:
        raise UsageError(f"confidence must lie between 0 and 1; got {confidence}")


def _finite(k: int, n: int, confidence: float, population: int) -> tuple[float, float]:
    """Return the interval of a share of a population of which ``n`` were observed."""
    # the observed ones are known
    least, most = k / population, (population - n + k) / population
    if n == population:
        return least, most
    low, high = score_interval(k / n, n * (population - 1) / (population - n), confidence)
    return max(low, least), min(high, most)


def score_interval(share: float, n: float, confidence: float) -> tuple[float, float]:
    """Return Wilson's interval of a share in [0, 1] of ``n``, which need not be whole."""
    z = NormalDist().inv_cdf(0.5 + confidence / 2.0)
    spread = z * z / n
    centre = (share + spread / 2.0) / (1.0 + spread)
    half = z * math.sqrt(share * (1.0 - share) / n + spread / (4.0 * n)) / (1.0 + spread)
    # The closed form is exact at both ends; in floating point it misses them by an ulp.
    low = 0.0 if share == 0.0 else max(0.0, centre - half)
    high = 1.0 if share == 1.0 else min(1.0, centre + half)
    return low, high


def percent(share: float) -> str:
    """Write a share as a percentage with two decimals, without the sign.

    What is not nothing never reads as nothing, and what is not all never as all.

    >>> percent(0.02894), percent(0.0), percent(0.000001), percent(0.999999)
    ('2.89', '0.00', '<0.01', '>99.99')
    """
    if math.isnan(share):
        return "-"
    if 0.0 < share < 0.00005:
        return "<0.01"
    if 0.99995 <= share < 1.0:
        return ">99.99"
    return f"{100.0 * share:.2f}"


def chance(probability: float) -> str:
    """Write a probability with three decimals; what is not certain never reads as certain.

    >>> chance(0.25), chance(1.0), chance(0.99998), chance(0.0), chance(0.0001)
    ('0.250', '1.000', '>0.999', '0.000', '<0.001')
    """
    if 0.0 < probability < 0.0005:
        return "<0.001"
    if 0.9995 <= probability < 1.0:
        return ">0.999"
    return f"{probability:.3f}"


@dataclass(frozen=True, slots=True)
class Rate:
    """How many of how many, as a share with its interval. Make it with :meth:`of`.

    Attributes:
        count: how many.
        total: of how many.
        low, high: ends of the Wilson interval, shares in [0, 1]; NaN if ``total`` is 0.
        share: ``count / total``; NaN if ``total`` is 0.
        confidence: how often such an interval holds the true share.
        population: of how many the ``total`` were drawn; the interval is of their share then.

    >>> print(Rate.of(289, 10_000))
    289 of 10,000 (2.89 %, 95 % CI 2.58-3.24)
    >>> print(Rate.of(0, 0))
    0 of 0
    """

    count: int
    total: int
    low: float
    high: float
    share: float
    confidence: float = 0.95
    population: int | None = None

    @classmethod
    def of(
        cls, count: int, total: int, confidence: float = 0.95, population: int | None = None
    ) -> Rate:
        """Return the rate of ``count`` in ``total``, see :func:`wilson`."""
        low, high = wilson(count, total, confidence, population)
        share = count / total if total else math.nan
        return cls(int(count), int(total), low, high, share, confidence, population)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Rate:
        """Return a stored rate; only its ``count``, ``total`` and ``population`` are believed.

        >>> Rate.from_dict(Rate.of(3, 9).as_dict()) == Rate.of(3, 9)
        True
        """
        population = value.get("population")
        return cls.of(
            int(value["count"]),
            int(value["total"]),
            population=None if population is None else int(population),
        )

    def as_dict(self) -> dict[str, float | int | None]:
        """Return what ``audit.json`` holds; unknown ends are ``None``, for JSON has no NaN."""
        known = self.total > 0
        return {
            "count": self.count,
            "total": self.total,
            "share": self.share if known else None,
            "low": self.low if known else None,
            "high": self.high if known else None,
            **({} if self.population is None else {"population": self.population}),
        }

    @property
    def expected(self) -> tuple[int, int]:
        """How many of the population, at least and at most, by the interval.

        >>> Rate.of(14, 500, population=10_000).expected
        (169, 459)
        """
        whole = self.population if self.population is not None else self.total
        return math.floor(self.low * whole + 1e-9), math.ceil(self.high * whole - 1e-9)

    @property
    def interval(self) -> str:
        """The interval in words.

        >>> Rate.of(289, 10_000).interval
        '95 % CI 2.58-3.24'
        """
        return f"{100 * self.confidence:g} % CI {percent(self.low)}-{percent(self.high)}"

    def __str__(self) -> str:
        counts = f"{self.count:,} of {self.total:,}"
        if not self.total:
            return counts
        return f"{counts} ({percent(self.share)} %, {self.interval})"
