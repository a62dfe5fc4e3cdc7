"""Results of ``detection.py`` on judged pairs of CIFAR-10, test against train."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import fit_grader
import numpy as np
import numpy.typing as npt
from fit_grader import TINY_NEAR, Part, cross_validated, fit, tiny_near
from measures import (
    average_precision,
    brier_score,
    expected_calibration_error,
    recalibration,
    recall_at_precision,
)
from samples import LEFT_OUT, UNJUDGED, Found, Sample

from visleak.stats.bootstrap import cluster_bootstrap

TEST = 10_000
RESAMPLES = 1000
Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Queries:
    """Ground truth of the test images of even index, by the verdicts of people on their pairs.

    Attributes:
        near, similar: it has a near-duplicate in train, or only a very similar image.
        unjudged: no pair of it was judged.
        counted: it counts for the ranking of near-duplicates: even, not only similar, and not
            disputed.
    """

    near: npt.NDArray[np.bool_]
    similar: npt.NDArray[np.bool_]
    unjudged: npt.NDArray[np.bool_]
    counted: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, judged: dict[tuple[str, str], int]) -> Queries:
        """Return the ground truth of judged pairs."""
        best = np.full(TEST, 9)
        differed = np.zeros(TEST, bool)
        for (query, _), verdict in judged.items():
            if verdict == LEFT_OUT:
                differed[int(query)] = True
            else:
                best[int(query)] = min(best[int(query)], verdict)
        even = np.arange(TEST) % 2 == 0
        near, similar = best <= 1, best == 2
        unjudged = even & (best == 9) & ~differed
        return cls(near, similar, unjudged, even & ~similar & ~(differed & (best > 2)))


def by_query(query: npt.NDArray[np.int64], score: Float64) -> Float64:
    """Return the best score of each test image, -1 where it has no pair."""
    best = np.full(TEST, -1.0)
    np.maximum.at(best, query, score)
    return best


def ranking(score: Float64, queries: Queries, among: npt.NDArray[np.bool_]) -> dict[str, Any]:
    """Return average precision and recall at 95 % precision, with 95 % bootstrap intervals.

    Args:
        score: of each test image.
        queries: the truth.
        among: which test images are ranked.
    """
    rows = np.flatnonzero(among)
    values, true = score[rows], queries.near[rows]
    result: dict[str, Any] = {"queries": len(rows), "near": int(true.sum())}
    figures = {
        "average_precision": lambda r: float(average_precision(true[r], values[r])),
        "recall_at_95": lambda r: recall_at_precision(values[r], true[r], 0.95),
    }
    everything = np.arange(len(rows))
    for name, figure in figures.items():
        low, high = cluster_bootstrap(figure, everything, resamples=RESAMPLES)
        result[name] = {"value": float(figure(everything)), "low": low, "high": high}
    return result


def calibration(probability: Float64, true: npt.NDArray[np.bool_]) -> dict[str, float]:
    """Return the calibration of probabilities."""
    slope, intercept = recalibration(probability, true)
    return {
        "pairs": len(true),
        "error": expected_calibration_error(probability, true),
        "slope": slope,
        "intercept": intercept,
        "brier": float(brier_score(true, probability)),
    }


def _calibrated_alone(sample: Sample, name: str) -> Float64:
    """Return P(near) by one measure alone, cross-validated over queries."""
    fold = sample.query // 2 % fit_grader.FOLDS
    probability = np.empty(len(sample))
    for number in range(fit_grader.FOLDS):
        seen, held = sample.only(fold != number), sample.only(fold == number)
        true = (seen.verdict >= 0) & (seen.verdict <= 1)
        part = Part(seen.columns, true, np.ones(len(seen)))
        probability[fold == number] = fit((name,), [part]).probability(held.columns)
    return probability


def measure(
    found: Found,
    judged: dict[tuple[str, str], int],
    sample: Sample,
    others: Mapping[str, Sample],
) -> tuple[dict[str, Any], Float64]:
    """Return all results, and the cross-validated probability of each checked pair."""
    queries = Queries.of(judged)
    probability = cross_validated(sample, others)
    score = by_query(sample.query, probability)
    pairs = set(zip(found.query.tolist(), found.reference.tolist(), strict=True))
    near_pairs = [pair for pair, verdict in judged.items() if verdict in (0, 1)]
    looked = sample.verdict >= 0
    true = looked & (sample.verdict <= 1)
    cosine = _calibrated_alone(sample.only(looked), "similarity")
    kept = sample.only(sample.verdict != LEFT_OUT)
    chance = probability[sample.verdict != LEFT_OUT]
    figures = {
        "ranking": ranking(score, queries, queries.counted),
        "ranking_judged_only": ranking(score, queries, queries.counted & ~queries.unjudged),
        "near_pairs": len(near_pairs),
        "near_pairs_among_candidates": sum(pair in pairs for pair in near_pairs) / len(near_pairs),
        "near_pairs_checked": int(true.sum()),
        "calibration_judged": calibration(probability[looked], true[looked]),
        "calibration_cosine": calibration(cosine, true[looked]),
        "calibration_all_candidates": calibration(
            chance, (kept.verdict != UNJUDGED) & (kept.verdict <= 1)
        ),
        "grades": _grades(probability, sample),
        "backgrounds": _backgrounds(found, sample, queries),
        "features": list(TINY_NEAR),
    }
    return figures, probability


def _grades(probability: Float64, sample: Sample) -> dict[str, dict[str, int]]:
    """Return the number of judged pairs with a probability of 0.5 or more, by verdict."""
    names = ("exact", "near", "similar", "different")
    return {
        name: {
            "pairs": int((sample.verdict == verdict).sum()),
            "near_at_half": int(((sample.verdict == verdict) & (probability >= 0.5)).sum()),
        }
        for verdict, name in enumerate(names)
    }


def _backgrounds(found: Found, sample: Sample, queries: Queries) -> dict[str, dict[str, float]]:
    """Return the ranking with different backgrounds of the similarity.

    ``cohort`` is what ships; ``neighbours`` takes the mean of the query's own 11th to 20th
    candidates instead, ``none`` the plain similarity. Other tiny sets are excluded: they have no
    such neighbours.
    """
    own = np.zeros(TEST)
    query = found.query.astype(np.int64)
    order = np.lexsort((-found.pairs.similarity, query))
    starts = np.searchsorted(query[order], np.arange(TEST + 1))
    for number in range(TEST):
        near = found.pairs.similarity[order[starts[number] : starts[number + 1]]]
        own[number] = near[10:20].mean() if len(near) > 10 else near.min(initial=0.0)
    similarity = sample.columns["similarity"]
    kinds = {
        "cohort": sample.columns["corrected"],
        "neighbours": similarity - own[sample.query],
        "none": similarity,
    }
    result = {}
    for name, column in kinds.items():
        other = replace(sample, columns={**sample.columns, "corrected": column})
        fold = other.query // 2 % fit_grader.FOLDS
        probability = np.empty(len(other))
        for number in range(fit_grader.FOLDS):
            scale = tiny_near(other.only(fold != number), {})
            held = other.only(fold == number)
            probability[fold == number] = scale.probability(held.columns)
        score, rows = by_query(other.query, probability), queries.counted
        alone = by_query(other.query, column)
        result[name] = {
            "average_precision": float(average_precision(queries.near[rows], score[rows])),
            "recall_at_95": recall_at_precision(score[rows], queries.near[rows], 0.95),
            "average_precision_alone": float(average_precision(queries.near[rows], alone[rows])),
        }
    return result


def highest_unjudged(
    probability: Float64, sample: Sample, queries: Queries, count: int
) -> npt.NDArray[np.int64]:
    """Return the rows of the best pairs of the unjudged test images with the highest scores."""
    score = by_query(sample.query, probability)
    score[~queries.unjudged] = -1
    rows = []
    for query in np.argsort(-score, kind="stable")[:count]:
        own = np.flatnonzero(sample.query == query)
        rows.append(own[np.argmax(probability[own])])
    return np.array(rows, np.int64)
