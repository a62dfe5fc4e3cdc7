"""What stands: verdicts by row of the list, how far a reviewer is, and where a pair stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from visleak.records import GRADES, Bool, Int8
from visleak.verdicts import Verdict, settle

#: Barz & Denzler (2020) stop after this many different pairs in a row.
ROW: Final = 20


@dataclass(frozen=True)
class Standing:
    """The verdicts that stand, by row of the list.

    Attributes:
        mine: ``int8`` (n,): this reviewer's judgment as its place in ``GRADES``, -1 for none.
        disputed: ``bool`` (n,): reviewers disagree on near-or-not.
        verdicts: all of them, on pairs that the list lacks too.
        by_key: the verdicts of all reviewers on a pair.
    """

    mine: Int8
    disputed: Bool
    verdicts: tuple[Verdict, ...]
    by_key: dict[tuple[str, str], list[Verdict]]

    def plus(self, rows: Sequence[int], verdicts: Sequence[Verdict]) -> Standing:
        """Return what stands once this reviewer has said more, of some rows."""
        mine, disputed, by_key = self.mine.copy(), self.disputed.copy(), dict(self.by_key)
        for row, verdict in zip(rows, verdicts, strict=True):
            others = [v for v in by_key.get(verdict.key, ()) if v.reviewer != verdict.reviewer]
            by_key[verdict.key] = [*others, verdict]
            mine[row] = GRADES.index(verdict.judgment)
            disputed[row] = settle(by_key[verdict.key])[verdict.key].disputed
        return Standing(mine, disputed, (*self.verdicts, *verdicts), by_key)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a reviewer is in a list.

    Attributes:
        judged: pairs of the list with a verdict of the reviewer.
        total: pairs of the list.
        run: different pairs in a row, up to the judged one of largest distance.
        passed_over: pairs without a verdict that are closer than that one.
        distance: of that pair; ``None`` where nothing is judged, or nobody measured it.
    """

    judged: int
    total: int
    run: int
    passed_over: int
    distance: float | None

    @property
    def may_stop(self) -> bool:
        """Whether the paper's rule says that this is enough."""
        return self.run >= ROW


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a pair stands among those that a choice lets through.

    Attributes:
        place: how many come before it.
        total: how many there are.
        inside: whether it is one of them.
        previous, next: rows, or ``None`` at the ends.
        ahead: the rows after it, a few.
    """

    place: int
    total: int
    inside: bool
    previous: int | None
    next: int | None
    ahead: tuple[int, ...]
