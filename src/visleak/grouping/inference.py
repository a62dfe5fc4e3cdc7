"""From names to groups that the images confirm."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import VisleakError
from visleak.formats.frames import read_frames
from visleak.formats.request import captured
from visleak.grouping import evidence, names
from visleak.grouping.evidence import Compare, Members
from visleak.grouping.names import Scheme, joined_places, read_tags
from visleak.groups import nearest_frames, numbered
from visleak.records import VIEWS, Bool, Bytes8, Encoder, Float32, Int64
from visleak.storage.audit_folder import GroupEvidence, Hypothesis, SharedGroups, SideGroups
from visleak.vectors import gathered

#: Largest p-value, corrected for the two ways to compare, with which a scheme is believed.
SIGNIFICANT: Final = 1e-3
#: Pairs without which nothing is believed.
ENOUGH: Final = 10
#: How often a pair must be more similar than others where names state what they mean; where the
#: images alone decide; and how often the most similar image must then be one of the group.
STATED_AUC: Final = 0.6
ALONE_AUC: Final = 0.75
ALONE_NEAREST: Final = 0.5
#: For shots: how often neighbours must be more similar than others near by, and its p-value.
LOCAL_AUC: Final = 0.62
LOCAL_P: Final = 0.01
#: For copies: the same, as copies are more similar than shots.
COPIES_AUC: Final = 0.7
COPIES_NEAREST: Final = 0.3
#: Distance up to which shots of a camera are compared: numbers, and milliseconds.
SHOTS: Final = 3
SHOTS_MS: Final = 60_000
#: Images of the same place in a sequence of two sets, as a share, from which numbers are doubted.
RESTARTED: Final = 0.1
#: A subject whose name holds no number is a class.
NUMBERED: Final = 0.8
#: Subjects that follow each other by name and are compared with each other.
BESIDE: Final = 3


@dataclass(frozen=True)
class GroupableSet:
    """The readable images of a set; groups, frames and times are those that its source has."""

    name: str
    tested: bool  # it is a query set
    ids: pa.StringArray
    labels: pa.StringArray | None
    groups: pa.StringArray | None
    frames: pa.Int64Array | None
    timed: bool
    matrix: Float32  # (n, d), unit rows
    digests: Bytes8  # (n, 16), of the contents
    locators: pa.StringArray | None = None  # ``None`` where tags are not to be read
    # by name, columns of which values repeat
    columns: Mapping[str, pa.StringArray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Sets:
    """The images of all sets of a dataset in one numbering."""

    sets: tuple[GroupableSet, ...]
    encoder: Encoder

    def __len__(self) -> int:
        return sum(map(len, self.sets))

    @cached_property
    def starts(self) -> Int64:
        """The first row of each set, and the end."""
        return np.cumsum([0, *map(len, self.sets)]).astype(np.int64)

    @cached_property
    def owner(self) -> Int64:
        """The index of the set of each row."""
        return np.repeat(np.arange(len(self.sets)), [len(each) for each in self.sets])

    @cached_property
    def ids(self) -> list[str]:
        """The id of each row."""
        return [id_ for each in self.sets for id_ in each.ids.to_pylist()]

    @cached_property
    def rank(self) -> Int64:
        """The rank of the id of each row."""
        return _codes(np.array(self.ids))

    @cached_property
    def content(self) -> Int64:
        """The number of the content of each row."""
        digests = np.concatenate([each.digests for each in self.sets])
        return _codes(np.ascontiguousarray(digests).view("V16").ravel())

    @cached_property
    def stratum(self) -> Int64:
        """The number of the class of each row; of its folder where classes are unknown."""
        texts = [id_.rpartition("/")[0] for id_ in self.ids]
        if any(each.labels is not None for each in self.sets):
            labels = self.column("labels", pa.string()).to_pylist()
            texts = list(map(str, labels))
        return _codes(np.array(texts))

    def column(self, name: str, kind: pa.DataType) -> pa.ChunkedArray:
        """Return a column of all sets; null where a set does not have it."""
        columns = [getattr(each, name) for each in self.sets]
        parts = [
            pa.nulls(len(each), kind) if own is None else own
            for each, own in zip(self.sets, columns, strict=True)
        ]
        return pa.chunked_array(parts, kind)

    def vectors(self, rows: Int64) -> Float32:
        """Return the vectors of some rows."""
        found = np.empty((len(rows), self.sets[0].matrix.shape[1]), np.float32)
        for index, each in enumerate(self.sets):
            own = self.owner[rows] == index
            found[own] = gathered(each.matrix, rows[own] - self.starts[index])
        return found


@dataclass(frozen=True)
class Found:
    """A hypothesis, and the images that it puts together."""

    hypothesis: Hypothesis
    rows: Int64  # ``int64`` (n,): rows of the images of which the group is known
    members: Members  # of these
    groups: tuple[str, ...]  # name of each group, by number


def _codes(values: npt.NDArray[np.generic]) -> Int64:
    """Return the rank of each value among those that occur: the same in any order of images."""
    return np.asarray(np.unique(values, return_inverse=True)[1].ravel(), np.int64)


def infer(sets: Sets) -> list[Found]:
    """Return what may put images together, believed or not, with evidence.

    Groups that a source states take the place of names.
    """
    found = []
    for scheme, known in _schemes(sets):
        if known is not None and len(known[0]) >= names.COVERED * len(sets):
            found.append(_judged(scheme, *known, sets))
    return _without_repeats(found)


_SORTED: Final = "neighbours are no more similar than others near by, as in a sorted list"
#: Rows, groups, frames (or None) and whether these are times, of a scheme.
Known = tuple[Int64, list[str], Int64 | None, bool]


def _schemes(sets: Sets) -> Iterator[tuple[Scheme, Known | None]]:
    given = [each for each in sets.sets if each.groups is not None]
    if given:
        framed = all(each.frames is not None for each in given)
        kind, words = ("sequence", "<group>, <frame>") if framed else ("subjects", "<group>")
        yield Scheme(kind, words, "", stated=True, source="source"), _given(sets, framed)
    yield from _of_columns(sets)
    if not given:
        for scheme in names.schemes(sets.ids):
            yield scheme, _read(scheme, sets.ids)
        yield from _of_tags(sets)


def _of_columns(sets: Sets) -> Iterator[tuple[Scheme, Known]]:
    """Yield the columns of all sets in which several values are those of several images."""
    for name in sorted(set.intersection(*(set(each.columns) for each in sets.sets))):
        values = [value for each in sets.sets for value in each.columns[name].to_pylist()]
        rows = [row for row, value in enumerate(values) if value]
        known = [values[row] for row in rows]
        scheme = names.of_column(name, Counter(known))
        if scheme is not None:
            yield scheme, (np.array(rows, np.int64), known, None, False)


def _of_tags(sets: Sets) -> Iterator[tuple[Scheme, Known]]:
    """Yield what the tags of photographs that are files state."""
    if any(each.locators is None for each in sets.sets):
        return
    paths = [str(path) for each in sets.sets if each.locators for path in each.locators.to_pylist()]
    found = read_tags(paths)
    if found is None:
        return
    shots = [(row, each.shot) for row, each in enumerate(found) if each and each.shot]
    if shots:
        times = np.array([shot.time for _, shot in shots], np.int64)
        scheme = Scheme("sequence", "camera and time", "", stated=True, source="EXIF")
        yield scheme, (*_named((row, shot.camera) for row, shot in shots), times, True)
    places = joined_places([None if each is None else each.place for each in found])
    kinds = (
        ("places", "place", "GPS", places),
        ("bursts", "burst", "XMP", [each and each.burst for each in found]),
        ("copies", "original document", "XMP", [each and each.original for each in found]),
    )
    for kind, words, source, texts in kinds:
        known = [(row, text) for row, text in enumerate(texts) if text]
        if names.repeats(Counter(text for _, text in known)):
            scheme = Scheme(kind, words, "", stated=True, source=source)
            yield scheme, (*_named(known), None, False)


def _named(known: Iterable[tuple[int, str]]) -> tuple[Int64, list[str]]:
    rows, texts = zip(*known, strict=True)
    return np.array(rows, np.int64), list(texts)


def _given(sets: Sets, framed: bool) -> Known:
    groups, frames = sets.column("groups", pa.string()), sets.column("frames", pa.int64())
    known = pc.is_valid(groups)
    rows = np.flatnonzero((pc.and_(known, pc.is_valid(frames)) if framed else known).to_numpy())
    numbers = frames.take(pa.array(rows)).to_numpy().astype(np.int64) if framed else None
    timed = framed and all(each.timed for each in sets.sets if each.groups is not None)
    return rows, groups.take(pa.array(rows)).to_pylist(), numbers, timed


def _read(scheme: Scheme, ids: Sequence[str]) -> Known | None:
    """Return what a scheme finds in the ids; ``None`` where its numbers cannot be read."""
    pattern = re.compile(scheme.group)
    groups = [captured(pattern, id_) for id_ in ids]
    if not scheme.frame:
        rows = np.array([row for row, name in enumerate(groups) if name is not None], np.int64)
        return rows, [str(groups[row]) for row in rows], None, False
    pattern = re.compile(scheme.frame)
    texts = [
        captured(pattern, id_) if name is not None else None
        for id_, name in zip(ids, groups, strict=True)
    ]
    try:
        frames = read_frames(pa.array(texts, pa.string()), "frames")
    except VisleakError:
        return None
    rows = np.flatnonzero(pc.is_valid(frames.values).to_numpy(zero_copy_only=False))
    numbers = frames.values.take(pa.array(rows)).to_numpy().astype(np.int64)
    return rows, [str(groups[row]) for row in rows], numbers, frames.timed


# -- judgement ------------------------------------------------------------------------------------


def _judged(
    scheme: Scheme, rows: Int64, named: Sequence[str], frames: Int64 | None, timed: bool, sets: Sets
) -> Found:
    """Return a scheme with its evidence, and whether it is believed."""
    # by id, so that what is drawn does not depend on the order of files and sets
    order = np.lexsort((sets.content[rows], sets.rank[rows]))
    rows, frames = rows[order], None if frames is None else frames[order]
    unique, group = np.unique(np.array(named, np.str_)[order], return_inverse=True)
    members = Members(
        group.astype(np.int64),
        np.zeros(len(rows), np.int64) if frames is None else frames,
        _strata(sets.stratum[rows], group) if scheme.stated else sets.stratum[rows],
        sets.content[rows],
    )
    hypothesis = Hypothesis(
        kind=scheme.kind,
        words=scheme.words,
        source=scheme.source,
        group=scheme.group,
        frame=scheme.frame,
        images=len(sets),
        covered=len(rows),
        groups=len(unique),
        largest=int(np.bincount(group).max()),
        unit=None if frames is None else "ms" if timed else "frames",
    )
    found = Found(hypothesis, rows, members, tuple(unique.tolist()))
    if why := _counter_evidence(scheme, found, sets):
        return replace(found, hypothesis=replace(hypothesis, why=why))
    ways = _comparisons(sets, rows, views=scheme.kind == "copies")
    judge = _judge_sequence if scheme.kind == "sequence" else _judge_groups
    return replace(found, hypothesis=judge(scheme, hypothesis, members, ways))


def _strata(stratum: Int64, group: Int64) -> Int64:
    """Return the class of images; of folders that hold one stated group each, one class of all."""
    pairs = np.unique(np.stack([stratum, group], axis=1), axis=0)
    return stratum if len(np.unique(pairs[:, 0])) < len(pairs) else np.zeros_like(stratum)


@dataclass(frozen=True)
class _ByContent:
    """Cosine similarity of the vectors; the largest over the views of the second image."""

    sets: Sets
    rows: Int64
    views: tuple[int, ...] = ()

    def cross(self, first: Int64, second: Int64) -> Float32:
        left, right = self.sets.vectors(self.rows[first]), self.sets.vectors(self.rows[second])
        best = left @ right.T
        for view in self.views:
            best = np.maximum(best, left @ self.sets.encoder.view(right, view).T)
        return np.asarray(best)

    def paired(self, first: Int64, second: Int64) -> Float32:
        left, right = self.sets.vectors(self.rows[first]), self.sets.vectors(self.rows[second])
        return np.asarray(np.einsum("nd,nd->n", left, right))


@dataclass(frozen=True)
class _ByColour:
    """One less the distance of mean colours."""

    sets: Sets
    rows: Int64
    colours: Callable[[Float32], Float32]

    def cross(self, first: Int64, second: Int64) -> Float32:
        left, right = self._of(first), self._of(second)
        return np.asarray(1.0 - np.linalg.norm(left[:, None] - right[None], axis=2))

    def paired(self, first: Int64, second: Int64) -> Float32:
        return np.asarray(1.0 - np.linalg.norm(self._of(first) - self._of(second), axis=1))

    def _of(self, places: Int64) -> Float32:
        return self.colours(self.sets.vectors(self.rows[places]))


def _comparisons(sets: Sets, rows: Int64, *, views: bool) -> dict[str, Compare]:
    """Return the ways to compare images: their content, and their mean colour where it is known."""
    if views:
        seen = tuple(range(1, len(VIEWS) - 1)) if sets.encoder.views > 1 else ()
        return {"content": _ByContent(sets, rows, seen)}
    ways: dict[str, Compare] = {"content": _ByContent(sets, rows)}
    colours: Callable[[Float32], Float32] | None = getattr(sets.encoder, "colours", None)
    return ways if colours is None else {**ways, "colour": _ByColour(sets, rows, colours)}


def _judge_sequence(
    scheme: Scheme, hypothesis: Hypothesis, members: Members, ways: dict[str, Compare]
) -> Hypothesis:
    """Judge a sequence as a recording, or where names state it as shots of a camera."""
    found = evidence.of_neighbours(members, ways["content"])
    if _alone(found):
        kind, why, believed, way = "recordings", _told(found), True, "content"
    elif scheme.stated:
        most = SHOTS_MS if hypothesis.unit == "ms" else SHOTS
        found, way = _best(
            {name: evidence.of_neighbours(members, each, most) for name, each in ways.items()}
        )
        near_by = evidence.of_neighbours(members, ways[way], most, near_by=True)
        local = near_by.auc >= LOCAL_AUC and near_by.p <= LOCAL_P
        believed = _stated(found) and local
        kind, why = "shots", _told(found) if believed else _untold(found)
        if _stated(found) and not local:
            why = _SORTED
    else:
        kind, why, believed, way = "recordings", _untold(found), False, "content"
    made = replace(hypothesis, kind=kind, why=why, believed=believed, evidence=found)
    if not believed:
        return made
    bars, base, gap = evidence.decay(members, ways[way])
    order = np.lexsort((members.frame, members.group))
    apart = np.diff(members.frame[order])[np.diff(members.group[order]) == 0]
    values, counts = np.unique(apart[apart > 0], return_counts=True)
    step = int(values[np.argmax(counts)])  # the most common distance of successive frames
    return replace(made, decay=bars, base=base, gap=gap or step, step=step)


def _judge_groups(
    scheme: Scheme, hypothesis: Hypothesis, members: Members, ways: dict[str, Compare]
) -> Hypothesis:
    found, way = _best({name: evidence.of_groups(members, each) for name, each in ways.items()})
    if scheme.kind == "copies":
        enough = found.auc >= COPIES_AUC and found.nearest >= COPIES_NEAREST
        believed = _significant(found) and enough
    else:
        believed = _stated(found) if scheme.stated else _alone(found)
    why = _told(found) if believed else _untold(found)
    if believed and scheme.kind in ("subjects", "tiles") and _one_class(members):
        # classes are unknown, and a list may be sorted by them
        local = evidence.of_groups(replace(members, stratum=members.group // BESIDE), ways[way])
        believed = local.auc >= STATED_AUC and local.p <= LOCAL_P
        why = why if believed else _SORTED
    return replace(hypothesis, why=why, believed=believed, evidence=found)


def _best(found: dict[str, GroupEvidence]) -> tuple[GroupEvidence, str]:
    """Return the stronger evidence, its p-value corrected for the choice, and its way."""
    way = min(found, key=lambda name: (_or(found[name].p, 1.0), -_or(found[name].auc, 0.0)))
    p = min(1.0, len(found) * found[way].p)
    return replace(found[way], p=p, by=way), way


def _or(value: float, other: float) -> float:
    return other if math.isnan(value) else value


def _significant(found: GroupEvidence) -> bool:
    return found.pairs >= ENOUGH and found.p <= SIGNIFICANT


def _stated(found: GroupEvidence) -> bool:
    """Whether the images confirm what names state."""
    return _significant(found) and found.auc >= STATED_AUC


def _alone(found: GroupEvidence) -> bool:
    """Whether the images alone are enough: each is most similar to one that belongs to it."""
    strong = found.auc >= ALONE_AUC and found.nearest >= ALONE_NEAREST
    return _significant(found) and strong and found.asked >= ENOUGH


def _told(found: GroupEvidence) -> str:
    p = "< 0.001" if found.p < 1e-3 else f"= {found.p:.3f}"
    return (
        f"{found.pairs:,} pairs by {found.by}: more similar than others in {100 * found.auc:.0f} %"
        f" (50 % by chance, p {p})"
    )


def _untold(found: GroupEvidence) -> str:
    if found.pairs < ENOUGH:
        return f"only {found.pairs:,} pairs can be compared"
    return f"the images do not confirm it: {_told(found)}"


def _counter_evidence(scheme: Scheme, found: Found, sets: Sets) -> str:
    """Return the reason to reject a scheme before images are compared, or nothing."""
    members, owner = found.members, sets.owner[found.rows]
    lasts = [name.rpartition("/")[2] for name in found.groups]
    words = sum(bool(re.search(r"\d", name)) for name in lasts) < NUMBERED * len(lasts)
    unstated = scheme.kind == "subjects" and not scheme.stated
    both = np.unique(np.stack([sets.stratum[found.rows], members.group], axis=1), axis=0)
    # each group is a class, or a folder where classes are unknown
    classes = len(both) == len(np.unique(both[:, 0])) == len(found.groups) > 1
    if words and (unstated or (scheme.kind == "tiles" and classes)):
        return "the names of the groups are words, as of classes"
    if unstated and _one_class(members):
        sizes = Counter(found.groups[group] for group in members.group.tolist())
        if names.like_classes(sizes):
            return "few groups of many images may as well be classes"
    if scheme.group and scheme.kind == "sequence":
        restarted = _restarted(members, owner)
        if restarted > RESTARTED:
            return (
                f"numbers begin again in each set: {100 * restarted:.0f} % of the images have the"
                " number of another image of another set"
            )
    return ""


def _one_class(members: Members) -> bool:
    return len(np.unique(members.stratum)) < 2


def _restarted(members: Members, owner: Int64) -> float:
    """Return the share of images that have the place of another image of another set."""
    order = np.lexsort((members.content, owner, members.frame, members.group))
    same = np.diff(members.group[order]) == 0
    same &= np.diff(members.frame[order]) == 0
    same &= np.diff(owner[order]) != 0
    same &= np.diff(members.content[order]) != 0
    return 2.0 * float(same.sum()) / max(len(owner), 1)


def _without_repeats(found: Sequence[Found]) -> list[Found]:
    """Leave out a scheme whose groups are those of another one that is believed."""
    kept: list[Found] = []
    # of two with the same groups, the one that also has frames
    for each in sorted(
        found, key=lambda one: (not one.hypothesis.believed, one.hypothesis.unit is None)
    ):
        if not any(own.hypothesis.believed and _same_groups(own, each) for own in kept):
            kept.append(each)
    return kept


def _same_groups(one: Found, other: Found) -> bool:
    # shots are grouped by the gaps between them
    if one.hypothesis.kind == "shots" or not np.array_equal(one.rows, other.rows):
        return False
    pairs = np.unique(np.stack([one.members.group, other.members.group], axis=1), axis=0)
    return len(pairs) == len(one.groups) == len(other.groups)


# -- what groups mean for an audit -----------------------------------------------------------------


#: Groups that are named.
NAMED: Final = 20


def summarised(found: Found, sets: Sets, couples: Sequence[tuple[str, str]]) -> Hypothesis:
    """Return a believed hypothesis with its groups by set and by comparison (``couples``)."""
    owner = sets.owner[found.rows]
    own = {each.name: owner == index for index, each in enumerate(sets.sets)}
    sides = tuple(
        _side(found, np.flatnonzero(own[each.name]), each.name, len(each)) for each in sets.sets
    )
    shared = tuple(
        _shared(found, own[query], own[reference], query, reference)
        for query, reference in couples
        if query in own and reference in own
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


def _nearest(found: Found, query: Bool, reference: Bool) -> tuple[Int64, Int64, Int64]:
    """Return members with a reference image of their group: the nearest, and its distance."""
    members = found.members
    left, right = np.flatnonzero(query), np.flatnonzero(reference)
    place, distance = nearest_frames(
        members.group[left], members.frame[left], members.group[right], members.frame[right]
    )
    known = place >= 0
    apart = np.minimum(distance[known], np.uint64(2**63 - 1)).astype(np.int64)
    return left[known], right[place[known]], apart


def rows(found: Found, sets: Sets, number: int) -> Iterator[tuple[str, ...]]:
    """Yield the rows of ``groups.csv`` of a hypothesis: every image of which the group is known."""
    members, framed = found.members, found.hypothesis.unit is not None
    owner = sets.owner[found.rows]
    tested = np.array([each.tested for each in sets.sets])[owner]
    close = {}
    if not tested.all():
        beside = (column.tolist() for column in _nearest(found, tested, ~tested))
        close = {place: (other, apart) for place, other, apart in zip(*beside, strict=True)}
    named = unit_names(found)
    for place, row in enumerate(found.rows.tolist()):
        own = sets.sets[owner[place]].name, sets.ids[row], str(number)
        group = found.groups[members.group[place]], named[place]
        frame = str(members.frame[place]) if framed else ""
        nearest = ("", "", "")
        if place in close:
            other, apart = close[place]
            name, id_ = sets.sets[owner[other]].name, sets.ids[found.rows[other]]
            nearest = name, id_, str(apart) if framed else ""
        yield (*own, *group, frame, *nearest)


def _side(found: Found, own: Int64, name: str, images: int) -> SideGroups:
    group, frame = found.members.group[own], found.members.frame[own]
    span = None
    if found.hypothesis.unit is not None:
        order = np.lexsort((frame, group))
        span = int(np.diff(frame[order])[np.diff(group[order]) == 0].sum())
    count, independent = (len(np.unique(codes)) for codes in (group, units(found, own)))
    return SideGroups(name, images, len(own), count, independent, span)


def _shared(
    found: Found, query: Bool, reference: Bool, query_set: str, reference_set: str
) -> SharedGroups:
    members, hypothesis = found.members, found.hypothesis
    rows, _, distance = _nearest(found, query, reference)
    groups, counts = np.unique(members.group[rows], return_counts=True)
    order = np.lexsort((groups, -counts))[:NAMED]
    framed = hypothesis.unit is not None
    close = distance <= (hypothesis.gap or 0)
    both = np.flatnonzero(query | reference)
    unit = units(found, both)
    in_both = np.intersect1d(unit[query[both]], unit[reference[both]])
    return SharedGroups(
        query_set,
        reference_set,
        groups=len(groups),
        units=len(in_both),
        queries=len(rows),
        close=int(close.sum()) if framed else None,
        least=int(distance.min()) if framed and len(rows) else None,
        median=int(np.sort(distance)[(len(rows) - 1) // 2]) if framed and len(rows) else None,
        named=tuple((found.groups[groups[at]], int(counts[at])) for at in order),
    )
