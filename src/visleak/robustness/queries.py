"""Changed images of a collection as an image set, its duplicates, and direct search in it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Final

import numpy as np
import pyarrow as pa

from visleak import pipeline
from visleak.encoders import load_encoder
from visleak.errors import VisleakError
from visleak.images import decode
from visleak.pipeline import RunContext
from visleak.pipeline.candidates import seen_vectors
from visleak.pipeline.encoded_set import EncodedSet, reasons_of, refuse_lost
from visleak.pipeline.fingerprints import fingerprint
from visleak.quantities import counted
from visleak.records import (
    GRADES,
    Bool,
    Bytes8,
    Encoder,
    Fingerprints,
    Float32,
    Grade,
    ImageSet,
    Int64,
    Opener,
    Unreadable,
)
from visleak.robustness.conditions import CONDITIONS, LONG_SIDE, Condition, bounded
from visleak.robustness.curves import LargestPairs, Roc, RocCounter, TopPairs, edges_for
from visleak.settings import Settings

NOT_APPLICABLE: Final = "the condition does not apply"
KEPT: Final = 64  # decoded images that are kept for collages


@dataclass(frozen=True)
class ChangedOpener:
    """Yields changed images: position ``q * len(conditions) + c`` is query q, condition c.

    It holds the names of conditions, because worker processes cannot unpickle their functions.
    """

    opener: Opener  # of the collection
    positions: tuple[int, ...]  # position of each query in the collection
    ids: tuple[str, ...]  # id of each query
    conditions: tuple[str, ...]  # names
    company: tuple[tuple[int, ...], ...]  # three other positions per query, for collages

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield changed images, see :class:`visleak.records.Opener`; each is decoded once."""
        count, other = len(self.conditions), lru_cache(KEPT)(self._pixels)
        for query, own in groupby(map(int, positions), lambda position: position // count):
            image = self._pixels(self.positions[query])
            for position in own:
                condition = CONDITIONS[self.conditions[position % count]]
                company = self.company[query] if condition.others else ()
                parts = [image, *map(other, company)]
                unreadable = [part for part in parts if isinstance(part, Unreadable)]
                if unreadable:
                    yield unreadable[0]
                    continue
                pixels, *others = [part for part in parts if not isinstance(part, Unreadable)]
                changed = condition.of(pixels, self.ids[query], others)
                yield Unreadable("unsupported", NOT_APPLICABLE) if changed is None else changed

    def _pixels(self, position: int) -> Bytes8 | Unreadable:
        data = next(iter(self.opener.read([position])))
        image = data if isinstance(data, Unreadable) else decode(data, enough=LONG_SIDE)
        return image if isinstance(image, Unreadable) else bounded(image.pixels)


@dataclass(frozen=True)
class ChangedSet:
    """The changed images of some queries."""

    images: ImageSet  # ids are `CONDITION/ID`
    conditions: tuple[Condition, ...]  # in the order of the positions
    queries: Int64  # (q,), ascending: positions of the queries in the collection
    names: tuple[str, ...]  # ids of the queries
    company: Int64  # (q, 3 or 0): positions of the others in each query's collage

    def parts(self, rows: Int64) -> tuple[Int64, Int64]:
        """Return the query (index into :attr:`queries`) and the condition of positions."""
        query, condition = np.divmod(rows, len(self.conditions))
        return query, condition


def draw(readable: Int64, count: int, seed: int) -> Int64:
    """Return ``count`` random positions, ascending; all for 0 or if there are no more."""
    if not 0 < count < len(readable):
        return readable
    chosen = np.random.default_rng(seed).choice(len(readable), count, replace=False)
    return readable[np.sort(chosen)]


def changed_set(
    images: ImageSet, readable: Int64, queries: Int64, conditions: tuple[Condition, ...]
) -> ChangedSet:
    """Return the set of all queries (ascending positions) under all conditions."""
    names = tuple(images.ids.take(pa.array(queries)).to_pylist())
    wanted = max(condition.others for condition in conditions)
    count = wanted if len(readable) > wanted else 0
    company = np.empty((len(queries), count), np.int64)
    for row, (place, name) in enumerate(zip(queries, names, strict=True)) if count else ():
        # seeded by the image's id, so that a collage does not depend on the other queries
        digest = hashlib.blake2b(name.encode("utf-8", "backslashreplace"), digest_size=16).digest()
        rng = np.random.default_rng(int.from_bytes(digest, "little"))
        company[row] = rng.choice(readable[readable != place], count, replace=False)
    ids = pa.array(
        [f"{condition.name}/{name}" for name in names for condition in conditions], pa.string()
    )
    opener = ChangedOpener(
        images.opener,
        tuple(queries.tolist()),
        names,
        tuple(condition.name for condition in conditions),
        tuple(map(tuple, company.tolist())),
    )
    # not a name that a user's set could have
    changed = ImageSet(f"{images.name} (changed)", ids, ids, opener)
    return ChangedSet(changed, conditions, queries, names, company)


@dataclass(frozen=True)
class Twins:
    """Pairs of one collection that an audit within it grades near or exact."""

    left: Int64  # (n,): positions in the collection, `left < right`
    right: Int64
    graded: bool  # pairs were verified; otherwise only images of equal bytes are listed

    def __len__(self) -> int:
        return len(self.left)

    def of(self, positions: Iterable[int]) -> set[int]:
        """Return some positions and their twins."""
        given = np.array([*positions], np.int64)
        twins = (self.right[np.isin(self.left, given)], self.left[np.isin(self.right, given)])
        return set(np.concatenate([given, *twins]).tolist())


@dataclass(frozen=True)
class Collection:
    """The readable images of a set, their fingerprints, and the pairs that show one image."""

    images: ImageSet
    prints: Fingerprints
    twins: Twins
    unreadable: int

    @classmethod
    def read(
        cls, images: ImageSet, encoder: Encoder, place: RunContext, *, verify: bool
    ) -> Collection:
        """Return the collection of a set; refuse one without a pair."""
        prints = fingerprint(images, encoder, place)
        problems = (*images.problems, *prints.problems)
        if len(prints) < 2:
            lost = f"; unreadable are {len(problems):,} {reasons_of(problems)}" if problems else ""
            raise VisleakError(
                f"set {images.name!r} has {counted(len(prints), 'readable image')}, and needs 2 or"
                f" more{lost}"
            )
        own = EncodedSet(images, prints).readable()
        twins = find_twins(own.images, own.fingerprints, place, verify=verify)
        return cls(own.images, own.fingerprints, twins, len(problems))


def find_twins(
    images: ImageSet, prints: Fingerprints, place: RunContext, *, verify: bool = True
) -> Twins:
    """Return the pairs within a collection that show the same image.

    They have equal bytes, or an ordinary audit with the built-in encoder grades them near or exact.
    Blank images are twins if that audit pairs them, because no encoder could separate them.
    """
    _, content = np.unique(prints.digests, axis=0, return_inverse=True)
    order = np.argsort(content.ravel(), kind="stable")
    found = [np.empty((0, 2), np.int64)]
    for part in np.split(prints.rows[order], np.flatnonzero(np.diff(content.ravel()[order])) + 1):
        if len(part) > 1:
            found.append(np.stack([part[side] for side in np.triu_indices(len(part), 1)], axis=1))
    if verify and len(prints) > 1:
        outcome = pipeline.run([images], [], load_encoder(), Settings(), place)
        compared, own = outcome.comparisons[0], outcome.sides[images.name].fingerprints
        refuse_lost(images.name, own.problems)
        if compared.grades is not None:
            left, right = compared.pairs.query, compared.pairs.reference
            near = compared.grades.grade <= GRADES.index(Grade.NEAR)
            same = near | (own.flat[left] & own.flat[right])
            found.append(np.stack([own.rows[left[same]], own.rows[right[same]]], axis=1))
    pairs = np.unique(np.sort(np.concatenate(found), axis=1), axis=0)
    return Twins(pairs[:, 0], pairs[:, 1], verify)


# -- direct search ---------------------------------------------------------------------------------

QUERY_BLOCK: Final = 256  # queries compared at a time; only bounds memory
REFERENCE_BLOCK: Final = 4096  # references compared at a time


@dataclass(frozen=True)
class DirectHits:
    """The result of direct search by one encoder."""

    query: Int64  # (n,): query of each changed image, an index into the queries
    condition: Int64  # (n,): its condition
    own: Float32  # (n,): similarity to its original
    best_wrong: Float32  # (n,): highest similarity to a wrong reference; -inf if none
    best_twin: Float32  # (n,): highest similarity to the original or a twin of it
    curves: tuple[Roc, ...]  # one ROC per condition
    others: Int64  # (n,): number of wrong references of each changed image
    left_out: int  # pairs that are neither true nor wrong: twins, and others in a collage
    largest: LargestPairs  # wrong pairs: rows of changed images, and positions in the collection

    @property
    def right(self) -> Bool:
        """Whether the original of each changed image, or a twin of it, ranks first."""
        return np.asarray(self.best_twin > self.best_wrong)


def search(
    encoder: Encoder,
    changed: ChangedSet,
    queries: Fingerprints,
    references: Fingerprints,
    twins: Twins,
    *,
    views: Sequence[int],
    thresholds: tuple[float, ...] = (),
    keep: int = 1000,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> DirectHits:
    """Compare all changed images with the whole collection (Ramos et al. 2025, section 6).

    All pairs are compared, without an index. A similarity is the highest over ``views``, as in an
    audit. False positives are counted exactly at ``thresholds`` and at multiples of 0.001; ``keep``
    of the largest wrong pairs are kept.
    """
    query, condition = changed.parts(queries.rows)
    collage = np.array([bool(each.others) for each in changed.conditions])[condition]
    place = np.searchsorted(references.rows, changed.queries[query])
    own = np.empty(len(queries), np.float32)
    for start in range(0, len(queries), QUERY_BLOCK):
        part = slice(start, start + QUERY_BLOCK)
        own[part] = _paired(encoder, queries.matrix[part], references.matrix[place[part]], views)
    edges = edges_for(own, thresholds)
    tallies, keeper = [RocCounter(edges) for _ in changed.conditions], TopPairs(keep)
    none = np.float32(-np.inf)
    best_wrong, best_twin = np.full(len(queries), none), own.copy()
    others, left_out = np.zeros(len(queries), np.int64), 0

    @lru_cache(2)  # changed images of one query are consecutive
    def shown(query: int, collage: bool) -> Int64:
        """Return the places of the references that a query shows, or its collage."""
        company = changed.company[query] if collage else ()
        found = twins.of([changed.queries[query], *company])
        return np.flatnonzero(np.isin(references.rows, list(found)))

    for start in range(0, len(queries), QUERY_BLOCK):
        rows = np.arange(start, min(start + QUERY_BLOCK, len(queries)))
        twin = [shown(int(query[row]), False) for row in rows]
        allowed = [shown(int(query[row]), bool(collage[row])) for row in rows]
        left_out += sum(map(len, allowed)) - len(rows)
        seen = [seen_vectors(encoder, queries.matrix[rows], view) for view in views]
        for first in range(0, len(references), REFERENCE_BLOCK):
            block = np.asarray(references.matrix[first : first + REFERENCE_BLOCK], np.float64)
            similarity = (seen[0] @ block.T).astype(np.float32)
            for view in seen[1:]:
                np.maximum(similarity, (view @ block.T).astype(np.float32), out=similarity)
            wrong = ~_among(allowed, first, len(block))
            others[rows] += wrong.sum(axis=1)
            near = _among(twin, first, len(block))
            for best, kind in ((best_wrong, wrong), (best_twin, near)):
                found = np.where(kind, similarity, none).max(axis=1)
                best[rows] = np.maximum(best[rows], found)
            for number in np.unique(condition[rows]):
                mine = condition[rows] == number
                tallies[number].add(similarity[mine][wrong[mine]])
            at, column = np.nonzero(wrong & (similarity >= keeper.floor))
            keeper.add(similarity[at, column], rows[at], references.rows[column + first])
        progress(int(rows[-1]) + 1, len(queries))
    curves = (tally.roc(own[condition == number]) for number, tally in enumerate(tallies))
    tops = (best_wrong, best_twin)
    return DirectHits(
        query, condition, own, *tops, tuple(curves), others, left_out, keeper.largest()
    )


def _among(places: Sequence[Int64], first: int, width: int) -> Bool:
    """Return whether each reference of a block is among the places of each row, (rows, width)."""
    row = np.repeat(np.arange(len(places)), [len(each) for each in places])
    column = np.concatenate(places) - first
    inside = (column >= 0) & (column < width)
    result = np.zeros((len(places), width), np.bool_)
    result[row[inside], column[inside]] = True
    return result


def _paired(encoder: Encoder, left: Float32, right: Float32, views: Sequence[int]) -> Float32:
    """Return the similarity of corresponding rows, (n,), as it is stored in an audit."""
    others = np.asarray(right, np.float64)
    best = np.max(
        [np.einsum("ij,ij->i", seen_vectors(encoder, left, view), others) for view in views], axis=0
    )
    return np.asarray(best, np.float32)
