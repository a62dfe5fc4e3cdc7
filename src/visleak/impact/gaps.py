"""Errors on a test set and on the fair one (Barz & Denzler 2020, table 2)."""

from __future__ import annotations

import math

import numpy as np

from visleak.impact.results import Estimate, Gap
from visleak.impact.scores import Scores
from visleak.stats import wilson
from visleak.stats.differences import mcnemar_exact, newcombe_paired


def gap_of(original: Scores, fair: Scores, metric: str) -> Gap:
    """Return the errors of a model on both sets, the gap and the relative gap.

    The fair set has the test set's ids, and other images where duplicates were; all others are
    in both, and so the errors are compared id by id.

    Args:
        original, fair: scores of one model, in the order of one benchmark.
        metric: whose scores are 0 or 1. Of one of which less is better, 1 is an error.
    """
    both = original.answered & fair.answered
    scores = (each.values[metric][both] for each in (original, fair))
    lower = metric in original.lower
    before, after = (values if lower else 1.0 - values for values in scores)
    images = len(before)
    only_before = int(((before == 1) & (after == 0)).sum())
    only_after = int(((before == 0) & (after == 1)).sum())
    stayed = int(((before == 1) & (after == 1)).sum())
    neither = images - stayed - only_before - only_after
    wrong, wrong_after = stayed + only_before, stayed + only_after
    gap = (wrong_after - wrong) / images
    ends = newcombe_paired(stayed, only_before, only_after, neither)
    return Gap(
        original.model,
        metric,
        images,
        Estimate(wrong / images, *wilson(wrong, images)),
        Estimate(wrong_after / images, *wilson(wrong_after, images)),
        Estimate(gap, *ends),
        (wrong_after - wrong) / wrong if wrong else math.nan,
        mcnemar_exact(only_before, only_after),
        (only_before, only_after),
    )


def can_gap(original: Scores, fair: Scores, metric: str) -> bool:
    """Whether a metric of both is a share of images, so that its error is one."""
    each = (original, fair)
    both = original.answered & fair.answered
    return all(metric in scores.values and scores.is_share(metric) for scores in each) and bool(
        np.any(both)
    )
