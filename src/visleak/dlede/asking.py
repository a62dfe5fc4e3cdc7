"""How a curve is judged, what is done besides, and who works on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from visleak.dlede.forecasting import Forecast
from visleak.dlede.judging import judge
from visleak.dlede.results import Judgement
from visleak.dlede.rules import RULES
from visleak.dlede.scores import Scores
from visleak.errors import UsageError
from visleak.pipeline import silent
from visleak.pipeline.workplace import Engine, Progress

#: The threshold of the paper, read off one curve of one data set (section 4).
THRESHOLD: Final = 0.05


@dataclass(frozen=True)
class Verdict:
    """How scores are judged.

    Attributes:
        rule: one of :data:`visleak.dlede.rules.RULES`.
        threshold: a share; ``None`` for the calibrated one, or else the paper's 5 %.
        certainty: chance that a verdict needs.
        metrics: that decide; empty for the trainer's, or the usual ones.
        lower: metrics of which less is better.
        chance: what guessing scores by a metric, a share; 0 where it is not given.
    """

    rule: str = "both-steps"
    threshold: float | None = None
    certainty: float = 0.95
    metrics: Sequence[str] = ()
    lower: Sequence[str] = ()
    chance: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise UsageError(f"rule is one of {', '.join(RULES)}; got {self.rule!r}")

    def refuse_few(self, steps: Sequence[int]) -> None:
        """Refuse fewer steps than the rule looks at: half of a rule is no verdict.

        Raises:
            UsageError: it is so.
        """
        if len(steps) < 3 and not RULES[self.rule].whole:
            raise UsageError(
                f"rule {self.rule} looks at two steps above 0, and there is one, {steps[-1]} %;"
                " have two, such as 10,20, or --rule cumulative"
            )

    def of(
        self,
        scores: Scores,
        *,
        rule: str | None = None,
        threshold: float | None = None,
        calibrated: bool = False,
    ) -> Judgement:
        """Judge scores, by another rule or threshold where one is given; see :func:`judge`."""
        limit = self.threshold if threshold is None else threshold
        return judge(
            scores,
            rule=rule or self.rule,
            threshold=THRESHOLD if limit is None else limit,
            certainty=self.certainty,
            metrics=self.metrics,
            chance=self.chance,
            calibrated=calibrated,
        )

    def others(
        self, scores: Scores, threshold: float, *, calibrated: bool = False
    ) -> tuple[Judgement, ...]:
        """Judge scores by the other rules."""
        return tuple(
            self.of(scores, rule=rule, threshold=threshold, calibrated=calibrated)
            for rule in RULES
            if rule != self.rule
        )


@dataclass(frozen=True)
class Extras:
    """What is done besides the curve.

    Attributes:
        calibrate: on how many clean grouped splits the threshold is calibrated; 0 for none.
        alpha: chance that a clean split is called leaking by the calibrated threshold.
        convergence: how many times as long the check of convergence trains; 0 for none.
        hashes: whether perceptual hashes of all train-test pairs are compared.
        allow_proved_leak: train even where the audit proves a leak
            (:mod:`visleak.dlede.proving`).
    """

    calibrate: int = 0
    alpha: float = 0.05
    convergence: int = 0
    hashes: bool = True
    allow_proved_leak: bool = False

    def __post_init__(self) -> None:
        if self.calibrate < 0:
            raise UsageError(f"calibrate must be 0 or more; got {self.calibrate}")
        if not 0.0 < self.alpha < 1.0:
            raise UsageError(f"alpha must lie between 0 and 1; got {self.alpha}")
        if self.convergence < 0:
            raise UsageError(f"convergence must be 0 or more; got {self.convergence}")


@dataclass(frozen=True)
class Works:
    """Who works, and who is told. Never changes an answer.

    Attributes:
        jobs: trainings at a time on this machine.
        engine: a cluster's; then as many as it has processors.
        limit: seconds after which a training counts as failed.
        progress: is told how far a step is.
        say: is told in words what was decided or left out.
        told: is told what the trainings will cost, before they begin.
    """

    jobs: int = 1
    engine: Engine | None = None
    limit: float | None = None
    progress: Progress = silent
    say: Callable[[str], None] = lambda text: None
    told: Callable[[Forecast], None] = lambda forecast: None
