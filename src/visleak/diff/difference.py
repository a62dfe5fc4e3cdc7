"""What changed between two audits, in numbers."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from visleak.diff.pairs import (
    CHANGES,
    Changes,
    Matching,
    Side,
    View,
    changes,
    match_images,
    match_sets,
    reason_word,
    strongest,
)
from visleak.errors import UsageError
from visleak.rates import Rate
from visleak.records import Bool, Int8
from visleak.stats.intervals import mcnemar_exact, newcombe
from visleak.storage import AuditSummary
from visleak.storage.audit_folder import Rates
from visleak.verdicts.overlay import RATES, Level


@dataclass(frozen=True)
class Turnover:
    """What became of the images of a set."""

    # its name in the two audits; ``None`` if it is not there
    before: str | None
    after: str | None
    # images in both: unchanged, with another id, with another content
    same: int
    renamed: int
    changed: int
    # images in one of them only
    removed: int
    added: int
    # these images were perhaps there, but the audit before (after) took a sample, or lists only the
    # images that are in a pair
    unseen_before: bool
    unseen_after: bool
    known: bool  # contents are known, so that ``renamed`` and ``changed`` could be seen


@dataclass(frozen=True)
class Total:
    """What became of the leaks of a query set."""

    # its name in the two audits
    before: str
    after: str
    # images that leak in one of them only
    new: int
    gone: int
    unseen: int  # images that leak in one of them, and that the other did not compare
    regraded: int  # images that leak in both, by another strongest grade or degree
    # of the level, then of those that both audits measured: name to before and after
    rates: Mapping[str, tuple[Rate, Rate]]
    shared: int  # images in both with the same content
    flips: tuple[int, int]  # of these, how many leak before alone and after alone

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

    def as_dict(self) -> dict[str, object]:
        """Return plain values."""
        low, high = self.interval
        return {
            "before": self.before,
            "after": self.after,
            "new": self.new,
            "gone": self.gone,
            "unseen": self.unseen,
            "regraded": self.regraded,
            "rates": {
                name: {"before": old.as_dict(), "after": new.as_dict()}
                for name, (old, new) in self.rates.items()
            },
            "shared_images": self.shared,
            "only_before": self.flips[0],
            "only_after": self.flips[1],
            "same_images": self.paired,
            "mcnemar_p": self.p_value,
            "difference_low": None if math.isnan(low) else low,
            "difference_high": None if math.isnan(high) else high,
        }


def turnovers(
    old: Side, new: Side, forth: Matching, matched: Mapping[str, str]
) -> tuple[Turnover, ...]:
    """Return what became of the images of each set."""
    found = []
    for name, rows in old.rows.items():
        theirs = matched.get(name)
        gone, same, renamed, changed = np.bincount(forth.fate[rows], minlength=4).tolist()
        there = new.rows[theirs] if theirs is not None else np.zeros(0, np.int64)
        digests = [old.column("digest", rows), new.column("digest", there)]
        found.append(
            Turnover(
                before=name,
                after=theirs,
                same=same,
                renamed=renamed,
                changed=changed,
                removed=gone,
                added=len(there) - same - renamed - changed,
                unseen_before=old.partly_listed(name),
                unseen_after=theirs is not None and new.partly_listed(theirs),
                known=not any(digest.null_count for digest in digests),
            )
        )
    for name, rows in new.rows.items():
        if name not in matched.values():
            known = not new.column("digest", rows).null_count
            found.append(Turnover(None, name, 0, 0, 0, 0, len(rows), False, False, known))
    return tuple(found)


def totals(old: View, new: View, level: Level) -> tuple[Total, ...]:
    """Return what became of the leaks of each query set that is one in both audits."""
    best = strongest(old.side, level), strongest(new.side, level)
    before, after = (
        {total.query_set: total.rates for total in side.summary.totals}
        for side in (old.side, new.side)
    )
    return tuple(
        _total(old, new, (name, theirs), (before[name], after[theirs]), best, level)
        for name in before
        if (theirs := old.sets.get(name)) in after and theirs is not None
    )


def _total(
    old: View,
    new: View,
    names: tuple[str, str],
    rates: tuple[Rates, Rates],
    best: tuple[Int8, Int8],
    level: Level,
) -> Total:
    mine, theirs = old.side.rows[names[0]], new.side.rows[names[1]]
    partner = old.matching.partner[mine]
    code = best[0][mine]
    other = np.where(partner >= 0, best[1][partner], level.code + 1)
    leaks, leaked = code <= level.code, other <= level.code
    lost = leaks & (partner < 0) & new.side.partly_listed(names[1])
    every = best[1][theirs] <= level.code
    found = every & (new.matching.partner[theirs] < 0) & old.side.partly_listed(names[0])
    shared = old.matching.same_content[mine]
    keys = dict.fromkeys(key for key, _ in (RATES[level.name], *RATES.values()))
    return Total(
        *names,
        new=int(every.sum() - (leaks & leaked).sum() - found.sum()),
        gone=int((leaks & ~leaked & ~lost).sum()),
        unseen=int(lost.sum() + found.sum()),
        regraded=int((leaks & leaked & (code != other)).sum()),
        rates={
            key: (before, after)
            for key in keys
            if (before := rates[0].get(key)) and (after := rates[1].get(key))
        },
        shared=int(shared.sum()),
        flips=(int((shared & leaks & ~leaked).sum()), int((shared & leaked & ~leaks).sum())),
    )


@dataclass(frozen=True)
class Difference:
    """What changed between two audits at a level."""

    # the audits, and what their images are in the other
    before: View
    after: View
    level: Level  # the weakest that counts
    sets: tuple[Turnover, ...]  # a set each
    totals: tuple[Total, ...]  # a query set each that is one in both
    changes: Changes  # the pairs
    # what else differs: name to before and after
    conditions: Mapping[str, tuple[object, object]] = field(default_factory=dict)

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
        for view, places in ((self.before, self.changes.before), (self.after, self.changes.after)):
            listed = places >= 0
            result[listed] = view.side.listed.within[places[listed]]
        return result

    def as_dict(self) -> dict[str, object]:
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


def _level(old: Side, new: Side, asked: str | None) -> Level:
    def measured(side: Side, level: Level) -> bool:
        return all(total.rates.get(level.rate) for total in side.summary.totals)

    level = Level(asked or "near")
    if asked is None and not (measured(old, level) and measured(new, level)):
        level = Level("soft")
    for side in (old, new):
        if not measured(side, level):
            why = "grades" if level.scale == "grade" else "thresholds for degrees"
            raise UsageError(f"{side.folder} has no {why}, so nothing can be said at {level.name}")
    return level


def conditions(before: AuditSummary, after: AuditSummary) -> dict[str, tuple[object, object]]:
    """Return what differs and can change an answer: name to the value before and after.

    >>> conditions(AuditSummary(visleak="1.0"), AuditSummary(visleak="1.1"))
    {'visleak': ('1.0', '1.1')}
    """
    old, new = dict(_conditions(before)), dict(_conditions(after))
    found = {name: (old.get(name), new.get(name)) for name in {**old, **new}}
    return {name: pair for name, pair in found.items() if pair[0] != pair[1]}


def _conditions(audit: AuditSummary) -> Iterator[tuple[str, object]]:
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
