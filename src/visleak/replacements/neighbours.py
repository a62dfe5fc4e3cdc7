"""The nearest neighbours of candidates among all that is in the audit or approved already."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from visleak.pipeline.candidates import Side
from visleak.records import Encoder, Float32, Int64
from visleak.search.exact import ExactSearch
from visleak.search.hits import Sides, Wanted
from visleak.search.rescore import rescore

#: Neighbours in each set that the machine compares, as many as an audit takes as candidates. The
#: paper's three miss a copy now and then that lies behind three pictures of the like.
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
        queries = np.asarray(self._pool.prints.matrix[fresh])
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
            sides = self._sides(self._pool.prints.matrix[[row]], self._pool)
            scored = rescore(sides, sides.query[:1], np.zeros(len(others), np.int64), others)
            near += self._nearest(
                Neighbour(self._pool.prints.set, int(other), float(similarity), int(view))
                for other, similarity, view in zip(
                    scored.reference, scored.similarity, scored.view, strict=True
                )
            )[:COMPARED]
        return self._nearest(near)

    def similarity(self, names: tuple[str, str], rows: tuple[int, int]) -> float:
        """Return the similarity of two images of the audit, the largest over the views."""
        query, reference = (self._existing[name] for name in names)
        sides = self._sides(query.prints.matrix[[rows[0]]], reference)
        places = np.zeros(1, np.int64), np.array([rows[1]], np.int64)
        return float(rescore(sides, sides.query[:1], *places).similarity[0])

    def _sides(self, query: Float32, reference: Side, penalty: Float32 | None = None) -> Sides:
        matrix = reference.prints.matrix
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
