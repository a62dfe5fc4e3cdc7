"""Pairs that came, went, or are of another grade, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.diff.sides import HUMAN, NOTHING, ImageStatus, Listed, Matching, Side
from visleak.records import Bool, Int8, Int64
from visleak.verdicts.level import Level

APPEARED, VANISHED, CHANGED = CHANGES = ("appeared", "vanished", "changed")

#: Why a pair is in one audit only, or of another grade, in the order in which they are tried.
#: ``image new`` and ``image gone`` are one, seen from two sides.
REASONS: Final = (
    "not compared",
    "image",
    "unreadable",
    "content changed",
    "judged",
    "regraded",
    "degree",
    "below threshold",
    "not searched",
)

#: What the reasons mean, after a number of pairs; ``{other}`` is the audit without them.
MEANINGS: Final = {
    "not compared": "of sets that {other} did not compare",
    "image new": "with an image that {other} had not",
    "image gone": "with an image that {other} has not",
    "unreadable": "with an image that {other} could not read",
    "content changed": "with an image that has another content in {other}",
    "judged": "judged by a person",
    "regraded": "graded otherwise by the machine",
    "degree": "of another degree",
    "below threshold": "below the threshold of {other}",
    "not searched": "not among the candidates of {other}",
}


@dataclass(frozen=True)
class Changes:
    """Pairs at a level in at least one audit that are not the same in the other."""

    # places in the listed pairs of the two audits; -1 where it is not listed
    before: Int64
    after: Int64
    change: Int8
    reason: Int8

    def __len__(self) -> int:
        return len(self.before)


def reason_word(change: int, reason: int) -> str:
    """Return why a pair changed, from its places in :data:`CHANGES` and :data:`REASONS`."""
    if REASONS[reason] != "image":
        return REASONS[reason]
    return "image new" if CHANGES[change] == APPEARED else "image gone"


@dataclass(frozen=True)
class View:
    """An audit as seen from the other one."""

    side: Side
    matching: Matching
    sets: Mapping[str, str]


def changes(before: View, after: View, level: Level) -> Changes:
    """Compare the pairs of two audits at a level.

    Pairs are the same where both images are, contents included; those of a repeat within a set
    in either order.
    """
    old, new = before.side.listed, after.side.listed
    strong = [getattr(pairs, level.scale) <= level.code for pairs in (old, new)]
    keys = _keys(before, after)
    # of the weaker pairs only those that are strong in the other audit matter
    kept = [
        np.flatnonzero(strong[0] | np.isin(keys[0], keys[1][strong[1]])),
        np.flatnonzero(strong[1] | np.isin(keys[1], keys[0][strong[0] & (keys[0] >= 0)])),
    ]
    known = kept[0][keys[0][kept[0]] >= 0]
    _, i, j = np.intersect1d(keys[0][known], keys[1][kept[1]], return_indices=True)
    pairs = known[i], kept[1][j]
    parts = [_in_both(old, new, pairs, level)]
    for side, other, own, which in (
        (before, after, np.setdiff1d(np.flatnonzero(strong[0]), pairs[0]), VANISHED),
        (after, before, np.setdiff1d(np.flatnonzero(strong[1]), pairs[1]), APPEARED),
    ):
        parts.append(_alone(side, other, own, which, level))
    joined = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in vars(parts[0])
    }
    return Changes(**joined)


def _keys(before: View, after: View) -> tuple[Int64, Int64]:
    """Return a number for each pair, the same for the same pair; -1 where an image is not there."""
    count = after.side.images.num_rows
    found = []
    for view, is_old in ((before, True), (after, False)):
        pairs = view.side.listed
        left, right = pairs.query, pairs.reference
        there = np.ones(len(pairs), bool)
        if is_old:
            kept = view.matching.same_content
            there = kept[left] & kept[right]
            left, right = view.matching.partner[left], view.matching.partner[right]
        low, high = np.minimum(left, right), np.maximum(left, right)
        first = np.where(pairs.within, low, left)
        second = np.where(pairs.within, high, right)
        found.append(np.where(there, first * count + second, -1))
    return found[0], found[1]


def _in_both(old: Listed, new: Listed, pairs: tuple[Int64, Int64], level: Level) -> Changes:
    first, second = old.take(pairs[0]), new.take(pairs[1])
    codes = [getattr(part, level.scale) for part in (first, second)]
    strong = [code <= level.code for code in codes]
    differ = (first.grade != second.grade) | (first.degree != second.degree)
    change = np.select(
        [strong[0] & ~strong[1], strong[1] & ~strong[0], strong[0] & strong[1] & differ],
        [CHANGES.index(VANISHED), CHANGES.index(APPEARED), CHANGES.index(CHANGED)],
        -1,
    )
    # what crosses the level does so on the level's scale; what stays above it may move on either
    moved = first.grade != second.grade
    if level.scale == "degree":
        moved &= first.degree == second.degree
    people = (first.judged > 0) | (second.judged > 0)
    reason = np.select(
        [moved & people, moved],
        [REASONS.index("judged"), REASONS.index("regraded")],
        REASONS.index("degree"),
    )
    rows = np.flatnonzero(change >= 0)
    return Changes(
        pairs[0][rows], pairs[1][rows], change[rows].astype(np.int8), reason[rows].astype(np.int8)
    )


def _alone(view: View, other: View, rows: Int64, which: str, level: Level) -> Changes:
    """Return pairs that the other audit does not list, and why it does not."""
    pairs = view.side.listed.take(rows)
    ends = pairs.query, pairs.reference
    fates = [view.matching.fate[end] for end in ends]
    gone, unreadable, unlisted = (np.zeros(len(pairs), bool) for _ in range(3))
    for end, fate in zip(ends, fates, strict=True):
        lost, partly = _lost(view, other, end)
        unreadable |= (fate == ImageStatus.GONE) & lost
        unlisted |= (fate == ImageStatus.GONE) & partly & ~lost
        gone |= (fate == ImageStatus.GONE) & ~lost & ~partly
    changed = (fates[0] == ImageStatus.CHANGED) | (fates[1] == ImageStatus.CHANGED)
    added = (pairs.judged == HUMAN) & (pairs.machine_grade > level.code)
    conditions = {
        "not compared": ~_compared(view, other, ends),
        "image": gone,
        "unreadable": unreadable,
        "content changed": changed,
        "judged": added & ~unlisted & (level.scale == "grade"),
        "below threshold": _below(view, other, pairs) & ~unlisted,
    }
    reason = np.select(
        list(conditions.values()),
        [REASONS.index(name) for name in conditions],
        REASONS.index("not searched"),
    )
    nothing = np.full(len(rows), -1, np.int64)
    return Changes(
        rows if which == VANISHED else nothing,
        rows if which == APPEARED else nothing,
        np.full(len(rows), CHANGES.index(which), np.int8),
        reason.astype(np.int8),
    )


def _lost(view: View, other: View, images: Int64) -> tuple[Bool, Bool]:
    """Return which images the other audit could not read, and which it may just not list."""
    lost, partly = np.zeros(len(images), bool), np.zeros(len(images), bool)
    for place, name in enumerate(view.side.names):
        theirs = view.sets.get(name)
        if theirs is None:
            continue
        mine = np.flatnonzero(view.side.set_of[images] == place)
        ids = sorted(id_ for set_name, id_ in other.side.unreadable if set_name == theirs)
        if ids and len(mine):
            found = pc.is_in(view.side.column("id", images[mine]), pa.array(ids, pa.string()))
            lost[mine] = found.to_numpy(zero_copy_only=False)
        partly[mine] = other.side.partly_listed(theirs)
    return lost, partly


def _compared(view: View, other: View, ends: tuple[Int64, Int64]) -> Bool:
    done = {(c.query_set, c.reference_set) for c in other.side.summary.comparisons}
    names = view.side.names
    query, reference = (view.side.set_of[end] for end in ends)
    result = np.zeros(len(query), bool)
    for own in view.side.summary.comparisons:
        left, right = own.query_set, own.reference_set
        if (view.sets.get(left), view.sets.get(right)) in done:
            result |= (query == names.index(left)) & (reference == names.index(right))
    return result


def _below(view: View, other: View, pairs: Listed) -> Bool:
    """Return which pairs the other audit need not list, for they are below its soft threshold.

    Similarities of another encoder do not compare with it.
    """
    soft = other.side.summary.thresholds.soft
    digests = [each.side.summary.encoder.digest for each in (view, other)]
    if soft is None or digests[0] != digests[1]:
        return np.zeros(len(pairs), bool)
    below: Bool = pairs.similarity < np.float32(soft)
    return below


def strongest(side: Side, level: Level) -> Int8:
    """Return for each image the strongest place on the level's scale among its leaks.

    Of repeats within a set both images count, where the set was compared with itself only.
    """
    best = np.full(side.images.num_rows, NOTHING, np.int8)
    pairs = side.listed
    code = getattr(pairs, level.scale)
    own = np.array([side.alone(name) for name in side.names], bool)
    repeats = own[side.set_of[pairs.query]]
    rows = np.flatnonzero(~pairs.within | repeats)
    np.minimum.at(best, pairs.query[rows], code[rows])
    rows = np.flatnonzero(pairs.within & repeats)
    np.minimum.at(best, pairs.reference[rows], code[rows])
    return best
