"""What a list shows and where it was cut, in words."""

from __future__ import annotations

import numpy as np

from visleak.review.listing import Listing
from visleak.storage import AuditSummary


def cut(listing: Listing, summary: AuditSummary) -> tuple[str, ...]:
    """Return sentences that say which pairs a list holds, and which it does not.

    Args:
        listing: the list.
        summary: content of ``audit.json``.
    """
    rule = summary.settings.candidates
    lines = [_nearest(listing, rule) if listing.kind == "nearest" else _listed(listing, summary)]
    repeats = int(listing.repeats.sum())
    if repeats:
        lines.append(
            f"{repeats:,} more pairs of images have the same two contents as one of these; a"
            " verdict counts for all of them."
        )
    if listing.left_out:
        lines.append(
            f"{listing.left_out:,} pairs with embeddings are left out: there are no pictures of"
            " them."
        )
    return tuple(lines)


def _listed(listing: Listing, summary: AuditSummary) -> str:
    settings, soft = summary.settings, summary.thresholds.soft
    rule = settings.candidates
    inside = ", between the sets and within the test side" if listing.within.any() else ""
    if rule == "nearest":
        return (
            f"All {len(listing):,} pairs of the audit{inside}: each image's one nearest, without a"
            " threshold. No other pair was looked at."
        )
    above = "" if soft is None else f"every pair of similarity {soft:g} or more, and "
    local = ", and what shares local features" if settings.local else ""
    return (
        f"All {len(listing):,} pairs of the audit{inside}: {above}the best twenty of each query"
        f"{local}. Pairs below that were not looked at."
    )


def _nearest(listing: Listing, rule: str) -> str:
    within = int(np.count_nonzero(listing.within))
    inside = (
        f" and {within:,} pairs of an image and the nearest other one of its own set"
        if within
        else ""
    )
    text = (
        f"{len(listing) - within:,} pairs of a query image and its one nearest reference{inside},"
        " without a threshold: the list of Barz & Denzler (2020)."
    )
    if rule == "nearest":
        return text
    return (
        f"{text} The audit was made with --candidates {rule}, so this is the nearest among the"
        " pairs that it lists; audit with --candidates nearest for the nearest of all."
    )
