"""How far apart in time the frames of two sets lie, recording by recording."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from visleak.pipeline.candidates import Side
from visleak.pipeline.comparison import Comparison
from visleak.pipeline.recordings import RecordingLeak
from visleak.records import GRADES, Bool, ImageSet, Int64
from visleak.settings import Settings
from visleak.storage.summary import DistanceCount, RecordingCounts

UInt64 = npt.NDArray[np.uint64]

#: Last distances of the bars of the histogram, in frames and in milliseconds; one bar lies beyond.
STEPS: Final = {
    "frames": (0, 1, 2, 5, 10, 20, 50, 100),
    "ms": (0, 100, 200, 500, 1000, 2000, 5000, 10_000),
}


@dataclass(frozen=True, slots=True)
class _Placed:
    """The images of one side that have a recording and a time.

    Attributes:
        rows: of the fingerprints.
        groups: names, one a row.
        frames: numbers or times, one a row.
    """

    rows: Int64
    groups: pa.StringArray
    frames: Int64


def recording_leak(
    compared: Comparison, sides: Mapping[str, Side], passing: Iterable[str], settings: Settings
) -> RecordingLeak | None:
    """Return how near in time two sets lie; ``None`` where that has no meaning.

    It has where two sets of one data set both have groups and frames, both numbers or both times.
    Only images that could be read count.

    Args:
        compared: the comparison, its pairs graded or not.
        sides: the sides by set name.
        passing: names of sets whose embeddings pass by; few of their images are listed.
        settings: say how near is a leak.
    """
    query, reference = compared.query, compared.reference
    if compared.coverage != "intra" or reference.name in set(passing):
        return None
    own, other = (_placed(images, sides[images.name]) for images in (query, reference))
    if own is None or other is None or query.timed != reference.timed:
        return None
    unit = "ms" if query.timed else "frames"
    within = round(1000 * settings.within_seconds) if query.timed else settings.within_frames
    names = sorted(set(own.groups.to_pylist()) & set(other.groups.to_pylist()))
    left, right = _coded(own, names), _coded(other, names)
    distance = distances(left.group, left.frame, right.group, right.frame)
    side = sides[query.name]
    close = np.zeros(len(side.fingerprints), np.bool_)
    close[left.rows] = distance <= np.uint64(within)
    near = _near(compared, side, left, sides[reference.name], right)
    return RecordingLeak(
        unit,
        within,
        tuple(_recordings(names, left, right, distance, close, near)),
        close,
        _histogram(distance, unit, within),
    )


def distances(group: Int64, frame: Int64, other_group: Int64, other_frame: Int64) -> UInt64:
    """Return how far each frame is from the nearest other frame of its group.

    Exact for all of int64, in O((n + m) log (n + m)).

    Args:
        group, frame: ``int64`` (n,): of the queries; every group is among the others.
        other_group, other_frame: ``int64`` (m,).

    >>> import numpy as np
    >>> one = np.array([0, 0, 1])
    >>> distances(one, np.array([5, 90, 7]), one, np.array([1, 100, 7])).tolist()
    [4, 10, 0]
    """
    values = np.unique(np.concatenate([frame, other_frame]))
    width = max(len(values), 1)
    keys = np.unique(other_group * width + np.searchsorted(values, other_frame))
    after = np.searchsorted(keys, group * width + np.searchsorted(values, frame))
    best = np.full(len(frame), np.iinfo(np.uint64).max)
    for at in (after - 1, after):
        there = np.flatnonzero((at >= 0) & (at < len(keys)))
        key = keys[at[there]]
        there, key = there[key // width == group[there]], key[key // width == group[there]]
        best[there] = np.minimum(best[there], _apart(frame[there], values[key % width]))
    return best


def _apart(left: Int64, right: Int64) -> UInt64:
    """Return the differences of whole numbers without a sign; no pair overflows."""
    high, low = np.maximum(left, right), np.minimum(left, right)
    return high.view(np.uint64) - low.view(np.uint64)


def _placed(images: ImageSet, side: Side) -> _Placed | None:
    """Return the readable images with a recording and a time, ``None`` where there are none."""
    if images.groups is None or images.frames is None:
        return None
    taken = pa.array(side.fingerprints.rows)
    groups, frames = images.groups.take(taken), images.frames.take(taken)
    known = pc.and_(pc.is_valid(groups), pc.is_valid(frames))
    rows = np.flatnonzero(known.to_numpy(zero_copy_only=False))
    if not len(rows):
        return None
    kept = frames.filter(known).to_numpy(zero_copy_only=False)
    return _Placed(rows, groups.filter(known), np.asarray(kept, np.int64))


@dataclass(frozen=True, slots=True)
class _Coded:
    """The images of one side that are of a shared recording: rows, its number, the frame."""

    rows: Int64
    group: Int64
    frame: Int64


def _coded(placed: _Placed, names: Sequence[str]) -> _Coded:
    codes = pc.fill_null(pc.index_in(placed.groups, pa.array(names, pa.string())), -1)
    group = codes.to_numpy(zero_copy_only=False).astype(np.int64)
    kept = np.flatnonzero(group >= 0)
    return _Coded(placed.rows[kept], group[kept], placed.frames[kept])


@dataclass(frozen=True, slots=True)
class _Near:
    """The near and exact pairs of one recording: query row, its number, distance in time."""

    rows: Int64
    group: Int64
    apart: UInt64


def _near(
    compared: Comparison, query: Side, left: _Coded, reference: Side, right: _Coded
) -> _Near | None:
    """Return the near and exact pairs within recordings; ``None`` where nothing was graded.

    Blank pictures are no leaks of appearance, as in all rates.
    """
    if compared.grades is None:
        return None
    grade = compared.grades.grade
    pairs = compared.pairs
    own, other = (
        _spread(len(side.fingerprints), coded)
        for side, coded in ((query, left), (reference, right))
    )
    known = (grade >= 0) & (grade <= GRADES.index("near")) & ~query.fingerprints.flat[pairs.query]
    first, second = pairs.query[known], pairs.reference[known]
    same = (own[0][first] >= 0) & (own[0][first] == other[0][second])
    first, second = first[same], second[same]
    return _Near(first, own[0][first], _apart(own[1][first], other[1][second]))


def _spread(count: int, coded: _Coded) -> tuple[Int64, Int64]:
    """Return recording (-1 for none) and frame of every row of a side."""
    group, frame = np.full(count, -1, np.int64), np.zeros(count, np.int64)
    group[coded.rows], frame[coded.rows] = coded.group, coded.frame
    return group, frame


def _recordings(
    names: Sequence[str],
    left: _Coded,
    right: _Coded,
    distance: UInt64,
    close: Bool,
    near: _Near | None,
) -> Iterator[RecordingCounts]:
    """Yield the shared recordings by name."""
    count = len(names)
    order = np.lexsort((distance, left.group))
    queries = np.bincount(left.group, minlength=count)
    begins = np.cumsum(queries) - queries
    references = np.bincount(right.group, minlength=count)
    inside = np.bincount(left.group[close[left.rows]], minlength=count)
    listed, furthest = _of_pairs(near, close, count)
    for code, name in enumerate(names):
        first, own = int(begins[code]), int(queries[code])
        yield RecordingCounts(
            recording=name,
            queries=own,
            references=int(references[code]),
            close=int(inside[code]),
            near_or_exact=None if near is None else int(listed[code]),
            least=int(distance[order[first]]),
            median=int(distance[order[first + (own - 1) // 2]]),
            near_up_to=furthest.get(code),
        )


def _of_pairs(near: _Near | None, close: Bool, count: int) -> tuple[Int64, dict[int, int]]:
    """Return by recording: query images within the bound that are in a pair; its longest pair."""
    if near is None or not len(near.rows):
        return np.zeros(count, np.int64), {}
    # an image is of one recording, so its first row tells which
    _, first = np.unique(near.rows, return_index=True)
    first = first[close[near.rows[first]]]
    furthest = np.zeros(count, np.uint64)
    np.maximum.at(furthest, near.group, near.apart)
    return np.bincount(near.group[first], minlength=count), {
        int(code): int(furthest[code]) for code in np.unique(near.group)
    }


def _histogram(distance: UInt64, unit: str, within: int) -> tuple[DistanceCount, ...]:
    """Return the last distance of each bar and its count; the bound is always the end of a bar."""
    ends = sorted({*STEPS[unit], within})
    at = np.searchsorted(np.array(ends, np.uint64), distance)
    counts = np.bincount(at, minlength=len(ends) + 1).tolist()
    return tuple(map(DistanceCount, (*ends, None), counts))
