"""What a purge is asked for, and its plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from visleak.errors import UsageError
from visleak.records import DEGREES, GRADES
from visleak.remedy.advice import Advice
from visleak.remedy.manifest import Removed
from visleak.remedy.results import Written
from visleak.verdicts.level import Level

#: What becomes of images of a test set that repeat each other.
WITHIN: Final = ("keep", "drop")


@dataclass(frozen=True)
class Wish:
    """What is asked of a purge.

    Attributes:
        side: ``test`` or ``train``: where images go.
        grade: weakest grade of the pairs that count; ``None`` where ``degree`` decides.
        degree: weakest degree.
        set: the one set to purge; by default all of the side.
        within: ``keep`` or ``drop``: of test images that repeat each other, keep all or one.
        disputed: count pairs on which reviewers disagree, by the machine's grade.
    """

    side: str = "test"
    grade: str | None = "near"
    degree: str | None = None
    set: str | None = None
    within: str = "keep"
    disputed: bool = False

    def __post_init__(self) -> None:
        if (self.grade is None) == (self.degree is None):
            raise UsageError("give either a grade or a degree")
        choices: tuple[tuple[str, str | None, Sequence[str]], ...] = (
            ("grade", self.grade, GRADES[:-1]),
            ("degree", self.degree, DEGREES),
            ("within", self.within, WITHIN),
        )
        for name, value, allowed in choices:
            if value is not None and value not in allowed:
                raise UsageError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")
        if self.within == "drop" and self.side != "test":
            raise UsageError("repeats within the test set are dropped with --remove-from test only")

    @property
    def column(self) -> str:
        """Column of the pairs that decides."""
        return "degree" if self.grade is None else "grade"

    @property
    def words(self) -> tuple[str, ...]:
        """Its values that count, strongest first."""
        return Level(str(self.degree if self.grade is None else self.grade)).names

    def as_dict(self) -> dict[str, Any]:
        """Return what is asked as plain values."""
        return {
            "from": self.side,
            "grade": self.grade,
            "degree": self.degree,
            "set": self.set,
            "within": self.within,
            "include_disputed": self.disputed,
        }


@dataclass(frozen=True)
class Share:
    """A class of a set: its images before and after, the readable ones."""

    label: str
    before: int
    after: int


@dataclass(frozen=True)
class SetPlan:
    """What becomes of one set.

    Attributes:
        name: of the set.
        pictures: its pictures are there; else it holds embeddings.
        total: its images, the unreadable ones among them.
        unreadable: images that could not be looked at; they stay.
        removed: the images that go, in the order of the set.
        classes: each class before and after, by name; empty where labels are unknown.
    """

    name: str
    pictures: bool
    total: int
    unreadable: int
    removed: tuple[Removed, ...]
    classes: tuple[Share, ...]

    @property
    def stays(self) -> int:
        """Number of images that stay."""
        return self.total - len(self.removed)

    @property
    def moved(self) -> float:
        """Total variation distance between the class shares before and after, 0 to 1."""
        before = np.array([share.before for share in self.classes], np.float64)
        after = np.array([share.after for share in self.classes], np.float64)
        if not before.sum() or not after.sum():
            return 0.0
        return float(np.abs(before / before.sum() - after / after.sum()).sum() / 2)

    def counts(self) -> dict[str, Counter[str]]:
        """Return why images go, strongest first, to how many of each class do."""
        found: dict[str, Counter[str]] = {}
        for each in self.removed:
            found.setdefault(each.why, Counter())[each.label] += 1
        order = [*GRADES, *DEGREES]
        return {
            why: found[why]
            for why in sorted(found, key=lambda w: (order.index(w) if w in order else 99, w))
        }

    def counts_by_class(self) -> Counter[str]:
        """Return how many images of each class go."""
        return Counter(each.label for each in self.removed)

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        return {
            "name": self.name,
            "images": self.total,
            "unreadable": self.unreadable,
            "removed": len(self.removed),
            "stays": self.stays,
            "why": {why: dict(labels) for why, labels in self.counts().items()},
            "classes": [[share.label, share.before, share.after] for share in self.classes],
            "class_shares_moved": self.moved,
        }


@dataclass(frozen=True)
class Purge:
    """A plan, and what came of it.

    Attributes:
        wish: what was asked.
        sets: what becomes of each set of the side.
        disputed: pairs strong enough on which reviewers disagree.
        flat: images in pairs strong enough that stay because they are blank.
        advice: the side to purge, and why.
        caveats: what the audit did not look at, so that more may leak.
        written: the data set; ``None`` where this is the plan alone.
    """

    wish: Wish
    sets: tuple[SetPlan, ...]
    disputed: int
    flat: int
    advice: Advice
    caveats: tuple[str, ...]
    written: Written | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return plan and result as plain values."""
        written = self.written
        return {
            "asked": self.wish.as_dict(),
            "sets": [each.as_dict() for each in self.sets],
            "disputed_pairs": self.disputed,
            "blank_images": self.flat,
            "recommended": {"from": self.advice.side, "why": self.advice.why},
            "caveats": list(self.caveats),
            "written": None
            if written is None
            else {
                "folder": str(written.folder),
                "as": written.how,
                "sources": dict(written.sources),
                "images": dict(written.counts),
                "files": written.files,
                "bytes": written.bytes,
                "unreadable": len(written.unreadable),
                "reused": written.reused,
            },
        }
