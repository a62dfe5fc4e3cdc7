"""Nearest images of a candidate, and the pixel verification of their pairs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

import numpy as np

from visleak.grading import grade, load_grader
from visleak.pipeline.context import RunContext
from visleak.pipeline.encoded_set import EncodedSet, Side
from visleak.pipeline.reference_similarity import reference_similarities
from visleak.pipeline.verification import equal_bytes, verify
from visleak.records import GRADES, Encoder, Float32, Int64, Pairs
from visleak.search.exact import ExactSearch
from visleak.search.hits import Sides, Wanted
from visleak.search.rescore import rescore


@dataclass(frozen=True, slots=True)
class PairCheck:
    """What the machine says of a candidate and a neighbour.

    Attributes:
        grade: of the pair; ``None`` where an image could not be read any more.
        probability: that a careful person calls the pair near or exact; ``None`` likewise.
        reason: in words.
    """

    grade: str | None
    probability: float | None
    reason: str


class Checker:
    """Verifies pairs of a candidate and a neighbour as an audit does; each pair once.

    Args:
        material: the sets of the audit and the pool, by name.
        sides: the same with backgrounds.
        pool: name of the pool.
        encoder: made the fingerprints.
        views: choice of the views, as in the settings.
        near_at: probability from which a pair is ``near``, as in the audit.
        context: makes a place to work in for one call; its cache knows what was verified before.
    """

    def __init__(
        self,
        material: Mapping[str, EncodedSet],
        sides: Mapping[str, Side],
        pool: str,
        encoder: Encoder,
        views: str,
        near_at: float,
        context: Callable[[], AbstractContextManager[RunContext]],
    ) -> None:
        self._material = material
        self._sides = sides
        self._pool = pool
        self._encoder = encoder
        self._views = views
        self._context = context
        self._grader = load_grader(near_at=near_at)
        self._looks: dict[tuple[int, str, int], PairCheck] = {}

    def look(
        self, couples: Iterable[tuple[int, Neighbour]]
    ) -> dict[tuple[int, str, int], PairCheck]:
        """Return what is said of couples, by row of the pool, set and row of the neighbour.

        Args:
            couples: row of the pool and neighbour.
        """
        wanted = {(row, near.set, near.row): near for row, near in couples}
        fresh: dict[str, list[tuple[int, Neighbour]]] = {}
        for key, near in wanted.items():
            if key not in self._looks:
                fresh.setdefault(near.set, []).append((key[0], near))
        if fresh:
            self._verify([self._pairs(name, each) for name, each in fresh.items()])
        return {key: self._looks[key] for key in wanted}

    def _pairs(self, name: str, couples: list[tuple[int, Neighbour]]) -> Pairs:
        query = np.array([row for row, _ in couples], np.int64)
        reference = np.array([near.row for _, near in couples], np.int64)
        backgrounds = (
            self._sides[self._pool].background[query] + self._sides[name].background[reference]
        )
        return Pairs(
            query_set=self._pool,
            reference_set=name,
            query=query,
            reference=reference,
            similarity=np.array([near.similarity for _, near in couples], np.float32),
            background=(backgrounds / 2).astype(np.float32),
            view=np.array([near.view for _, near in couples], np.int8),
            total=np.zeros(len(self._material[self._pool].fingerprints), np.int64),
        )

    def _verify(self, found: list[Pairs]) -> None:
        with self._context() as place:
            gauged = reference_similarities(
                found, self._material, self._encoder, self._views, place
            )
            evidence = verify(gauged, self._material, place)
        for pairs, own in zip(gauged, evidence, strict=True):
            grades = grade(
                pairs.similarity,
                pairs.background,
                own,
                equal_bytes=equal_bytes(pairs, self._material),
                flat=self._material[self._pool].fingerprints.flat[pairs.query],
                grader=self._grader,
            )
            for i, (row, other) in enumerate(zip(pairs.query, pairs.reference, strict=True)):
                seen = grades.grade[i] >= 0
                self._looks[int(row), pairs.reference_set, int(other)] = PairCheck(
                    grade=GRADES[grades.grade[i]] if seen else None,
                    probability=float(grades.probability[i]) if seen else None,
                    reason=grades.reason[i],
                )


#: Neighbours in each set that the machine compares, as many as an audit takes as candidates. The
#: paper's three miss a copy now and then that lies behind three images of the like.
COMPARED: Final = 20

#: How much of a neighbour's background its rank loses: nothing, as in the paper, and half, as in an
#: audit; those of either ranking are compared.
CORRECTED: Final = (0.0, 0.5)


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An image near a candidate.

    Attributes:
        set: its set; that of the pool for an approved image.
        row: of the set's fingerprints.
        similarity: of the encoder, the largest over the views, exact.
        view: index into ``VIEWS``: which view of the candidate is that alike.
    """

    set: str
    row: int
    similarity: float
    view: int


class Neighbours:
    """Finds near images; what is in the audit is searched once for a candidate.

    Args:
        existing: the sets of the audit, by name.
        pool: the pool.
        encoder: made the fingerprints of all.
        views: that are compared.
        workers: threads.
    """

    def __init__(
        self,
        existing: Mapping[str, Side],
        pool: Side,
        encoder: Encoder,
        views: tuple[int, ...],
        workers: int,
    ) -> None:
        self._existing = existing
        self._pool = pool
        self._encoder = encoder
        self._views = views
        self._workers = workers
        self._places = {name: place for place, name in enumerate(existing)}
        self._found: dict[int, tuple[Neighbour, ...]] = {}

    def search(self, rows: Sequence[int]) -> None:
        """Search the sets of the audit for rows of the pool, all at once, and keep the answer."""
        fresh = np.array(sorted(set(rows) - self._found.keys()), np.int64)
        if not len(fresh):
            return
        found: dict[int, set[Neighbour]] = {row: set() for row in fresh.tolist()}
        queries = np.asarray(self._pool.fingerprints.matrix[fresh])
        for (name, side), share in itertools.product(self._existing.items(), CORRECTED):
            sides = self._sides(queries, side, side.background * np.float32(share))
            hits = ExactSearch().find(sides, Wanted(None, best=COMPARED), workers=self._workers)
            for query, row, similarity, view in zip(
                hits.query, hits.reference, hits.similarity, hits.view, strict=True
            ):
                near = Neighbour(name, int(row), float(similarity), int(view))
                found[int(fresh[query])].add(near)
        self._found |= {row: self._nearest(near) for row, near in found.items()}

    def of(self, row: int, approved: Int64) -> tuple[Neighbour, ...]:
        """Return the neighbours of a row of the pool that are compared, nearest first.

        Args:
            row: of the pool.
            approved: rows of the pool that were approved; the row itself is passed over.
        """
        self.search([row])
        others = approved[approved != row]
        near = list(self._found[row])
        if len(others):
            sides = self._sides(self._pool.fingerprints.matrix[[row]], self._pool)
            scored = rescore(sides, sides.query[:1], np.zeros(len(others), np.int64), others)
            near += self._nearest(
                Neighbour(self._pool.fingerprints.set, int(other), float(similarity), int(view))
                for other, similarity, view in zip(
                    scored.reference, scored.similarity, scored.view, strict=True
                )
            )[:COMPARED]
        return self._nearest(near)

    def similarity(self, names: tuple[str, str], rows: tuple[int, int]) -> float:
        """Return the similarity of two images of the audit, the largest over the views."""
        query, reference = (self._existing[name] for name in names)
        sides = self._sides(query.fingerprints.matrix[[rows[0]]], reference)
        places = np.zeros(1, np.int64), np.array([rows[1]], np.int64)
        return float(rescore(sides, sides.query[:1], *places).similarity[0])

    def _sides(self, query: Float32, reference: Side, penalty: Float32 | None = None) -> Sides:
        matrix = reference.fingerprints.matrix
        return Sides(
            query=query,
            reference=matrix,
            penalty=np.zeros(len(matrix), np.float32) if penalty is None else penalty,
            order=reference.order,
            views=self._views,
            make=self._encoder.view if len(self._views) > 1 else None,
        )

    def _nearest(self, found: Iterable[Neighbour]) -> tuple[Neighbour, ...]:
        def rank(near: Neighbour) -> tuple[float, int, int]:
            side = self._existing.get(near.set, self._pool)
            place = self._places.get(near.set, len(self._places))
            return -near.similarity, place, int(side.order[near.row])

        return tuple(sorted(found, key=rank))
