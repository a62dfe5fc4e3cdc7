"""The settings of D-LeDe: how a curve is drawn, judged, controlled and trained.

They are also the options of ``visleak dlede``; this module imports nothing heavy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from visleak.errors import UsageError
from visleak.options import (
    OUTPUT,
    SETS,
    SPEED,
    Options,
    Printed,
    Replaced,
    argument,
    option,
    output,
    share,
)

#: Percent of the test images that leak at the steps the paper decides by, and at all of them.
DECIDING: Final = (0, 10, 20)
FULL: Final = tuple(range(0, 101, 10))
#: The threshold of the paper, read off one curve of one data set (section 4).
THRESHOLD: Final = 0.05
#: Decision rules, see :data:`visleak.dlede.judge.RULES`.
RULES: Final = ("both-steps", "any-step", "cumulative")
TRAINING: Final = "Training runs"  # panels of ``--help``
DECISION: Final = "Decision"
ANALYSES: Final = "Additional analyses"


def parse_steps(text: str) -> tuple[int, ...]:
    """Return the steps of a text; 0 is added.

    >>> parse_steps("10,20")
    (0, 10, 20)
    """
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdecimal() for word in words):
        raise UsageError(
            f"--steps must be whole percents separated by commas, such as 10,20; got {text!r}"
        )
    steps = tuple(map(int, words))
    return steps if steps[0] == 0 else (0, *steps)


@dataclass(frozen=True)
class Plan(Options, panel=TRAINING):
    """The training runs of one curve (Babu et al. 2025, section 4).

    Steps ascend from 0; a repetition is a chain of draws that is trained at every step.

    Raises:
        UsageError: a value is out of its range.
    """

    steps: tuple[int, ...] = option(
        DECIDING,
        "Percent of the test images that leak into training.",
        metavar="P,..",
        parse=parse_steps,
    )
    repetitions: int = option(
        10, "Number of repetitions per step, each with a new random draw.", least=1
    )
    nested: bool = option(
        True,
        "Draw each step independently. Default: a step keeps the images leaked before.",
        "--redraw-each-step",
    )
    stratified: bool = option(False, "Draws keep the class proportions.", "--stratify")
    seed: int = option(0, "Random seed of the draws.", least=0)
    epochs: int | None = option(None, "Epochs per training run. Default: the trainer's.", least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        ascending = all(low < high for low, high in zip(self.steps, self.steps[1:], strict=False))
        if len(self.steps) < 2 or self.steps[0] != 0 or not ascending or self.steps[-1] > 100:
            shown = ",".join(map(str, self.steps))
            raise UsageError(
                "steps are whole percents from 0 to 100, ascending and beginning with 0, such as"
                f" 0,10,20; got {shown or 'none'}"
            )

    def runs(self) -> Iterator[tuple[int, int]]:
        """Yield (repetition, step), chain by chain, so that complete chains can be judged.

        >>> list(Plan(steps=(0, 10), repetitions=2).runs())
        [(1, 0), (1, 10), (2, 0), (2, 10)]
        """
        for repetition in range(1, self.repetitions + 1):
            for step in self.steps:
                yield repetition, step


@dataclass(frozen=True, slots=True)
class Forecast:
    """The expected cost of a plan."""

    training_runs: int  # number of training runs, controls included
    done: int  # of them present on disk
    training_images: int
    test_images: int
    measured: bool  # the seconds are the mean of runs on disk; otherwise the trainer's estimate
    seconds_per_run: float | None  # mean; None if unknown before the first run has finished
    jobs: int = 1  # concurrent training runs

    @property
    def seconds(self) -> float | None:
        """Remaining wall time; ``None`` if unknown."""
        if self.seconds_per_run is None:
            return None
        # the last round may be incomplete
        return -(-(self.training_runs - self.done) // self.jobs) * self.seconds_per_run


@dataclass(frozen=True)
class DecisionSettings(Options, panel=DECISION):
    """How scores are judged; ``chance`` is the score of random guessing by metric, a share."""

    rule: str = option(
        "both-steps",
        "A split leaks if no deciding step increases the score by more than the threshold"
        " (both-steps), one of them does not (any-step), or all together do not (cumulative).",
        "--decision-rule",
        choices=RULES,
    )
    threshold: float | None = option(
        None,
        "Relative increase that a split without leaks exceeds. Default: the calibrated one, else"
        " 5%.",
        metavar="RATE",
        parse=share,
    )
    certainty: float = option(
        0.95,
        "Certainty that a verdict requires; below it the split is undecided.",
        metavar="RATE",
        parse=share,
        least=0.5,
        below=1,
    )
    metrics: tuple[str, ...] = option(
        (),
        "Metric that decides. Default: mAP@0.5 and F1, or the trainer's. May be repeated.",
        "--metric",
        metavar="METRIC",
    )
    lower: tuple[str, ...] = option(
        (),
        "Metric for which lower is better, such as a loss. May be repeated.",
        "--lower-is-better",
        metavar="METRIC",
    )
    chance: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.threshold is not None and not math.isfinite(self.threshold):
            raise UsageError(f"threshold must be a share such as 0.05; got {self.threshold}")

    @property
    def limit(self) -> float:
        """The threshold where none is calibrated."""
        return THRESHOLD if self.threshold is None else self.threshold


@dataclass(frozen=True)
class ControlSettings(Options, panel=ANALYSES):
    """Controls and evidence in addition to the curve; 0 for none.

    Raises:
        UsageError: a value is out of its range.
    """

    calibrate: int = option(
        0,
        "Also train on K clean splits of the same images, 3 or more, by whole groups, and derive"
        " the threshold from them.",
        metavar="K",
        least=0,
    )
    alpha: float = option(
        0.05,
        "Share of clean splits that lie below the calibrated threshold.",
        metavar="RATE",
        parse=share,
        above=0,
        below=1,
    )
    convergence: int = option(
        0,
        "Train once more with FACTOR times as many epochs, and compare the scores.",
        "--check-convergence",
        metavar="FACTOR",
        least=0,
    )
    hashes: bool = option(True, "Do not compare perceptual hashes of all pairs.", "--no-phash")
    allow_proved_leak: bool = option(
        False,
        "Train even if the audit proves a leak: near or exact copies of 5 % of the test images or"
        " more.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.convergence == 1:
            raise UsageError("--check-convergence must be 2 or more times as many epochs; got 1")


@dataclass(frozen=True)
class Execution(Options):
    """Where training runs are executed, and who is notified. Never changes a result."""

    jobs: int = option(1, "Number of concurrent training runs.", panel=SPEED, least=1)
    limit: float | None = option(
        None,
        "Time limit per training run; slower runs count as failed.",
        "--time-limit",
        metavar="SECONDS",
        panel=TRAINING,
        above=0,
    )
    # `visleak.pipeline.context.Engine` of a cluster; then as many runs execute concurrently as it
    # has processors
    engine: Any = None
    # a `visleak.pipeline.context.Progress`
    progress: Callable[..., None] = lambda step, done, total: None
    notify: Callable[[str], None] = lambda text: None  # called with notes in plain text
    # called with the expected cost before the first training run
    on_forecast: Callable[[Forecast], None] = lambda forecast: None


@dataclass(frozen=True)
class TrainerSettings(Options, panel=TRAINING):
    """The trainer of the command line."""

    trainer: str | None = option(
        None,
        "command:'CMD {train} {test} {out} {seed}' (any program; see docs/dlede.md),"
        " ultralytics:MODEL, torch:detector, torch:classifier, or lookup[:ENCODER], which"
        " memorizes.",
        metavar="TRAINER",
    )
    device: str = option(
        "auto", "Device of torch. Default: GPU if available.", metavar="auto|cpu|cuda|.."
    )
    threads: int = option(
        1,
        "Threads of torch per training run. A different thread count changes rounding; --jobs uses"
        " cores better.",
        least=1,
    )


@dataclass(frozen=True)
class Sources(Options):
    """The split under test."""

    folder: str | None = argument(
        None,
        "A data set with train and test (or val) in it: folders, Parquet files, a table with a"
        " split column, or a YOLO data.yaml.",
        metavar="DIR",
    )
    test: str | None = option(
        None,
        "Test images, as for audit; with annotations as coco:FILE, yolo:FILE#val or kitti:FOLDER.",
        metavar="[NAME=]SOURCE",
        panel=SETS,
    )
    train: str | None = option(None, "Training images.", metavar="[NAME=]SOURCE", panel=SETS)
    whole: str | None = option(
        None, "One set, divided by --split.", "--set", metavar="[NAME=]SOURCE", panel=SETS
    )
    recipe: str | None = option(
        None,
        "How to divide it: kitti, cirrus, first:N, first-groups:N, random:SHARE[:SEED] or"
        " groups:SHARE[:SEED].",
        "--split",
        metavar="RECIPE",
        panel=SETS,
    )

    def check(self) -> None:
        """Refuse no split, and more than one."""
        ways = [bool(self.folder), bool(self.test or self.train), bool(self.whole or self.recipe)]
        if sum(ways) != 1:
            raise UsageError(
                "give one split: a folder with train and test in it, or --test and --train, or"
                " --set and --split; or judge existing training runs with --scores FILE"
            )
        pairs = (("--test", self.test, "--train", self.train),
                 ("--set", self.whole, "--split", self.recipe))  # fmt: skip
        for first, one, second, other in pairs:
            if bool(one) != bool(other):
                given, missing = (first, second) if one else (second, first)
                raise UsageError(f"{given} needs {missing}")


@dataclass(frozen=True)
class DLeDeOptions(Printed, Replaced):
    """Further options of the command."""

    scores: Path | None = option(
        None,
        "Train nothing: judge existing scores, a .csv with the columns step, repetition and the"
        " metrics.",
        metavar="FILE",
        panel=TRAINING,
    )
    full_curve: bool = option(False, "Steps of 10 % from 0 to 100 %.", panel=TRAINING)
    chance: tuple[str, ...] = option(
        (),
        "Score of random guessing by a metric, such as accuracy=25%. Default: the share of the"
        " largest class, 0 for objects. May be repeated.",
        metavar="METRIC=RATE",
        panel=DECISION,
    )
    audit: str = option(
        "",
        "An existing audit of the same split, or off. Default: run one in the output folder.",
        metavar="AUDIT_DIR|off",
        panel=ANALYSES,
    )
    out: Path = output(Path("visleak-dlede"), "Output folder.")
    dry_run: bool = option(
        False, "Print the number of training runs and the expected time, and stop.", panel=OUTPUT
    )
    no_images: bool = option(False, "Put no images into the output.", panel=OUTPUT)


def parse_chance(text: str) -> tuple[str, float]:
    """Return metric and share of METRIC=RATE."""
    name, _, rate = text.rpartition("=")
    if not name:
        raise UsageError(f"--chance must be a metric and a share, accuracy=25%; got {text!r}")
    return name, share(rate)


#: Options that ``--scores`` takes; the others concern training runs.
_DECIDING = (each.name for each in fields(DecisionSettings))
WITH_SCORES = ("scores", "out", "chance", "json", "force", *_DECIDING)
