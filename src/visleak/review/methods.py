"""A review as a paragraph for the methods section of a paper."""

from __future__ import annotations

from collections.abc import Iterator

import visleak
from visleak.quantities import counted
from visleak.rates import percent
from visleak.review.active import TAIL
from visleak.review.session import ReviewSession
from visleak.verdicts import Agreement


def methods(session: ReviewSession) -> str:
    """Return what was judged, by how many people, how far they agree, and what may be missed."""
    found = session.agreement()
    return " ".join(_sentences(session, found)) if found.judged else ""


def _sentences(session: ReviewSession, found: Agreement) -> Iterator[str]:
    people = counted(len(found.reviewers), "reviewer")
    shares = ", ".join(f"{number:,}" for number in found.reviewers.values())
    hidden = "the automatic grade and " if session.blind else ""
    yield (
        f"{counted(found.judged, 'pair')} of the {len(session.listing):,} listed by visleak"
        f" {visleak.__version__} were judged by {people} ({shares}), without sight of"
        f" {hidden}the verdicts of others."
    )
    for each in found.kappas:
        names = " and ".join(each.reviewers)
        kappa = "" if each.kappa != each.kappa else f" (Cohen's kappa {each.kappa:.2f})"
        yield (
            f"{names} judged {counted(each.pairs, 'pair')} both, and agree on near-or-not in"
            f" {each.agreed:,} of them{kappa}."
        )
    if found.disputed:
        verb = "is" if found.disputed == 1 else "are"
        yield f"{counted(found.disputed, 'pair')} {verb} disputed and keep the automatic grade."
    fitted = session.outlook()
    yield f"An estimated {percent(fitted.missed)} % of the near pairs have no verdict."
    tail = session.tail_sample()
    if tail.judged:
        low, high = tail.interval
        yield (
            f"Of the {tail.size:,} pairs with a probability below {TAIL:g} a random sample of"
            f" {tail.judged:,} was judged blind; {tail.near:,} were near, so that {low:,} to"
            f" {high:,} of all are (exact 95 % interval)."
        )
