"""What detection finds: D of two lists of prompts, how well it tells them apart, a threshold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

#: Lists that prompts come from.
LISTED: Final = "prompts"
GENERAL: Final = "general"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its 95 % interval; NaN where it is not known.

    Attributes:
        value: the figure.
        low, high: ends of its interval.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Separation:
    """How well D tells two kinds of prompts apart. Larger figures are better, all in [0, 1].

    Attributes:
        by: ``labels``, memorized prompts against others; ``lists``, the list against the general
            one, whatever its prompts are.
        positives, negatives: prompts of either kind.
        positive_groups, negative_groups: groups of shared images that they come from.
        auc: chance that a positive has the larger D, ties counting half.
        accuracy: best of all thresholds, ``max(1 - (fpr + 1 - tpr) / 2)`` (Wen et al. 2024's
            code): the mean of the accuracies on both kinds.
        accuracy_at: the threshold that has it.
        rate: the false-positive rate of the next two.
        tpr_below: true-positive rate at the last false-positive rate *below* ``rate``, as in the
            code of Wen et al. 2024.
        tpr_within: the same at the last one that is not *above* ``rate``.
    """

    by: str
    positives: int
    negatives: int
    positive_groups: int
    negative_groups: int
    auc: Estimate
    accuracy: Estimate
    accuracy_at: float
    rate: float
    tpr_below: Estimate
    tpr_within: Estimate


@dataclass(frozen=True, slots=True)
class Threshold:
    """A threshold of D, and what is known of its false alarms. Belongs to one model and settings.

    Attributes:
        value: prompts with D at or above it are reached.
        rule: ``given`` by the user; ``observed``, at most ``rate`` of the ordinary prompts reach
            it; ``bounded``, ``upper`` is at most ``rate``.
        rate: share of false alarms that was asked for; ``None`` where it was given.
        negatives: ordinary prompts it was set or tried on; 0 where there were none.
        alarms: how many of them reach it.
        upper: one-sided 95 % upper bound of the share of such prompts that reach it.
        supported: there are enough ordinary prompts for ``rate``; otherwise it lies above all.
    """

    value: float
    rule: str
    rate: float | None
    negatives: int
    alarms: int
    upper: float
    supported: bool = True


@dataclass(frozen=True, slots=True)
class Throughput:
    """What the scores cost.

    Attributes:
        prompts: that were passed through the model.
        passes: rows that went through the network.
        seconds: that this took, text encoder included.
        reused: prompts whose scores were there already.
    """

    prompts: int
    passes: int
    seconds: float
    reused: int = 0

    @property
    def prompts_per_second(self) -> float:
        """Prompts a second; 0 where none was passed."""
        return self.prompts / self.seconds if self.seconds else 0.0

    @property
    def passes_per_second(self) -> float:
        """Passes a second; 0 where there were none."""
        return self.passes / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class Spread:
    """How D is distributed over some prompts.

    Attributes:
        kind: ``memorized``, ``not memorized``, ``prompts`` (nothing known) or ``general``.
        count: prompts.
        least, median, p95, most: of D.
    """

    kind: str
    count: int
    least: float
    median: float
    p95: float
    most: float


@dataclass(frozen=True, slots=True)
class Ranked:
    """A prompt of the list.

    Attributes:
        prompt: the text.
        d: its D, by the norm of the settings.
        label: whether it is known to be memorized.
    """

    prompt: str
    d: float
    label: bool | None


@dataclass(frozen=True, slots=True)
class Attribution:
    """How much each token of a prompt has to do with its D.

    Attributes:
        prompt: the text.
        method: ``gradient`` (Wen et al. 2024, section 4.1) or ``leave-one-out``.
        d: L2 score of the prompt.
        tokens: texts; words for ``leave-one-out``.
        values: of ``gradient``, norms, 0 or more; of ``leave-one-out``, what D loses without the
            word, below 0 where it gains.
        rest: the norm over all positions after the last token (end, padding, and all of a second
            text encoder, as in Stable Diffusion 3); ``None`` for ``leave-one-out``.
    """

    prompt: str
    method: str
    d: float
    tokens: tuple[str, ...]
    values: tuple[float, ...]
    rest: float | None = None


@dataclass(frozen=True)
class Detection:
    """D of prompts by one model.

    Attributes:
        key: of all that the result depends on.
        scores_key: of all that the scores depend on.
        settings: what D is made of, as plain data.
        timestep: that the network was asked at.
        model: what the model is, as plain data.
        origin, general_origin: the files; empty where there is none.
        prompts, general: how many prompts there are in either list.
        reached: prompts of the list that reach the threshold; 0 without one.
        known: of the list, how many are labelled memorized.
        known_reached: how many of these reach the threshold.
        threshold: if there is one.
        separation: if there are prompts of two kinds.
        spreads: one a kind of prompts.
        top: the prompts of the list with the largest D, largest first.
        tokens: of the first prompts, if asked for.
        throughput: what it cost.
        notes: what a reader must know, a line each.
    """

    key: str
    scores_key: str
    settings: dict[str, Any]
    timestep: float
    model: dict[str, Any]
    origin: str
    general_origin: str
    prompts: int
    general: int
    reached: int
    known: int
    known_reached: int
    threshold: Threshold | None
    separation: Separation | None
    spreads: tuple[Spread, ...]
    top: tuple[Ranked, ...]
    tokens: tuple[Attribution, ...]
    throughput: Throughput
    notes: tuple[str, ...]
