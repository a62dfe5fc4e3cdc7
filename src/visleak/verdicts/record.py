"""One verdict: what a person said of a pair of contents, and when."""

from __future__ import annotations

import math
import re
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

    Raises:
        UsageError: it is empty, longer than :data:`LONGEST` characters, or no single line.

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
    """What one person said of one pair.

    Attributes:
        first, second: content digests of the two images (hex), ``first <= second``.
        judgment: one of :data:`visleak.records.GRADES`.
        reviewer: who said it.
        time: when, ISO 8601 in UTC.
        query_set, query, reference_set, reference: who the images were then; for people only.
        similarity: of the pair, as it was then; ``None`` where nobody measured it.
    """

    first: str
    second: str
    judgment: str
    reviewer: str
    time: str = field(default_factory=now)
    query_set: str = ""
    query: str = ""
    reference_set: str = ""
    reference: str = ""
    similarity: float | None = None

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
