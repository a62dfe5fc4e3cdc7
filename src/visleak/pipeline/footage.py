"""Recordings as densely as their files have them, and the line on which two of them run together.

Where the files can be read, frames between those of the set are encoded around the ends of a shared
segment: the line through equal frames is fitted to them, and followed as far as they agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from visleak.pipeline.encoded_set import Side
from visleak.pipeline.fingerprints import encoded
from visleak.records import Bool, Encoder, Float32, Float64, FootageOpener, Int64, Unreadable

EVERY: Final = 80  # milliseconds between frames that are encoded beside those of the set
BLOCK: Final = 1000  # milliseconds of a recording that are encoded at once
INSIDE: Final = 2000  # milliseconds inside of either end that are compared
SLACK: Final = 1600  # milliseconds by which a line may be wrong there
LONG: Final = 1500  # milliseconds from which a segment shows its rate
FLASH: Final = 250  # milliseconds in which the frames may differ, such as in a flash
#: What must be gained in similarity by a second of drift from the rate of 1, and by a second away
#: from the line that the frames of the sets have: slow footage is much the same on other lines.
DRIFT: Final = 0.01
NOISE: Final = 400  # milliseconds of drift that noise may explain
SHIFT: Final = 0.0001
UNRELATED: Final = 1000  # images that represent unrelated ones


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
    """The frames of one recording: those of the set, and others on request."""

    side: Side
    rows: Int64  # of its readable images, by time
    time: Int64  # of these, milliseconds, ascending
    step: int  # usual time between them
    encoder: Encoder | None  # encodes others
    _blocks: dict[int, tuple[Int64, Float32]] = field(default_factory=dict, repr=False)

    def between(self, start: float, end: float) -> tuple[Int64, Float32]:
        """Return times and vectors of the frames between two times."""
        low, high = max(int(start), int(self.time[0])), min(int(end), self.last)
        blocks = (self._block(at) for at in range(low // BLOCK, high // BLOCK + 1))
        time, vectors = _joined(blocks, self.side.fingerprints.matrix.shape[1])
        kept = (time >= start) & (time <= end)
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
            listed = self.time[own], np.asarray(self.side.fingerprints.matrix[self.rows[own]])
            time, vectors = _joined([listed, self._encoded(start, end)], listed[1].shape[1])
            # of one time, the frame of the set
            time, first = np.unique(time, return_index=True)
            self._blocks[number] = time, vectors[first]
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


def _joined(parts: Iterable[tuple[Int64, Float32]], width: int) -> tuple[Int64, Float32]:
    """Return times and vectors of several parts, of none as well."""
    nothing = np.empty(0, np.int64), np.empty((0, width), np.float32)
    times, vectors = zip(nothing, *parts, strict=True)
    return np.concatenate(times), np.concatenate(vectors)


#: How much frames of a recording, by their times and vectors, agree with what is at these times on
#: a line.
Agreement = Callable[[Line, Int64, Float32], Float64]
#: Makes the vectors of the view in which two sets are compared.
View = Callable[[Float32], Float32]


def beside_images(vectors: Float32, view: View) -> Agreement:
    """Return how frames agree with images that have no times."""

    def agreement(_: Line, time: Int64, own: Float32) -> Float64:
        return np.asarray((view(own) @ vectors.T).max(axis=1, initial=-1.0), np.float64)

    return agreement


def beside_recording(other: Recording, view: View) -> Agreement:
    """Return how frames agree with those that another recording has at their times."""

    def agreement(line: Line, time: Int64, own: Float32) -> Float64:
        times, similarity = _compared(line, time, own, other, view)
        apart = abs(times[None] - line.at(time)[:, None])
        near = np.where(apart <= _spacing(other, times), similarity, -1.0)
        return np.asarray(near.max(axis=1, initial=-1.0), np.float64)

    return agreement


def _compared(
    line: Line, time: Int64, own: Float32, other: Recording, view: View, slack: int = EVERY
) -> tuple[Int64, Float32]:
    """Return the times of another recording about those of some frames, and similarities."""
    at = line.at(time)
    parts = np.split(at, np.flatnonzero(np.diff(at) > BLOCK) + 1) if len(at) else []
    found = (other.between(part[0] - slack, part[-1] + slack) for part in parts)
    times, vectors = _joined(found, own.shape[1])
    times, first = np.unique(times, return_index=True)
    return times, np.asarray(view(own) @ vectors[first].T)


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
    width = recording.side.fingerprints.matrix.shape[1]
    return _joined((recording.between(*each) for each in ends), width)


def fitted(line: Line, recording: Recording, other: Recording, view: View) -> Line:
    """Return the line on which the frames of two recordings agree most, by its two ends."""
    time, own = _inside(line, recording)
    times, similarity = _compared(line, time, own, other, view, slack=SLACK)
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
    value[(first != last) & (abs(first - last) < NOISE)] = -np.inf
    value -= (DRIFT * abs(drift) + SHIFT * (abs(first) + abs(last))) / 1000
    best = np.unravel_index(int(np.argmax(value)), value.shape)
    ends = line.other_start + int(first[best]), line.other_end + int(last[best])
    return Line(line.start, line.end, *ends)


def followed(line: Line, recording: Recording, agreement: Agreement) -> Line:
    """Return a line up to where the frames at its times no longer agree.

    That is where the similarity falls below the middle between that of its own frames and that of
    unrelated images.
    """
    time, own = _inside(line, recording)
    level = float(np.median(agreement(line, time, own)))
    # unrelated images are those of the cohort, otherwise of the set
    cohort = recording.encoder.cohort if recording.encoder is not None else None
    if cohort is None:
        order, matrix = recording.side.order, recording.side.fingerprints.matrix
        cohort = matrix[np.flatnonzero(order % -(-len(order) // UNRELATED) == 0)]
    least = (level + float((own @ np.asarray(cohort).T).mean())) / 2
    start, end = (
        _reached(line, recording, lambda t, v: agreement(line, t, v) >= least, forward=forward)
        for forward in (False, True)
    )
    return line.until(start, end)


def _reached(
    line: Line, recording: Recording, agrees: Callable[[Int64, Float32], Bool], *, forward: bool
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
