"""What several reviewers say together, and how far they agree."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from visleak.records import GRADES
from visleak.verdicts.record import Key, Verdict


@dataclass(frozen=True, slots=True)
class Settled:
    """What the reviewers of a pair say together.

    Attributes:
        grade: one of :data:`visleak.records.GRADES`; ``None`` where they dispute it.
        verdicts: the last of each reviewer.
    """

    grade: str | None
    verdicts: tuple[Verdict, ...]

    @property
    def disputed(self) -> bool:
        """Whether they disagree on near-or-not."""
        return self.grade is None


def settle(verdicts: Iterable[Verdict]) -> dict[Key, Settled]:
    """Return what stands for each pair.

    The last verdict of a reviewer counts. Reviewers who disagree on near-or-not make the pair
    disputed. Where they agree on that, most of them choose the grade; of equally many the weaker
    one stands, for it claims less.

    Args:
        verdicts: in order of time.

    >>> a, b = "a" * 32, "b" * 32
    >>> said = [Verdict(a, b, "near", "Ada"), Verdict(a, b, "exact", "Ben")]
    >>> settle(said)[a, b].grade
    'near'
    >>> settle([*said, Verdict(a, b, "different", "Ben")])[a, b].disputed
    True
    """
    last: dict[Key, dict[str, Verdict]] = defaultdict(dict)
    for verdict in verdicts:
        last[verdict.key][verdict.reviewer] = verdict
    return {key: _settled(tuple(of.values())) for key, of in last.items()}


def _settled(verdicts: tuple[Verdict, ...]) -> Settled:
    if len({verdict.is_near for verdict in verdicts}) > 1:
        return Settled(None, verdicts)
    votes = Counter(GRADES.index(verdict.judgment) for verdict in verdicts)
    code = max(votes, key=lambda code: (votes[code], code))
    return Settled(GRADES[code], verdicts)


@dataclass(frozen=True, slots=True)
class Kappa:
    """How far two reviewers agree on near-or-not.

    Attributes:
        reviewers: the two.
        pairs: that both judged.
        agreed: on how many of them they agree.
        kappa: Cohen's; NaN where both always say the same one thing, or no pair is shared.
    """

    reviewers: tuple[str, str]
    pairs: int
    agreed: int
    kappa: float


@dataclass(frozen=True, slots=True)
class Agreement:
    """Who judged how much, and how far they agree.

    Attributes:
        judged: pairs with a verdict.
        disputed: pairs on which reviewers disagree on near-or-not.
        reviewers: name to the number of pairs judged, most first.
        kappas: of every two reviewers who share a pair.
    """

    judged: int
    disputed: int
    reviewers: Mapping[str, int]
    kappas: tuple[Kappa, ...]


def agreement(verdicts: Iterable[Verdict]) -> Agreement:
    """Count verdicts and compare reviewers, two by two, over the pairs that both judged."""
    settled = settle(verdicts)
    said: dict[str, dict[Key, bool]] = defaultdict(dict)
    for key, each in settled.items():
        for verdict in each.verdicts:
            said[verdict.reviewer][key] = verdict.is_near
    names = sorted(said, key=lambda name: (-len(said[name]), name))
    kappas = []
    for left, right in itertools.combinations(names, 2):
        shared = [key for key in said[left] if key in said[right]]
        if shared:
            mine, theirs = ([said[name][key] for key in shared] for name in (left, right))
            agreed = sum(a == b for a, b in zip(mine, theirs, strict=True))
            kappas.append(Kappa((left, right), len(shared), agreed, cohen_kappa(mine, theirs)))
    return Agreement(
        judged=len(settled),
        disputed=sum(each.disputed for each in settled.values()),
        reviewers={name: len(said[name]) for name in names},
        kappas=tuple(kappas),
    )


def cohen_kappa(left: Sequence[bool], right: Sequence[bool]) -> float:
    """Return how far two raters agree beyond chance: 1 fully, 0 as by chance, below 0 less.

    Source: Cohen 1960, "A coefficient of agreement for nominal scales", equation 1. Not defined,
    so NaN, where chance alone makes them agree always.

    >>> cohen_kappa([True, True, False, False], [True, False, False, False])
    0.5
    """
    if not left:
        return math.nan
    count = len(left)
    observed = sum(a == b for a, b in zip(left, right, strict=True)) / count
    mine, theirs = sum(left) / count, sum(right) / count
    expected = mine * theirs + (1 - mine) * (1 - theirs)
    return math.nan if expected == 1.0 else (observed - expected) / (1 - expected)
