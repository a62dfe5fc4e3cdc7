"""The impact of the leaks of a test set on scores: the records that documents show."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from visleak.stats.bootstrap import Estimate

#: Parts of a benchmark that a score is given for, in the order of a table.
SUBSETS: Final = (
    *("original", "non-leaked", "leaked", "same label", "different label", "unknown label"),
    *("random", "class-matched", "difficulty-matched"),
)

#: 2.5 % of this many draws is one draw; percentiles of fewer are too near to each other. Between
#: those of ten draws are 78 % of others.
ENOUGH_DRAWS: Final = 40


@dataclass(frozen=True, slots=True)
class Row:
    """The score of a model on one part of the benchmark."""

    leak: str  # in which sense of a leak; empty for the whole benchmark
    subset: str  # one of SUBSETS
    images: int  # how many the part has; in each draw, where it is drawn
    # mean over its images; over all draws, where it is drawn. The ends of a drawn row's interval
    # hold 95 % of the draws; of fewer than 40 there are none
    score: Estimate
    gain: Estimate  # of the score over that of the whole benchmark; for the whole, NaN
    deviation: float = math.nan  # standard deviation over the draws; NaN if nothing was drawn
    draws: int = 1  # how often the part was drawn, 1 where it was taken as it is
    overlap: float = 1.0  # share of its images that two draws have in common on average
    # one image alone makes up most of the spread of its scores, so that no interval can be given
    dominated: bool = False


@dataclass(frozen=True, slots=True)
class MatchedComparison:
    """Leaked images against matched controls: others of their class and difficulty."""

    leaked: int  # leaked images that have controls
    twins: int  # how many each of them has
    alone: int  # leaked images without controls
    # mean share of the images that are easier, in [0, 1]: of all leaked images, of all others, of
    # the leaked images with controls, of the controls
    difficulty: tuple[float, float, float, float]
    score: float  # of the leaked images with controls
    difference: Estimate  # their score minus that of the controls
    # two-sided probability of such a difference if any image of a matched set were equally likely
    # to be the leaked one
    p: float
    adjusted: float = math.nan  # `p` after Holm's correction over all models, metrics and leaks


@dataclass(frozen=True, slots=True)
class Comparison:
    """Leaked images of a model's test set against the others."""

    leak: str  # in which sense of a leak
    leaked: int
    others: int
    difference: Estimate  # score of the leaked minus that of the others
    p: float  # two-sided probability of such a difference if the leak had no effect
    adjusted: float  # `p` after Holm's correction over all models, metrics and leaks
    # within_classes, within_classes_adjusted: the same where images are only compared with others
    # of their class; NaN without labels
    within_classes: float
    within_classes_adjusted: float
    # score on the images that do not leak, their classes weighted as in the whole benchmark;
    # without labels, as they are
    fair: Estimate
    inflation: Estimate  # score of the whole benchmark minus that of the images that do not leak
    classes_lost: int = 0  # classes all of whose images leak, which `fair` leaves out
    # the leaked images against others of the same difficulty; `None` if no difficulty is given, or
    # no image has controls
    twinned: MatchedComparison | None = None


#: The leak of sentences and figures: the first of these that leaves two groups to compare.
PREFERRED: Final = ("near or exact", "hard or soft", "hard", "exact", "similar or closer")


@dataclass(frozen=True)
class Effect:
    """The leaks' effect on one metric of one model."""

    model: str
    metric: str
    images: tuple[int, int]  # of the benchmark with a prediction, and all of them
    percent: bool  # tables show scores times a hundred; the same for all models of a metric
    share: bool  # scores are 0 or 1
    lower: bool  # lower is better
    # the whole benchmark first, then leak by leak in the order of SUBSETS; a part without images
    # has a row of NaN
    rows: tuple[Row, ...]
    comparisons: tuple[Comparison, ...]  # one per leak

    def row(self, leak: str, subset: str) -> Row | None:
        """Return the row of a part of the benchmark, if there is one."""
        return next((r for r in self.rows if (r.leak, r.subset) == (leak, subset)), None)

    def comparison(self, leak: str) -> Comparison | None:
        """Return the comparison of a leak, if there is one."""
        return next((each for each in self.comparisons if each.leak == leak), None)

    @property
    def original(self) -> Row:
        """The row of the whole benchmark."""
        return self.rows[0]


@dataclass(frozen=True, slots=True)
class Flip:
    """Whether two models change places where leaked images do not count."""

    metric: str
    leak: str  # which images are left out
    first: str  # the model that is better on the whole benchmark
    second: str
    original: float  # score of the first minus that of the second on the whole benchmark
    fair: float  # the same without the leaked images
    flipped: bool  # the second is better there
    chance: float  # how often the two orders differ in resamples of the images, a tie counting half
    behind: float  # how often the first is behind without the leaked images, a tie counting half
    images: int  # with predictions of both


@dataclass(frozen=True, slots=True)
class Gap:
    """A model's error on a test set and on the fair one (Barz & Denzler 2020, table 2)."""

    model: str
    metric: str  # the error is one minus it, or the score itself if lower is better
    images: int  # of the two sets
    original: Estimate  # error, a share in [0, 1]
    fair: Estimate
    gap: Estimate  # fair minus original
    relative: float  # gap over original error; NaN if there was none
    p: float  # exact McNemar probability that as many images changed by chance
    changed: tuple[int, int]  # images whose prediction is right in one set and wrong in the other


@dataclass(frozen=True)
class Impact:
    """The impact of the leaks of a test set on the scores of models."""

    audit: str  # the audit folder
    # names of the sets
    test_set: str
    references: tuple[str, ...]
    images: int  # readable images of the test set
    # name of each leak to how many of the images leak so, in the order of the tables
    leaks: Mapping[str, int]
    effects: tuple[Effect, ...]  # model by model, metric by metric
    flips: tuple[Flip, ...] = ()  # pairs of models that change places; those that may first
    gaps: tuple[Gap, ...] = ()  # errors on the original and the fair test set, where both are known
    # for readers of the scores, such as images without a prediction; one line each
    notes: tuple[str, ...] = ()
    # how it was computed: draws, size of a draw, seed, mid-p
    settings: Mapping[str, object] = field(default_factory=dict)
    judged: bool = False  # verdicts of reviewers are counted
    doubts: tuple[str, ...] = ()  # why prediction files may be mixed up; one line each

    @property
    def models(self) -> tuple[str, ...]:
        """The models, in the order given."""
        return tuple(dict.fromkeys(effect.model for effect in self.effects))

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics, in the order met."""
        return tuple(dict.fromkeys(effect.metric for effect in self.effects))

    def effect(self, model: str, metric: str) -> Effect | None:
        """Return a model's effect in a metric, if it has that metric."""
        return next((e for e in self.effects if (e.model, e.metric) == (model, metric)), None)

    @property
    def first_effects(self) -> tuple[Effect, ...]:
        """Each model's effect in the first metric that it has."""
        found = {effect.model: effect for effect in reversed(self.effects)}
        return tuple(found[model] for model in self.models)

    @property
    def principal(self) -> str:
        """The leak that sentences and figures are about; empty if nothing is compared."""
        useful = [
            each.leak
            for effect in self.first_effects
            for each in effect.comparisons
            if each.leaked and each.others and not math.isnan(each.difference.value)
        ]
        return next((leak for leak in (*PREFERRED, *useful) if leak in useful), "")
