"""The records of a result; together they are the content of ``dlede.json``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from visleak.dlede.judge.scores import Scores
from visleak.dlede.settings import Plan
from visleak.records import Problem


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number and the ends of its 95 % interval; NaN if unknown."""

    value: float
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True, slots=True)
class StepScore:
    """A metric at a step.

    Attributes:
        step: percent of the test images that leak.
        trainings: number of training runs.
        mean: over them, with a t interval.
        deviation: standard deviation over them (n - 1); NaN of one.
        increase: relative to the step before, as a share (equation 1: R_i = (C - P) / P); 0 for
            the first step; positive if the metric improved. Interval by bootstrap over
            repetitions.
        above: probability that the increase exceeds the threshold, by that bootstrap; NaN for the
            first step and with one repetition.
    """

    step: int
    trainings: int
    mean: Estimate
    deviation: float
    increase: Estimate
    above: float


@dataclass(frozen=True, slots=True)
class MetricJudgement:
    """The verdict of one metric.

    Attributes:
        metric, lower: its name, and whether lower is better.
        steps: all steps, in order.
        statistic: compared with the threshold, a share: at or below it the split counts as
            leaking.
        on_means: ``leaking`` or ``clean``: the paper's verdict, on the means alone.
        leaking: certainty that the statistic is at or below the threshold, by bootstrap; NaN with
            one repetition.
        verdict: ``leaking``, ``clean`` or ``undecided``, by the two certainties.
        clean: certainty that the statistic is above the threshold. For rules that compare several
            increases both are lower bounds, and may add up to less than 1
            (:func:`visleak.dlede.judge.certainty.chances`).
        reason: why the metric cannot decide, in one line; empty if it can.
        reason_code: the same for programs, see :mod:`visleak.dlede.judge.judge`.
    """

    metric: str
    lower: bool
    steps: tuple[StepScore, ...]
    statistic: Estimate
    on_means: str
    leaking: float
    verdict: str
    clean: float = math.nan
    reason: str = ""
    reason_code: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict of all metrics by one rule.

    Attributes:
        rule: its name.
        threshold, certainty: shares, such as .05 and .95.
        decided_by: the steps compared, with the first one, 0.
        repetitions: number of complete chains.
        left_out: number of chains that lack a training run of those steps.
        metrics: one judgement each.
        on_means: ``leaking`` or ``clean`` if all metrics agree on their means, otherwise
            ``undecided``: the paper's verdict.
        leaking, clean: the least certainty of any metric; NaN with one repetition.
        verdict: ``leaking``, ``clean`` or ``undecided``, by those certainties.
        disagree: the metrics contradict each other, each with certainty.
        more: additional repetitions that would probably decide it; ``None`` if it is decided or
            more would hardly help.
        reason_code: why it is undecided, see :mod:`visleak.dlede.judge.judge`; empty if decided.
    """

    rule: str
    threshold: float
    certainty: float
    decided_by: tuple[int, ...]
    repetitions: int
    left_out: int
    metrics: tuple[MetricJudgement, ...]
    on_means: str
    leaking: float
    clean: float
    verdict: str
    disagree: bool = False
    more: int | None = None
    reason_code: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """A training run that failed twice: its step, repetition, the reason and the log file."""

    step: int
    repetition: int
    reason: str
    log: str


@dataclass(frozen=True, slots=True)
class ClassCounts:
    """Images and objects of each class at every step (section 8: class shares drift).

    Attributes:
        classes: their names.
        test_images: number of test images that show each class.
        test_objects: number of their objects; empty for whole-image labels.
        steps: percent of the test images that leak.
        images: (steps, classes): training images that show each class, mean over repetitions.
        objects: the same for objects; empty for whole-image labels.
    """

    classes: tuple[str, ...]
    test_images: tuple[int, ...]
    test_objects: tuple[int, ...]
    steps: tuple[int, ...]
    images: tuple[tuple[float, ...], ...]
    objects: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Gain:
    """The improvement of a metric on leaked test images, and on the others.

    Both are relative to step 0 on the same images, in the metric's own unit, over the repetitions;
    positive if the metric improved.

    Attributes:
        metric: as the trainer names it for single images.
        step: percent of the test images that leak.
        images: number of leaked images, mean over repetitions.
        leaked, others: gain of each, with a t interval over repetitions.
    """

    metric: str
    step: int
    images: float
    leaked: Estimate
    others: Estimate


@dataclass(frozen=True, slots=True)
class Calibration:
    """The same protocol on leak-free splits of the same images.

    Attributes:
        groups: number of groups (recordings, videos, patients).
        splits: numbers of images and groups of both sets, one entry per split.
        judgements: of each split, at the user's threshold.
        alpha: share of such clean splits that would be called leaking, at most.
        threshold: the statistic of a clean split lies above it with probability 1 - alpha.
        per_metric: the threshold of each metric alone.
    """

    groups: int
    splits: tuple[Mapping[str, int], ...]
    judgements: tuple[Judgement, ...]
    alpha: float
    threshold: float
    per_metric: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class DetectionLimit:
    """The smallest leak for which the verdict is ``leaking``.

    Attributes:
        repetitions: for this many.
        probability: with which such leaks are found, at least.
        share: of the test images, in hundredths: the smallest leak found with that probability;
            NaN if there is none, or it is not known.
        up_to: the largest one; beyond it scores start so high that the verdict is ``undecided``.
        source: of scores without a leak: ``calibration`` (clean splits of the same images) or
            ``curve`` (this split, if its scores increase enough); empty if there are none.
        reason_code: why ``share`` is NaN, see :mod:`visleak.dlede.judge.judge`.
        assumptions: of the calculation, one line each.
    """

    repetitions: int
    probability: float
    share: float
    up_to: float
    source: str
    reason_code: str = ""
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Convergence:
    """Whether longer training changes the scores.

    Attributes:
        epochs: usual and longer number of epochs.
        rows: one per step and metric: ``step``, ``metric``, ``usual``, ``longer`` (means over the
            same repetitions) and ``repetitions``.
    """

    epochs: tuple[int, int]
    rows: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class HashPair:
    """A test and a training image with similar hashes."""

    test: str
    train: str
    distance: int


@dataclass(frozen=True, slots=True)
class HashEvidence:
    """Hamming distances of the perceptual hashes of all train-test pairs (tables 2 and 5).

    Attributes:
        train, test: number of readable images.
        unreadable: number of images of both sides that could not be read.
        histogram: number of pairs at each distance 0..64.
        nearest: number of test images by the distance of their nearest training image, 0..64.
        alike: the most similar pairs, by distance, test id, training id.
        seconds: for hashing, and for comparing.
        problems: unreadable images with their reasons.
    """

    train: int
    test: int
    unreadable: int
    histogram: tuple[int, ...]
    nearest: tuple[int, ...]
    alike: tuple[HashPair, ...]
    seconds: Mapping[str, float] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class DLeDeResult:
    """The whole result.

    Attributes:
        train, test: of each set: ``{"name", "images", "source"}``.
        trainer: ``{"name", ...}``: its name and everything that changes its results.
        plan: the requested training runs.
        scores: of all training runs with a result.
        judgement: by the requested rule.
        others: by the other rules.
        failed: training runs that failed twice.
        seconds: of all training runs, summed.
        notes: for the reader, one line each.
        makeup, memory, calibration, detection, convergence, hashes: ``None`` or empty if not
            requested or not known.
        audit: ``{"folder", "headline", "copies", "images"}`` of the audit of the same split:
            ``copies`` of its test images have a near-duplicate or exact copy in training. Without
            ``folder`` if the same files are on both sides and there is no audit; or ``None``.
        proof: the proof of a leak because of which nothing was trained; otherwise empty.
    """

    train: Mapping[str, Any]
    test: Mapping[str, Any]
    trainer: Mapping[str, Any]
    plan: Plan
    scores: Scores
    judgement: Judgement
    others: tuple[Judgement, ...] = ()
    failed: tuple[Failure, ...] = ()
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    makeup: ClassCounts | None = None
    memory: tuple[Gain, ...] = ()
    calibration: Calibration | None = None
    detection: DetectionLimit | None = None
    convergence: Convergence | None = None
    hashes: HashEvidence | None = None
    audit: Mapping[str, Any] | None = None
    proof: str = ""

    @property
    def is_external(self) -> bool:
        """Whether only the scores of training runs made elsewhere are known."""
        return self.trainer.get("name") == "scores"
