"""Direct search: every changed image against every image of the collection.

Protocol of Ramos et al. 2025, section 6: no index, no candidates, all pairs. Where an encoder
makes views of its vectors, a similarity is the highest over them, as in an audit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from visleak.pipeline.candidates import seen_vectors
from visleak.records import Bool, Encoder, Fingerprints, Float32, Int64
from visleak.robustness.curves import Keeper, Largest, Roc, Tally, edges_for
from visleak.robustness.queries import Changed, Twins

#: Queries and references compared at a time; only bounds memory.
QUERY_BLOCK: Final = 256
REFERENCE_BLOCK: Final = 4096


@dataclass(frozen=True)
class Searched:
    """What direct search by one encoder found."""

    query: Int64  # (n,): query of each changed image, an index into the queries
    condition: Int64  # (n,): its condition
    own: Float32  # (n,): similarity to its original
    best_wrong: Float32  # (n,): the highest similarity to a wrong reference; -inf if none
    best_twin: Float32  # (n,): the highest to the original or a twin of it
    curves: tuple[Roc, ...]  # one ROC a condition
    others: Int64  # (n,): wrong references of each changed image
    left_out: int  # pairs that are neither true nor wrong: twins, and what a collage shows
    # the wrong pairs of highest similarity; its rows count changed images, and positions in the
    # collection
    largest: Largest

    @property
    def right(self) -> Bool:
        """Which changed images find their original, or a twin of it, before all others."""
        return np.asarray(self.best_twin > self.best_wrong)


def search(
    encoder: Encoder,
    changed: Changed,
    queries: Fingerprints,
    references: Fingerprints,
    twins: Twins,
    *,
    views: Sequence[int],
    thresholds: tuple[float, ...] = (),
    keep: int = 1000,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Searched:
    """Compare all changed images with the whole collection.

    False positives are counted exactly at ``thresholds`` and at multiples of 0.001; ``keep`` of the
    largest wrong pairs are kept.
    """
    query, condition = changed.parts(queries.rows)
    place = np.searchsorted(references.rows, changed.queries[query])
    own = np.empty(len(queries), np.float32)
    for start in range(0, len(queries), QUERY_BLOCK):
        part = slice(start, start + QUERY_BLOCK)
        own[part] = _paired(encoder, queries.matrix[part], references.matrix[place[part]], views)
    edges = edges_for(own, thresholds)
    counts = _Counts(
        changed,
        twins,
        references.rows,
        query,
        condition,
        place,
        tallies=[Tally(edges) for _ in changed.conditions],
        keeper=Keeper(keep),
        best=np.full((len(queries), 2), -np.inf, np.float32),
        others=np.zeros(len(queries), np.int64),
    )
    for start in range(0, len(queries), QUERY_BLOCK):
        rows = np.arange(start, min(start + QUERY_BLOCK, len(queries)))
        allowed = counts.allowed(rows)
        seen = [seen_vectors(encoder, queries.matrix[rows], view) for view in views]
        for first in range(0, len(references), REFERENCE_BLOCK):
            block = np.asarray(references.matrix[first : first + REFERENCE_BLOCK], np.float64)
            similarity = (seen[0] @ block.T).astype(np.float32)
            for view in seen[1:]:
                np.maximum(similarity, (view @ block.T).astype(np.float32), out=similarity)
            counts.add(similarity, allowed[:, first : first + len(block)], rows, first)
        progress(int(rows[-1]) + 1, len(queries))
    curves = (tally.roc(own[condition == number]) for number, tally in enumerate(counts.tallies))
    return Searched(
        query, condition, own, counts.best[:, 0], np.maximum(counts.best[:, 1], own),
        tuple(curves), counts.others, counts.left_out, counts.keeper.largest(),
    )  # fmt: skip


@dataclass
class _Counts:
    """What a search has counted so far."""

    changed: Changed
    twins: Twins
    rows: Int64
    query: Int64
    condition: Int64
    own_place: Int64
    tallies: list[Tally]
    keeper: Keeper
    best: Float32
    others: Int64
    left_out: int = 0

    def allowed(self, rows: Int64) -> Bool:
        """Return which references are not wrong for each changed image, (rows, references)."""
        # few images of a block are of one query: what it shows is found once
        result = np.zeros((len(rows), len(self.rows)), np.bool_)
        known: dict[tuple[int, bool], Int64] = {}
        for row, number in enumerate(rows):
            query = int(self.query[number])
            shows = bool(self.changed.conditions[int(self.condition[number])].others)
            if (query, shows) not in known:
                company = self.changed.company[query] if shows else ()
                found = self.twins.of([self.changed.queries[query], *company])
                known[query, shows] = np.flatnonzero(np.isin(self.rows, list(found)))
            result[row, known[query, shows]] = True
        return result

    def add(self, similarity: Float32, allowed: Bool, rows: Int64, start: int) -> None:
        """Add a block of similarities, (rows, references), to the counts."""
        self.others[rows] += (~allowed).sum(axis=1)
        wrong = np.where(allowed, np.float32(-np.inf), similarity)
        self.best[rows, 0] = np.maximum(self.best[rows, 0], wrong.max(axis=1))
        twin = self._twins_of(allowed, rows, start)
        best_twin = np.where(twin, similarity, np.float32(-np.inf)).max(axis=1)
        self.best[rows, 1] = np.maximum(self.best[rows, 1], best_twin)
        column = self.own_place[rows] - start
        inside = (column >= 0) & (column < similarity.shape[1])
        self.left_out += int(allowed.sum()) - int(inside.sum())
        for number in np.unique(self.condition[rows]):
            mine = self.condition[rows] == number
            self.tallies[number].add(similarity[mine][~allowed[mine]])
        at, column = np.nonzero(~allowed & (similarity >= self.keeper.floor))
        self.keeper.add(similarity[at, column], rows[at], self.rows[column + start])

    def _twins_of(self, allowed: Bool, rows: Int64, start: int) -> Bool:
        """Return what shows the query itself: not the others of a collage."""
        shows = np.array([bool(c.others) for c in self.changed.conditions])[self.condition[rows]]
        if not shows.any():
            return allowed
        result = allowed.copy()
        for row in np.flatnonzero(shows):
            owner = int(self.changed.queries[self.query[rows[row]]])
            columns = np.flatnonzero(allowed[row])
            mine = np.isin(self.rows[columns + start], list(self.twins.of([owner])))
            result[row, columns[~mine]] = False
        return result


def _paired(encoder: Encoder, left: Float32, right: Float32, views: Sequence[int]) -> Float32:
    """Return the similarity of rows of one number, (n,), as it is stored in an audit."""
    others = np.asarray(right, np.float64)
    best = np.max(
        [np.einsum("ij,ij->i", seen_vectors(encoder, left, view), others) for view in views], axis=0
    )
    return np.asarray(best, np.float32)
