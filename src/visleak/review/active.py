"""What a verdict changes: the grader of this audit refitted on verdicts, and the pairs to ask next.

The shipped grader stays as it is. The probability of a pair in the review is that of the audit,
moved by what the verdicts so far say about pairs that resemble it; without verdicts it is the
audit's own.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow.compute as pc
from scipy.special import expit

from visleak.groups import components, is_word
from visleak.records import Bool, Float64, Int64
from visleak.review.listing import Listing
from visleak.stats.intervals import clopper_pearson
from visleak.stats.separation import Shift, fit_best_shift, logit
from visleak.verdicts.ledger import NEAR

#: Probabilities are kept this far from 0 and 1, or no verdict could move them.
LEAST: Final = 1e-5
#: Log-odds from which pairs are so sure that the verdicts on others move them by half as much.
SURE: Final = 4.0
#: A pair is likely from this probability; those below TAIL in the audit are the unlikely tail.
LIKELY: Final = 0.5
TAIL: Final = 0.05
#: Kinds of reasons with a weight of their own; the rest share one.
REASONS: Final = 6
#: Standard deviations of the prior: of the constant, of the slope, and of all other weights; and
#: factors of all of them, of which the verdicts choose one; the usual one first.
CONSTANT, SLOPE, OTHER = 0.5, 0.2, 0.4
FACTORS: Final = (1.0, 0.125, 0.25, 0.5, 2.0, 4.0, 8.0)
#: Probability of a pair that was not verified because near pairs connect its images: of the 129
#: such pairs of CIFAR-10 and of skin lesions with a known truth, 128 are near.
CONNECTED: Final = 0.9
#: Half of a 95 % interval in standard deviations, and its ends as shares of draws.
WIDTH: Final = 1.96
ENDS: Final = (0.025, 0.975)
#: Draws of the model for the interval of the rate, and the likeliest pairs, which are drawn one by
#: one; the images of all others come from one Poisson distribution.
DRAWS, LIKELIEST = 1_000, 5_000
#: Most further verdicts that are looked ahead.
MOST: Final = 2_000


@dataclass(frozen=True)
class Deciding:
    """Which pairs decide about which contents: a content counts if one of its pairs is near."""

    # (m,) each
    row: Int64
    image: Int64
    weight: Float64  # images of each content, (contents,)


@dataclass(frozen=True)
class Measured:
    """The columns of a list of pairs that the grader of an audit is refitted on."""

    known: Float64  # log-odds of the audit, (n,)
    features: Float64  # (n, d)
    scale: Float64  # of the prior of each weight, (d,)
    leaks: Deciding  # the images that leak: the rate
    removals: Deciding  # the images that `purge` removes on the other side
    images: int  # how many images could leak

    @classmethod
    def of(cls, listing: Listing) -> Measured:
        """Return the columns of a list."""
        probability = automatic(listing)
        known, kinds = logit(probability, LEAST), _kinds(listing, probability >= TAIL)
        columns = [np.ones(len(listing)), known / 3.0, *_resemblance(listing), *kinds]
        features = np.column_stack(columns) / (1.0 + (known[:, None] / SURE) ** 2)
        scale = np.array([CONSTANT, SLOPE, *[OTHER] * (len(columns) - 2)])
        leaks, removals = _deciding(listing)
        return cls(known, features, scale, leaks, removals, int(leaks.weight.sum()))

    def refit(self, truth: Float64) -> Refit:
        """Fit on verdicts: 1 near or exact, 0 neither, NaN without one, (n,)."""
        judged = np.flatnonzero(~np.isnan(truth))
        features, known = self.features[judged], self.known[judged]
        shift = fit_best_shift(features, known, truth[judged], self.scale, FACTORS)
        return Refit(self, shift, truth)


def automatic(listing: Listing) -> Float64:
    """Return the probabilities before any verdict, of pairs that were not verified too, (n,)."""
    near = (listing.grade >= 0) & (listing.grade < len(NEAR))
    group = components(len(listing.digests), [(listing.left[near], listing.right[near])])
    connected = np.isnan(listing.probability) & (group[listing.left] == group[listing.right])
    # the others were not verified because better candidates are not near
    return np.where(connected, CONNECTED, np.nan_to_num(listing.probability))


def _resemblance(listing: Listing) -> list[Float64]:
    similarity = np.nan_to_num(2.0 - listing.distance**2, nan=0.0) / 2.0
    if len(listing):
        similarity = (similarity - similarity.mean()) / (similarity.std() or 1.0)
    turned = ~is_word(listing.pairs["view"], "original")
    other = is_word(listing.pairs["label_relation"], "different")
    own = (similarity, turned, other, listing.within)
    return [np.asarray(each, np.float64) for each in own]


def _kinds(listing: Listing, likely: Bool) -> list[Float64]:
    """Return one column for each kind of reason that is frequent: its words without numbers.

    Only kinds that some likely pair has: a weight for thousands of strangers would be wasted.
    """
    words = pc.fill_null(listing.pairs["reason"].combine_chunks().cast("string"), "")
    encoded = words.dictionary_encode()
    kinds = np.array([re.sub(r"[\d.,]+", "#", text) for text in encoded.dictionary.to_pylist()])
    if not len(kinds):
        return []
    names, own = np.unique(kinds, return_inverse=True)
    codes = own.ravel()[encoded.indices.to_numpy()]
    counts = np.bincount(codes[likely], minlength=len(names))
    frequent = np.argsort(-counts, kind="stable")[:REASONS]
    return [(codes == kind).astype(np.float64) for kind in frequent if counts[kind]]


def _deciding(listing: Listing) -> tuple[Deciding, Deciding]:
    """Return what leaks and what is removed: queries and references, or both ends of one set."""
    queries, references = (_images_of(listing, side) for side in ("query", "reference"))
    rows = np.flatnonzero(~listing.within)
    if len(rows):
        removals = Deciding(rows, listing.right[rows], references)
        return Deciding(rows, listing.left[rows], queries), removals
    both = np.tile(np.arange(len(listing)), 2)
    leaks = Deciding(both, np.concatenate([listing.left, listing.right]), queries)
    return leaks, Deciding(rows, rows, references)


def _images_of(listing: Listing, side: str) -> Float64:
    """Return how many images of the sets of a side have each content."""
    sets = pc.unique(listing.pairs[f"{side}_set"].cast("string"))
    own = np.asarray(pc.is_in(listing.images["set"], sets))
    found = np.bincount(listing.contents[own], minlength=len(listing.digests))
    return np.asarray(found, np.float64)


@dataclass(frozen=True)
class Refit:
    """The probabilities of an audit's pairs after some verdicts."""

    measured: Measured
    shift: Shift
    truth: Float64

    @property
    def judged(self) -> Bool:
        """The pairs with a verdict."""
        return ~np.isnan(self.truth)

    @cached_property
    def uncertain(self) -> tuple[Float64, Float64]:
        """Mean and variance of the log-odds."""
        return self.shift.log_odds(self.measured.features, self.measured.known)

    @cached_property
    def probability(self) -> Float64:
        """Of near or exact, by the refitted grader alone."""
        return np.asarray(expit(self.uncertain[0]))

    @cached_property
    def settled(self) -> Float64:
        """Of near or exact, 0 or 1 where there is a verdict."""
        return np.where(self.judged, np.nan_to_num(self.truth), self.probability)

    def _spared(self, of: Deciding) -> Float64:
        """Probability that a content does not count, (contents,)."""
        chance = np.minimum(self.settled[of.row], 1.0 - 1e-12)
        logs = np.bincount(of.image, np.log1p(-chance), minlength=len(of.weight))
        return np.asarray(np.exp(logs))

    @cached_property
    def _kept(self) -> Float64:
        """Probability that a content does not leak, (contents,)."""
        return self._spared(self.measured.leaks)

    def _slope(self, of: Deciding, spared: Float64) -> Float64:
        """Change of the expected number of images that count with the log-odds of a pair."""
        each = self.settled[of.row] * spared[of.image] * of.weight[of.image]
        found = np.bincount(of.row, each, minlength=len(self.settled))
        return np.where(self.judged, 0.0, found)

    def _removed(self, of: Deciding, spared: Float64) -> Float64:
        """Variance of the number of images that count that a verdict on a pair removes.

        What the pair itself decides (is it the only near one of its image?), and what its verdict
        teaches the grader about the others.
        """
        features, covariance = self.measured.features, self.shift.covariance
        odds = self.settled / np.maximum(1.0 - self.settled, 1e-12)
        part = odds[of.row] * (spared[of.image] * of.weight[of.image]) ** 2
        decides = np.bincount(of.row, part, minlength=len(odds))
        share = self.probability * (1.0 - self.probability)
        direction = covariance @ (features.T @ self._slope(of, spared))
        teaches = (features @ direction) ** 2 * share / (1.0 + share * self.uncertain[1])
        return np.where(self.judged, 0.0, decides + teaches)

    @cached_property
    def _narrowing(self) -> Float64:
        return self._removed(self.measured.leaks, self._kept)

    @cached_property
    def gain(self) -> Float64:
        """What a verdict on a pair decides: about the rate, and about the plan of `purge`.

        A pair beside a certain one of the same query changes no rate; whether its reference is
        removed it decides all the same.
        """
        plan = self.measured.removals
        both = self._narrowing + self._removed(plan, self._spared(plan))
        return np.where(self.judged, -1.0, both)

    @property
    def rate(self) -> float:
        """Expected share of leaking images."""
        leaking = self.measured.leaks.weight * (1.0 - self._kept)
        return float(leaking.sum() / max(1, self.measured.images))

    @cached_property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the share of leaking images, from draws of the model.

        The number of images that are still open is small and skewed, and a pair within a set
        decides about two of them: a normal distribution is too narrow there.
        """
        leaks, random = self.measured.leaks, np.random.default_rng(0)
        ranked = np.argsort(np.where(self.judged, 0.0, -self.probability), kind="stable")
        rows = ranked[: min(LIKELIEST, int((~self.judged).sum()))]
        place = np.full(len(self.settled), -1)
        place[rows] = np.arange(len(rows))
        sure = np.zeros(len(leaks.weight), bool)
        sure[leaks.image[self.truth[leaks.row] == 1.0]] = True
        open_ = ~sure[leaks.image] & ~self.judged[leaks.row]
        counts = leaks.weight[sure].sum() + self._unlikely(open_ & (place[leaks.row] < 0), random)
        own = np.flatnonzero(open_ & (place[leaks.row] >= 0))
        if len(own):
            own = own[np.argsort(leaks.image[own], kind="stable")]
            images, first = np.unique(leaks.image[own], return_index=True)
            near = self._drawn(rows, random)[place[leaks.row[own]]]
            counts = counts + leaks.weight[images] @ np.logical_or.reduceat(near, first)
        low, high = np.quantile(counts, ENDS) / max(1, self.measured.images)
        return float(low), float(high)

    def _drawn(self, rows: Int64, random: np.random.Generator) -> Bool:
        """Return which of some pairs are near in each draw, (rows, draws)."""
        own = self.measured
        weights = random.multivariate_normal(self.shift.weights, self.shift.covariance, DRAWS)
        odds = own.features[rows] @ weights.T + own.known[rows, None]
        return np.asarray(random.random(odds.shape) < expit(odds))

    def _unlikely(self, entries: Bool, random: np.random.Generator) -> Float64:
        """Return how many images leak by some of the deciding pairs alone, (draws,)."""
        leaks = self.measured.leaks
        row, image = leaks.row[entries], leaks.image[entries]
        expected = float((self.settled[row] * self._kept[image] * leaks.weight[image]).sum())
        per_pair = max(1, len(leaks.row)) / max(1, len(np.unique(leaks.row)))
        return np.asarray(per_pair * random.poisson(expected / per_pair, DRAWS), np.float64)

    @cached_property
    def half_widths(self) -> Float64:
        """What half of the interval shrinks to after 0, 1, ... verdicts in the order of gain.

        By variances alone, of a normal distribution: to plan with; ``interval`` is what holds now.
        """
        own = self.measured
        leaks = own.leaks.weight**2 * self._kept * (1.0 - self._kept)
        toward = own.features.T @ self._slope(own.leaks, self._kept)
        whole = float(leaks.sum() + toward @ self.shift.covariance @ toward)
        gains = self._narrowing[np.argsort(-self.gain, kind="stable")[:MOST]]
        left = np.maximum(0.0, whole - np.concatenate([[0.0], np.cumsum(gains)]))
        return np.asarray(WIDTH * np.sqrt(left) / max(1, own.images))

    def verdicts_for(self, half_width: float) -> int | None:
        """Return how many further verdicts make the interval so narrow; ``None`` for too many."""
        enough = np.flatnonzero(self.half_widths <= half_width)
        return int(enough[0]) if len(enough) else None

    @property
    def likely(self) -> int:
        """Pairs without a verdict that are likely near."""
        return int(((self.probability >= LIKELY) & ~self.judged).sum())

    @property
    def missed(self) -> float:
        """Expected share of all near pairs that have no verdict."""
        found = float(np.nansum(self.truth))
        left = float(self.probability[~self.judged].sum())
        return left / (found + left) if found + left else 0.0


@dataclass(frozen=True, slots=True)
class TailSample:
    """Near pairs in the unlikely tail, estimated from a random sample of it that was judged."""

    size: int  # pairs of the tail
    # of the sample
    judged: int
    near: int

    @property
    def estimate(self) -> float:
        """Near pairs of the tail."""
        return self.size * self.near / self.judged if self.judged else float("nan")

    @property
    def interval(self) -> tuple[int, int]:
        """Its exact 95 % interval, rounded outwards to whole pairs."""
        if not self.judged:
            return 0, self.size
        low, high = clopper_pearson(self.near, self.judged)
        least, most = self.near, self.size - (self.judged - self.near)
        return max(least, math.floor(low * self.size)), min(most, math.ceil(high * self.size))


def tail_order(listing: Listing, seed: int) -> Int64:
    """Return the pairs of the unlikely tail in an order that depends on nothing else.

    The audit's own probabilities decide what belongs to it, so that no verdict changes that.
    """
    tail = np.flatnonzero(automatic(listing) < TAIL)
    return np.random.default_rng(seed).permutation(tail)


def tail_sample(order: Int64, truth: Float64) -> TailSample:
    """Return the sample: the pairs of a random order up to the first without a verdict."""
    known = truth[order]
    open_ = np.flatnonzero(np.isnan(known))
    judged = int(open_[0]) if len(open_) else len(order)
    return TailSample(len(order), judged, int(known[:judged].sum()))
