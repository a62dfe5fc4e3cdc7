"""The exact search of two sets on a cluster: references in parts, queries fetched once a node.

A pair's similarity depends on the pair alone and ties go by id, so the best over all parts are
among the best of each part, and merging gives what one search would have given, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from visleak.pipeline.context import Handle, RunContext, shared
from visleak.records import Float32, Int64
from visleak.search import load_search
from visleak.search.exact import ExactSearch
from visleak.search.hits import Account, Hits, Search, Sides, ViewMaker, Wanted
from visleak.search.rescore import Scored, chosen, joined

#: References a task: large enough to pay for the hand-over of 37 MB of the built-in vectors.
PART: Final = 16_384


def search_for(
    name: str, place: RunContext, progress: Callable[[int], None] | None = None
) -> Search:
    """Return the search engine of a name, for the workers of a context.

    Args:
        name: one of :data:`visleak.search.SEARCHES`.
        place: where to work.
        progress: called with the number of references done.

    Raises:
        UsageError, MissingExtra: as :func:`visleak.search.load_search`.
    """
    if name == ExactSearch.name and not place.executor.here:
        return PartedSearch(place, progress)
    return load_search(name, progress=progress)


@dataclass(frozen=True, slots=True)
class _Question:
    """What is the same for all parts."""

    query: Float32
    views: tuple[int, ...]
    make: ViewMaker | None
    wanted: Wanted


@dataclass(frozen=True, slots=True)
class _Task:
    question: Handle
    reference: Float32
    penalty: Float32
    order: Int64
    weight: Int64 | None


class PartedSearch:
    """Finds exactly what is wanted, part by part; within one set it searches here.

    Args:
        place: its workers search the parts.
        progress: called with the number of references done.
        part: references a task, by default :data:`PART`; never changes an answer.
    """

    accounts: Sequence[Account] = ()

    def __init__(
        self, place: RunContext, progress: Callable[[int], None] | None = None, part: int = 0
    ) -> None:
        self._place = place
        self._progress = progress or (lambda done: None)
        self._part = part or PART

    def find(self, sides: Sides, wanted: Wanted, *, workers: int = 1) -> Hits:
        """Return the wanted pairs; see :class:`visleak.search.hits.Search`."""
        total = len(sides.reference)
        if sides.same or total <= self._part or not len(sides.query):
            return ExactSearch(progress=self._progress).find(sides, wanted, workers=workers)
        question = _Question(np.array(sides.query[:]), sides.views, sides.make, wanted)
        tasks = self._tasks(sides, self._place.share(question))
        columns: list[Hits] = []
        counted = np.zeros(len(sides.query), np.int64)
        for number, hits in enumerate(self._place.each(_search, tasks, "searching")):
            columns.append(hits)
            counted += hits.total
            self._progress(min(total, (number + 1) * self._part))
        starts = [number * self._part for number in range(len(columns))]
        scored = Scored(
            np.concatenate([hits.query for hits in columns]),
            np.concatenate([h.reference + a for h, a in zip(columns, starts, strict=True)]),
            np.concatenate([hits.similarity for hits in columns]),
            np.concatenate([hits.view for hits in columns]),
        )
        return joined([(0, scored.only(chosen(scored, sides, wanted)), counted)], sides.order)

    def _tasks(self, sides: Sides, question: Handle) -> Iterator[_Task]:
        for start in range(0, len(sides.reference), self._part):
            part = slice(start, start + self._part)
            yield _Task(
                question,
                np.array(sides.reference[part]),
                sides.penalty[part],
                sides.order[part],
                None if sides.weight is None else sides.weight[part],
            )


def _search(task: _Task) -> Hits:
    """Search one part."""
    asked: _Question = shared(task.question)
    sides = Sides(
        query=asked.query,
        reference=task.reference,
        penalty=task.penalty,
        order=task.order,
        weight=task.weight,
        views=asked.views,
        make=asked.make,
    )
    return ExactSearch().find(sides, asked.wanted)
