"""Recordings on both sides: test frames that lie next to training frames in time.

Frames of one recording that were taken within a second of each other show the same scene. Split at
random, they are near-duplicates on both sides whether or not they look alike enough to be listed.
Where frame numbers or times are known, nobody need look: time tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np

from visleak.pipeline.comparison import Comparison
from visleak.records import Bool, ImageSet
from visleak.stats import Rate
from visleak.storage.summary import DistanceCount, RecordingCounts, RecordingSummary

#: Most recordings that stand in ``audit.json``; ``recordings.csv`` has all.
LISTED: Final = 20
#: From so many times the bound, the numbers of frames are likely something else.
ODD: Final = 100
#: Columns of ``recordings.csv``.
COLUMNS: Final = (
    *("query_set", "reference_set", "recording", "unit", "queries", "references", "close"),
    *("near_or_exact", "least", "median", "near_up_to"),
)


@dataclass(frozen=True)
class RecordingLeak:
    """How near in time the frames of two sets of one data set lie.

    Attributes:
        unit: of distances: ``frames`` or ``ms``.
        within: the largest distance that counts as a leak.
        recordings: those on both sides, by name.
        close: ``bool`` (n,): which readable query images lie within that of a reference image.
        distances: the histogram: last distance of a bar (``None`` for the last) and query images.
    """

    unit: str
    within: int
    recordings: tuple[RecordingCounts, ...]
    close: Bool
    distances: tuple[DistanceCount, ...]

    @property
    def leaking(self) -> tuple[RecordingCounts, ...]:
        """The recordings with test frames within the bound, the most of them first."""
        found = (each for each in self.recordings if each.close)
        return tuple(sorted(found, key=lambda each: (-each.close, each.recording)))

    def summary(self) -> RecordingSummary:
        """Return the entry of ``audit.json``."""
        graded = [each.near_or_exact for each in self.recordings if each.near_or_exact is not None]
        return RecordingSummary(
            unit=self.unit,
            within=self.within,
            shared=len(self.recordings),
            leaking=len(self.leaking),
            queries=sum(each.queries for each in self.recordings),
            close=int(self.close.sum()),
            nearest=min((each.least for each in self.recordings), default=None),
            near_or_exact=sum(graded) if graded or not self.recordings else None,
            distances=self.distances,
            listed=self.leaking[:LISTED],
        )


def union(leaks: Sequence[RecordingLeak]) -> tuple[int, Bool] | None:
    """Return over several references of one query set: leaking recordings, close images."""
    if not leaks:
        return None
    names = {each.recording for leak in leaks for each in leak.leaking}
    return len(names), np.logical_or.reduce([leak.close for leak in leaks])


def rate_of(close: Bool, population: int | None) -> Rate:
    """Return the share of the query images that lie within the bound, for ``audit.json``.

    Args:
        close: of a comparison, or a union.
        population: of how many images these were drawn, where they are a sample.
    """
    return Rate.of(int(close.sum()), len(close), population=population)


def sentence(leaks: Sequence[RecordingLeak], name: str) -> str:
    """Return what the headline adds, nothing where no recording leaks.

    >>> one = RecordingCounts("r", 2, 5, 1, None, 3, 3, None)
    >>> sentence([RecordingLeak("frames", 10, (one,), np.array([True, False]), ())], "test")
    '; 1 recording leaks: 1 of 2 test images lies within 10 frames of a training frame'
    """
    found = union(leaks)
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


def unknown(compared: Comparison, shared: int) -> str:
    """Return why distances in time of a comparison with shared groups tell nothing, else nothing.

    Args:
        compared: the comparison.
        shared: how many groups are on both sides.
    """
    query, reference = compared.query, compared.reference
    between = f"time between frames of {query.name} and {reference.name}"
    if not shared:
        return ""
    without = [images.name for images in (query, reference) if not _has_frames(images)]
    if without:
        return (
            f"{between}: frame numbers of {' and '.join(without)} are not known; if the groups are"
            " recordings, give --frame"
        )
    if query.timed != reference.timed:
        return f"{between}: one set has times, the other frame numbers; give both the same"
    return ""


def doubt(unit: str, within: int, nearest: int | None) -> str:
    """Return why the numbers of frames may be something else, nothing where they need not be.

    Args:
        unit, within: of a comparison.
        nearest: least distance of its frames on both sides; ``None`` where there is none.

    >>> doubt("frames", 10, 5_000)
    'the nearest are 5,000 frames apart; if the numbers are times, give seconds or dates'
    >>> doubt("frames", 10, 1_000), doubt("ms", 1_000, 10**9), doubt("frames", 10, None)
    ('', '', '')
    """
    if unit != "frames" or nearest is None or nearest <= ODD * max(within, 1):
        return ""
    apart = words(nearest, unit)
    return f"the nearest are {apart} apart; if the numbers are times, give seconds or dates"


def _has_frames(images: ImageSet) -> bool:
    return images.frames is not None and images.frames.null_count < len(images)


def unnumbered(sets: Iterable[ImageSet]) -> list[str]:
    """Return a line on each set of recordings some images of which have no frame number."""
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


def rows(leaks: Mapping[tuple[str, str], RecordingLeak]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of ``recordings.csv``: every recording on both sides, by sets and name."""
    for (query, reference), leak in sorted(leaks.items()):
        for each in leak.recordings:
            values: dict[str, object] = {
                "query_set": query,
                "reference_set": reference,
                "unit": leak.unit,
            }
            values |= asdict(each)
            yield tuple("" if values[name] is None else str(values[name]) for name in COLUMNS)
