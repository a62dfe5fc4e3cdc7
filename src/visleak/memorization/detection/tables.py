"""The tables of a detection: scores of both lists, points of the ROC curve, tokens."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from visleak.memorization.detection.listing import Listing
from visleak.memorization.detection.results import Attribution
from visleak.memorization.detection.stored import NOISE
from visleak.memorization.scores import Norm, Scores
from visleak.stats.ranking import roc_points

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

TOKENS: Final = ("rank", "prompt", "d_l2", "method", "position", "token", "value")


def ranked(listing: Listing, d: Float64, *, general: bool) -> Int64:
    """Return the rows of a list, those of the largest D first, ties by prompt."""
    rows = np.flatnonzero(listing.general == general).tolist()
    return np.array(sorted(rows, key=lambda row: (-d[row], listing.texts[row])), np.int64)


def standard_error(values: Float64) -> Float64:
    """Return the standard error of the mean over noises, (n,); NaN where there is one noise.

    >>> standard_error(np.array([[1.0, 3.0]]))
    array([1.])
    """
    count = values.shape[1]
    if count < 2:
        return np.full(len(values), math.nan)
    return np.asarray(values.std(1, ddof=1) / math.sqrt(count))


def score_table(
    listing: Listing, scores: Scores, norm: Norm, threshold: float | None, *, general: bool
) -> pa.Table:
    """Return the scores of a list, sorted by D.

    ``rank, prompt, d_l2, d_squared, d_l2_error, d_squared_error, label, reached, group, sources``
    and the squared score by each noise; what is not known is null.
    """
    rows = ranked(listing, scores.by(norm), general=general)
    errors = [standard_error(values[rows]) for values in (scores.l2, scores.squared)]
    d = scores.by(norm)[rows]
    columns = {
        "rank": pa.array(np.arange(1, len(rows) + 1)),
        "prompt": pa.array([listing.texts[row] for row in rows], pa.string()),
        "d_l2": pa.array(scores.d_l2[rows]),
        "d_squared": pa.array(scores.d_squared[rows]),
        "d_l2_error": pa.array(errors[0], mask=np.isnan(errors[0])),
        "d_squared_error": pa.array(errors[1], mask=np.isnan(errors[1])),
        "label": pa.array([listing.labels[row] for row in rows], pa.bool_()),
        "reached": pa.nulls(len(rows), pa.bool_())
        if threshold is None
        else pa.array(d >= threshold),
        "group": pa.array(listing.groups[rows]),
        "sources": pa.array([list(listing.sources[row]) for row in rows], pa.list_(pa.string())),
    }
    for number in range(scores.squared.shape[1]):
        columns[f"{NOISE}{number + 1}"] = pa.array(scores.squared[rows, number])
    return pa.table(columns)


def roc_table(d: Float64, positive: npt.NDArray[np.bool_]) -> pa.Table:
    """Return the ROC curve: every threshold that makes a difference, the strictest first."""
    fpr, tpr, threshold = roc_points(d, positive)
    # nothing reaches the first, infinity
    return pa.table({"threshold": threshold[1:], "fpr": fpr[1:], "tpr": tpr[1:]})


def token_rows(tokens: tuple[Attribution, ...]) -> Iterator[tuple[object, ...]]:
    """Yield a row a token, in the columns of :data:`TOKENS`."""
    for rank, each in enumerate(tokens, 1):
        for place, (token, value) in enumerate(zip(each.tokens, each.values, strict=True), 1):
            yield rank, each.prompt, each.d, each.method, place, token, value


def token_table(tokens: tuple[Attribution, ...]) -> pa.Table:
    """Return the tokens of prompts, those of the largest D first, in the order of the prompt."""
    kinds = (pa.int64(), pa.string(), pa.float64(), pa.string(), pa.int64(), pa.string())
    rows = list(token_rows(tokens))
    return pa.table(
        {
            name: pa.array([row[place] for row in rows], kind)
            for place, (name, kind) in enumerate(zip(TOKENS, (*kinds, pa.float64()), strict=True))
        }
    )
