"""What changed between two audits, in numbers."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from visleak.diff.conditions import conditions
from visleak.diff.pairs import CHANGES, Changes, View, changes, reason_word, strongest
from visleak.diff.pictures import Fate, Matching, match_images
from visleak.diff.sets import match_sets
from visleak.diff.sides import Side
from visleak.errors import UsageError
from visleak.records import Bool
from visleak.stats import Rate
from visleak.stats.differences import mcnemar_exact, newcombe
from visleak.stats.levels import RATES
from visleak.verdicts.level import Level


@dataclass(frozen=True)
class Turnover:
    """What became of the images of a set.

    Attributes:
        before, after: its name in the two audits; ``None`` where it is not there.
        same, renamed, changed: images in both: alike, with another id, with another content.
        removed, added: images in one of them only.
        known: contents are known, so that ``renamed`` and ``changed`` could be seen.
    """

    before: str | None
    after: str | None
    same: int
    renamed: int
    changed: int
    removed: int
    added: int
    known: bool


@dataclass(frozen=True)
class Total:
    """What became of the leaks of a query set.

    Attributes:
        before, after: its name in the two audits.
        new, gone: images that leak in one of them only.
        regraded: images that leak in both, by another strongest grade or degree.
        rates: of the level, then of those that both audits measured: name to before and after.
        shared: images in both with the same content.
        flips: of these, how many leak before alone and after alone.
    """

    before: str
    after: str
    new: int
    gone: int
    regraded: int
    rates: Mapping[str, tuple[Rate, Rate]]
    shared: int
    flips: tuple[int, int]

    @property
    def paired(self) -> bool:
        """Whether both rates are of the very same images."""
        first, second = next(iter(self.rates.values()))
        whole = first.population is None and second.population is None
        return whole and self.shared == first.total == second.total

    @property
    def p_value(self) -> float:
        """Of McNemar's exact test over the shared images."""
        return mcnemar_exact(*self.flips)

    @property
    def interval(self) -> tuple[float, float]:
        """Newcombe's interval of the rate after minus that before."""
        first, second = next(iter(self.rates.values()))
        return newcombe((first.count, first.total), (second.count, second.total))


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
            "totals": [_total_dict(each) for each in self.totals],
            "sets": [vars(each) for each in self.sets],
            "pairs": self.counts(),
            "repeats": self.counts(within=True),
            "differs": {
                name: {"before": old, "after": new} for name, (old, new) in self.conditions.items()
            },
        }


def _total_dict(total: Total) -> dict[str, Any]:
    low, high = total.interval
    return {
        "before": total.before,
        "after": total.after,
        "new": total.new,
        "gone": total.gone,
        "regraded": total.regraded,
        "rates": {
            name: {"before": old.as_dict(), "after": new.as_dict()}
            for name, (old, new) in total.rates.items()
        },
        "shared_images": total.shared,
        "only_before": total.flips[0],
        "only_after": total.flips[1],
        "same_images": total.paired,
        "mcnemar_p": total.p_value,
        "difference_low": None if math.isnan(low) else low,
        "difference_high": None if math.isnan(high) else high,
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
        tuple(_turnovers(old, new, forth, matched)),
        tuple(_totals(first, second, chosen)),
        changes(first, second, chosen),
        conditions(old.summary, new.summary),
    )


def _measured(side: Side, level: Level) -> bool:
    return all(total["rates"].get(level.rate) for total in side.summary["totals"])


def _level(old: Side, new: Side, asked: str | None) -> Level:
    """Return the level to compare at.

    Raises:
        UsageError: one of the audits did not measure it.
    """
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


def _turnovers(old: Side, new: Side, forth: Matching, matched: Mapping[str, str]) -> list[Turnover]:
    found = []
    for name, rows in old.rows.items():
        theirs = matched.get(name)
        fates = np.bincount(forth.fate[rows], minlength=len(Fate))
        there = new.rows[theirs] if theirs is not None else np.zeros(0, np.int64)
        digests = [old.column("digest", rows), new.column("digest", there)]
        found.append(
            Turnover(
                name,
                theirs,
                int(fates[Fate.SAME]),
                int(fates[Fate.RENAMED]),
                int(fates[Fate.CHANGED]),
                int(fates[Fate.GONE]),
                len(there) - int(fates.sum() - fates[Fate.GONE]),
                not any(digest.null_count for digest in digests),
            )
        )
    for name, rows in new.rows.items():
        if name not in matched.values():
            known = not new.column("digest", rows).null_count
            found.append(Turnover(None, name, 0, 0, 0, 0, len(rows), known))
    return found


def _totals(old: View, new: View, level: Level) -> list[Total]:
    best = strongest(old.side, level), strongest(new.side, level)
    summaries = [
        {total["query_set"]: total["rates"] for total in view.side.summary["totals"]}
        for view in (old, new)
    ]
    found = []
    for name, own in summaries[0].items():
        theirs = old.sets.get(name)
        if theirs is None or theirs not in summaries[1]:
            continue
        mine, partner = old.side.rows[name], old.matching.partner[old.side.rows[name]]
        there = partner >= 0
        code = best[0][mine]
        other = np.where(there, best[1][partner], level.code + 1)
        leaks, leaked = code <= level.code, other <= level.code
        shared = old.matching.same_content[mine]
        every = int((best[1][new.side.rows[theirs]] <= level.code).sum())
        keys = [key for key, _ in (RATES[level.name], *RATES.values())]
        found.append(
            Total(
                name,
                theirs,
                every - int((leaks & leaked).sum()),
                int((leaks & ~leaked).sum()),
                int((leaks & leaked & (code != other)).sum()),
                {
                    key: (Rate.from_dict(own[key]), Rate.from_dict(summaries[1][theirs][key]))
                    for key in keys
                    if own.get(key) and summaries[1][theirs].get(key)
                },
                int(shared.sum()),
                (int((shared & leaks & ~leaked).sum()), int((shared & leaked & ~leaks).sum())),
            )
        )
    return found
