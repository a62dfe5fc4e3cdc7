"""What a search found, in one line that a person can repeat."""

from __future__ import annotations

from collections.abc import Sequence

from visleak.memorization.search.augmenting import Augmented
from visleak.memorization.search.diversity import Pick
from visleak.memorization.search.task import Found

#: How the two scales of D are written.
_NORMS = {"l2": "D (L2)", "squared": "D (squared)"}


def search_headline(found: Found, norm: str, kappa: float | None) -> str:
    """Return what a search found.

    >>> from visleak.memorization.search.task import Candidate
    >>> best = (Candidate("red bag", 2.5), Candidate("old bag", 1.0, 1))
    >>> search_headline(Found("gibbs", {}, best, best, 6400, 12.3), "l2", 2.0)
    'highest D (L2) of 2 chains 2.5, median 1.75, 1 of them at 2 or above: 6,400 passes'
    """
    scores = sorted(each.score for each in found.best)
    middle = len(scores) // 2
    median = scores[middle] if len(scores) % 2 else (scores[middle - 1] + scores[middle]) / 2
    chains = f"{len(scores)} chains" if len(scores) > 1 else "1 chain"
    text = f"highest {_NORMS[norm]} of {chains} {scores[-1]:.4g}"
    text += f", median {median:.4g}" if len(scores) > 1 else ""
    if kappa is not None:
        reached = sum(score >= kappa for score in scores)
        text += f", {reached} of them at {kappa:g} or above"
    return text + _spent(found.calls, complete=found.complete)


def augment_headline(made: Augmented, norm: str) -> str:
    """Return what an augmentation found."""
    scored = sum(each.scored for each in made.triggers)
    above = sum(each.above for each in made.triggers)
    kept = sum(len(each.prompts) for each in made.triggers)
    count = len(made.triggers)
    triggers = f"{count:,} triggers" if count > 1 else "1 trigger"
    kappa = made.about["kappa"]
    text = (
        f"{scored:,} prompts of {triggers} scored, {above:,} with a {_NORMS[norm]} of at least"
        f" {kappa:g}, {kept:,} kept{_spent(made.calls, complete=made.complete)}"
    )
    # the paper's kappa is of Stable Diffusion 1; another model may never reach it
    low = "; chains break off where moves stay below kappa: give a --kappa of this model's scale"
    return text if above else text + low


def diversify_headline(picks: Sequence[Pick], prompts: int) -> str:
    """Return what was picked.

    >>> diversify_headline([Pick(3, None), Pick(1, 0.25)], 10)
    '2 of 10 prompts picked; the closest two have a cosine of 0.25'
    """
    closest = max((each.closeness for each in picks if each.closeness is not None), default=None)
    text = f"{len(picks):,} of {prompts:,} prompts picked"
    return text if closest is None else f"{text}; the closest two have a cosine of {closest:.2g}"


def _spent(calls: int, *, complete: bool) -> str:
    # seconds stand in the result: the line is the same whenever it is searched again
    end = "" if complete else "; the budget ended it"
    return f": {calls:,} passes{end}"
