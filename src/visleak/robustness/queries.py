"""Changed images of a collection as an image set, and pairs of it that show the same image."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, cast

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
from visleak.robustness.curves import Keeper, Largest, Roc, Tally, edges_for
from visleak.settings import Settings

NOT_APPLICABLE: Final = "the condition does not apply"  # told apart from what cannot be read

KEPT: Final = 64  # images of others that are kept decoded


@dataclass(frozen=True)
class ChangedOpener:
    """Yields changed images: position ``q * len(conditions) + c`` is query q, condition c.

    Conditions travel by name, so that worker processes can have the opener.
    """

    opener: Opener  # of the collection
    positions: tuple[int, ...]  # position of each query in the collection
    ids: tuple[str, ...]  # id of each query
    conditions: tuple[str, ...]  # names
    company: tuple[tuple[int, ...], ...]  # for each query three other positions, for collages

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield changed images, see :class:`visleak.records.Opener`; each is decoded once."""
        at, image = -1, cast("Bytes8 | Unreadable", Unreadable("missing"))
        other = lru_cache(KEPT)(self._pixels)
        for position in positions:
            query, number = divmod(int(position), len(self.conditions))
            if query != at:
                at, image = query, self._pixels(self.positions[query])
            condition = CONDITIONS[self.conditions[number]]
            others = [other(place) for place in self.company[query]] if condition.others else []
            lost = [each for each in (image, *others) if isinstance(each, Unreadable)]
            if lost or isinstance(image, Unreadable):
                yield lost[0]
                continue
            readable = [each for each in others if not isinstance(each, Unreadable)]
            changed = condition.of(image, self.ids[query], readable)
            yield Unreadable("unsupported", NOT_APPLICABLE) if changed is None else changed

    def _pixels(self, position: int) -> Bytes8 | Unreadable:
        """Return an image of the collection, bounded, or why there is none."""
        data = next(iter(self.opener.read([position])))
        image = data if isinstance(data, Unreadable) else decode(data, enough=LONG_SIDE)
        return image if isinstance(image, Unreadable) else bounded(image.pixels)


@dataclass(frozen=True)
class Changed:
    """The changed images of some queries."""

    images: ImageSet  # the set; ids are `CONDITION/ID`
    conditions: tuple[Condition, ...]  # in the order of the positions
    queries: Int64  # (q,), ascending: positions of the queries in the collection
    company: Int64  # (q, 3 or 0): positions of the others in each query's collage

    @property
    def names(self) -> tuple[str, ...]:
        """Ids of the queries."""
        opener: ChangedOpener = self.images.opener  # type: ignore[assignment]
        return opener.ids

    def parts(self, rows: Int64) -> tuple[Int64, Int64]:
        """Return the query (index into :attr:`queries`) and the condition of positions."""
        query, condition = np.divmod(rows, len(self.conditions))
        return query, condition


def drawn(readable: Int64, count: int, seed: int) -> Int64:
    """Return a random share of positions, ascending; all where ``count`` is 0 or enough."""
    if not 0 < count < len(readable):
        return readable
    chosen = np.random.default_rng(seed).choice(len(readable), count, replace=False)
    return readable[np.sort(chosen)]


def changed_set(
    images: ImageSet, readable: Int64, queries: Int64, conditions: tuple[Condition, ...]
) -> Changed:
    """Return the set of all queries (ascending positions) under all conditions."""
    names = [images.ids[int(place)].as_py() for place in queries]
    wanted = max(condition.others for condition in conditions)
    count = wanted if len(readable) > wanted else 0
    company = np.empty((len(queries), count), np.int64)
    for row, (place, name) in enumerate(zip(queries, names, strict=True)) if count else ():
        # the others in a collage depend on the image's id, whatever the other queries
        digest = hashlib.blake2b(name.encode("utf-8", "backslashreplace"), digest_size=16).digest()
        rng = np.random.default_rng(int.from_bytes(digest, "little"))
        company[row] = rng.choice(readable[readable != place], count, replace=False)
    ids = pa.array(
        [f"{condition.name}/{name}" for name in names for condition in conditions], pa.string()
    )
    opener = ChangedOpener(
        images.opener,
        tuple(map(int, queries)),
        tuple(names),
        tuple(condition.name for condition in conditions),
        tuple(tuple(map(int, row)) for row in company),
    )
    # not a name that a user's set could have
    changed = ImageSet(f"{images.name} (changed)", ids, ids, opener)
    return Changed(changed, conditions, queries, company)


@dataclass(frozen=True)
class Twins:
    """Pairs of one collection that an audit within it grades near or exact."""

    left: Int64  # (n,): positions in the collection, `left < right`
    right: Int64
    graded: bool  # pairs were verified; otherwise only equal bytes are known

    def __len__(self) -> int:
        return len(self.left)

    def of(self, positions: Iterable[int]) -> set[int]:
        """Return the twins of some positions, and these."""
        found = {int(place) for place in positions}
        wanted = np.array(sorted(found), np.int64)
        for one, other in ((self.left, self.right), (self.right, self.left)):
            found.update(map(int, other[np.isin(one, wanted)]))
        return found


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
        if len(prints) < 2:
            problems = (*images.problems, *prints.problems)
            lost = f"; unreadable are {len(problems):,} {reasons_of(problems)}" if problems else ""
            raise VisleakError(
                f"set {images.name!r} has {counted(len(prints), 'readable image')}, and needs 2 or"
                f" more{lost}"
            )
        unreadable = len(prints.problems) + len(images.problems)
        own = EncodedSet(images, prints).readable()
        twins = find_twins(own.images, own.fingerprints, place, verify=verify)
        return cls(own.images, own.fingerprints, twins, unreadable)


def find_twins(
    images: ImageSet, prints: Fingerprints, place: RunContext, *, verify: bool = True
) -> Twins:
    """Return the pairs within a collection that are one image twice.

    By the ordinary audit: built-in fingerprint, local features, verification, grade. Blank
    images count as twins where their colour agrees, because nothing could tell them apart.
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


# Direct search of every changed image among all of the collection, the protocol of Ramos et al.
# 2025, section 6: no index, no candidates, all pairs. Where an encoder makes views of its vectors,
# a similarity is the highest over them, as in an audit.

QUERY_BLOCK: Final = 256  # queries compared at a time; only bounds memory
REFERENCE_BLOCK: Final = 4096  # references compared at a time


@dataclass(frozen=True)
class Searched:
    """What direct search by one encoder found."""

    query: Int64  # (n,): query of each changed image, an index into the queries
    condition: Int64  # (n,): its condition
    own: Float32  # (n,): similarity to its original
    best_wrong: Float32  # (n,): the highest similarity to a wrong reference; -inf if none
    best_twin: Float32  # (n,): the highest to the original or a twin of it
    curves: tuple[Roc, ...]  # one ROC per condition
    others: Int64  # (n,): wrong references of each changed image
    left_out: int  # pairs that are neither true nor wrong: twins, and what a collage shows
    largest: Largest  # wrong pairs: rows of changed images, and positions in the collection

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
        result = allowed.copy() if shows.any() else allowed
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
