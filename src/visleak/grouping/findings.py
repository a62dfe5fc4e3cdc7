"""What groups mean for an audit: shared by two sets, nearest frames, independent units."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from visleak.grouping.inference import Found, Sets
from visleak.groups import nearest_frames, numbered
from visleak.records import Bool, Int64
from visleak.storage.groupings import Hypothesis, SharedGroups, SideGroups

#: Groups that are named.
NAMED: Final = 20


@dataclass(frozen=True)
class Nearest:
    """The nearest reference image of the same group."""

    rows: Int64  # (n,): places among the members of a hypothesis
    other: Int64  # (n,): place of the nearest reference image
    distance: Int64  # (n,): of frames; 0 without frames


def summarised(found: Found, sets: Sets, couples: Sequence[tuple[str, str]]) -> Hypothesis:
    """Return a believed hypothesis with its groups by set and by comparison (``couples``)."""
    names = [each.name for each in sets.sets]
    owner = sets.owner[found.rows]
    sides = tuple(
        _side(found, np.flatnonzero(owner == index), each.name, len(each))
        for index, each in enumerate(sets.sets)
    )
    shared = tuple(
        _shared(found, owner == names.index(query), owner == names.index(reference), query, other)
        for query, reference in couples
        if query in names and (other := reference) in names
    )
    return replace(found.hypothesis, sides=sides, shared=shared)


def units(found: Found, rows: Int64) -> Int64:
    """Return the number of the independent unit of some members.

    That is the group; shots of a camera are one unit as long as no gap is between them.
    """
    group, frame = found.members.group[rows], found.members.frame[rows]
    if found.hypothesis.kind != "shots" or not len(rows):
        return numbered(group)
    order = np.lexsort((frame, group))
    apart = np.diff(frame[order]) > (found.hypothesis.gap or 0)
    new = np.concatenate([[False], apart | (np.diff(group[order]) != 0)])
    unit = np.empty(len(rows), np.int64)
    unit[order] = np.cumsum(new)
    return unit


def unit_names(found: Found) -> list[str]:
    """Return the name of the unit of each member: its group, and of shots the first and last."""
    members, texts = found.members, found.groups
    if found.hypothesis.kind != "shots":
        return [texts[group] for group in members.group.tolist()]
    unit = units(found, np.arange(len(members)))
    first = np.full(unit.max(initial=0) + 1, np.iinfo(np.int64).max)
    last = np.full(len(first), np.iinfo(np.int64).min)
    np.minimum.at(first, unit, members.frame)
    np.maximum.at(last, unit, members.frame)
    return [
        f"{texts[group]} {first[own]}" + (f"-{last[own]}" if last[own] > first[own] else "")
        for group, own in zip(members.group.tolist(), unit.tolist(), strict=True)
    ]


def nearest(found: Found, query: Bool, reference: Bool) -> Nearest:
    """Return the nearest reference image of the same group, of the members that have one."""
    members = found.members
    left, right = np.flatnonzero(query), np.flatnonzero(reference)
    place, distance = nearest_frames(
        members.group[left], members.frame[left], members.group[right], members.frame[right]
    )
    known = place >= 0
    apart = np.minimum(distance[known], np.uint64(2**63 - 1)).astype(np.int64)
    return Nearest(left[known], right[place[known]], apart)


def rows(found: Found, sets: Sets, number: int) -> Iterator[tuple[str, ...]]:
    """Yield the rows of ``groups.csv`` of a hypothesis: every image of which the group is known."""
    members, hypothesis = found.members, found.hypothesis
    owner = sets.owner[found.rows]
    tested = np.array([each.tested for each in sets.sets])[owner]
    close = {}
    if not tested.all():
        beside = nearest(found, tested, ~tested)
        close = dict(
            zip(
                beside.rows.tolist(),
                zip(beside.other.tolist(), beside.distance.tolist(), strict=True),
                strict=True,
            )
        )
    named = unit_names(found)
    for place, row in enumerate(found.rows.tolist()):
        other, distance = close.get(place, (-1, 0))
        framed = hypothesis.unit is not None
        yield (
            sets.sets[owner[place]].name,
            sets.ids[row],
            str(number),
            found.groups[members.group[place]],
            named[place],
            str(members.frame[place]) if framed else "",
            sets.sets[owner[other]].name if other >= 0 else "",
            sets.ids[found.rows[other]] if other >= 0 else "",
            str(distance) if other >= 0 and framed else "",
        )


def _side(found: Found, own: Int64, name: str, images: int) -> SideGroups:
    group, frame = found.members.group[own], found.members.frame[own]
    span = None
    if found.hypothesis.unit is not None:
        order = np.lexsort((frame, group))
        apart = np.diff(frame[order])[np.diff(group[order]) == 0]
        span = int(apart.sum())
    count = len(np.unique(group))
    return SideGroups(name, images, len(own), count, len(np.unique(units(found, own))), span)


def _shared(
    found: Found, query: Bool, reference: Bool, query_set: str, reference_set: str
) -> SharedGroups:
    members, hypothesis = found.members, found.hypothesis
    beside = nearest(found, query, reference)
    groups, counts = np.unique(members.group[beside.rows], return_counts=True)
    order = np.lexsort((groups, -counts))[:NAMED]
    named = tuple((found.groups[groups[at]], int(counts[at])) for at in order)
    framed = hypothesis.unit is not None and len(beside.rows) > 0
    close = beside.distance <= (hypothesis.gap or 0)
    both = np.flatnonzero(query | reference)
    unit = units(found, both)
    in_both = np.intersect1d(unit[query[both]], unit[reference[both]])
    return SharedGroups(
        query_set,
        reference_set,
        groups=len(groups),
        units=len(in_both),
        queries=len(beside.rows),
        close=int(close.sum()) if hypothesis.unit is not None else None,
        least=int(beside.distance.min()) if framed else None,
        median=int(np.sort(beside.distance)[(len(close) - 1) // 2]) if framed else None,
        named=named,
    )
