"""What became of the images of each set, and of the leaks of each query set."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from visleak.diff.matching import ImageStatus, Matching
from visleak.diff.pairs import View, strongest
from visleak.diff.sides import Side
from visleak.records import Int8
from visleak.stats import Rate
from visleak.stats.differences import mcnemar_exact, newcombe
from visleak.stats.levels import RATES
from visleak.storage.audit_folder import Rates
from visleak.verdicts.level import Level


@dataclass(frozen=True)
class Turnover:
    """What became of the images of a set.

    Attributes:
        before, after: its name in the two audits; ``None`` if it is not there.
        same, renamed, changed: images in both: unchanged, with another id, with another content.
        removed, added: images in one of them only.
        unseen_before, unseen_after: these images were perhaps there, but the audit before (after)
            took a sample, or lists only the images that are in a pair.
        known: contents are known, so that ``renamed`` and ``changed`` could be seen.
    """

    before: str | None
    after: str | None
    same: int
    renamed: int
    changed: int
    removed: int
    added: int
    unseen_before: bool
    unseen_after: bool
    known: bool


@dataclass(frozen=True)
class Total:
    """What became of the leaks of a query set.

    Attributes:
        before, after: its name in the two audits.
        new, gone: images that leak in one of them only.
        unseen: images that leak in one of them, and that the other did not compare.
        regraded: images that leak in both, by another strongest grade or degree.
        rates: of the level, then of those that both audits measured: name to before and after.
        shared: images in both with the same content.
        flips: of these, how many leak before alone and after alone.
    """

    before: str
    after: str
    new: int
    gone: int
    unseen: int
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

    def as_dict(self) -> dict[str, Any]:
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
        fates = np.bincount(forth.fate[rows], minlength=len(ImageStatus))
        there = new.rows[theirs] if theirs is not None else np.zeros(0, np.int64)
        digests = [old.column("digest", rows), new.column("digest", there)]
        found.append(
            Turnover(
                before=name,
                after=theirs,
                same=int(fates[ImageStatus.SAME]),
                renamed=int(fates[ImageStatus.RENAMED]),
                changed=int(fates[ImageStatus.CHANGED]),
                removed=int(fates[ImageStatus.GONE]),
                added=len(there) - int(fates.sum() - fates[ImageStatus.GONE]),
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
    found = []
    for name in _query_sets(old.side):
        theirs = old.sets.get(name)
        if theirs is not None and theirs in _query_sets(new.side):
            found.append(_total(old, new, (name, theirs), best, level))
    return tuple(found)


def _query_sets(side: Side) -> Mapping[str, Rates]:
    return {total.query_set: total.rates for total in side.summary.totals}


def _total(
    old: View, new: View, names: tuple[str, str], best: tuple[Int8, Int8], level: Level
) -> Total:
    mine, theirs = old.side.rows[names[0]], new.side.rows[names[1]]
    partner = old.matching.partner[mine]
    code = best[0][mine]
    other = np.where(partner >= 0, best[1][partner], level.code + 1)
    leaks, leaked = code <= level.code, other <= level.code
    lost = leaks & (partner < 0) & new.side.partly_listed(names[1])
    fresh = (best[1][theirs] <= level.code) & (new.matching.partner[theirs] < 0)
    found = fresh & old.side.partly_listed(names[0])
    shared = old.matching.same_content[mine]
    every = int((best[1][theirs] <= level.code).sum())
    rates = _query_sets(old.side)[names[0]], _query_sets(new.side)[names[1]]
    keys = [key for key, _ in (RATES[level.name], *RATES.values())]
    return Total(
        before=names[0],
        after=names[1],
        new=every - int((leaks & leaked).sum()) - int(found.sum()),
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
