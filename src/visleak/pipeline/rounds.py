"""Which candidates are verified: the best of each image first, more while a round finds any.

Verification costs a thousand times what the screen does, and in a set of one subject (X-rays, the
frames of a fixed camera) nearly all pairs are candidates. So the candidates of an image are ranked
by what is cheap to measure, and verified in rounds. An image whose round turned up no near or exact
pair is finished; the others proceed to their next round, up to a limit. From the second round on a
pair is left out where near or exact pairs already connect its two images: neither the number of
leaking images nor a duplicate group depends on it. The work is therefore proportional to the number
of images.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from visleak.groups import components, rank_within
from visleak.records import Bool, Float32, Int8, Int64, Pairs
from visleak.storage.summary import VerificationSummary

#: Candidates of a query in each round, against another set. A query compared with a training set
#: and with its own set has at most 60 pairs verified.
ACROSS: Final = (8, 12, 20)

#: The same within a set, where a pair is a candidate of both of its images.
WITHIN: Final = (4, 6, 10)

#: No pairs.
NONE: Final = np.empty(0, np.int64)

#: Why a candidate was not verified, as in :attr:`visleak.records.Evidence.skipped`.
VERIFIED, STOPPED, LIMITED, CONNECTED = range(4)


def sizes_for(pairs: Pairs) -> tuple[int, ...]:
    """Return how many candidates of an image each round verifies."""
    return WITHIN if pairs.query_set == pairs.reference_set else ACROSS


def most_for(pairs: Pairs) -> int | None:
    """Return how many pairs of a query are verified at most; ``None`` within a set."""
    return None if pairs.query_set == pairs.reference_set else sum(ACROSS)


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidate pairs of one comparison.

    Attributes:
        pair: ``int64`` (n,): number of each pair, ascending.
        query, reference: ``int64`` (n,): number of the content of either image.
        score: ``float32`` (n,): corrected similarity and score of the screen, higher is better.
        votes: ``float32`` (n,): local features in agreement; 0 where there are none.
        within: the two sides are one set, so that a pair is a candidate of both of its images.
    """

    pair: Int64
    query: Int64
    reference: Int64
    score: Float32
    votes: Float32
    within: bool

    def entries(self) -> tuple[Int64, Int64, Int64]:
        """Return positions of candidates, the image each is a candidate of, and its rank there.

        The best by score and the best by votes take turns: a crop has votes and a low score, a
        picture without texture has a score and no votes. Ties go to the lower pair.
        """
        ends = [self.query, self.reference] if self.within else [self.query]
        position = np.tile(np.arange(len(self.pair)), len(ends))
        image = np.concatenate(ends)
        score, votes = self.score[position], self.votes[position]
        by_score, by_votes = (
            rank_within(image, position, -score),
            rank_within(image, position, -votes),
        )
        turn = np.where(votes > 0, np.minimum(2 * by_score, 2 * by_votes + 1), 2 * by_score)
        return position, image, rank_within(image, position, turn)

    def connected(self, found: Bool) -> Bool:
        """Return the pairs whose two images are connected by the pairs found."""
        images, ends = np.unique([self.query, self.reference], return_inverse=True)
        left, right = ends.reshape(2, -1)
        group = components(len(images), [(left[found], right[found])])
        return np.asarray(group[left] == group[right])


class Rounds:
    """The rounds of one comparison.

    Args:
        candidates: its candidate pairs.
        sizes: candidates of an image in each round; those verified or connected do not count.
        tried, near: ``int64``: pairs that were verified before, and those of them that are near or
            exact. Those of a query count as if they were of these rounds.
    """

    def __init__(
        self,
        candidates: Candidates,
        sizes: tuple[int, ...],
        tried: Int64 = NONE,
        near: Int64 = NONE,
    ) -> None:
        self._candidates = candidates
        position, image, rank = candidates.entries()
        order = np.lexsort((rank, image))
        self._position, self._image = position[order], image[order]
        self._active: Bool = np.ones(len(order), np.bool_)
        self._limited: Bool = np.zeros(len(order), np.bool_)
        self._near: Bool = np.isin(candidates.pair, near)
        self._state: Int8 = np.full(len(candidates.pair), STOPPED, np.int8)
        self._state[candidates.connected(self._near)] = CONNECTED
        verified = np.isin(candidates.pair, tried)
        self._state[verified] = VERIFIED
        self._left = np.full(image.max(initial=-1) + 1, sum(sizes))
        if not candidates.within:
            np.subtract.at(self._left, candidates.query[verified], 1)
        self._sizes = list(sizes)
        self._due = self._next(verified & ~self._near)

    def due(self) -> Int64:
        """Return the pairs to verify in the current round, ascending; none after the last."""
        return self._candidates.pair[self._due]

    def proceed(self, near: Bool) -> None:
        """Go to the next round.

        Args:
            near: which of the pairs that were due are near or exact.
        """
        self._state[self._due], self._near[self._due] = VERIFIED, near
        connected = self._candidates.connected(self._near)
        self._state[connected & (self._state == STOPPED)] = CONNECTED
        found = np.isin(self._position, self._due[near])
        self._active = np.isin(self._image, self._image[found])
        self._due = self._next()

    def skipped(self, pairs: int) -> Int8:
        """Return of all pairs, ``int8`` (pairs,), which were not verified and why."""
        state, limited = self._state.copy(), self._position[self._limited]
        state[limited[state[limited] == STOPPED]] = LIMITED
        result = np.full(pairs, VERIFIED, np.int8)
        result[self._candidates.pair] = state
        return result

    def _next(self, before: Bool | None = None) -> Int64:
        """Return positions of the candidates of the next round.

        Args:
            before: ``bool`` (n,): pairs that were verified before and take a place in the round.
        """
        open_ = self._state == STOPPED
        entries = np.flatnonzero(
            self._active & (open_ if before is None else open_ | before)[self._position]
        )
        images = self._image[entries]
        place = np.arange(len(entries)) - np.searchsorted(images, images)
        size = self._sizes.pop(0) if self._sizes else 0
        taken = place < np.minimum(size, self._left[images])
        # an image that is not finished and has no more to verify
        self._limited[entries[(self._left[images] <= 0) | (size == 0)]] = True
        due = entries[taken & open_[self._position[entries]]]
        np.subtract.at(self._left, self._image[due], 1)
        return np.unique(self._position[due])


def account(states: Iterable[Int8 | None]) -> tuple[VerificationSummary, list[str]]:
    """Return what the limit left out of an audit: for ``audit.json``, and in words.

    Args:
        states: ``skipped`` of each comparison, see :class:`visleak.records.Evidence`.
    """
    known = [state for state in states if state is not None]
    stopped, limited, connected = (
        sum(int((state == code).sum()) for state in known) for code in (STOPPED, LIMITED, CONNECTED)
    )
    said = []
    if stopped:
        said.append(
            f"pairs: {stopped:,} candidates were not verified and have no grade, because better"
            f" candidates of the image were ({ACROSS[0]} of a query, {WITHIN[0]} of an image within"
            " its set) and none is near"
        )
    if limited:
        said.append(
            f"pairs: {limited:,} candidates of images with many near or exact pairs were not"
            f" verified and have no grade, because at most {sum(ACROSS)} of a query are"
            f" ({sum(WITHIN)} of an image within its set); more of them may be near or exact"
        )
    if connected:
        said.append(
            f"pairs: {connected:,} candidates were not verified and have no grade, because near or"
            " exact pairs connect the two images; the images of groups are all counted, their"
            " pairs are more than those graded"
        )
    rounds = {"across": ACROSS, "within": WITHIN}
    return VerificationSummary(rounds, stopped, limited, connected), said
