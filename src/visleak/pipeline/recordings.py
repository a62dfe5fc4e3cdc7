"""Leaks by origin: groups and recordings on both sides.

A group (a video, a patient) on both sides is a leak even if no pixel agrees. Frames of a recording
within a second of each other show the same scene, whether or not they are similar enough to be
listed: where frame numbers or times are known, the distance in time decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.grouping import Found, GroupableSet, Sets, infer, summarised
from visleak.grouping.inference import unit_names
from visleak.groups import UInt64, distance_of, joined, nearest_frames
from visleak.options import AUTO
from visleak.pipeline.comparison import Comparison, RecordingLeak
from visleak.pipeline.encoded_set import Side
from visleak.rates import Rate
from visleak.records import Bool, Encoder, ImageSet, Int64
from visleak.settings import Settings
from visleak.storage.audit_folder import (
    DistanceCount,
    GroupingSummary,
    GroupSummary,
    RecordingCounts,
)

NAMED: Final = 20  # groups that are named
ODD: Final = 100  # multiple of the bound from which frame numbers are likely something else
#: Columns of ``recordings.csv``.
COLUMNS: Final = (
    *("query_set", "reference_set", "recording", "unit", "queries", "references", "close"),
    *("near_or_exact", "least", "median", "near_up_to"),
)
#: Last distances of the bars of the histogram, in frames and in milliseconds; a last bar follows.
STEPS: Final = {
    "frames": (0, 1, 2, 5, 10, 20, 50, 100),
    "ms": (0, 100, 200, 500, 1000, 2000, 5000, 10_000),
}


def rate_of(hit: Bool, population: int | None) -> Rate:
    """Return the share of query images that leak, for ``audit.json``."""
    return Rate.of(int(hit.sum()), len(hit), population=population)


# -- groups --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GroupLeak:
    """The groups that two sets of one dataset share."""

    names: tuple[str, ...]  # of the shared groups, sorted
    queries: Bool  # bool (n,): which readable query images are of one of them

    def summary(self) -> GroupSummary:
        """Return the entry of ``audit.json``."""
        return GroupSummary(len(self.names), int(self.queries.sum()), self.names[:NAMED])


def group_leak(comparison: Comparison) -> GroupLeak | None:
    """Return the groups on both sides of a comparison; ``None`` where that has no meaning.

    It has a meaning for two sets of one dataset that both have groups: names of groups are not
    comparable across datasets, and within a set a group is on one side. Only readable images count,
    and of streamed embeddings too few are known.
    """
    if comparison.coverage != "intra" or comparison.reference.streamed:
        return None
    query, reference = (
        None if side.images.groups is None else side.images.groups.take(side.fingerprints.rows)
        for side in (comparison.query, comparison.reference)
    )
    if query is None or reference is None or query.null_count == len(query):
        return None
    if reference.null_count == len(reference):
        return None
    hit = pc.is_in(query, pc.unique(reference).drop_null(), skip_nulls=True)
    names = pc.unique(query.filter(hit)).to_pylist()
    return GroupLeak(tuple(sorted(names)), np.asarray(hit.to_numpy(zero_copy_only=False), np.bool_))


def union_of_groups(leaks: Sequence[GroupLeak]) -> GroupLeak | None:
    """Return the leaks of one query set over several references, ``None`` if there are none."""
    if not leaks:
        return None
    names = sorted({name for each in leaks for name in each.names})
    return GroupLeak(tuple(names), np.logical_or.reduce([each.queries for each in leaks]))


def group_sentence(leak: GroupLeak | None, name: str) -> str:
    """Return the part of the headline on groups, empty where none is shared.

    >>> group_sentence(GroupLeak(("p7",), np.array([True, False])), "test")
    '; 1 group is on both sides (1 of 2 test images)'
    """
    if leak is None or not leak.names:
        return ""
    count = len(leak.names)
    return (
        f"; {count:,} {'group is' if count == 1 else 'groups are'} on both sides"
        f" ({int(leak.queries.sum()):,} of {len(leak.queries):,} {name} images)"
    )


def ungrouped(sets: Iterable[ImageSet]) -> list[str]:
    """Return a line for each set with groups in which some images have none."""
    return [
        f"groups of {images.name}: {images.groups.null_count:,} of {len(images):,} images have none"
        for images in sets
        if images.groups is not None and images.groups.null_count
    ]


# -- recordings ----------------------------------------------------------------------------------


def union_of_recordings(leaks: Sequence[RecordingLeak]) -> tuple[int, Bool] | None:
    """Return the leaking recordings and close images of one query set over its references."""
    if not leaks:
        return None
    names = {each.recording for leak in leaks for each in leak.leaking}
    return len(names), np.logical_or.reduce([leak.close for leak in leaks])


def recording_sentence(leaks: Sequence[RecordingLeak], name: str) -> str:
    """Return the part of the headline on recordings, empty where none leaks.

    >>> one = RecordingCounts("r", 2, 5, 1, None, 3, 3, None)
    >>> leak = RecordingLeak("frames", 10, (one,), np.array([True, False]), ())
    >>> recording_sentence([leak], "test")
    '; 1 recording leaks: 1 of 2 test images lies within 10 frames of a training frame'
    """
    found = union_of_recordings(leaks)
    if found is None or not found[0]:
        return ""
    count, close = found
    images = int(close.sum())
    bounds = " or ".join(dict.fromkeys(words(leak.within, leak.unit) for leak in leaks))
    return (
        f"; {count:,} {'recording leaks' if count == 1 else 'recordings leak'}: {images:,} of"
        f" {len(close):,} {name} images {'lies' if images == 1 else 'lie'} within {bounds} of a"
        " training frame"
    )


def unknown_times(comparison: Comparison, shared: int) -> str:
    """Return why distances in time of a comparison with shared groups are unknown, or nothing."""
    query, reference = comparison.query.images, comparison.reference.images
    between = f"time between frames of {query.name} and {reference.name}"
    if not shared:
        return ""
    without = [
        images.name
        for images in (query, reference)
        if images.frames is None or images.frames.null_count == len(images)
    ]
    if without:
        return (
            f"{between}: frame numbers of {' and '.join(without)} are not known; if the groups are"
            " recordings, give --frame"
        )
    if query.timed != reference.timed:
        return f"{between}: one set has times, the other frame numbers; give both the same"
    return ""


def doubt(unit: str, within: int, nearest: int | None) -> str:
    """Return why the numbers of frames may be something else, or nothing.

    >>> doubt("frames", 10, 5_000)
    'the nearest are 5,000 frames apart; if the numbers are times, give seconds or dates'
    >>> doubt("frames", 10, 1_000), doubt("ms", 1_000, 10**9), doubt("frames", 10, None)
    ('', '', '')
    """
    if unit != "frames" or nearest is None or nearest <= ODD * max(within, 1):
        return ""
    apart = words(nearest, unit)
    return f"the nearest are {apart} apart; if the numbers are times, give seconds or dates"


def unnumbered(sets: Iterable[ImageSet]) -> list[str]:
    """Return a line for each set of recordings in which some images have no frame number."""
    return [
        f"frames of {images.name}: {images.frames.null_count:,} of {len(images):,} images have none"
        for images in sets
        if images.groups is not None
        and images.frames is not None
        and 0 < images.frames.null_count < len(images)
    ]


def words(distance: int, unit: str) -> str:
    """Return a distance in words.

    >>> words(10, "frames"), words(1, "frames"), words(1500, "ms")
    ('10 frames', '1 frame', '1.5 s')
    """
    if unit == "ms":
        return f"{distance / 1000:,.10g} s"
    return f"{distance:,} frame{'' if distance == 1 else 's'}"


def rows(comparisons: Iterable[Comparison]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of ``recordings.csv``: every recording on both sides, by sets and name."""
    for comparison in sorted(comparisons, key=lambda each: each.names):
        if (leak := comparison.recordings) is None:
            continue
        query, reference = comparison.names
        sets = {"query_set": query, "reference_set": reference, "unit": leak.unit}
        for each in leak.recordings:
            values = sets | asdict(each)
            yield tuple("" if values[name] is None else str(values[name]) for name in COLUMNS)


def recording_leak(comparison: Comparison, settings: Settings) -> RecordingLeak | None:
    """Return the distances in time of two sets; ``None`` where that has no meaning.

    It has a meaning for two sets of one dataset that both have groups and frames, both numbers or
    both times. Only readable images count, and of streamed embeddings too few are known.
    """
    query, reference = comparison.query, comparison.reference
    if comparison.coverage != "intra" or reference.streamed:
        return None
    own, other = _placed(query), _placed(reference)
    timed = query.images.timed
    if own is None or other is None or timed != reference.images.timed:
        return None
    unit = "ms" if timed else "frames"
    within = round(1000 * settings.within_seconds) if timed else settings.within_frames
    names = sorted(set(own[1].to_pylist()) & set(other[1].to_pylist()))
    left, right = _coded(*own, names), _coded(*other, names)
    distance = nearest_frames(left.group, left.frame, right.group, right.frame)[1]
    close = np.zeros(len(query.fingerprints), np.bool_)
    close[left.rows] = distance <= np.uint64(within)
    found = tuple(_recordings(comparison, names, left, right, distance, close))
    # the bound is always the end of a bar
    ends = sorted({*STEPS[unit], within})
    at = np.searchsorted(np.array(ends, np.uint64), distance)
    counts = np.bincount(at, minlength=len(ends) + 1).tolist()
    bars = tuple(map(DistanceCount, (*ends, None), counts))
    return RecordingLeak(unit, within, found, close, bars)


def _placed(side: Side) -> tuple[Int64, pa.StringArray, Int64] | None:
    """Return row, recording and time of the readable images that have both; ``None`` for none."""
    images = side.images
    if images.groups is None or images.frames is None:
        return None
    readable = pa.array(side.fingerprints.rows)
    groups, frames = images.groups.take(readable), images.frames.take(readable)
    known = pc.and_(pc.is_valid(groups), pc.is_valid(frames))
    rows = np.flatnonzero(known.to_numpy(zero_copy_only=False))
    if not len(rows):
        return None
    kept = frames.filter(known).to_numpy(zero_copy_only=False)
    return rows, groups.filter(known), np.asarray(kept, np.int64)


@dataclass(frozen=True, slots=True)
class _Coded:
    """The images of one side that are of a shared recording: rows, its number, the frame."""

    rows: Int64
    group: Int64
    frame: Int64


def _coded(rows: Int64, groups: pa.StringArray, frames: Int64, names: Sequence[str]) -> _Coded:
    codes = pc.fill_null(pc.index_in(groups, pa.array(names, pa.string())), -1)
    group = codes.to_numpy(zero_copy_only=False).astype(np.int64)
    kept = np.flatnonzero(group >= 0)
    return _Coded(rows[kept], group[kept], frames[kept])


def _near(
    comparison: Comparison, near: Bool, left: _Coded, right: _Coded
) -> tuple[Int64, Int64, UInt64]:
    """Return the near pairs within recordings, without blank images: row, recording, distance."""
    pairs, ends = comparison.pairs, []
    for side, coded in ((comparison.query, left), (comparison.reference, right)):
        group, frame = np.full((2, len(side.fingerprints)), -1, np.int64)
        group[coded.rows], frame[coded.rows] = coded.group, coded.frame
        ends.append((group, frame))
    (group, frame), (other_group, other_frame) = ends
    known = near & ~comparison.query.fingerprints.flat[pairs.query]
    first, second = pairs.query[known], pairs.reference[known]
    same = (group[first] >= 0) & (group[first] == other_group[second])
    first, second = first[same], second[same]
    return first, group[first], distance_of(frame[first], other_frame[second])


def _recordings(
    comparison: Comparison,
    names: Sequence[str],
    left: _Coded,
    right: _Coded,
    distance: UInt64,
    close: Bool,
) -> Iterator[RecordingCounts]:
    count = len(names)
    order = np.lexsort((distance, left.group))
    queries, references = (np.bincount(side.group, minlength=count) for side in (left, right))
    begins = np.cumsum(queries) - queries
    inside = np.bincount(left.group[close[left.rows]], minlength=count)
    listed, furthest = np.zeros(count, np.int64), dict[int, int]()
    if comparison.near is not None:
        rows, group, apart = _near(comparison, comparison.near, left, right)
        # images within the bound that are in a pair; an image is of one recording
        images, at = np.unique(rows, return_index=True)
        listed = np.bincount(group[at[close[images]]], minlength=count)
        longest = np.zeros(count, np.uint64)
        np.maximum.at(longest, group, apart)
        furthest = {int(code): int(longest[code]) for code in np.unique(group)}
    for code, name in enumerate(names):
        first, own = int(begins[code]), int(queries[code])
        yield RecordingCounts(
            recording=name,
            queries=own,
            references=int(references[code]),
            close=int(inside[code]),
            near_or_exact=None if comparison.near is None else int(listed[code]),
            least=int(distance[order[first]]),
            median=int(distance[order[first + (own - 1) // 2]]),
            near_up_to=furthest.get(code),
        )


# -- groups that no option names: found in names, confirmed by the vectors -------------------------


def groups_of(
    sides: Mapping[str, Side], couples: Sequence[tuple[str, str]], encoder: Encoder
) -> list[tuple[Sets, list[Found]]]:
    """Return what may put images together, for each dataset that is tested.

    Names of groups are not comparable across datasets. Of streamed embeddings too few are known.
    """
    across = [couple for couple in couples if couple[0] != couple[1]]
    tested = {query for query, _ in couples}
    datasets: dict[str, list[Side]] = {}
    for side in sides.values():
        if not side.streamed:
            datasets.setdefault(side.images.dataset, []).append(side)
    found = []
    for own in datasets.values():
        if any(side.name in tested for side in own):
            sets = Sets(tuple(_groupable(side, tested) for side in own), encoder)
            made = infer(sets)
            for place, each in enumerate(made):
                if each.hypothesis.believed:
                    made[place] = replace(each, hypothesis=summarised(each, sets, across))
            found.append((sets, made))
    return found


def _groupable(side: Side, tested: set[str]) -> GroupableSet:
    images, fingerprints = side.images, side.fingerprints
    rows = pa.array(fingerprints.rows)

    def taken(column: pa.Array | None) -> pa.Array | None:
        return None if column is None else column.take(rows)

    return GroupableSet(
        side.name,
        side.name in tested,
        fingerprints.ids,
        taken(images.labels),
        taken(images.groups),
        taken(images.frames),
        images.timed,
        fingerprints.matrix,
        fingerprints.digests,
        taken(images.locators) if images.has_pixels else None,
        {name: column.take(rows) for name, column in images.columns.items()},
    )


def wanted(sides: Mapping[str, Side]) -> bool:
    """Whether a set was opened with groups that are to be found."""
    return any(side.images.options.get("group") == AUTO for side in sides.values())


def summary_of(found: Sequence[tuple[Sets, list[Found]]], *, used: bool) -> GroupingSummary | None:
    """Return the entry of ``audit.json``; ``None`` without hypotheses."""
    hypotheses = tuple(each.hypothesis for _, own in found for each in own)
    return GroupingSummary(used, hypotheses) if hypotheses else None


def bounded(settings: Settings, grouping: GroupingSummary | None) -> Settings:
    """Return settings with the distance of frames that was found, unless one was chosen."""
    usual = Settings()
    for each in grouping.believed if grouping is not None and grouping.used else ():
        if each.kind != "recordings" or each.gap is None:
            continue
        if each.unit == "ms" and settings.within_seconds == usual.within_seconds:
            return replace(settings, within_seconds=each.gap / 1000)
        if each.unit == "frames" and settings.within_frames == usual.within_frames:
            return replace(settings, within_frames=each.gap)
    return settings


def with_groups(
    sides: Mapping[str, Side], found: Sequence[tuple[Sets, list[Found]]]
) -> dict[str, Side]:
    """Return sides whose images have the groups that were found, and frames of recordings."""
    result = dict(sides)
    for sets, own in found:
        believed = [each for each in own if each.hypothesis.believed]
        if not believed:
            continue
        groups = np.array(
            joined(len(sets), [(each.rows, unit_names(each)) for each in believed]), object
        )
        recordings = [each for each in believed if each.hypothesis.kind == "recordings"]
        frames, known = np.zeros(len(sets), np.int64), np.zeros(len(sets), np.bool_)
        for each in recordings:
            frames[each.rows], known[each.rows] = each.members.frame, True
        for listed, part in zip(sets.sets, pairwise(sets.starts), strict=True):
            side, inside = sides[listed.name], slice(*part)
            images, rows = side.images, side.fingerprints.rows
            named = np.full(len(images), None, object)
            named[rows] = groups[inside]
            images = replace(images, groups=pa.array(named, pa.string()))
            # frames of two groupings have no common numbers
            if recordings and len(believed) == 1:
                values, unknown = np.zeros(len(images), np.int64), np.ones(len(images), np.bool_)
                values[rows], unknown[rows] = frames[inside], ~known[inside]
                timed = recordings[0].hypothesis.unit == "ms"
                images = replace(images, frames=pa.array(values, mask=unknown), timed=timed)
            result[listed.name] = replace(side, images=images)
    return result
