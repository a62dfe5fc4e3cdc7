"""Recordings as densely as their files have them, and the line on which two of them run together.

Frames of a set are taken at intervals, so a segment that is shared could begin and end anywhere
between two of them. Where the files can be read, further frames are encoded around its ends: the
line through pairs of equal frames is fitted to them, and followed outwards as far as they agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from visleak.pipeline.encoded_set import Side
from visleak.pipeline.fingerprints import encoded
from visleak.records import Bool, Encoder, Float32, Float64, FootageOpener, Int64, Unreadable

#: Milliseconds between frames that are encoded in addition to those of the set.
EVERY: Final = 80
#: Milliseconds of a recording that are encoded at once.
BLOCK: Final = 1000
#: Milliseconds inside of either end that are compared, and by which a line may be wrong there.
INSIDE: Final = 2000
SLACK: Final = 1600
#: Milliseconds from which a segment shows its rate.
LONG: Final = 1500
#: Milliseconds in which the frames of a segment may be unlike, such as a flash or a wiped frame.
FLASH: Final = 250
#: What must be gained in similarity by a second of drift from the rate of 1, and by a second away
#: from the line that the frames of the sets have: slow footage is much the same on other lines.
DRIFT: Final = 0.01
UNTOLD: Final = 400  # milliseconds of drift that cannot be told from noise
SHIFT: Final = 0.0001
#: Images whose similarity stands for that of unrelated ones.
UNRELATED: Final = 1000


@dataclass(frozen=True, slots=True)
class Line:
    """Times of one recording, and those of another one that shows the same."""

    start: int  # milliseconds
    end: int
    other_start: int
    other_end: int

    @property
    def rate(self) -> float:
        """Milliseconds of the other recording in one of this."""
        long = self.end > self.start
        return (self.other_end - self.other_start) / (self.end - self.start) if long else 1.0

    def at(self, time: Int64) -> Float64:
        """Return the times of the other recording."""
        return np.asarray(self.other_start + self.rate * (time - self.start), np.float64)

    def until(self, start: int, end: int) -> Line:
        """Return the line between other times."""
        first, last = self.at(np.array([start, end])).tolist()
        return Line(start, end, round(first), round(last))


@dataclass
class Recording:
    """The frames of one recording: those of the set, and others when they are asked for."""

    side: Side
    rows: Int64  # of its readable images, by time
    time: Int64  # of these, milliseconds, ascending
    step: int  # usual time between them
    encoder: Encoder | None  # encodes others
    _blocks: dict[int, tuple[Int64, Float32]] = field(default_factory=dict, repr=False)

    def between(self, start: float, end: float) -> tuple[Int64, Float32]:
        """Return times and vectors of the frames between two times."""
        low, high = max(int(start), int(self.time[0])), min(int(end), self.last)
        blocks = [self._block(at) for at in range(low // BLOCK, high // BLOCK + 1)]
        time = np.concatenate([np.empty(0, np.int64), *(times for times, _ in blocks)])
        kept = (time >= start) & (time <= end)
        width = self.side.fingerprints.matrix.shape[1]
        vectors = np.concatenate([np.empty((0, width), np.float32), *(own for _, own in blocks)])
        return time[kept], vectors[kept]

    @property
    def dense(self) -> bool:
        """Whether frames between those of the set can be encoded."""
        return self.encoder is not None and isinstance(self.side.images.opener, FootageOpener)

    @property
    def last(self) -> int:
        """The latest time at which a frame may be."""
        return int(self.time[-1]) + self.step

    def _block(self, number: int) -> tuple[Int64, Float32]:
        if number not in self._blocks:
            start, end = number * BLOCK, (number + 1) * BLOCK
            own = slice(*np.searchsorted(self.time, [start, end]))
            times, vectors = self._encoded(start, end)
            own_vectors = np.asarray(self.side.fingerprints.matrix[self.rows[own]])
            time = np.concatenate([self.time[own], times])
            # of one time, the frame of the set
            time, first = np.unique(time, return_index=True)
            self._blocks[number] = time, np.concatenate([own_vectors, vectors])[first]
        return self._blocks[number]

    def _encoded(self, start: int, end: int) -> tuple[Int64, Float32]:
        """Return frames of the file; none where it cannot be read, or changed."""
        opener, encoder = self.side.images.opener, self.encoder
        found: list[tuple[int, Float32]] = []
        if encoder is not None and isinstance(opener, FootageOpener):
            position = int(self.side.fingerprints.rows[self.rows[0]])
            items = (
                (time, image, b"")
                for time, image in opener.between(position, start, end, EVERY)
                if not isinstance(image, Unreadable)
            )
            found = [(time, made.vector) for time, made in encoded(encoder, items, [])]
        width = self.side.fingerprints.matrix.shape[1]
        vectors = np.array([vector for _, vector in found], np.float32).reshape(-1, width)
        return np.array([time for time, _ in found], np.int64), vectors


#: How much frames of a recording, by their times and vectors, agree with what is at these times on
#: a line.
Agreement = Callable[[Line, Int64, Float32], Float64]
#: Makes the vectors of the view in which two sets are compared.
Seen = Callable[[Float32], Float32]


def beside_images(vectors: Float32, seen: Seen) -> Agreement:
    """Return how frames agree with images that have no times."""

    def agreement(_: Line, time: Int64, own: Float32) -> Float64:
        return np.asarray((seen(own) @ vectors.T).max(axis=1, initial=-1.0), np.float64)

    return agreement


def beside_recording(other: Recording, seen: Seen) -> Agreement:
    """Return how frames agree with those that another recording has at their times."""

    def agreement(line: Line, time: Int64, own: Float32) -> Float64:
        times, similarity = _compared(line, time, own, other, seen)
        apart = abs(times[None] - line.at(time)[:, None])
        near = np.where(apart <= _spacing(other, times), similarity, -1.0)
        return np.asarray(near.max(axis=1, initial=-1.0), np.float64)

    return agreement


def _compared(
    line: Line, time: Int64, own: Float32, other: Recording, seen: Seen, slack: int = EVERY
) -> tuple[Int64, Float32]:
    """Return the times of another recording about those of some frames, and similarities."""
    at = line.at(time)
    parts = np.split(at, np.flatnonzero(np.diff(at) > BLOCK) + 1) if len(at) else []
    found = [other.between(part[0] - slack, part[-1] + slack) for part in parts]
    times = np.concatenate([np.empty(0, np.int64), *(each for each, _ in found)])
    times, first = np.unique(times, return_index=True)
    vectors = np.concatenate([np.empty((0, own.shape[1]), np.float32), *(v for _, v in found)])
    return times, np.asarray(seen(own) @ vectors[first].T)


def _spacing(recording: Recording, times: Int64) -> float:
    """Return how far some frames of a recording are apart, at least those that are encoded."""
    if len(times) > 1:
        return max(float(np.median(np.diff(times))), EVERY)
    return EVERY if recording.dense else recording.step


def _inside(line: Line, recording: Recording) -> tuple[Int64, Float32]:
    """Return frames of a segment: all of a short one, those at the ends of a long one."""
    if line.end - line.start <= 2 * INSIDE:
        return recording.between(line.start, line.end)
    ends = ((line.start, line.start + INSIDE), (line.end - INSIDE, line.end))
    times, vectors = zip(*(recording.between(*each) for each in ends), strict=True)
    return np.concatenate(times), np.concatenate(vectors)


def fitted(line: Line, recording: Recording, other: Recording, seen: Seen) -> Line:
    """Return the line on which the frames of two recordings agree most, by its two ends."""
    time, own = _inside(line, recording)
    times, similarity = _compared(line, time, own, other, seen, slack=SLACK)
    if not len(times) or not len(time):
        return line
    shifts = np.arange(-SLACK, SLACK + 1, EVERY)
    first, last = np.meshgrid(shifts, shifts, indexing="ij")
    if line.end - line.start < LONG:
        first = last = shifts[:, None]
    share = (time - line.start) / max(line.end - line.start, 1)
    at = line.at(time) + first[..., None] * (1 - share) + last[..., None] * share
    place = np.searchsorted((times[1:] + times[:-1]) / 2, at)
    near = abs(times[place] - at) <= _spacing(other, times)
    value = np.where(near, similarity[np.arange(len(time)), place], 0.0).mean(axis=-1)
    drift = (line.other_end + last - line.other_start - first) - (line.end - line.start)
    value[(first != last) & (abs(first - last) < UNTOLD)] = -np.inf
    value -= (DRIFT * abs(drift) + SHIFT * (abs(first) + abs(last))) / 1000
    best = np.unravel_index(int(np.argmax(value)), value.shape)
    return Line(
        line.start,
        line.end,
        line.other_start + int(first[best]),
        line.other_end + int(last[best]),
    )


def followed(line: Line, recording: Recording, agreement: Agreement) -> Line:
    """Return a line up to where the frames at its times no longer agree.

    That is where the similarity falls below the middle between that of its own frames and that of
    unrelated images.
    """
    time, own = _inside(line, recording)
    level = float(np.median(agreement(line, time, own)))
    least = (level + _of_unrelated(recording, own)) / 2
    start, end = (
        _reached(line, recording, lambda t, v: agreement(line, t, v) >= least, forward=forward)
        for forward in (False, True)
    )
    return line.until(start, end)


def _of_unrelated(recording: Recording, own: Float32) -> float:
    """Return the mean similarity to unrelated images: those of the cohort, else of the set."""
    cohort = recording.encoder.cohort if recording.encoder is not None else None
    if cohort is None:
        order, matrix = recording.side.order, recording.side.fingerprints.matrix
        cohort = matrix[np.flatnonzero(order % -(-len(order) // UNRELATED) == 0)]
    return float((own @ np.asarray(cohort).T).mean())


def _reached(
    line: Line,
    recording: Recording,
    agrees: Callable[[Int64, Float32], Bool],
    *,
    forward: bool,
) -> int:
    """Return the time half-way between the last frame that agrees and the next one."""
    reached, beyond = line.end if forward else line.start, None
    for at, agree in _outward(reached, recording, agrees, forward=forward):
        if agree:
            reached, beyond = at, None
        elif beyond is None:
            beyond = at
        if abs(at - reached) > FLASH:
            break
    if beyond is not None:
        return (reached + beyond) // 2
    return min(reached + EVERY, recording.last) if forward else reached


def _outward(
    begin: int, recording: Recording, agrees: Callable[[Int64, Float32], Bool], *, forward: bool
) -> Iterator[tuple[int, bool]]:
    """Yield the times of the frames outside of an end, nearest first, and whether each agrees."""
    order = slice(None, None, 1 if forward else -1)
    while recording.time[0] <= begin <= recording.last:
        edge = begin + BLOCK if forward else begin - BLOCK
        time, own = recording.between(min(begin, edge), max(begin, edge))
        agreed = agrees(time, own)
        for at, agree in zip(time[order].tolist(), agreed[order].tolist(), strict=True):
            if at != begin:
                yield at, agree
        begin = edge
