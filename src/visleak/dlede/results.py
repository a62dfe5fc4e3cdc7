"""The records of a result; together they are the content of ``dlede.json``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from visleak.dlede.judge.scores import Scores
from visleak.dlede.settings import Plan
from visleak.records import Problem
from visleak.stats.bootstrap import Estimate

#: Share of the test images with a near-duplicate or exact copy in training that proves a leak.
ENOUGH: Final = 0.05


@dataclass(frozen=True, slots=True)
class StepScore:
    """A metric at a step."""

    step: int  # percent of the test images that leak
    training_runs: int  # number of training runs
    mean: Estimate  # over them, with a t interval
    deviation: float  # standard deviation over them (n - 1); NaN of one
    increase: Estimate  # over the step before, (C - P) / P, a share; 0 for the first step
    above: float  # probability that the increase exceeds the threshold; NaN if unknown


@dataclass(frozen=True, slots=True)
class MetricJudgement:
    """The verdict of one metric."""

    metric: str  # metric, lower: its name, and whether lower is better
    lower: bool
    steps: tuple[StepScore, ...]  # all steps, in order
    statistic: Estimate  # compared with the threshold: leaking at or below it
    on_means: str  # leaking or clean: the paper's verdict, on the means alone
    leaking: float  # certainty that the statistic is at or below the threshold; NaN of one chain
    verdict: str  # leaking, clean or undecided, by the two certainties
    clean: float = math.nan  # that it is above; of several increases both are lower bounds
    reason: str = ""  # why the metric cannot decide, in one line; empty if it can
    reason_code: str = ""  # the same as a code, see judge


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict of all metrics by one rule."""

    rule: str  # its name
    threshold: float  # threshold, certainty: shares, such as .05 and .95
    certainty: float
    decided_by: tuple[int, ...]  # the steps compared, with the first one, 0
    repetitions: int  # number of complete chains
    left_out: int  # number of chains that lack a training run of those steps
    metrics: tuple[MetricJudgement, ...]  # one judgement each
    on_means: str  # the paper's verdict: that of all metrics, undecided if they differ
    leaking: float  # leaking, clean: the least certainty of any metric; NaN with one repetition
    clean: float
    verdict: str  # leaking, clean or undecided, by those certainties
    disagree: bool = False  # the metrics contradict each other, each with certainty
    more: int | None = None  # repetitions that would probably decide it; None if decided
    reason_code: str = ""  # why it is undecided, see judge; empty if decided


@dataclass(frozen=True, slots=True)
class Failure:
    """A training run that failed twice: its step, repetition, the reason and the log file."""

    step: int
    repetition: int
    reason: str
    log: str


@dataclass(frozen=True, slots=True)
class ClassCounts:
    """Images and objects of each class at every step (section 8: class shares drift)."""

    classes: tuple[str, ...]  # their names
    test_images: tuple[int, ...]  # number of test images that show each class
    test_objects: tuple[int, ...]  # number of their objects; empty for whole-image labels
    steps: tuple[int, ...]  # percent of the test images that leak
    images: tuple[tuple[float, ...], ...]  # (steps, classes) of training, mean over repetitions
    objects: tuple[tuple[float, ...], ...]  # the same for objects; empty for whole-image labels


@dataclass(frozen=True, slots=True)
class Gain:
    """The improvement of a metric on leaked test images, and on the others.

    Both are relative to step 0 on the same images, in the metric's own unit, over the repetitions;
    positive if the metric improved.
    """

    metric: str  # as the trainer names it for single images
    step: int  # percent of the test images that leak
    images: float  # number of leaked images, mean over repetitions
    leaked: Estimate  # leaked, others: gain of each, with a t interval over repetitions
    others: Estimate


@dataclass(frozen=True, slots=True)
class Calibration:
    """The same protocol on leak-free splits of the same images."""

    groups: int  # number of groups (recordings, videos, patients)
    splits: tuple[Mapping[str, int], ...]  # numbers of images and groups of both sets
    judgements: tuple[Judgement, ...]  # of each split, at the user's threshold
    alpha: float  # share of such clean splits that would be called leaking, at most
    threshold: float  # the statistic of a clean split is above it with probability 1 - alpha
    per_metric: Mapping[str, float]  # the threshold of each metric alone


@dataclass(frozen=True, slots=True)
class DetectionLimit:
    """The smallest leak for which the verdict is ``leaking``."""

    repetitions: int  # for this many
    probability: float  # with which such leaks are found, at least
    share: float  # hundredths of the test images: the smallest such leak; NaN if unknown
    up_to: float  # the largest one; beyond it scores start so high that the verdict is undecided
    source: str  # of scores without a leak: calibration, curve (of this split), or empty
    reason_code: str = ""  # why share is NaN, see judge
    assumptions: tuple[str, ...] = ()  # of the calculation, one line each


@dataclass(frozen=True, slots=True)
class LongerScore:
    """A metric at a step after the usual and after longer training, means of equal repetitions."""

    step: int
    metric: str
    usual: float
    longer: float
    repetitions: int


@dataclass(frozen=True, slots=True)
class Convergence:
    """Whether longer training changes the scores."""

    epochs: tuple[int, int]  # usual and longer number of epochs
    rows: tuple[LongerScore, ...]


@dataclass(frozen=True, slots=True)
class HashPair:
    """A test and a training image with similar hashes."""

    test: str
    train: str
    distance: int


@dataclass(frozen=True, slots=True)
class HashEvidence:
    """Hamming distances of the perceptual hashes of all train-test pairs (tables 2 and 5)."""

    train: int  # train, test: number of readable images
    test: int
    unreadable: int  # number of images of both sides that could not be read
    histogram: tuple[int, ...]  # number of pairs at each distance 0..64
    nearest: tuple[int, ...]  # number of test images by the distance of the nearest, 0..64
    most_similar: tuple[HashPair, ...]  # the most similar pairs, by distance, test id, training id
    seconds: Mapping[str, float] = field(default_factory=dict)  # for hashing, and for comparing
    problems: tuple[Problem, ...] = ()  # unreadable images with their reasons


@dataclass(frozen=True, slots=True)
class SplitSet:
    """A set of the split; without a name where only scores are known."""

    name: str = ""
    images: int = 0
    source: str = ""


@dataclass(frozen=True)
class AuditSummary:
    """What the audit of a split found; without a folder if the same files are on both sides."""

    folder: str | None = field(default=None, metadata={"optional": True})
    headline: str = ""
    copies: int | None = field(default=None, metadata={"optional": True})  # near or exact copies
    images: int | None = field(default=None, metadata={"optional": True})  # of the test set

    @property
    def line(self) -> str:
        """What was found, for people."""
        return self.headline if self.folder is None else f"pairs, by the audit: {self.headline}"

    @property
    def proof(self) -> str:
        """The proof of a leak as a line; empty if there is none.

        Equal perceptual hashes are not a proof: images without detail have them, too.
        """
        copies, images = self.copies or 0, self.images or 0
        return self.headline if copies and copies >= ENOUGH * images > 0 else ""


@dataclass(frozen=True)
class DLeDeResult:
    """The whole result."""

    # the sets
    train: SplitSet
    test: SplitSet
    # ``{"name", ...}``: its name and everything that changes its results
    trainer: Mapping[str, object]
    plan: Plan  # the requested training runs
    scores: Scores  # of all training runs with a result
    judgement: Judgement  # by the requested rule
    others: tuple[Judgement, ...] = ()  # by the other rules
    failed: tuple[Failure, ...] = ()  # training runs that failed twice
    seconds: float = 0.0  # of all training runs, summed
    notes: tuple[str, ...] = ()  # for the reader, one line each
    # ``None`` or empty if not requested or not known
    class_counts: ClassCounts | None = None
    memory: tuple[Gain, ...] = ()
    calibration: Calibration | None = None
    detection: DetectionLimit | None = None
    convergence: Convergence | None = None
    hashes: HashEvidence | None = None
    audit: AuditSummary | None = None  # of the same split, or ``None``
    proof: str = ""  # the proof of a leak because of which nothing was trained; otherwise empty

    @property
    def is_external(self) -> bool:
        """Whether only the scores of training runs made elsewhere are known."""
        return self.trainer.get("name") == "scores"


UNKNOWN: Final = "-"
#: Names of metrics in texts; others keep the name that their trainer uses.
_NAMES: Final = {"map50": "mAP@0.5", "map50_95": "mAP@0.5:0.95", "f1": "F1"}
#: The order of the paper's tables; others follow.
_ORDER: Final = ("precision", "recall", "map50", "map50_95", "accuracy", "f1")


def metric_name(metric: str) -> str:
    """Return the name of a metric in texts."""
    return _NAMES.get(metric, metric)


def in_order(metrics: Sequence[str], deciding: Sequence[str] = ()) -> list[str]:
    """Return metrics in the order of the paper's tables.

    >>> in_order(("loss", "f1", "precision"), ("loss", "f1"))
    ['precision', 'loss', 'f1']
    """
    order = sorted(metrics, key=lambda m: _ORDER.index(m) if m in _ORDER else len(_ORDER))
    own = iter([metric for metric in deciding if metric in order])
    return [next(own) if metric in deciding else metric for metric in order]


def score(value: float) -> str:
    """Format a score: shares with three decimals, others with four digits.

    >>> [score(value) for value in (0.486, 1.0, 41.237, 12345.6, -0.0001, math.nan)]
    ['0.486', '1.000', '41.24', '12,346', '0.000', '-']
    """
    if math.isnan(value):
        return UNKNOWN
    decimals = 3 if abs(value) < 9.9995 else max(0, 3 - math.floor(math.log10(abs(value))))
    return f"{round(value, decimals) + 0.0:,.{decimals}f}"


def with_deviation(mean: float, deviation: float) -> str:
    """Format a mean with its standard deviation, without one if it is unknown."""
    text = score(mean)
    return text if UNKNOWN in (text, score(deviation)) else f"{text} ± {score(deviation)}"


def rise(share: float) -> str:
    """Format a relative increase in percent, two decimals, without the percent sign.

    >>> rise(0.22428), rise(-0.0003), rise(-0.00001), rise(math.nan), rise(12.5)
    ('22.43', '-0.03', '0.00', '-', '1,250.00')
    """
    return UNKNOWN if math.isnan(share) else f"{round(100.0 * share, 2) + 0.0:,.2f}"


def interval(low: str, high: str) -> str:
    """Join the formatted ends of an interval, which may be unknown."""
    return UNKNOWN if UNKNOWN in (low, high) else f"{low} to {high}"


def precise_rise(share: float, threshold: float) -> str:
    """Format a relative increase in percent with the decimals that keep its side of a threshold.

    >>> [precise_rise(share, 0.05) for share in (0.22428, 0.0501, 0.05, 0.05 + 1e-12)]
    ['22.4', '5.01', '5.0', '5.0']
    """
    if math.isnan(share):
        return UNKNOWN
    limit = round(100.0 * threshold, 8)
    for decimals in (1, 2, 3, 4):
        shown = round(100.0 * share, decimals)
        if (shown > limit) == (share > threshold):
            return f"{shown + 0.0:,.{decimals}f}"
    return f"{limit:,.1f}"


def percent(share: float) -> str:
    """Format a threshold or another chosen share.

    >>> percent(0.05), percent(0.0325), percent(0.7733234)
    ('5 %', '3.25 %', '77.33 %')
    """
    return f"{100.0 * share:.4g} %"


def certainty(chance: float) -> str:
    """Format a certainty in percent, rounded down and never as 100 or 0 %.

    >>> [certainty(chance) for chance in (1.0, 0.9893, 0.5, 0.0, math.nan)]
    ['over 99.9 %', '98.9 %', '50.0 %', 'under 0.1 %', '-']
    """
    if math.isnan(chance):
        return UNKNOWN
    if chance > 0.999:
        return "over 99.9 %"
    return "under 0.1 %" if chance < 0.001 else f"{math.floor(1000.0 * chance + 1e-9) / 10.0:.1f} %"
