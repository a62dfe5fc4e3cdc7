"""What videos share, as intervals of time.

Near frames of two recordings that lie on one line of times are a segment, whatever the rate at
which the one plays the other; so are consecutive frames that are near images without times. Frames
of a set are taken at intervals: where the files can be read, the ends are looked for between them
(:mod:`visleak.pipeline.footage`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.groups import components, numbered
from visleak.pipeline.comparison import Comparison, Segment
from visleak.pipeline.encoded_set import Side
from visleak.pipeline.footage import (
    Line,
    Recording,
    View,
    beside_images,
    beside_recording,
    fitted,
    followed,
)
from visleak.progress import Progress, silent
from visleak.records import GRADES, Bool, Encoder, Float32, Int8, Int64
from visleak.storage import open_rows
from visleak.storage.audit_folder import SegmentSummary

#: Steps and milliseconds between frames that may be missing inside a segment, the longer of both:
#: a blurred frame is not near, and pairs that others connect are not verified.
GAP: Final = 2
PAUSE: Final = 2500
BESIDE: Final = 2  # steps beside a segment in which slow footage may still be near
JITTER: Final = 100  # milliseconds by which times may be off a line where frames are closer
#: Rates at which a recording may be played, the usual one first, and by how much more similarity
#: another one must explain: few frames lie on lines of any rate.
RATES: Final = (1.0, 0.5, 2 / 3, 0.8, 0.9, 0.96, 25 / 24, 1.1, 1.25, 1.5, 2.0)
MORE: Final = 1.3
MANY: Final = 6  # frames from which a rate can be measured
NORMAL: Final = 0.02  # rates nearer to 1 are not named
NAMED: Final = 20  # segments that are named
STEP: Final = "searching shared segments"  # name of the step, as progress shows it


#: Columns of ``segments.csv``: times in seconds.
COLUMNS: Final = tuple(each.name for each in fields(Segment))
TIMES: Final = ("query_start", "query_end", "reference_start", "reference_end")


def segments_of(
    comparison: Comparison, encoder: Encoder | None = None, progress: Progress = silent
) -> tuple[Segment, ...]:
    """Return what two graded sets share, by recordings and time; nothing where no set has times.

    The encoder looks for the ends between the frames of the sets, which reads the recordings again.
    """
    query, reference = (
        _Recordings.of(side, encoder) for side in (comparison.query, comparison.reference)
    )
    if comparison.near is None or (query is None and reference is None):
        return ()
    points = _points(comparison, comparison.near)
    if query is None or reference is None:
        found = _beside_images(comparison, query, reference, points, progress)
    else:
        found = _between(comparison, query, reference, points, progress)

    def place(each: Segment) -> tuple[str, int, str, int]:
        return each.query, each.query_start or 0, each.reference, each.reference_start or 0

    return tuple(sorted(found, key=place))


@dataclass(frozen=True, slots=True)
class _Recordings:
    """Recording and time of the readable images of a side."""

    side: Side
    encoder: Encoder | None
    names: tuple[str, ...]  # of its recordings
    code: Int64  # int64 (n,): which of them an image is of, -1 for none
    time: Int64  # int64 (n,): milliseconds
    made: dict[int, Recording]

    @classmethod
    def of(cls, side: Side, encoder: Encoder | None) -> _Recordings | None:
        """Return when the readable images of a side were taken, ``None`` where it is not known."""
        images = side.images
        if not images.timed or images.groups is None or images.frames is None or side.streamed:
            return None
        rows = pa.array(side.fingerprints.rows)
        groups, frames = images.groups.take(rows), images.frames.take(rows)
        names = sorted(pc.unique(groups).drop_null().to_pylist())
        codes = pc.fill_null(pc.index_in(groups, pa.array(names, pa.string())), -1)
        code = codes.to_numpy(zero_copy_only=False).astype(np.int64)
        code[frames.is_null().to_numpy(zero_copy_only=False)] = -1
        time = pc.fill_null(frames, 0).to_numpy(zero_copy_only=False).astype(np.int64)
        return cls(side, encoder, tuple(names), code, time, {})

    def recording(self, code: int) -> Recording:
        """Return one of the recordings; always the same one."""
        if code not in self.made:
            rows = np.flatnonzero(self.code == code)
            rows = rows[np.argsort(self.time[rows], kind="stable")]
            apart = np.diff(np.unique(self.time[rows]))
            step = max(1, int(np.median(apart))) if len(apart) else 1000
            self.made[code] = Recording(self.side, rows, self.time[rows], step, self.encoder)
        return self.made[code]


@dataclass(frozen=True)
class _Columns:
    """Columns of values of pairs."""

    similarity: Float32
    strong: Bool  # near or exact, and not blank

    def only(self, kept: Int64 | Bool) -> Self:
        """Return some of the pairs."""
        columns = {name: own for name, own in vars(self).items() if isinstance(own, np.ndarray)}
        return replace(self, **{name: own[kept] for name, own in columns.items()})


@dataclass(frozen=True)
class _Points(_Columns):
    """Pairs that are near, and those that are similar or were not verified."""

    query: Int64  # rows of the images
    reference: Int64
    view: Int8


def _points(comparison: Comparison, near: Bool) -> _Points:
    pairs = comparison.pairs
    strong = near & ~comparison.query.fingerprints.flat[pairs.query]
    known = strong | (comparison.degree >= 0)
    if comparison.grades is not None:
        grades = comparison.grades.grade
        known |= (grades >= 0) & (grades <= GRADES.index("similar"))
    return _Points(pairs.similarity, strong, pairs.query, pairs.reference, pairs.view).only(known)


# -- two sets of recordings -----------------------------------------------------------------------


@dataclass(frozen=True)
class _Times(_Columns):
    """Pairs of frames of two recordings."""

    at: Int64  # int64 (n,): time of the one
    other: Int64
    step: tuple[int, int]  # of the recordings

    @property
    def gap(self) -> int:
        """How long frames may be missing inside a segment, milliseconds."""
        return max(GAP * self.step[0], PAUSE)

    @property
    def jitter(self) -> int:
        """How far times may be off a line, milliseconds."""
        return max(self.step[1], JITTER)

    def on(self, line: Line, within: float) -> Bool:
        """Return which pairs lie at most so many milliseconds off a line."""
        inside = (self.at >= line.start) & (self.at <= line.end)
        return np.asarray(inside & (abs(self.other - line.at(self.at)) <= within))


def _between(
    comparison: Comparison,
    query: _Recordings,
    reference: _Recordings,
    points: _Points,
    progress: Progress,
) -> Iterator[Segment]:
    points, left, right = _couples(comparison, query, reference, points)
    couple = np.where(left >= 0, left * len(reference.names) + right, -1)
    for code in _counted(np.unique(couple[(left >= 0) & points.strong]), progress):
        own, theirs = divmod(code, len(reference.names))
        one, other = query.recording(own), reference.recording(theirs)
        pairs = points.only(couple == code)
        at, others = query.time[pairs.query], reference.time[pairs.reference]
        times = _Times(pairs.similarity, pairs.strong, at, others, (one.step, other.step))
        for line in _lines(times, one, other, _view_of(pairs, query.encoder)):
            yield Segment(
                *comparison.names,
                query.names[own],
                line.start,
                line.end,
                reference.names[theirs],
                max(line.other_start, int(other.time[0])),
                min(line.other_end, other.last),
                len(np.unique(at[times.on(line, times.jitter + one.step)])),
                round(line.rate, 3),
            )


def _couples(
    comparison: Comparison, query: _Recordings, reference: _Recordings, points: _Points
) -> tuple[_Points, Int64, Int64]:
    """Return pairs with the recordings of both images, -1 where these are not two recordings."""
    left, right = query.code[points.query], reference.code[points.reference]
    known = (left >= 0) & (right >= 0)
    if comparison.coverage == "within":  # each couple of recordings once
        swap, known = left > right, known & (left != right)
        first = np.where(swap, points.reference, points.query)
        second = np.where(swap, points.query, points.reference)
        points = replace(points, query=first, reference=second)
        left, right = np.minimum(left, right), np.maximum(left, right)
    return points, np.where(known, left, -1), np.where(known, right, -1)


def _view_of(points: _Points, encoder: Encoder | None) -> View:
    """Return what makes vectors of the view in which most near frames are most similar."""
    common = int(np.bincount(points.view[points.strong]).argmax())
    if not common or encoder is None:
        return _unchanged
    return lambda vectors: encoder.view(vectors, common)


def _unchanged(vectors: Float32) -> Float32:
    return vectors


def _lines(times: _Times, one: Recording, other: Recording, view: View) -> list[Line]:
    """Return the lines on which two recordings show the same, those with the most frames first.

    Slow footage resembles itself for seconds, so that a frame has many partners: the line that
    explains the most similarity decides, and then that of the frames that are left.
    """
    found = list[tuple[Line, Int64]]()
    chains = _chains(times.at // times.gap, times.other // times.gap)
    left = np.ones(len(chains), np.bool_)
    for chain in range(int(chains.max()) + 1):
        while (own := np.flatnonzero(left & (chains == chain))).size and times.strong[own].any():
            members = own[_members(times.only(own))]
            if not times.strong[members].any():
                left[members] = False
                continue
            line, on = _through(times.only(members))
            left[members[on]] = False
            line = fitted(line, one, other, view)
            line = followed(line, one, beside_recording(other, view))
            found.append((line, members[on]))
            left &= ~_explained(times, line, beside=0)
    return _merged(_needed(times, found), times.gap, max(times.jitter, *times.step))


def _needed(times: _Times, found: Sequence[tuple[Line, Int64]]) -> list[Line]:
    """Return the lines without those whose near frames better ones explain."""
    kept, explained = list[Line](), np.zeros(len(times.at), np.bool_)
    for line, strong in sorted(found, key=lambda each: -_weight(times, each[0])):
        if not explained[strong].all():
            kept.append(line)
            explained |= _explained(times, line, beside=BESIDE * times.step[0])
            explained[strong] = True
    return kept


def _weight(times: _Times, line: Line) -> float:
    """Return the similarity that a line explains: of each frame, its most similar partner on it."""
    on = times.on(line, times.jitter / 2)
    frames, frame = np.unique(times.at[on], return_inverse=True)
    best = np.zeros(len(frames))
    np.maximum.at(best, frame, times.similarity[on])
    return float(best.sum())


def _through(times: _Times) -> tuple[Line, Bool]:
    """Return the line through near frames, and which are on it.

    Frames are taken at intervals, so one that is on it is up to half a step off. Frames as similar
    as those count for its ends: what near pairs connect is not verified.
    """
    rate, apart = _common(times.only(times.strong))
    off = abs(times.other - rate * times.at - apart)
    near = off <= max(times.jitter / 2, off[times.strong].min())
    on = np.asarray(near & times.strong)
    near &= times.similarity >= times.similarity[on].min()
    start, end = int(times.at[near].min()), int(times.at[near].max())
    return Line(start, end, round(rate * start + apart), round(rate * end + apart)), on


def _explained(times: _Times, line: Line, beside: int) -> Bool:
    """Return which pairs are of frames in or beside a segment, and of what is about its other."""
    inside = (times.at >= line.start - beside) & (times.at <= line.end + beside)
    low, high = line.other_start - times.gap, line.other_end + times.gap
    return np.asarray(inside & (times.other >= low) & (times.other <= high))


def _members(times: _Times) -> Int64:
    """Return the pairs on the most common line, in the stretch with the most similarity."""
    rate, apart = _common(times)
    on = np.flatnonzero(abs(times.other - rate * times.at - apart) <= times.jitter)
    parts = _chains(times.at[on] // times.gap, np.zeros(len(on), np.int64))
    strong = np.bincount(parts[times.strong[on]], minlength=int(parts.max()) + 1) > 0
    weight = np.bincount(parts, times.similarity[on]) + len(on) * strong
    return np.asarray(on[parts == int(np.argmax(weight))])


def _common(times: _Times) -> tuple[float, float]:
    """Return the line on which the most frames have the most similar partners: rate and distance.

    >>> at, other = np.array([0, 0, 500, 500]), np.array([2000, 9000, 2600, 7500])
    >>> ones = np.ones(4, np.float32)
    >>> _common(_Times(ones, ones > 0, at, other, (500, 200)))
    (1.0, 2050.0)
    """
    frame = numbered(times.at)
    found = [(*_at_rate(times, frame, rate), rate) for rate in RATES]
    total, apart, rate = max(found, key=lambda each: each[0])
    if total <= MORE * found[0][0] or frame.max() + 1 < MANY:
        total, apart, rate = found[0]
    return rate, apart


def _at_rate(times: _Times, frame: Int64, rate: float) -> tuple[float, float]:
    """Return the similarity that the best line of a rate explains, and its distance."""
    apart = times.other - rate * times.at
    half = times.jitter / 2
    cell = np.floor(apart / half).astype(np.int64)
    cell -= cell.min()
    # lines are as wide as two cells; of each frame the most similar partner counts
    cells, frames = np.concatenate([cell + 1, cell]), np.concatenate([frame, frame])
    similarity = np.concatenate([times.similarity, times.similarity])
    order = np.lexsort((-similarity, frames, cells))
    first = np.ones(len(order), np.bool_)
    first[1:] = (np.diff(cells[order]) != 0) | (np.diff(frames[order]) != 0)
    totals = np.bincount(cells[order][first], similarity[order][first])
    best = int(np.argmax(totals))
    return float(totals[best]), float(apart[(cell == best) | (cell + 1 == best)].mean())


def _merged(lines: Sequence[Line], gap: int, jitter: int) -> list[Line]:
    """Return lines of which those are one that follow each other with at most a gap."""
    merged = list[Line]()
    for each in sorted(lines, key=lambda line: (line.start, line.end)):
        for place, line in enumerate(merged):
            off = abs(each.other_start - line.at(np.array([each.start]))[0])
            if each.start - line.end <= gap and off <= jitter:
                longer = each if each.end > line.end else line
                merged[place] = Line(line.start, longer.end, line.other_start, longer.other_end)
                break
        else:
            merged.append(each)
    return merged


# -- recordings and images ------------------------------------------------------------------------


def _beside_images(
    comparison: Comparison,
    query: _Recordings | None,
    reference: _Recordings | None,
    points: _Points,
    progress: Progress,
) -> Iterator[Segment]:
    """Yield the intervals of recordings whose frames are in a set of images without times."""
    rows, others, images = points.query, points.reference, comparison.reference
    if query is None:
        rows, others, images = others, rows, comparison.query
    recordings = query or reference
    assert recordings is not None
    code, at = recordings.code[rows], recordings.time[rows]
    for each in _counted(np.unique(code[(code >= 0) & points.strong]), progress):
        own = np.flatnonzero(code == each)
        recording = recordings.recording(each)
        view = _view_of(points.only(own), recordings.encoder)
        strong = own[points.strong[own]]
        gap, found = max(GAP * recording.step, PAUSE), list[Line]()
        chains = _chains(at[strong] // gap, np.zeros(len(strong), np.int64))
        for chain in range(int(chains.max()) + 1):
            times = at[strong[chains == chain]]
            line = Line(int(times.min()), int(times.max()), 0, 0)
            near = own[(at[own] >= line.start - gap) & (at[own] <= line.end + gap)]
            vectors = images.fingerprints.matrix[np.unique(others[near])]
            agreement = (
                beside_images(vectors, view)
                if query is not None
                else beside_images(view(vectors), _unchanged)
            )
            found.append(followed(line, recording, agreement))
        for line in _merged(found, gap, 0):
            members = strong[(at[strong] >= line.start) & (at[strong] <= line.end)]
            count = len(np.unique(points.query[members]))
            name, interval = recordings.names[each], (line.start, line.end)
            if query is not None:
                yield Segment(*comparison.names, name, *interval, "", None, None, count)
            else:
                yield Segment(*comparison.names, "", None, None, name, *interval, count)


def _counted(codes: Int64, progress: Progress) -> Iterator[int]:
    """Yield the recordings, or couples of them, and note how many are done."""
    for done, code in enumerate(codes.tolist(), 1):
        yield code
        progress(STEP, done, len(codes))


def _chains(one: Int64, other: Int64) -> Int64:
    """Return which points are connected: those in one or in adjacent cells of both.

    >>> _chains(np.array([0, 1, 5, 0]), np.array([7, 7, 7, 0])).tolist()
    [0, 0, 1, 2]
    """
    cells, inverse = np.unique(np.stack([other, one], axis=1), axis=0, return_inverse=True)
    place = {(int(d), int(t)): at for at, (d, t) in enumerate(cells)}
    links = [
        (at, place[d + across, t + along])
        for (d, t), at in place.items()
        for across, along in ((0, 1), (1, -1), (1, 0), (1, 1))
        if (d + across, t + along) in place
    ]
    edges = np.array(links, np.int64).reshape(-1, 2)
    return numbered(components(len(cells), [(edges[:, 0], edges[:, 1])])[inverse.ravel()])


# -- results --------------------------------------------------------------------------------------


def rows(comparisons: Iterable[Comparison]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of ``segments.csv``."""
    for comparison in sorted(comparisons, key=lambda each: each.names):
        for each in comparison.segments:
            yield tuple(_cell(name, value) for name, value in asdict(each).items())


def _cell(name: str, value: str | float | None) -> str:
    if isinstance(value, float) or (name in TIMES and isinstance(value, int)):
        return f"{value / (1000 if name in TIMES else 1):.3f}"
    return "" if value is None else str(value)


def read_segments(path: Path) -> dict[tuple[str, str], tuple[Segment, ...]]:
    """Return the segments of ``segments.csv`` by sets; none where there is no such file."""
    if not path.exists():
        return {}
    found: dict[tuple[str, str], list[Segment]] = {}
    with open_rows(path) as rows:
        rows.need(COLUMNS)
        for row in rows:
            values: dict[str, Any] = {name: row[name] for name in COLUMNS}
            values |= {n: round(1000 * float(row[n])) if row[n] else None for n in TIMES}
            values["images"] = int(row["images"])
            values["rate"] = float(row["rate"]) if row["rate"] else None
            segment = Segment(**values)
            found.setdefault((segment.query_set, segment.reference_set), []).append(segment)
    return {names: tuple(segments) for names, segments in found.items()}


def unlisted(comparison: Comparison) -> int:
    """Return how many near pairs of recordings are in none of the segments of a comparison."""
    sides = [_Recordings.of(side, None) for side in (comparison.query, comparison.reference)]
    query, reference = sides
    timed = query or reference
    if comparison.near is None or timed is None:
        return 0
    points = _points(comparison, comparison.near)
    points = points.only(points.strong)
    if query is not None and reference is not None:
        points, left, right = _couples(comparison, query, reference, points)
    else:
        left, right = (
            np.zeros(len(rows), np.int64) if side is None else side.code[rows]
            for side, rows in zip(sides, (points.query, points.reference), strict=True)
        )
    time = timed.time[points.reference if query is None else points.query]
    missing = (left >= 0) & (right >= 0)
    places = [
        {name: at for at, name in enumerate([""] if side is None else side.names)} for side in sides
    ]
    for each in comparison.segments:
        start, end = each.query_start, each.query_end
        if query is None:
            start, end = each.reference_start, each.reference_end
        own = (left == places[0].get(each.query)) & (right == places[1].get(each.reference))
        if start is not None and end is not None and own.any():
            code = (right if query is None else left)[own][0]
            beside = BESIDE * timed.recording(int(code)).step
            missing &= ~(own & (start - beside <= time) & (time <= end + beside))
    return int(missing.sum())


def sentence(each: Segment) -> str:
    """Return a segment in words.

    >>> sentence(Segment("a", "b", "x.mp4", 1500, 4000, "y.mp4", 0, 2500, 3))
    'x.mp4 1.5-4.0 s is in y.mp4 0.0-2.5 s'
    >>> sentence(Segment("a", "b", "x.mp4", 1500, 4000, "y.mp4", 0, 5000, 3, 2.0))
    'x.mp4 1.5-4.0 s is in y.mp4 0.0-5.0 s, at 2.00 times its speed'
    >>> sentence(Segment("a", "b", "", None, None, "y.mp4", 0, 2500, 3))
    'images of a are in y.mp4 0.0-2.5 s'
    """

    def place(name: str, start: int | None, end: int | None, images: str) -> str:
        if start is None or end is None:
            return f"images of {images}"
        return f"{name} {start / 1000:.1f}-{end / 1000:.1f} s"

    query = place(each.query, each.query_start, each.query_end, each.query_set)
    reference = place(each.reference, each.reference_start, each.reference_end, each.reference_set)
    rate = each.rate
    speed = "" if rate is None or abs(rate - 1) <= NORMAL else f", at {rate:.2f} times its speed"
    verb = "is" if each.query_start is not None else "are"
    return f"{query} {verb} in {reference}{speed}"


def summary_of(found: Sequence[Segment]) -> SegmentSummary | None:
    """Return the entry of ``audit.json``, ``None`` where nothing is shared."""
    if not found:
        return None
    return SegmentSummary(len(found), tuple(map(sentence, found[:NAMED])))
