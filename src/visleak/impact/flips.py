"""Whether models change places where leaked images do not count."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Final

import numpy as np

from visleak.impact.benchmark import Benchmark, Scores
from visleak.impact.results import Flip
from visleak.records import Bool, Float64
from visleak.stats.resampling import cluster_draws

RESAMPLES: Final = 2000  # resamples of the images
_BLOCK: Final = 4_000_000  # numbers that a block of resamples may hold


def flips_of(
    benchmark: Benchmark, models: Sequence[Scores], metric: str, seed: int = 0
) -> tuple[Flip, ...]:
    """Return, for each leak and each two models, whether and how likely their order changes.

    Both orders of a resample are of the same images, drawn with replacement, so that what they
    have in common cancels: ``chance`` is about the effect of the leak, ``behind`` about how certain
    the order on images that do not leak is.

    Two models are compared on the images with predictions of both; the likeliest change is first.
    """
    own = [scores for scores in models if metric in scores.values]
    sign = -1.0 if any(metric in scores.lower for scores in own) else 1.0
    groups: dict[bytes, tuple[Bool, list[tuple[Scores, Scores]]]] = {}
    for first, second in combinations(own, 2):
        both = first.answered & second.answered
        if both.any():
            groups.setdefault(both.tobytes(), (both, []))[1].append((first, second))
    found = [
        flip
        for answered, pairs in groups.values()
        for flip in _flips(benchmark, pairs, answered, metric, sign, seed)
    ]
    return tuple(sorted(found, key=lambda flip: -flip.chance))


def _flips(
    benchmark: Benchmark,
    pairs: Sequence[tuple[Scores, Scores]],
    answered: Bool,
    metric: str,
    sign: float,
    seed: int,
) -> Iterator[Flip]:
    """Yield how the orders change of pairs with predictions for the same images."""
    lead = np.stack(
        [sign * (one.values[metric] - other.values[metric])[answered] for one, other in pairs],
        axis=1,
    )
    # the better one first, in the given order where they are equal
    behind_now = lead.mean(axis=0) < 0.0
    lead[:, behind_now] *= -1.0
    ordered = [
        pair[::-1] if turned else pair for pair, turned in zip(pairs, behind_now, strict=True)
    ]
    leaks = [
        (leak.name, ~leak.leaked[answered])
        for leak in benchmark.leaks
        if leak.leaked[answered].any() and not leak.leaked[answered].all()
    ]
    counted = _resampled(lead, [kept for _, kept in leaks], seed)
    for (name, kept), (chance, behind) in zip(leaks, counted, strict=True):
        for at, (first, second) in enumerate(ordered):
            whole, fair = float(lead[:, at].mean()), float(lead[kept, at].mean())
            yield Flip(
                metric,
                name,
                first.model,
                second.model,
                sign * whole,
                sign * fair,
                fair < 0.0 < whole,
                float(chance[at]),
                float(behind[at]),
                len(lead),
            )


def _resampled(lead: Float64, parts: Sequence[Bool], seed: int) -> list[tuple[Float64, Float64]]:
    """Return by part and pair how often the order changes, and how often the first is behind.

    ``lead`` (n, pairs): score of the first minus that of the second, by image. ``parts``: images
    that count, (n,) each.
    """
    weighted = [lead * kept[:, None] for kept in parts]
    changed, behind = (np.zeros((len(parts), lead.shape[1])) for _ in range(2))
    size = max(1, min(RESAMPLES, _BLOCK // len(lead)))
    drawn = cluster_draws(len(lead), RESAMPLES, seed)
    for start in range(0, RESAMPLES, size):
        rows = min(size, RESAMPLES - start)
        counts = np.stack([next(drawn) for _ in range(rows)]).astype(np.float64)
        # sums of ones and zeros are exact; others may miss a tie by an ulp
        whole = _sign(counts @ lead)
        for at, part in enumerate(weighted):
            fair = _sign(counts @ part)
            changed[at] += (np.abs(whole - fair) / 2.0).sum(axis=0)
            behind[at] += ((1.0 - fair) / 2.0).sum(axis=0)
    return [
        (each / RESAMPLES, last / RESAMPLES) for each, last in zip(changed, behind, strict=True)
    ]


def _sign(sums: Float64) -> Float64:
    """Return which of two is ahead: 1, 0 for a tie, or -1."""
    return np.asarray(np.sign(np.where(np.abs(sums) < 1e-9, 0.0, sums)))
