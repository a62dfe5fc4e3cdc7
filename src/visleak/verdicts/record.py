"""Verdicts, the grade that reviewers agree on, and how far they agree."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from visleak.errors import UsageError
from visleak.records import GRADES

#: Grades that make a pair a near-duplicate; the other two do not.
NEAR: Final = GRADES[:2]

#: Longest name of a reviewer.
LONGEST: Final = 100

#: A content digest as the tables write it: BLAKE2b-128 in hex.
_DIGEST: Final = re.compile(r"[0-9a-f]{32}")

Key = tuple[str, str]


def pair_key(left: str, right: str) -> Key:
    """Return the key of an unordered pair of content digests.

    >>> pair_key("b", "a") == pair_key("a", "b") == ("a", "b")
    True
    """
    return (left, right) if left <= right else (right, left)


def now() -> str:
    """Return this moment in UTC, as ISO 8601 to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def reviewer_name(text: str) -> str:
    """Return a reviewer's name without blanks around it.

    >>> reviewer_name(" Ada ")
    'Ada'
    """
    name = text.strip()
    if not name or len(name) > LONGEST or not name.isprintable():
        raise UsageError(
            f"a reviewer is called by one line of 1 to {LONGEST} characters; got {text!r}"
        )
    return name


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of a person on a pair."""

    # content digests of the two images (hex), ``first <= second``
    first: str
    second: str
    judgment: str  # one of `visleak.records.GRADES`
    reviewer: str  # name of the person
    time: str = field(default_factory=now)  # ISO 8601 in UTC
    # names of the images then; for people only
    query_set: str = ""
    query: str = ""
    reference_set: str = ""
    reference: str = ""
    similarity: float | None = None  # of the pair then; ``None`` if it was not measured

    def __post_init__(self) -> None:
        if self.judgment not in GRADES:
            raise UsageError(
                f"a judgment is one of {', '.join(GRADES)}; got {str(self.judgment)!r}"
            )
        for digest in (self.first, self.second):
            if not _DIGEST.fullmatch(digest):
                raise UsageError(
                    f"a verdict needs the content digests of both images; got {digest!r}"
                )
        if self.first > self.second:
            raise ValueError("the digests of a verdict must ascend; see Verdict.of")
        if self.similarity is not None and not math.isfinite(self.similarity):
            raise ValueError("the similarity of a verdict must be a number")
        object.__setattr__(self, "judgment", str(self.judgment))
        object.__setattr__(self, "reviewer", reviewer_name(self.reviewer))

    @classmethod
    def of(cls, left: str, right: str, judgment: str, reviewer: str, **about: object) -> Verdict:
        """Return the verdict on two contents, in whatever order they come.

        Args:
            left, right: content digests.
            judgment, reviewer: as the attributes.
            about: any of the other attributes.
        """
        return cls(*pair_key(left, right), judgment, reviewer, **about)  # type: ignore[arg-type]

    @property
    def key(self) -> Key:
        """The unordered pair that it is about."""
        return self.first, self.second

    @property
    def is_near(self) -> bool:
        """Whether it calls the pair a near-duplicate or an exact one."""
        return self.judgment in NEAR


@dataclass(frozen=True, slots=True)
class Consensus:
    """The consensus of the reviewers of a pair."""

    grade: str | None  # one of `visleak.records.GRADES`; ``None`` if it is disputed
    verdicts: tuple[Verdict, ...]

    @property
    def disputed(self) -> bool:
        """Whether they disagree on near-or-not."""
        return self.grade is None


def consensus_of(verdicts: Iterable[Verdict]) -> dict[Key, Consensus]:
    """Return the consensus of each pair.

    The last verdict of a reviewer counts. Reviewers who disagree on near-or-not make the pair
    disputed. If they agree on that, the majority determines the grade; in a tie the weaker one is
    used, because it claims less.

    >>> a, b = "a" * 32, "b" * 32
    >>> said = [Verdict(a, b, "near", "Ada"), Verdict(a, b, "exact", "Ben")]
    >>> consensus_of(said)[a, b].grade
    'near'
    >>> consensus_of([*said, Verdict(a, b, "different", "Ben")])[a, b].disputed
    True
    """
    last: dict[Key, dict[str, Verdict]] = defaultdict(dict)
    for verdict in verdicts:
        last[verdict.key][verdict.reviewer] = verdict
    return {key: _settled(tuple(of.values())) for key, of in last.items()}


def _settled(verdicts: tuple[Verdict, ...]) -> Consensus:
    if len({verdict.is_near for verdict in verdicts}) > 1:
        return Consensus(None, verdicts)
    votes = Counter(GRADES.index(verdict.judgment) for verdict in verdicts)
    code = max(votes, key=lambda code: (votes[code], code))
    return Consensus(GRADES[code], verdicts)


@dataclass(frozen=True, slots=True)
class Kappa:
    """How far two reviewers agree on near-or-not."""

    reviewers: tuple[str, str]
    pairs: int
    agreed: int
    kappa: float  # Cohen's; NaN if both always say the same one thing, or no pair is shared


@dataclass(frozen=True, slots=True)
class Agreement:
    """Number of verdicts per reviewer, and their agreement."""

    judged: int
    disputed: int
    reviewers: Mapping[str, int]  # name to the number of pairs judged, most first
    kappas: tuple[Kappa, ...]


def agreement(verdicts: Iterable[Verdict]) -> Agreement:
    """Count verdicts and compare reviewers, two by two, over the pairs that both judged."""
    consensus = consensus_of(verdicts)
    said: dict[str, dict[Key, bool]] = defaultdict(dict)
    for key, each in consensus.items():
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
        judged=len(consensus),
        disputed=sum(each.disputed for each in consensus.values()),
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
