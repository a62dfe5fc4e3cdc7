"""The interface of trainers: one training run, its images and seed, and its outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from visleak.dlede.draw import Draw, Split, joined
from visleak.errors import VisleakError
from visleak.formats import Boxes
from visleak.formats.boxes import both
from visleak.progress import Progress
from visleak.quantities import is_share_name
from visleak.records import Float64, ImageSet


class TrainingFailed(VisleakError):
    """A training run has no result; the message is one line, the log holds the details."""


@dataclass(frozen=True)
class TrainingTask:
    """One training run to carry out. Picklable."""

    split: Split  # the original sets. The test set is always evaluated as a whole.
    draw: Draw  # rows of both that are trained on
    step: int  # percent of the test images that leak
    repetition: int  # number of the chain, from 1
    seed: int  # of the trainer; the same for all steps of a repetition
    epochs: int | None = None  # requested; ``None`` for the trainer's default

    @property
    def train(self) -> ImageSet:
        """The images to train on: those kept, then those leaked.

        If an id is in both sets, the leaked image's is prefixed with its set's name.
        """
        return joined(self.split.train, self.draw.kept, self.split.test, self.draw.leaked)

    @property
    def boxes(self) -> Boxes | None:
        """The annotated objects of the images to train on, in their order."""
        train, test = self.split.train_boxes, self.split.test_boxes
        if train is None or test is None:
            return None
        return both(train.taken(self.draw.kept), test.taken(self.draw.leaked))

    @property
    def test(self) -> ImageSet:
        """The images to evaluate on."""
        return self.split.test


@dataclass(frozen=True)
class Outcome:
    """The outcome of a training run.

    Raises:
        TrainingFailed: there is no metric, or one is not finite or not in its range.
    """

    # name to value over the whole test set, finite. Shares are in [0, 1], such as ``precision``,
    # ``recall``, ``f1``, ``map50``, ``map50_95``, ``accuracy``.
    metrics: Mapping[str, float]
    # metric to ``float64`` (test images,): the value of each image, NaN if it has none; may be
    # empty
    images: Mapping[str, Float64] = field(default_factory=dict)
    # details of the training, such as ``{"epochs": 100}``; plain JSON
    about: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        wrong = [name for name, value in self.metrics.items() if not np.isfinite(value)]
        if wrong or not self.metrics:
            what = f"{wrong[0]} is not finite" if wrong else "there are no metrics"
            raise TrainingFailed(f"the training run has no result: {what}")
        for name, value in self.metrics.items():
            # a curve that mixes both units would look like a jump of the score
            if is_share_name(name) and not -1e-6 <= value <= 1.0 + 1e-6:
                hint = "; divide percent by 100" if 1.0 < value <= 100.0 else ""
                raise TrainingFailed(f"{name} must be a share from 0 to 1, got {value:g}{hint}")


class PreparedTrainer(Protocol):
    """A trainer prepared for a split. Picklable: runs execute in processes of their own."""

    def train(self, task: TrainingTask, folder: Path) -> Outcome:
        """Train and evaluate.

        Args:
            task: the training run.
            folder: an empty folder of this run; it is removed after a success, except
                ``log.txt``, and kept after a failure.

        Raises:
            TrainingFailed: there is no result. Any other exception counts as the same.
        """
        ...


class Trainer(Protocol):
    """Trains a model and evaluates it.

    Attributes:
        name: on the command line.
        decides: the metrics that decide by default, of those that the outcomes have. Empty: all.
        lower: metrics for which lower is better.
    """

    name: str
    decides: Sequence[str]
    lower: Sequence[str]

    def about(self) -> Mapping[str, object]:
        """Return everything but images and seed that changes its results, as plain JSON.

        It is part of the key of every training run.
        """
        ...

    def prepare(self, split: Split, folder: Path, progress: Progress) -> PreparedTrainer:
        """Check the split before anything is trained, and prepare what all runs share.

        Args:
            split: the split.
            folder: for prepared files, kept while runs execute.
            progress: called with the progress.

        Raises:
            VisleakError: the split cannot be trained on; one line, with what to do.
        """
        ...


class FunctionTrainer:
    """Trains by a function from a task to metrics over the whole test set.

    ``task.train`` and ``task.test`` are image sets whose opener reads the images; ``task.boxes``
    and ``task.split.test_boxes`` are their objects; ``task.seed`` is the seed to use. A function of
    a module can train in several processes, one defined inside another only in this process.

    >>> def most_frequent(task):
    ...     labels = task.train.labels.to_pylist()
    ...     guess = max(sorted(set(labels)), key=labels.count)
    ...     return {"accuracy": task.test.labels.to_pylist().count(guess) / len(task.test)}
    >>> trainer = FunctionTrainer(most_frequent, "most-frequent", decides=("accuracy",))

    Args:
        function: from a task to metrics, or to an :class:`Outcome` with values of single images.
        name: of the trainer.
        decides: the metrics that decide; empty for all.
        lower: metrics for which lower is better.
        about: what changes its results, as plain JSON: runs on disk are reused while it is the
            same, so change it with the function.
    """

    def __init__(
        self,
        function: Callable[[TrainingTask], Mapping[str, float] | Outcome],
        name: str,
        decides: Sequence[str] = (),
        lower: Sequence[str] = (),
        about: Mapping[str, object] | None = None,
    ) -> None:
        self.function, self.name = function, name
        self.decides, self.lower = decides, lower
        self._about = dict(about or {})

    def about(self) -> Mapping[str, object]:
        """Return the given mapping."""
        return self._about

    def prepare(self, split: Split, folder: Path, progress: Progress) -> PreparedTrainer:
        """Return the function; it needs no preparation."""
        return PreparedFunction(self.function)


@dataclass(frozen=True)
class PreparedFunction:
    """A function that trains."""

    function: Callable[[TrainingTask], Mapping[str, float] | Outcome]

    def train(self, task: TrainingTask, folder: Path) -> Outcome:
        """Call it."""
        returned: object = self.function(task)
        if isinstance(returned, Outcome):
            return returned
        if not isinstance(returned, Mapping):
            raise TrainingFailed(
                f"the function returned {type(returned).__name__}; it must return metrics, such as"
                ' {"accuracy": 0.9}, or an Outcome'
            )
        return Outcome(dict(_metric(*item) for item in returned.items()))


def _metric(name: object, value: object) -> tuple[str, float]:
    if not isinstance(name, str):
        raise TrainingFailed(f"the function named a metric {name!r}; names must be strings")
    if isinstance(value, bool | str | bytes) or not hasattr(value, "__float__"):
        raise TrainingFailed(
            f"the function returned {type(value).__name__} for {name!r}; metrics must be numbers"
        )
    try:
        return name, float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise TrainingFailed(f"the function returned no number for {name!r}: {error}") from error
