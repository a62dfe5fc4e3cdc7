"""What D-LeDe came to: the records that tables, figures and pages show."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from visleak.dlede.plan import Plan
from visleak.dlede.scores import Scores
from visleak.records import Problem


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number and the ends of its 95 % interval; NaN where nothing is known."""

    value: float
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True, slots=True)
class StepScore:
    """A metric at a step.

    Attributes:
        step: percent of the test images that leak.
        trainings: how many there are.
        mean: over them, with a t interval.
        deviation: standard deviation over them (n - 1); NaN of one.
        increase: relative to the step before, as a share (equation 1: R_i = (C - P) / P); 0 for
            the first step; positive where the metric got better. Interval by bootstrap over
            repetitions.
        above: chance that the increase exceeds the threshold, by that bootstrap; NaN for the
            first step and where there is one repetition.
    """

    step: int
    trainings: int
    mean: Estimate
    deviation: float
    increase: Estimate
    above: float


@dataclass(frozen=True, slots=True)
class MetricJudgement:
    """What one metric says of the split.

    Attributes:
        metric, lower: its name, and whether less is better.
        steps: all steps, in order.
        statistic: what the rule compares with the threshold, as a share: at or below it the
            split counts as leaking.
        on_means: ``leaking`` or ``clean``: the paper's verdict, on the means alone.
        leaking: chance that the statistic is at or below the threshold, by bootstrap; NaN of one
            repetition.
        verdict: ``leaking``, ``clean`` or ``undecided``, by the two chances.
        clean: chance that the statistic is above the threshold. Where a rule looks at several
            increases, both chances are stated so low that together they may be less than 1
            (``certainty.chances``).
        reason: why nothing can be said, in one line; empty where something can.
        reason_code: the same for programs, one of :mod:`visleak.dlede.reasons`.
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
    """What all metrics say together, by one rule.

    Attributes:
        rule: name of the rule.
        threshold: a share, such as .05.
        certainty: chance that a verdict needs, such as .95.
        decided_by: the steps it looks at, with the first one, 0.
        repetitions: complete chains that it rests on.
        left_out: chains that lack a training of those steps.
        metrics: one judgement each.
        on_means: ``leaking`` where all metrics say so on their means, ``clean`` where all say
            that, else ``undecided``: the paper's verdict.
        leaking, clean: chances that all metrics say so: the least of theirs, for a verdict needs
            each of them to be certain; NaN of one repetition.
        verdict: ``leaking``, ``clean`` or ``undecided``, by those chances.
        disagree: the metrics contradict each other, each with certainty.
        more: repetitions that would probably decide it, beside those there are; ``None`` where
            it is decided, or where more would hardly help.
        reason_code: why it is undecided, for programs: one of :mod:`visleak.dlede.reasons`;
            empty where it is decided by scores.
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
    """A training that failed twice.

    Attributes:
        step, repetition: which one.
        reason: one line.
        log: file with all that it said.
    """

    step: int
    repetition: int
    reason: str
    log: str


@dataclass(frozen=True, slots=True)
class Makeup:
    """How many images and objects of each class a step trains on (section 8: class shares drift).

    Attributes:
        classes: their names.
        test_images: how many test images show each class.
        test_objects: how many objects of each class they show; empty for whole-image labels.
        steps: percent of the test images that leak.
        images: (steps, classes): training images that show each class, mean over repetitions.
        objects: the same of objects; empty for whole-image labels.
    """

    classes: tuple[str, ...]
    test_images: tuple[int, ...]
    test_objects: tuple[int, ...]
    steps: tuple[int, ...]
    images: tuple[tuple[float, ...], ...]
    objects: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Memory:
    """How much better a metric got on the test images that leaked, and on those that did not.

    Both are measured against step 0 on the very same images, in the metric's own unit, over the
    repetitions; positive where it got better.

    Attributes:
        metric: its name, as the trainer gives it for single images.
        step: percent of the test images that leak.
        images: that leak, mean over repetitions.
        leaked, others: gain of each; the interval is a t interval over repetitions.
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
        groups: how many groups there are (recordings, videos, patients).
        splits: one entry a split: how many images and groups its test set has.
        judgements: of each split, at the threshold of the user.
        alpha: share of such clean splits that would be called leaking, at most.
        threshold: a share: the rule's statistic of a clean split lies above it but for ``alpha``.
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
    """How large a leak must be for the verdict to be ``leaking``.

    Attributes:
        repetitions: by so many.
        probability: with which such leaks are found, at least.
        share: of the test images: the smallest leak that is found so probably, in hundredths; NaN
            where none is, or it is not known.
        up_to: the largest one: beyond it scores start so high that the verdict is ``undecided``.
        source: what shows how scores rise without a leak: ``calibration`` (clean splits of the
            same images), or ``curve`` (this split, whose scores rise enough); empty if nothing.
        reason_code: why ``share`` is NaN: one of :mod:`visleak.dlede.reasons`.
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
        rows: one a step and metric: ``step``, ``metric``, ``usual``, ``longer`` (means over the
            same repetitions) and ``repetitions``.
    """

    epochs: tuple[int, int]
    rows: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class AlikePair:
    """A test and a training image with alike hashes."""

    test: str
    train: str
    distance: int


@dataclass(frozen=True, slots=True)
class HashEvidence:
    """Hamming distances of the perceptual hashes of all train-test pairs (tables 2 and 5).

    Attributes:
        train, test: readable images.
        unreadable: images of both sides that could not be read.
        histogram: number of pairs at each distance 0..64.
        nearest: number of test images whose nearest training image has each distance 0..64.
        alike: the most alike pairs, by distance, test id, training id.
        seconds: of hashing, and of comparing.
        problems: who could not be read, and why.
    """

    train: int
    test: int
    unreadable: int
    histogram: tuple[int, ...]
    nearest: tuple[int, ...]
    alike: tuple[AlikePair, ...]
    seconds: Mapping[str, float] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class DLeDe:
    """The whole result.

    Attributes:
        train, test: name and number of images of each set: ``{"name", "images", "source"}``.
        trainer: ``{"name", ...}``: its name and all that changes its results.
        plan: what was to be trained.
        scores: of all trainings that came to a result.
        judgement: by the rule that was asked for.
        others: by the other rules.
        failed: trainings that failed twice.
        seconds: wall time of all trainings together, one after the other.
        notes: one line each on what a reader must know.
        makeup, memory, calibration, detection, convergence, hashes: see there; ``None`` or empty
            where they were not asked for or cannot be known.
        audit: ``{"folder", "headline", "copies", "images"}`` of the audit of the same split (no
            ``folder`` where the very files are on both sides and there is no audit): so
            many of its test images have a near-duplicate or exact copy in training; or ``None``.
        proof: what proves a leak, so that nothing was trained; empty where trainings were made.
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
    makeup: Makeup | None = None
    memory: tuple[Memory, ...] = ()
    calibration: Calibration | None = None
    detection: DetectionLimit | None = None
    convergence: Convergence | None = None
    hashes: HashEvidence | None = None
    audit: Mapping[str, Any] | None = None
    proof: str = ""
