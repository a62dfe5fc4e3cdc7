"""What changed between two audits, in numbers."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from visleak.diff.matching import match_images, match_sets
from visleak.diff.pairs import CHANGES, Changes, View, changes, reason_word
from visleak.diff.sides import Side
from visleak.diff.totals import Total, Turnover, totals, turnovers
from visleak.errors import UsageError
from visleak.records import Bool
from visleak.storage import AuditSummary
from visleak.verdicts.level import Level


@dataclass(frozen=True)
class Difference:
    """What changed between two audits at a level.

    Attributes:
        before, after: the audits, and what their images are in the other.
        level: the weakest that counts.
        sets: a set each.
        totals: a query set each that is one in both.
        changes: the pairs.
        conditions: what else differs: name to before and after.
    """

    before: View
    after: View
    level: Level
    sets: tuple[Turnover, ...]
    totals: tuple[Total, ...]
    changes: Changes
    conditions: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)

    def counts(self, *, within: bool = False) -> dict[str, dict[str, int]]:
        """Return how many pairs of each change there are, by reason, most first.

        Args:
            within: of the repeats within a set, else of the leaks between sets.
        """
        rows = np.flatnonzero(self.within == within)
        codes = zip(self.changes.change[rows], self.changes.reason[rows], strict=True)
        found: dict[str, dict[str, int]] = {name: {} for name in CHANGES}
        for (change, reason), count in Counter(codes).most_common():
            found[CHANGES[change]][reason_word(change, reason)] = count
        return found

    @property
    def within(self) -> Bool:
        """Which of the changes are of repeats within a set."""
        result = np.zeros(len(self.changes), bool)
        for view, places in (
            (self.before, self.changes.before),
            (self.after, self.changes.after),
        ):
            listed = places >= 0
            result[listed] = view.side.listed.within[places[listed]]
        return result

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, in the order in which a person would ask for them."""

        return {
            "before": str(self.before.side.folder),
            "after": str(self.after.side.folder),
            "level": self.level.name,
            "totals": [each.as_dict() for each in self.totals],
            "sets": [vars(each) for each in self.sets],
            "pairs": self.counts(),
            "repeats": self.counts(within=True),
            "differs": {
                name: {"before": old, "after": new} for name, (old, new) in self.conditions.items()
            },
        }


def diff(
    before: str | os.PathLike[str],
    after: str | os.PathLike[str],
    level: str | None = None,
    sets: Mapping[str, str] | None = None,
) -> Difference:
    """Compare two audit folders.

    Args:
        before, after: the folders.
        level: the weakest grade or degree that counts; by default ``near``, where both audits
            have grades, else ``soft``.
        sets: names of sets before to names after, where they differ and it is not clear from
            their sides which is which.

    Raises:
        UsageError: a folder holds no finished audit, the level was not measured in one of them,
            or it is not clear which set is which.
        VisleakError: a file is damaged.
    """
    old, new = Side(Path(before)), Side(Path(after))
    matched = match_sets(old.summary, new.summary, sets or {})
    chosen = _level(old, new, level)
    forth, back = match_images(old, new, matched)
    first = View(old, forth, matched)
    second = View(new, back, {theirs: mine for mine, theirs in matched.items()})
    return Difference(
        first,
        second,
        chosen,
        turnovers(old, new, forth, matched),
        totals(first, second, chosen),
        changes(first, second, chosen),
        conditions(old.summary, new.summary),
    )


def _measured(side: Side, level: Level) -> bool:
    return all(total.rates.get(level.rate) for total in side.summary.totals)


def _level(old: Side, new: Side, asked: str | None) -> Level:
    if asked is None:
        near = Level("near")
        graded = _measured(old, near) and _measured(new, near)
        level = near if graded else Level("soft")
    else:
        level = Level(asked)
    for side in (old, new):
        if not _measured(side, level):
            why = "grades" if level.scale == "grade" else "thresholds for degrees"
            raise UsageError(f"{side.folder} has no {why}, so nothing can be said at {level.name}")
    return level


def conditions(before: AuditSummary, after: AuditSummary) -> dict[str, tuple[Any, Any]]:
    """Return what differs and can change an answer: name to the value before and after.

    >>> conditions(AuditSummary(visleak="1.0"), AuditSummary(visleak="1.1"))
    {'visleak': ('1.0', '1.1')}
    """
    old, new = dict(_conditions(before)), dict(_conditions(after))
    names = dict.fromkeys([*old, *new])
    found = {name: (old.get(name), new.get(name)) for name in names}
    return {name: pair for name, pair in found.items() if pair[0] != pair[1]}


def _conditions(audit: AuditSummary) -> Iterator[tuple[str, Any]]:
    yield "visleak", audit.visleak
    for what, keys in (
        ("encoder", ("name", "digest")),
        ("thresholds", ("hard", "soft")),
        ("search", ("engine",)),
        ("verifier", ("digest",)),
        ("grader", ("digest", "near_at")),
    ):
        content = getattr(audit, what)
        for key in keys:
            yield f"{what} {key}", getattr(content, key, None)
    for name, value in audit.settings.as_dict().items():
        # these are said above
        if name not in ("encoder", "search", "near_at"):
            yield f"setting {name}", value
    for package, version in audit.versions.items():
        yield f"version of {package}", version
    for name in ("judged", "disputed"):
        yield f"pairs {name} by people", getattr(audit.review, name, 0)
