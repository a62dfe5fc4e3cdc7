"""Candidates of a pool: their nearest images, and the pixel verification of these pairs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from visleak.grading import Grader, grade
from visleak.pipeline.candidates import reference_similarities
from visleak.pipeline.context import RunContext
from visleak.pipeline.encoded_set import EncodedSet, Side
from visleak.pipeline.verification import equal_bytes, verify
from visleak.records import GRADES, Encoder, Float32, Int64, Pairs
from visleak.search.exact import ExactSearch, rescore
from visleak.search.hits import Sides, Wanted


@dataclass(frozen=True, slots=True)
class PairCheck:
    """Result of the verification of a candidate and a neighbour."""

    grade: str | None  # of the pair; ``None`` if an image could no longer be read
    # that a careful person calls the pair near or exact; ``None`` likewise
    probability: float | None
    reason: str


#: Neighbours verified per set, as many as the candidates of an audit. The three of the paper
#: occasionally miss a copy behind three similar images.
COMPARED: Final = 20

#: Share of the background similarity that is subtracted for the ranking: none, as in the paper, and
#: half, as in an audit; the neighbours of both rankings are verified.
CORRECTED: Final = (0.0, 0.5)


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An image near a candidate."""

    set: str
    row: int
    similarity: float
    view: int  # index into ``VIEWS``: the view of the candidate with that similarity


@dataclass
class Neighbours:
    """Finds nearest images; the sets of the audit are searched once per candidate."""

    existing: Mapping[str, Side]  # the sets of the audit, by name
    pool: Side
    encoder: Encoder
    views: tuple[int, ...]
    workers: int  # threads
    _found: dict[int, tuple[Neighbour, ...]] = field(default_factory=dict, init=False)

    def search(self, rows: Sequence[int]) -> None:
        """Search the sets of the audit for rows of the pool, all at once, and store the result."""
        fresh = np.array(sorted(set(rows) - self._found.keys()), np.int64)
        if not len(fresh):
            return
        found: dict[int, set[Neighbour]] = {row: set() for row in fresh.tolist()}
        queries = np.asarray(self.pool.fingerprints.matrix[fresh])
        for (name, side), share in itertools.product(self.existing.items(), CORRECTED):
            sides = self._sides(queries, side, side.background * np.float32(share))
            hits = ExactSearch().find(sides, Wanted(None, best=COMPARED), workers=self.workers)
            for query, row, similarity, view in zip(
                hits.query, hits.reference, hits.similarity, hits.view, strict=True
            ):
                near = Neighbour(name, int(row), float(similarity), int(view))
                found[int(fresh[query])].add(near)
        self._found |= {row: self._nearest(near) for row, near in found.items()}

    def of(self, row: int, approved: Int64) -> tuple[Neighbour, ...]:
        """Return the neighbours of a row of the pool to verify, nearest first."""
        self.search([row])
        others = approved[approved != row]
        near = list(self._found[row])
        if len(others):
            sides = self._sides(self.pool.fingerprints.matrix[[row]], self.pool)
            scored = rescore(sides, sides.query[:1], np.zeros(len(others), np.int64), others)
            near += self._nearest(
                Neighbour(self.pool.fingerprints.set, int(other), float(similarity), int(view))
                for other, similarity, view in zip(
                    scored.reference, scored.similarity, scored.view, strict=True
                )
            )[:COMPARED]
        return self._nearest(near)

    def similarity(self, names: tuple[str, str], rows: tuple[int, int]) -> float:
        """Return the similarity of two images of the audit, the largest over the views."""
        query, reference = (self.existing[name] for name in names)
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
            views=self.views,
            make=self.encoder.view if len(self.views) > 1 else None,
        )

    def _nearest(self, found: Iterable[Neighbour]) -> tuple[Neighbour, ...]:
        places = {name: place for place, name in enumerate(self.existing)}

        def rank(near: Neighbour) -> tuple[float, int, int]:
            side = self.existing.get(near.set, self.pool)
            place = places.get(near.set, len(places))
            return -near.similarity, place, int(side.order[near.row])

        return tuple(sorted(found, key=rank))


#: Neighbours that people see, as in the paper.
SHOWN: Final = 3

#: Candidates checked together; the result for one does not depend on the others.
BLOCK: Final = 8

_COPY: Final = {"exact": "exact copy of", "near": "near copy of", "similar": "very similar to"}


@dataclass(frozen=True, slots=True)
class SimilarImage:
    """A neighbour of a candidate."""

    set: str
    id: str
    label: str | None
    similarity: float
    check: PairCheck

    @property
    def distance(self) -> float:
        """Euclidean distance of the unit vectors."""
        return distance(self.similarity)


@dataclass(frozen=True, slots=True)
class Candidate:
    """An image of the pool and its nearest neighbours."""

    row: int
    id: str
    label: str | None
    digest: str
    near: tuple[SimilarImage, ...]  # the verified neighbours, nearest first

    @property
    def nearest(self) -> tuple[SimilarImage, ...]:
        """The neighbours that people see."""
        return self.near[:SHOWN]

    @property
    def objection(self) -> str:
        """Why it may not be approved; empty if it is eligible."""
        for near in self.near:
            if near.check.grade != "different":
                what = _COPY.get(near.check.grade or "", "could not be compared with")
                return f"not eligible: {what} {near.set}/{near.id}"
        return ""


@dataclass
class Examiner:
    """Checks images of a pool against their nearest neighbours as an audit does, each pair once."""

    sides: Mapping[str, Side]  # the sets of the audit and the pool, by name
    pool: str  # name of the pool
    neighbours: Neighbours
    views: str  # the choice of views in the settings
    grader: Grader
    # returns a run context for one call; its cache holds earlier evidence
    context: Callable[[], AbstractContextManager[RunContext]]
    _checks: dict[tuple[int, str, int], PairCheck] = field(default_factory=dict, init=False)

    def candidates(self, rows: Sequence[int], approved: Int64) -> list[Candidate]:
        """Return rows of the pool as candidates; approved rows are neighbours too."""
        near = {row: self.neighbours.of(row, approved) for row in rows}
        self._check([(row, each) for row, found in near.items() for each in found])
        own = self.sides[self.pool]
        return [
            Candidate(
                row=row,
                id=own.fingerprints.ids[row].as_py(),
                label=label_of(own, row),
                digest=bytes(own.fingerprints.digests[row]).hex(),
                near=tuple(self._near(row, each) for each in found),
            )
            for row, found in near.items()
        ]

    def prepare(self, rows: Sequence[int]) -> None:
        """Check rows against their neighbours in the audit, all at once."""
        self.neighbours.search(rows)
        self.candidates(rows, np.empty(0, np.int64))

    def prepared(self, rows: Sequence[int]) -> Iterator[int]:
        """Yield rows in their order, prepared in blocks."""
        for start in range(0, len(rows), BLOCK):
            block = rows[start : start + BLOCK]
            self.prepare(block)
            yield from block

    def _near(self, row: int, neighbour: Neighbour) -> SimilarImage:
        own = self.sides[neighbour.set]
        return SimilarImage(
            set=neighbour.set,
            id=own.fingerprints.ids[neighbour.row].as_py(),
            label=label_of(own, neighbour.row),
            similarity=neighbour.similarity,
            check=self._checks[row, neighbour.set, neighbour.row],
        )

    def _check(self, couples: Iterable[tuple[int, Neighbour]]) -> None:
        """Verify couples of a row of the pool and a neighbour that were not verified before."""
        fresh: dict[str, list[tuple[int, Neighbour]]] = {}
        for row, near in dict.fromkeys(couples):
            if (row, near.set, near.row) not in self._checks:
                fresh.setdefault(near.set, []).append((row, near))
        if fresh:
            self._verify([self._pairs(name, each) for name, each in fresh.items()])

    def _pairs(self, name: str, couples: list[tuple[int, Neighbour]]) -> Pairs:
        query = np.array([row for row, _ in couples], np.int64)
        reference = np.array([near.row for _, near in couples], np.int64)
        backgrounds = (
            self.sides[self.pool].background[query] + self.sides[name].background[reference]
        )
        return Pairs(
            query_set=self.pool,
            reference_set=name,
            query=query,
            reference=reference,
            similarity=np.array([near.similarity for _, near in couples], np.float32),
            background=(backgrounds / 2).astype(np.float32),
            view=np.array([near.view for _, near in couples], np.int8),
            total=np.zeros(len(self.sides[self.pool].fingerprints), np.int64),
        )

    def _verify(self, found: list[Pairs]) -> None:
        with self.context() as context:
            graded = reference_similarities(
                found, self.sides, self.neighbours.encoder, self.views, context
            )
            evidence = verify(graded, self.sides, context)
        for pairs, own in zip(graded, evidence, strict=True):
            grades = grade(
                pairs.similarity,
                pairs.background,
                own,
                equal_bytes=equal_bytes(pairs, self.sides),
                flat=self.sides[self.pool].fingerprints.flat[pairs.query],
                grader=self.grader,
            )
            for i, (row, other) in enumerate(zip(pairs.query, pairs.reference, strict=True)):
                known = grades.grade[i] >= 0
                self._checks[int(row), pairs.reference_set, int(other)] = PairCheck(
                    grade=GRADES[grades.grade[i]] if known else None,
                    probability=float(grades.probability[i]) if known else None,
                    reason=grades.reason[i],
                )


def distance(similarity: float) -> float:
    """Return the Euclidean distance of unit vectors of a similarity, as ciFAIR writes it.

    >>> distance(0.5)
    1.0
    """
    return math.sqrt(max(0.0, 2.0 - 2.0 * similarity))


def label_of(own: EncodedSet, row: int) -> str | None:
    """Return the label of a row of a set's fingerprints, ``None`` for none."""
    if own.images.labels is None:
        return None
    label: str | None = own.images.labels[int(own.fingerprints.rows[row])].as_py()
    return label
