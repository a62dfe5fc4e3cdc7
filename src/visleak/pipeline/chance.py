"""How many pairs of two sets reach the thresholds of degrees by chance.

Thresholds are calibrated on photographs. In a set of images of one kind (receipts, X-rays, steel)
nearly every pair may reach them, and a degree then has no meaning. So a sample of random pairs of
these sets is compared, and the number that reaches a threshold without being a copy is scaled to
all pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from visleak.pipeline.comparison import Comparison
from visleak.records import DEGREES, Bool, Encoder, Fingerprints, Int64
from visleak.search.exact import ExactSearch
from visleak.search.hits import Hits, Sides, Wanted
from visleak.storage.audit_folder import ChanceSummary, ComparisonSummary

#: Contents of each side that are sampled; all of their pairs are compared.
QUERIES: Final = 256
REFERENCES: Final = 4096
#: Expected chance pairs per test image from which a threshold is reported as too low.
MANY: Final = 1.0


def chance_of(
    comparison: Comparison, encoder: Encoder, views: tuple[int, ...], workers: int = 1
) -> ChanceSummary | None:
    """Return how many pairs of a comparison reach its thresholds by chance.

    The sample is the contents with the lowest digests, so it is random with regard to the images
    and depends on nothing else. Pairs that were graded near or exact are not counted. Without
    grades each query's most similar reference is excluded, because it may be a copy; the estimate
    is then a little too low.
    """
    thresholds = comparison.thresholds
    if thresholds.soft is None or comparison.reference.streamed:
        return None
    query, reference = comparison.query.fingerprints, comparison.reference.fingerprints
    same = comparison.query is comparison.reference
    left, right = _sample(query, QUERIES), _sample(reference, REFERENCES)
    sampled = len(left) * (len(right) - same)
    if sampled <= 0:
        return None
    hits = ExactSearch().find(
        Sides(
            query.matrix[left],
            reference.matrix[right],
            penalty=np.zeros(len(right), np.float32),
            order=np.arange(len(right)),
            views=views,
            make=encoder.view if len(views) > 1 else None,
        ),
        Wanted(thresholds.soft, best=0, cap=len(right)),
        workers=workers,
    )
    # in one set both samples begin with the same contents
    others = hits.query != hits.reference if same else np.ones(len(hits.query), np.bool_)
    copies = _copies(comparison, left[hits.query], right[hits.reference])
    images = int((~query.flat).sum()), int((~reference.flat).sum()) - same
    per_image, pairs = {}, {}
    for degree, threshold in zip(DEGREES, (thresholds.hard, thresholds.soft), strict=True):
        if threshold is None:
            continue
        reached = others & (hits.similarity >= np.float32(threshold))
        count = int((reached & ~copies).sum()) if copies is not None else _beyond(hits, reached)
        per_image[degree] = round(count / sampled * images[1], 6)
        pairs[degree] = round(count / sampled * images[0] * images[1] / (1 + same), 3)
    return ChanceSummary(sampled, per_image, pairs)


def _sample(fingerprints: Fingerprints, count: int) -> Int64:
    """Return a row of each of the contents with the lowest digests, blank images left out."""
    rows = np.flatnonzero(~fingerprints.flat)
    keys = np.ascontiguousarray(fingerprints.digests[rows]).view("V16").ravel()
    return rows[np.unique(keys, return_index=True)[1][:count]]


def _copies(comparison: Comparison, query: Int64, reference: Int64) -> Bool | None:
    """Return which pairs of rows are graded near or exact; ``None`` without grades."""
    near, pairs = comparison.near, comparison.pairs
    if near is None:
        return None
    one, other = pairs.query[near], pairs.reference[near]
    width = 1 + max(int(rows.max(initial=0)) for rows in (one, other, query, reference))
    keys = one * width + other
    if comparison.query is comparison.reference:
        # each unordered pair is listed once
        keys = np.concatenate([keys, other * width + one])
    return np.isin(query * width + reference, keys)


def _beyond(hits: Hits, reached: Bool) -> int:
    """Return how many pairs reach the threshold, without the most similar one of each query."""
    return int(reached.sum()) - len(np.unique(hits.query[reached]))


def notes(comparisons: Sequence[ComparisonSummary]) -> Iterator[str]:
    """Yield a line for each comparison whose thresholds many pairs reach by chance."""
    for each in comparisons:
        found = each.chance
        if not found or found.per_image["soft"] < MANY:
            continue
        own = [other for other in comparisons if other.query_set == each.query_set]
        if each.coverage == "within" and len(own) > 1:
            continue
        where = "" if each.coverage == "within" else f" in {each.reference_set}"
        hard = found.pairs.get("hard")
        yield (
            f"about {found.pairs['soft']:,.0f} pairs are expected to reach soft by chance,"
            f" {_number(found.per_image['soft'])} per {each.query_set} image{where}"
            f"{'' if hard is None else f', {hard:,.0f} of them hard'} (estimated from"
            f" {found.sampled:,} random pairs): degrees do not separate copies from other"
            " images here; find thresholds for these images with `visleak calibrate`"
        )


def _number(value: float) -> str:
    """Return a number with at least two digits.

    >>> _number(1.26), _number(257.4)
    ('1.3', '257')
    """
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"
