"""The reference performance of a benchmark: what a search for its trigger prompts would show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np

from visleak.errors import VisleakError
from visleak.memorization.benchmark.columns import SCORES
from visleak.memorization.benchmark.measuring import Shelf
from visleak.memorization.benchmark.paired import bounded
from visleak.memorization.benchmark.plan import Plan
from visleak.memorization.benchmark.records import ReferencePoint
from visleak.memorization.intervals import group_interval
from visleak.memorization.metrics.reference import reference_performance
from visleak.pipeline.workplace import Progress
from visleak.records import Bytes8


def referred(plan: Plan, shelf: Shelf, progress: Progress) -> ReferencePoint | None:
    """Return the reference performance; ``None`` where no search was named.

    Prompts whose memorized images are not at hand, and prompts for which nothing was found, are
    left out of both numbers.

    Raises:
        VisleakError: nothing was found for any prompt.
    """
    source, alignment = plan.judges.source, plan.judges.alignment
    if source is None or alignment is None:
        return None
    found = reference_performance(
        source,
        plan.triggers.texts,
        _Pictures(shelf),
        alignment,
        plan.judges.similarity,
        plan.choices.asked,
        progress=progress,
    )
    known = np.isfinite(found.similarity) & np.isfinite(found.clip)
    if not known.any():
        raise VisleakError(
            f"{source.name} has no picture for any trigger prompt with its memorized images at"
            " hand; leave --reference-source out, or name another"
        )
    groups, clip = plan.groups(shelf.digests)[known], SCORES["clip"]
    similarity = group_interval(found.similarity[known], groups)
    return ReferencePoint(
        source=source.name,
        count=plan.choices.asked,
        similarity=bounded(similarity, plan.judges.least, SCORES["top1"].most),
        clip=bounded(group_interval(found.clip[known], groups), clip.least, clip.most),
        about=dict(source.about()),
    )


class _Pictures(Sequence[Sequence[Bytes8]]):
    """The memorized images of prompts, each read when it is asked for."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    def __len__(self) -> int:
        return len(self._shelf.digests)

    @overload
    def __getitem__(self, at: int) -> Sequence[Bytes8]: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Sequence[Bytes8]]: ...

    def __getitem__(self, at: int | slice) -> Sequence[Bytes8] | Sequence[Sequence[Bytes8]]:
        if isinstance(at, slice):
            return [self._shelf.pictures(row) for row in range(*at.indices(len(self)))]
        return self._shelf.pictures(range(len(self))[at])
