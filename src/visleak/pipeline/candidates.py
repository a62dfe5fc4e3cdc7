"""``find_pairs(query, reference) -> Pairs``: the pairs to verify.

These are every pair at or above the soft threshold, and the best twenty references of each query by
background-corrected similarity. Equal content is searched once; of two contents with many copies
every copy is paired with only a few others, so that all remain connected, and the totals count all.
Blank images are matched by digest and colour only, with one match each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from visleak.encoders import load_encoder
from visleak.groups import places_within, rank_within
from visleak.pipeline.context import RunContext, trim_heap
from visleak.pipeline.encoded_set import EncodedSet, ImagesLost, Side, ranks_of
from visleak.pipeline.fingerprints import fingerprint
from visleak.records import (
    Bool,
    Encoder,
    Fingerprints,
    Float32,
    Float64,
    Int8,
    Int64,
    Pairs,
    Unreadable,
)
from visleak.search.exact import ExactSearch
from visleak.search.hits import Hits, Rows, Scored, Search, Sides, Wanted
from visleak.vectors import forget, parts_of

BEST: Final = 20  # references per query by background-corrected similarity
COHORT_BEST: Final = 5  # cohort images whose mean similarity is the background
COPIES: Final = 1000  # number of pairs of copies of two contents up to which all are listed
SAME_COLOUR: Final = 0.995  # least cosine of two blank images of one colour
CHUNK: Final = 8192  # rows whose background is computed at a time; only bounds memory
PAIRS: Final = 4096  # pairs whose vectors are compared at a time; only bounds memory
#: The view that undoes a view: a quarter turn is undone by three, all others by themselves.
INVERSE_VIEW: Final = np.array([0, 3, 2, 1, 4, 5, 6, 7, 8], np.int8)
VIEWS_OF: Final = {"none": (0,), "mirror": (0, 4), "all": tuple(range(9))}


def views_for(encoder: Encoder, choice: str) -> tuple[int, ...]:
    """Return the compared views that the encoder can make."""
    return tuple(view for view in VIEWS_OF[choice] if view < max(1, encoder.views))


def side(
    encoded: EncodedSet, encoder: Encoder, views: tuple[int, ...], engine: Search, workers: int
) -> Side:
    """Return a set with its background similarities and the order of its ids."""
    fingerprints, cohort = encoded.fingerprints, encoder.cohort
    background = np.zeros(len(fingerprints), np.float32)
    if cohort is not None:
        wanted = Wanted(None, best=min(COHORT_BEST, len(cohort)))
        zeros, order = np.zeros(len(cohort), np.float32), np.arange(len(cohort))
        # one background per content
        first, content = np.unique(encoded.contents, return_index=True, return_inverse=True)[1:]
        by_row = np.argsort(first)
        for some in parts_of(len(first), CHUNK):
            part = by_row[some]
            rows = np.array(fingerprints.matrix[first[part]])
            sides = Sides(rows, cohort, zeros, order, views=views, make=encoder.view)
            hits = engine.find(sides, wanted, workers=workers)
            # hits of a query are adjacent, and all queries have the same number of them
            background[part] = hits.similarity.reshape(len(rows), -1).mean(axis=1)
            forget(fingerprints.matrix)
        background = background[content]
    order = ranks_of(fingerprints.ids)
    return Side(encoded.images, fingerprints, background, order, embeddings=encoded.embeddings)


def find_pairs(
    query: Side,
    reference: Side,
    encoder: Encoder,
    views: tuple[int, ...],
    wanted: Wanted,
    engine: Search,
    workers: int = 1,
) -> Pairs:
    """Return the candidate pairs of two sets, or within one set where both sides are the same.

    Sorted by the query's id, then by falling similarity, then by the reference's id. Within one
    set each unordered pair is listed once, with the lower id as the query, if it is among the most
    similar of either image.
    """
    same, count = query is reference, len(query.fingerprints)
    blank = Wanted(SAME_COLOUR, best=0, cap=1)
    found: list[tuple[Scored, Int64]] = []
    for flat, rule, compared in ((False, wanted, views), (True, blank, (0,))):
        left = Contents.of(query, query.fingerprints.flat == flat)
        right = left if same else Contents.of(reference, reference.fingerprints.flat == flat)
        sides = Sides(
            query=left.matrix,
            reference=right.matrix,
            penalty=right.background * np.float32(0.5 if rule.best > 1 else 0),
            order=right.order,
            weight=right.sizes(),
            same=same,
            views=compared,
            make=encoder.view if len(compared) > 1 else None,
        )
        # blank images are few and similar: an index of them saves nothing
        finder = ExactSearch() if flat else engine
        hits = finder.find(sides, rule, workers=workers)
        trim_heap()
        if not same:
            hits = _with_equal_bytes(hits, left, right, rule.threshold)
        if not flat:
            hits = _within_cap(hits, left, right, rule.cap)
        found.append(_expand(hits, left, right, count, rule.cap))
        del hits
        if same:
            found.append(_inside(left, count, rule.cap))
    total = np.sum([own for _, own in found], axis=0)
    first, *others = [part for part, _ in found if len(part.query)] or [found[0][0]]
    scored = first.plus(*others) if others else first
    del found, first, others
    if same:
        scored = _unordered(scored, query.order)
    scored = _capped(scored, query, reference, np.where(query.fingerprints.flat, 1, wanted.cap))
    return pairs_of(query, reference, scored, total)


def pairs_of(
    query: Side, reference: Side, found: Scored, total: Int64, votes: Float32 | None = None
) -> Pairs:
    """Return found rows as pairs, by the query's id, falling similarity, the reference's id."""
    keys = reference.order[found.reference], -found.similarity, query.order[found.query]
    order = np.lexsort(keys)
    del keys
    found = found.only(order)
    background = (query.background[found.query] + reference.background[found.reference]) / 2
    return Pairs(
        query.name,
        reference.name,
        found.query,
        found.reference,
        found.similarity,
        background.astype(np.float32),
        found.view,
        total,
        None if votes is None else votes[order],
    )


def seen_vectors(encoder: Encoder, vectors: Float32, view: int) -> Float64:
    """Return the vectors of a view, ``float64``, from which similarities are computed."""
    made = vectors if view == 0 else encoder.view(vectors, view)
    return np.asarray(made, np.float64)


def similarities(
    sides: tuple[Fingerprints, Fingerprints],
    left: Int64,
    right: Int64,
    encoder: Encoder,
    views: Sequence[int],
) -> tuple[Float32, Int8]:
    """Return the highest similarity of some pairs over the views, and the view it is of."""
    found = np.empty((len(views), len(left)), np.float32)
    # in the order of the larger matrix: scattered rows would map all of it into memory
    larger = right if len(sides[1]) >= len(sides[0]) else left
    order = np.argsort(larger, kind="stable")
    for part in parts_of(len(order), PAIRS):
        pairs = order[part]
        query = sides[0].matrix[left[pairs]]
        reference = sides[1].matrix[right[pairs]].astype(np.float64)
        for row, view in enumerate(views):
            seen = seen_vectors(encoder, query, view)
            found[row, pairs] = np.einsum("ij,ij->i", seen, reference)
        for each in sides:
            forget(each.matrix)
    best = found.argmax(axis=0)
    return found[best, np.arange(len(left))], np.array(views, np.int8)[best]


def with_added(
    pairs: Pairs, sides: tuple[Side, Side], added: Scored, votes: Float32 | None = None
) -> Pairs:
    """Return pairs with others added; ``votes`` of these are needed where the others have any."""
    own = Scored(pairs.query, pairs.reference, pairs.similarity, pairs.view)
    both = None if pairs.votes is None or votes is None else np.concatenate([pairs.votes, votes])
    return pairs_of(*sides, own.plus(added), pairs.total, both)


@dataclass(frozen=True, slots=True)
class Contents:
    """The distinct contents among some rows of a side."""

    keys: npt.NDArray[np.void]  # (k,): the contents, 16 bytes each, in the order of first rows
    matrix: Rows  # their vectors, read from the side's matrix on use
    background: Float32  # (k,): of the member with the lowest id
    order: Int64  # (k,): of the same
    members: Int64  # rows of the side, grouped by content
    edges: Int64  # int64 (k + 1,): where each content's members begin and end

    @classmethod
    def of(cls, side: Side, mask: Bool) -> Contents:
        """Return the contents of the rows of a side that a mask selects."""
        rows = np.flatnonzero(mask)
        contents = side.contents[rows]
        distinct, first, group = np.unique(contents, return_index=True, return_inverse=True)
        # numbered by first row instead of by digest, so that vectors are read in storage order
        by_row = np.argsort(first)
        number = np.empty(len(distinct), np.int64)
        number[by_row] = np.arange(len(distinct))
        group = number[group]
        members = rows[np.lexsort((side.order[rows], group))]
        edges = np.concatenate([[0], np.cumsum(np.bincount(group, minlength=len(distinct)))])
        lead = members[edges[:-1]]
        return cls(
            keys=distinct[by_row],
            matrix=Rows(side.fingerprints.matrix, rows[first[by_row]]),
            background=side.background[lead],
            order=side.order[lead],
            members=members,
            edges=edges.astype(np.int64),
        )

    @property
    def alone(self) -> bool:
        """Whether no content has a copy."""
        return len(self.members) == len(self.keys)

    @property
    def leads(self) -> Int64:
        """The row of the lowest id of each content."""
        return self.members[self.edges[:-1]]

    def sizes(self) -> Int64:
        """Return the number of rows of each content."""
        return np.diff(self.edges)


def _unordered(found: Scored, order: Int64) -> Scored:
    """Return each pair of one set once, the lower id as the query.

    Works in place where it can: of large sets each column takes a tenth of the memory there is.
    """
    query, reference, view = found.query.copy(), found.reference.copy(), found.view.copy()
    backwards = np.flatnonzero(order[query] > order[reference])
    query[backwards], reference[backwards] = reference[backwards], query[backwards]
    view[backwards] = INVERSE_VIEW[view[backwards]]
    # of a pair found from both sides the one found from the lower id is kept
    code = query * (2 * len(order))
    code += 2 * reference
    code[backwards] += 1
    rank = np.argsort(code)
    code = code[rank]
    code //= 2
    rank = rank[np.diff(code, prepend=-1) != 0]
    del code, backwards
    return Scored(query, reference, found.similarity, view).only(rank)


def _capped(found: Scored, query: Side, reference: Side, cap: Int64) -> Scored:
    """Return the ``cap`` most similar pairs of each query, within a set of each image.

    Among the matches of a blank image those with equal bytes come first.
    """
    ends = [(found.query, reference.order, found.reference)]
    if query is reference:
        ends.append((found.reference, query.order, found.query))
    kept = np.zeros(len(found.query), np.bool_)
    for image, order, other in ends:
        more = np.bincount(image, minlength=len(cap)) > cap
        kept |= ~more[image]
        rows = np.flatnonzero(more[image])
        differ = query.fingerprints.flat[found.query[rows]]
        blank = rows[differ]
        left = query.fingerprints.digests[found.query[blank]]
        right = reference.fingerprints.digests[found.reference[blank]]
        differ[differ] = (left != right).any(axis=1)
        keys = order[other[rows]], -found.similarity[rows], differ
        kept[rows] |= rank_within(image[rows], *keys) < cap[image[rows]]
    return found if kept.all() else found.only(np.flatnonzero(kept))


def _with_equal_bytes(hits: Hits, left: Contents, right: Contents, threshold: float | None) -> Hits:
    """Add the pairs of equal contents that a search by similarity missed, and count them all.

    These are few: vectors that are all zero, or any where the threshold is 1.
    """
    _, query, reference = np.intersect1d(
        left.keys, right.keys, assume_unique=True, return_indices=True
    )
    alone = _self_similarity(left.matrix, query)
    uncounted = alone < np.float32(np.inf if threshold is None else threshold)
    more = np.zeros(len(left.keys), np.int64)
    more[query[uncounted]] = right.sizes()[reference[uncounted]]
    known = hits.query * len(right.keys) + hits.reference
    missed = ~np.isin(query * len(right.keys) + reference, known)
    equal = Scored(query, reference, alone, np.zeros(len(query), np.int8)).only(missed)
    return Hits(*hits.scored.plus(equal), hits.total + more)


def _self_similarity(matrix: Rows, index: Int64) -> Float32:
    similarity = np.empty(len(index), np.float32)
    for part in parts_of(len(index), CHUNK):
        exact = matrix[index[part]].astype(np.float64)
        similarity[part] = np.einsum("ij,ij->i", exact, exact)
    return similarity


def _copies(hits: Hits, left: Contents, right: Contents) -> tuple[Int64, Int64, Int64]:
    """Return the copies of the query and of the reference of hits, and the pairs per query copy.

    These are enough that all copies have a pair.
    """
    if left.alone and right.alone:
        one = np.ones(len(hits.query), np.int64)
        return one, one, one
    wide, tall = left.sizes()[hits.query], right.sizes()[hits.reference]
    return wide, tall, np.minimum(tall, np.maximum(COPIES // wide, -(-tall // wide)))


def _within_cap(hits: Hits, left: Contents, right: Contents, cap: int) -> Hits:
    """Return the hits of each query up to its cap, the most similar ones."""
    copies = _copies(hits, left, right)[2]
    if (np.bincount(hits.query, copies) <= cap).all():
        return hits
    order = np.lexsort((-hits.similarity, hits.query))
    query, similarity = hits.query[order], hits.similarity[order]
    before = np.concatenate([[0], np.cumsum(copies[order])])
    # all hits of equal similarity are kept: ties are decided by the ids of the copies
    new = (np.diff(query, prepend=-1) != 0) | (np.diff(similarity, prepend=np.nan) != 0)
    tie = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    kept = np.sort(order[before[tie] - before[np.searchsorted(query, query)] < cap])
    return Hits(*hits.scored.only(kept), hits.total)


def _expand(
    hits: Hits, left: Contents, right: Contents, queries: int, cap: int
) -> tuple[Scored, Int64]:
    """Return the pairs of rows behind pairs of contents.

    If a copy of the query is not paired with all copies of the reference, the next copy is paired
    with the next ones.
    """
    total = np.zeros(queries, np.int64)
    total[left.members] = np.repeat(hits.total, left.sizes())
    if left.alone and right.alone:
        ends = left.members[hits.query], right.members[hits.reference]
        return Scored(*ends, hits.similarity, hits.view), total
    wide, tall, each = _copies(hits, left, right)
    shift = np.where(each < tall, each, 0)
    each = np.minimum(each, cap)
    hit, place = places_within(wide * each)
    across, down = np.divmod(place, each[hit])
    down = (down + across * shift[hit]) % tall[hit]
    query = left.members[left.edges[hits.query[hit]] + across]
    reference = right.members[right.edges[hits.reference[hit]] + down]
    return Scored(query, reference, hits.similarity[hit], hits.view[hit]), total


def _inside(contents: Contents, queries: int, cap: int) -> tuple[Scored, Int64]:
    """Return the pairs of rows of one set that have equal bytes.

    Each is paired with as many that follow it as :data:`COPIES` and ``cap`` allow, at least one.
    """
    sizes = contents.sizes()
    own, place = places_within(sizes)
    most = np.clip(COPIES // np.maximum(sizes, 1), 1, cap)
    later = np.minimum(sizes[own] - place - 1, most[own])
    row, step = places_within(later)
    content = own[row]
    repeated = np.flatnonzero(sizes > 1)
    similarity = np.zeros(len(sizes), np.float32)
    similarity[repeated] = _self_similarity(contents.matrix, repeated)
    total = np.zeros(queries, np.int64)
    total[contents.members] = np.repeat(sizes - 1, sizes)
    ends = contents.members[row], contents.members[row + step + 1]
    return Scored(*ends, similarity[content], np.zeros(len(row), np.int8)), total


# -- similarity by the built-in fingerprint -------------------------------------------------------


def reference_similarities(
    found: Sequence[Pairs],
    sets: Mapping[str, EncodedSet],
    encoder: Encoder,
    choice: str,
    context: RunContext,
) -> list[Pairs]:
    """Return pairs with similarity, background and view by the built-in fingerprint."""
    builtin = load_encoder("builtin")
    if encoder.digest == builtin.digest:
        return list(found)
    views = views_for(builtin, choice)
    rows: dict[str, list[Int64]] = {}
    for pairs in found:
        rows.setdefault(pairs.query_set, []).append(pairs.query)
        rows.setdefault(pairs.reference_set, []).append(pairs.reference)
    used = {name: np.unique(np.concatenate(parts)) for name, parts in rows.items()}
    sides = {name: _encoded(sets[name], own, builtin, views, context) for name, own in used.items()}
    measured = []
    for pairs in found:
        query, reference = sides[pairs.query_set], sides[pairs.reference_set]
        left = np.searchsorted(used[pairs.query_set], pairs.query)
        right = np.searchsorted(used[pairs.reference_set], pairs.reference)
        both = query.fingerprints, reference.fingerprints
        similarity, view = similarities(both, left, right, builtin, views)
        background = ((query.background[left] + reference.background[right]) / 2).astype(np.float32)
        measured.append(replace(pairs, similarity=similarity, background=background, view=view))
    return measured


def _encoded(
    whole: EncodedSet, rows: Int64, builtin: Encoder, views: tuple[int, ...], context: RunContext
) -> Side:
    positions = whole.fingerprints.rows[rows]
    images = replace(whole.images, opener=whole.opener)
    fingerprints = fingerprint(images, builtin, context, positions)
    if fingerprints.problems:
        gone = positions[~np.isin(positions, fingerprints.rows)].tolist()
        why = [Unreadable(problem.reason, problem.detail) for problem in fingerprints.problems]
        raise ImagesLost(images.name, list(zip(gone, why, strict=True)))
    encoded = EncodedSet(images, fingerprints)
    return side(encoded, builtin, views, ExactSearch(), context.workers)
