"""Which candidates are verified: the best of each image first, more while a round finds any.

In a set of one subject (X-rays, the frames of a fixed camera) nearly all pairs are candidates. So
those of an image are ranked by cheap measurements and checked in rounds; those of a round are
ranked by their checks and compared in fine detail, which takes most of the time, in steps. An image
whose step found no near or exact pair is finished. Pairs of images that near or exact pairs already
connect are skipped: neither the number of leaking images nor a duplicate group depends on them.

In a dense cluster of similar images even the screen would cost work per pair. Its pairs are
verified first, along a spanning forest (Boruvka 1926): in each step every group of connected images
verifies the most similar pair that leads to another group, n - 1 pairs for n copies. Only a few
representatives of a large group have local features.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from visleak.groups import components, places, rank_within
from visleak.quantities import counted
from visleak.records import Bool, Float32, Int8, Int32, Int64, Pairs
from visleak.storage.audit_folder import VerificationSummary

#: Candidates of a query in each round, against another set. A query compared with a training set
#: and with its own set has at most 60 pairs verified.
ACROSS: Final = (6, 14, 20)
#: The same within a set, where a pair is a candidate of both of its images.
WITHIN: Final = (4, 6, 10)
#: Candidates of an image that are compared in fine detail in each step of a round: those whose
#: checks agree best, that of the best rank (smooth images hardly agree), and that with most votes
#: (which distinguish images of the same strong edges).
STEP: Final = (2, 1, 1)
NONE: Final = np.empty(0, np.int64)  # no pairs
#: Why a candidate was not verified, as in :attr:`visleak.records.Evidence.skipped`.
VERIFIED, STOPPED, LIMITED, CONNECTED = range(4)
#: Pairs above the soft threshold from which an image is in a dense cluster: more than the best 20.
DENSE: Final = 30
#: Connected images from which a group has representatives, and how many of each side.
LARGE: Final = 16
REPRESENTATIVES: Final = 4
CHUNK: Final = 262_144  # candidates whose order is found at a time; only bounds memory


def sizes_for(pairs: Pairs) -> tuple[int, ...]:
    """Return how many candidates of an image each round verifies."""
    return WITHIN if pairs.query_set == pairs.reference_set else ACROSS


def most_for(pairs: Pairs) -> int | None:
    """Return how many pairs of a query are verified at most; ``None`` within a set."""
    return None if pairs.query_set == pairs.reference_set else sum(ACROSS)


# -- dense clusters ------------------------------------------------------------------------------


def dense(pairs: Pairs) -> Int64:
    """Return the positions of the pairs of images in dense clusters."""
    many = pairs.total >= DENSE
    chosen = many[pairs.query]
    if pairs.query_set == pairs.reference_set:
        chosen = chosen & many[pairs.reference]
    return np.flatnonzero(chosen)


class SpanningForest:
    """The spanning forest of some candidate pairs, found step by step.

    A group stops once the pair that it proposes is not near: its other pairs are less similar.
    """

    def __init__(
        self, ends: Sequence[npt.NDArray[np.generic]], similarity: Float32, most: int | None = None
    ) -> None:
        contents, number = np.unique(np.concatenate(ends), return_inverse=True)
        self._left, self._right = number.reshape(2, -1)
        self._order = np.argsort(-similarity, kind="stable")
        self._rank = np.empty(len(similarity), np.int64)
        self._rank[self._order] = np.arange(len(similarity))
        self._stopped: Bool = np.zeros(len(contents), np.bool_)
        self._free: Int64 = np.full(len(contents), len(similarity) if most is None else most)
        # pairs that are near or exact, and those that were verified
        self.near, self.tried = np.zeros((2, len(similarity)), np.bool_)
        self._group, self._best, self._due = self._next()

    def due(self) -> Int64:
        """Return the positions of the pairs to verify in this step; none after the last."""
        return self._due

    def proceed(self, near: Bool) -> None:
        """Proceed to the next step."""
        self.tried[self._due], self.near[self._due] = True, near
        failed = np.zeros(len(self._rank) + 1, np.bool_)
        failed[self._rank[self._due[~near]]] = True
        self._stopped |= failed[self._best[self._group]]
        self._group, self._best, self._due = self._next()

    def _next(self) -> tuple[Int64, Int64, Int64]:
        """Return the group of each image, the rank of the pair that each proposes, and the pairs.

        A pair leads to another group, and begins at an image whose group did not stop. A group
        without such a pair proposes none: rank n.
        """
        count = len(self._rank)
        group = components(len(self._stopped), [(self._left[self.near], self._right[self.near])])
        open_ = (group[self._left] != group[self._right]) & ~self.tried
        open_ &= self._free[self._left] > 0
        best = np.full(len(self._stopped), count, np.int64)
        for ends in (self._left, self._right):
            offered = open_ & ~self._stopped[ends]
            np.minimum.at(best, group[ends[offered]], self._rank[offered])
        due = self._order[np.unique(best[best < count])]
        due = due[rank_within(self._left[due]) < self._free[self._left[due]]]
        np.subtract.at(self._free, self._left[due], 1)
        return group, best, np.sort(due)


@dataclass(frozen=True, slots=True)
class Clusters:
    """The verified pairs of the dense clusters of one comparison, and the groups they form."""

    keys: npt.NDArray[np.void]  # content digests and view of each pair, ascending, 33 bytes
    table: Float32  # float32 (n, columns): their evidence
    near: Bool  # which are near or exact
    # digests of the contents that near pairs connect, ascending, 16 bytes
    contents: npt.NDArray[np.void]
    group: Int64  # int64 (k,): number of the group of each

    @classmethod
    def of(cls, keys: npt.NDArray[np.void], table: Float32, near: Bool) -> Clusters:
        """Return verified pairs with their groups."""
        order = np.argsort(keys)
        keys, near = keys[order], near[order]
        digests = np.ascontiguousarray(keys[near]).view(np.uint8).reshape(-1, 33)[:, :32]
        ends = np.ascontiguousarray(digests).view("V16").ravel()
        contents, number = np.unique(ends, return_inverse=True)
        left, right = number.reshape(-1, 2).T
        return cls(keys, table[order], near, contents, components(len(contents), [(left, right)]))

    def find(self, keys: npt.NDArray[np.void]) -> tuple[Int64, Bool]:
        """Return the positions of pairs among those verified, and which were, by their keys."""
        return find(self.keys, keys)

    def is_representative(self, contents: npt.NDArray[np.void]) -> Bool:
        """Return which images of a side are in no large group, or are representatives of one.

        Representatives are the contents of the lowest digests: a random sample, and the same one
        for every order of the images.
        """
        group = self.group_of(contents)
        large = (group >= 0) & (np.bincount(self.group, minlength=1)[group] >= LARGE)
        distinct = np.unique(contents[large])
        first = rank_within(self.group_of(distinct)) < REPRESENTATIVES
        return ~large | np.isin(contents, distinct[first])

    def group_of(self, contents: npt.NDArray[np.void]) -> Int64:
        """Return the group of contents (n,), -1 for those without a near pair."""
        at, there = find(self.contents, contents)
        return np.where(there, self.group[at], -1) if len(self.group) else at - 1


def find(known: npt.NDArray[np.generic], wanted: npt.NDArray[np.generic]) -> tuple[Int64, Bool]:
    """Return the positions of values among known ones, which ascend, and which are known."""
    if not len(known):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
    at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return at, np.asarray(known[at] == wanted)


# -- rounds --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidate pairs of one comparison; positions and numbers are below 2**31."""

    pair: Int64  # int64 (n,): number of each pair, ascending
    query: Int32  # int32 (n,): number of the content of either image
    reference: Int32
    score: Float32  # float32 (n,): corrected similarity and score of the screen, higher is better
    votes: Float32  # float32 (n,): local features in agreement; 0 where there are none
    within: bool  # the two sides are one set, so that a pair is a candidate of both of its images

    @property
    def ends(self) -> list[Int32]:
        """The images that each pair is a candidate of."""
        return [self.query, self.reference] if self.within else [self.query]

    def ranked(self) -> tuple[Int64, Int32]:
        """Return where the candidates of each image begin, and their positions, best first.

        The best by score and the best by votes alternate: a crop has votes and a low score, an
        image without texture has a score and no votes. Ties go to the lower pair.
        """
        counts = np.zeros(self._images, np.int64)
        for end in self.ends:
            counts += np.bincount(end, minlength=len(counts))
        edges = np.concatenate([[0], np.cumsum(counts)])
        ranked = np.empty(edges[-1], np.int32)
        for first, last in parts_of_images(edges):
            ranked[edges[first] : edges[last]] = self._ranked(first, last)
        return edges, ranked

    def _ranked(self, first: int, last: int) -> Int32:
        """Return the positions of the candidates of the images in a range of numbers."""
        places = [np.flatnonzero((end >= first) & (end < last)) for end in self.ends]
        image = np.concatenate([end[rows] for end, rows in zip(self.ends, places, strict=True)])
        position = np.concatenate(places)
        score, votes = self.score[position], self.votes[position]
        by_score = rank_within(image, position, -score)
        by_votes = rank_within(image, position, -votes)
        turn = np.where(votes > 0, np.minimum(2 * by_score, 2 * by_votes + 1), 2 * by_score)
        return position[np.lexsort((position, turn, image))].astype(np.int32)

    def connected(self, found: Bool) -> Bool:
        """Return the pairs whose two images are connected by the pairs found."""
        ends = [np.asarray(end[found], np.int64) for end in (self.query, self.reference)]
        group = components(self._images, [(ends[0], ends[1])]).astype(np.int32)
        return np.asarray(group[self.query] == group[self.reference])

    @property
    def _images(self) -> int:
        return int(max(self.query.max(initial=-1), self.reference.max(initial=-1))) + 1


def parts_of_images(edges: Int64) -> Iterator[tuple[int, int]]:
    """Yield ranges of images that have about :data:`CHUNK` candidates; these begin at the edges."""
    cuts = np.searchsorted(edges, np.arange(CHUNK, edges[-1], CHUNK))
    yield from itertools.pairwise(np.unique([0, *cuts, len(edges) - 1]).tolist())


class Steps:
    """The steps of one round: its best pairs first, more of an image while a step finds any."""

    def __init__(
        self, ends: Sequence[Int32], agreement: Float32, score: Float32, votes: Float32
    ) -> None:
        """Begin with the first step.

        Args:
            ends: the images that each pair (n,) is a candidate of.
            agreement: in the check, NaN for pairs that need no fine comparison; the first step has
                all of these.
            score, votes: see :class:`Candidates`.
        """
        self._ends = ends
        open_ = ~np.isnan(agreement)
        nothing = np.float32(np.nan)
        self._scores = [
            agreement,
            np.where(open_, score, nothing),
            np.where(open_ & (votes > 0), votes, nothing),
        ]
        # pairs that were compared, and those that are near or exact
        self.done, self.near = np.zeros((2, len(agreement)), np.bool_)
        #: Images whose last step found any.
        self.unfinished: npt.NDArray[np.generic] = np.unique(np.concatenate(ends))
        self._due = np.isnan(agreement) | self._best()

    def due(self) -> Bool:
        """Return which pairs to compare in this step; none after the last."""
        return self._due

    def proceed(self, near: Bool) -> None:
        """Proceed to the next step; ``near``: which of the pairs that are due are near or exact."""
        self.near[self._due] = near
        self.done |= self._due
        tried, found = (
            np.concatenate([end[mask] for end in self._ends])
            for mask in (self._due, self._due & self.near)
        )
        self.unfinished = np.setdiff1d(self.unfinished, np.setdiff1d(tried, found))
        self._due = self._best()

    def _best(self) -> Bool:
        best = np.zeros(len(self.done), np.bool_)
        for score, most in zip(self._scores, STEP, strict=True):
            rows = np.flatnonzero(~self.done & ~np.isnan(score))
            for end in self._ends:
                own = rows[np.isin(end[rows], self.unfinished)]
                best[own[rank_within(end[own], -score[own]) < most]] = True
        return best


class Rounds:
    """The rounds of one comparison."""

    def __init__(
        self,
        candidates: Candidates,
        sizes: tuple[int, ...],
        tried: Int64 = NONE,
        near: Int64 = NONE,
    ) -> None:
        self._edges, self._position = candidates.ranked()
        # the order is known, so scores are not needed any more
        nothing = np.empty(0, np.float32)
        self._candidates = replace(candidates, score=nothing, votes=nothing)
        self._active: Bool = np.ones(len(self._edges) - 1, np.bool_)
        # pairs of images that were not finished when they had no more to verify
        self._limited: Bool = np.zeros(len(candidates.pair), np.bool_)
        self._near: Bool = np.isin(candidates.pair, near)
        self._state: Int8 = np.full(len(candidates.pair), STOPPED, np.int8)
        self._state[candidates.connected(self._near)] = CONNECTED
        verified = np.isin(candidates.pair, tried)
        self._state[verified] = VERIFIED
        self._left = np.full(len(self._active), sum(sizes))
        if not candidates.within:
            np.subtract.at(self._left, candidates.query[verified], 1)
        self._sizes = list(sizes)
        self._due = self._next(verified & ~self._near)

    def due(self) -> Int64:
        """Return the pairs to verify in the current round, ascending; none after the last."""
        return self._candidates.pair[self._due]

    def steps(self, agreement: Float32, score: Float32, votes: Float32) -> Steps:
        """Return the steps of the current round; see :class:`Steps`."""
        return Steps([end[self._due] for end in self._candidates.ends], agreement, score, votes)

    def proceed(self, steps: Steps) -> None:
        """Proceed to the next round after the last step."""
        self._state[self._due[steps.done]], self._near[self._due] = VERIFIED, steps.near
        connected = self._candidates.connected(self._near)
        self._state[connected & (self._state == STOPPED)] = CONNECTED
        self._active[:] = False
        self._active[steps.unfinished] = True
        self._due = self._next()

    def skipped(self, pairs: int) -> Int8:
        """Return of all pairs, ``int8`` (pairs,), which were not verified and why."""
        state = self._state.copy()
        state[self._limited & (state == STOPPED)] = LIMITED
        result = np.full(pairs, VERIFIED, np.int8)
        result[self._candidates.pair] = state
        return result

    def _next(self, before: Bool | None = None) -> Int64:
        """Return the candidates due, and count them as verified."""
        size = self._sizes.pop(0) if self._sizes else 0
        open_ = self._state == STOPPED
        taking_part = open_ if before is None else open_ | before
        found = [NONE]
        for first, last in parts_of_images(self._edges):
            position = self._position[self._edges[first] : self._edges[last]]
            images = np.repeat(np.arange(first, last), np.diff(self._edges[first : last + 1]))
            kept = self._active[images] & taking_part[position]
            position, images = position[kept], images[kept]
            left = self._left[images]
            # an image that is not finished and has no more to verify
            self._limited[position[(left <= 0) | (size == 0)]] = True
            due = (places(images) < np.minimum(size, left)) & open_[position]
            np.subtract.at(self._left, images[due], 1)
            found.append(np.asarray(position[due], np.int64))
        return np.unique(np.concatenate(found))


def count_skipped(states: Iterable[Int8 | None]) -> tuple[VerificationSummary, list[str]]:
    """Return the candidates that were not verified: for ``audit.json``, and in words."""
    known = [state for state in states if state is not None]
    codes = (STOPPED, LIMITED, CONNECTED)
    stopped, limited, connected = (sum(int((s == code).sum()) for s in known) for code in codes)
    lines = []
    if stopped:
        lines.append(
            f"pairs: {counted(stopped, 'candidate', 'has', 'have')} no grade: not verified, because"
            " those that agree best of the candidates of the image are not near"
            f" ({ACROSS[0]} of a query are checked, {WITHIN[0]} of an image within its set)"
        )
    if limited:
        lines.append(
            f"pairs: {counted(limited, 'candidate')} of images with many near or exact pairs"
            f" without a grade: not verified, because at most {sum(ACROSS)} of a query are"
            f" ({sum(WITHIN)} of an image within its set); more of them may be near or exact"
        )
    if connected:
        lines.append(
            f"pairs: {counted(connected, 'candidate', 'has', 'have')} no grade: not verified,"
            " because near or exact pairs connect the two images; the images of groups are all"
            " counted, their pairs are more than those graded"
        )
    rounds = {"across": ACROSS, "within": WITHIN}
    return VerificationSummary(rounds, stopped, limited, connected), lines
