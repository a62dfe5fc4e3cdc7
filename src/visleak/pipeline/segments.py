"""What videos share, as intervals of time.

Frames of two recordings that are near-duplicates at a constant distance in time are one segment; so
are consecutive frames that are near images without times. Frames are taken at intervals, so an
interval begins and ends half a step beyond its first and last frame.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from visleak.pipeline.comparison import Comparison
from visleak.pipeline.encoded_set import Side
from visleak.records import GRADES, Bool, Float32, Int64
from visleak.storage.audit_folder import SegmentSummary

#: Steps and milliseconds between frames that may be missing inside a segment, at least the longer
#: of both, and up to twice that: what lies between two frames at one distance in time is shared
#: mostly, though a blurred frame is not near, and pairs that others connect are not verified.
GAP: Final = 2
PAUSE: Final = 2500
#: Milliseconds by which the distance in time may vary where frames are closer than that.
JITTER: Final = 100
#: Number of segments that are named.
NAMED: Final = 20


@dataclass(frozen=True, slots=True)
class Segment:
    """An interval of a recording that is also in another, or in a set of images."""

    query_set: str
    reference_set: str
    query: str  # the recordings; empty for images without times
    query_start: int | None  # milliseconds
    query_end: int | None
    reference: str
    reference_start: int | None
    reference_end: int | None
    images: int  # query images in it


#: Columns of ``segments.csv``: times in seconds.
COLUMNS: Final = tuple(each.name for each in fields(Segment))


@dataclass(frozen=True, slots=True)
class _Times:
    """Recording and time of the readable images of a side."""

    names: tuple[str, ...]  # of its recordings
    recording: Int64  # int64 (n,): which of them, -1 for none
    time: Int64  # int64 (n,): milliseconds
    step: Int64  # int64: usual time between the images of each recording
    first: Int64  # int64: time of its first image


def segments_of(comparison: Comparison) -> tuple[Segment, ...]:
    """Return what two sets share, by recordings and time; nothing where no set has times."""
    query, reference = _times(comparison.query), _times(comparison.reference)
    if comparison.near is None or (query is None and reference is None):
        return ()
    strong = comparison.near & ~comparison.query.fingerprints.flat[comparison.pairs.query]
    pairs = comparison.pairs
    if query is None or reference is None:
        rows = (pairs.query, pairs.reference)[query is None][strong]
        others = (pairs.query, pairs.reference)[query is not None][strong]
        found = _beside_images(comparison.names, query, reference, rows, others)
    else:
        weak = strong | (comparison.degree >= 0)
        if comparison.grades is not None:
            weak |= (comparison.grades.grade >= 0) & (
                comparison.grades.grade <= GRADES.index("similar")
            )
        if comparison.coverage == "within":
            weak &= query.recording[pairs.query] != reference.recording[pairs.reference]
        kept = np.flatnonzero(weak)
        ends = pairs.query[kept], pairs.reference[kept]
        similarity = pairs.similarity[kept]
        found = _between(comparison, query, reference, ends, strong[kept], similarity)
    return tuple(sorted(found, key=_order))


def _order(each: Segment) -> tuple[str, int, str, int]:
    return each.query, each.query_start or 0, each.reference, each.reference_start or 0


def _times(side: Side) -> _Times | None:
    """Return when the readable images of a side were taken, ``None`` where that is not known."""
    images = side.images
    if not images.timed or images.groups is None or images.frames is None or side.streamed:
        return None
    rows = pa.array(side.fingerprints.rows)
    groups, frames = images.groups.take(rows), images.frames.take(rows)
    names = sorted(pc.unique(groups).drop_null().to_pylist())
    codes = pc.fill_null(pc.index_in(groups, pa.array(names, pa.string())), -1)
    recording = codes.to_numpy(zero_copy_only=False).astype(np.int64)
    recording[frames.is_null().to_numpy(zero_copy_only=False)] = -1
    time = pc.fill_null(frames, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    step, first = np.full(len(names), 1000), np.zeros(len(names), np.int64)
    for code in range(len(names)):
        own = np.unique(time[recording == code])
        if len(own):
            first[code] = own[0]
        if len(own) > 1:
            step[code] = max(1, int(np.median(np.diff(own))))
    return _Times(tuple(names), recording, time, step.astype(np.int64), first)


def _between(
    comparison: Comparison,
    query: _Times,
    reference: _Times,
    ends: tuple[Int64, Int64],
    strong: Bool,
    similarity: Float32,
) -> Iterator[Segment]:
    """Yield the segments of two sets of recordings."""
    left, right = query.recording[ends[0]], reference.recording[ends[1]]
    if comparison.coverage == "within":  # each couple of recordings once
        swap = left > right
        ends = np.where(swap, ends[1], ends[0]), np.where(swap, ends[0], ends[1])
        left, right = np.minimum(left, right), np.maximum(left, right)
    known = (left >= 0) & (right >= 0)
    couple = np.where(known, left * len(reference.names) + right, -1)
    at, other = query.time[ends[0]], reference.time[ends[1]]
    for code in np.unique(couple[known & strong]):
        own, theirs = divmod(int(code), len(reference.names))
        rows = np.flatnonzero(couple == code)
        points = _Points(at[rows], (other - at)[rows], similarity[rows], strong[rows])
        steps = int(query.step[own]), int(reference.step[theirs])
        for members, apart in _runs(points, steps):
            start, end = _interval(query, own, points.at[members])
            yield Segment(
                *comparison.names,
                query.names[own],
                start,
                end,
                reference.names[theirs],
                max(start + apart, int(reference.first[theirs])),
                end + apart,
                len(np.unique(ends[0][rows[members]])),
            )


@dataclass(frozen=True, slots=True)
class _Points:
    """Pairs of frames of two recordings."""

    at: Int64  # int64 (n,): time of the one
    apart: Int64  # int64 (n,): how much later the other is
    similarity: Float32
    strong: Bool  # near or exact

    def only(self, rows: Int64) -> _Points:
        """Return some of them."""
        return _Points(self.at[rows], self.apart[rows], self.similarity[rows], self.strong[rows])


def _runs(points: _Points, steps: tuple[int, int]) -> Iterator[tuple[Int64, int]]:
    """Yield the points of each segment, and how far the recordings are apart in time there.

    Slow footage resembles itself for seconds, so that a frame has many partners: the distance in
    time that most frames have in common decides, and then that of the frames that are left.
    """
    gap, jitter = _gap(steps[0]), max(steps[1], JITTER)
    chains = _chains(points.at // gap, points.apart // jitter)
    for chain in range(int(chains.max()) + 1):
        left = np.flatnonzero(chains == chain)
        while points.strong[left].any():
            apart = _common(points.only(left), jitter)
            kept = left[abs(points.apart[left] - apart) <= jitter]
            parts = _chains(points.at[kept] // gap, np.zeros(len(kept), np.int64))
            left = np.setdiff1d(left, kept)
            for part in range(int(parts.max()) + 1):
                members = kept[parts == part]
                if points.strong[members].any():
                    yield members, apart
                    times = points.at[members]
                    inside = (points.at[left] >= times.min()) & (points.at[left] <= times.max())
                    left = left[~inside]


def _common(points: _Points, jitter: int) -> int:
    """Return the distance in time at which the most frames have the most similar partners.

    >>> at, apart = np.array([0, 0, 500, 500]), np.array([2000, 9000, 2100, 7000])
    >>> ones = np.ones(4, np.float32)
    >>> _common(_Points(at, apart, ones, ones > 0), 200)
    2050
    """
    half = jitter / 2
    frames, frame = np.unique(points.at, return_inverse=True)
    best, found = -1.0, 0.0
    for centre in np.unique(np.rint(points.apart / half)) * half:
        near = np.flatnonzero(abs(points.apart - centre) <= half)
        shares = np.zeros(len(frames))
        np.maximum.at(shares, frame[near], points.similarity[near])
        if shares.sum() > best:
            best, found = float(shares.sum()), float(points.apart[near].mean())
    return round(found)


def _beside_images(
    names: tuple[str, str],
    query: _Times | None,
    reference: _Times | None,
    rows: Int64,
    others: Int64,
) -> Iterator[Segment]:
    """Yield the intervals of recordings whose frames are in a set of images without times."""
    times = query or reference
    if times is None:
        return
    recording, at = times.recording[rows], times.time[rows]
    for code in np.unique(recording[recording >= 0]).tolist():
        own = np.flatnonzero(recording == code)
        chains = _chains(at[own] // _gap(int(times.step[code])), np.zeros(len(own), np.int64))
        for chain in range(int(chains.max()) + 1):
            members = own[chains == chain]
            interval = _interval(times, code, at[members])
            name = times.names[code]
            images = rows if query is not None else others
            count = len(np.unique(images[members]))
            if query is not None:
                yield Segment(*names, name, *interval, "", None, None, count)
            else:
                yield Segment(*names, "", None, None, name, *interval, count)


def _gap(step: int) -> int:
    """Return how long frames may be missing inside a segment, milliseconds."""
    return max(GAP * step, PAUSE)


def _interval(times: _Times, code: int, at: Int64) -> tuple[int, int]:
    """Return the time that some frames stand for."""
    half = int(times.step[code]) // 2
    return max(int(at.min()) - half, int(times.first[code])), int(at.max()) + half


def _chains(time: Int64, distance: Int64) -> Int64:
    """Return which points are connected: those in one or in adjacent cells of both.

    >>> _chains(np.array([0, 1, 5, 0]), np.array([7, 7, 7, 0])).tolist()
    [1, 1, 2, 0]
    """
    cells, inverse = np.unique(np.stack([distance, time], axis=1), axis=0, return_inverse=True)
    place = {(int(d), int(t)): at for at, (d, t) in enumerate(cells)}
    links = [
        (at, place[d + across, t + along])
        for (d, t), at in place.items()
        for across, along in ((0, 1), (1, -1), (1, 0), (1, 1))
        if (d + across, t + along) in place
    ]
    edges = np.array(links, np.int64).reshape(-1, 2)
    shape = len(cells), len(cells)
    graph = coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=shape)
    found = connected_components(graph, directed=False)[1]
    return np.asarray(found[inverse.ravel()], np.int64)


def rows(found: Mapping[tuple[str, str], Sequence[Segment]]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of ``segments.csv``."""
    for _, segments in sorted(found.items()):
        for each in segments:
            yield tuple(_cell(getattr(each, name), name) for name in COLUMNS)


def _cell(value: str | int | None, name: str) -> str:
    if value is None:
        return ""
    times = isinstance(value, int) and name != "images"
    return f"{int(value) / 1000:.3f}" if times else str(value)


def sentence(each: Segment) -> str:
    """Return a segment in words.

    >>> sentence(Segment("a", "b", "x.mp4", 1500, 4000, "y.mp4", 0, 2500, 3))
    'x.mp4 1.5-4.0 s is in y.mp4 0.0-2.5 s'
    """
    query = _place(each.query, each.query_start, each.query_end, each.query_set)
    reference = _place(each.reference, each.reference_start, each.reference_end, each.reference_set)
    return f"{query} is in {reference}"


def summary_of(found: Sequence[Segment]) -> SegmentSummary | None:
    """Return the entry of ``audit.json``, ``None`` where nothing is shared."""
    if not found:
        return None
    return SegmentSummary(len(found), tuple(map(sentence, found[:NAMED])))


def _place(name: str, start: int | None, end: int | None, images: str) -> str:
    if start is None or end is None:
        return f"images of {images}"
    return f"{name} {start / 1000:.1f}-{end / 1000:.1f} s"
