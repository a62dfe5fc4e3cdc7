"""One training: on which images, evaluated on which, with which seed; and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from visleak.dlede.joined import joined
from visleak.dlede.scores import is_share_name
from visleak.errors import VisleakError
from visleak.images.boxes import Boxes, both
from visleak.pipeline.workplace import Progress
from visleak.records import Float64, ImageSet, Int64


class TrainingFailed(VisleakError):
    """A training came to no result; the message is one line, the log says more."""


@dataclass(frozen=True)
class Split:
    """The split that is judged.

    Attributes:
        train, test: the sets; their names differ.
        train_boxes, test_boxes: their annotated objects, with the same classes; ``None`` where
            the sets have none.
    """

    train: ImageSet
    test: ImageSet
    train_boxes: Boxes | None = None
    test_boxes: Boxes | None = None


@dataclass(frozen=True)
class Draw:
    """What one training sees.

    Attributes:
        kept: ``int64``, ascending: rows of the original training set that stay.
        leaked: ``int64``, ascending: rows of the test set that took the place of the others.
    """

    kept: Int64
    leaked: Int64


@dataclass(frozen=True)
class Lesson:
    """One training to be done. Picklable.

    Attributes:
        split: the original sets. The test set is always evaluated whole, and never changes.
        draw: which rows of both are trained on.
        step: percent of the test images that leak.
        repetition: number of the chain, from 1.
        seed: of the trainer; the same for all steps of a repetition.
        epochs: asked for, ``None`` for the trainer's own.
    """

    split: Split
    draw: Draw
    step: int
    repetition: int
    seed: int
    epochs: int | None = None

    @property
    def train(self) -> ImageSet:
        """The images to train on: those kept, then those leaked.

        Where an id of both sets is the same, the leaked image's is prefixed with its set's name.
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
    """What a training came to.

    Attributes:
        metrics: name to value over the whole test set, finite. Shares are in [0, 1], such as
            ``precision``, ``recall``, ``f1``, ``map50``, ``map50_95``, ``accuracy``.
        images: metric to ``float64`` (test images,): the value of each image, NaN where it has
            none; may be empty.
        about: what is worth keeping of how it was trained, such as ``{"epochs": 100}``; plain
            JSON.
    """

    metrics: Mapping[str, float]
    images: Mapping[str, Float64] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        wrong = [name for name, value in self.metrics.items() if not np.isfinite(value)]
        if wrong or not self.metrics:
            what = f"{wrong[0]} is no number" if wrong else "there are no metrics"
            raise TrainingFailed(f"the training came to no result: {what}")
        for name, value in self.metrics.items():
            # a curve that mixes both units would pass for a jump of the score
            if is_share_name(name) and not -1e-6 <= value <= 1.0 + 1e-6:
                hint = "; divide percent by 100" if 1.0 < value <= 100.0 else ""
                raise TrainingFailed(f"{name} must be a share from 0 to 1, got {value:g}{hint}")


class Ready(Protocol):
    """A trainer that has seen the split. Picklable: trainings run in processes of their own."""

    def train(self, lesson: Lesson, folder: Path) -> Outcome:
        """Train and evaluate.

        Args:
            lesson: what to do.
            folder: an empty folder of this training's own; what lies there is removed after a
                success, but for ``log.txt``, and kept after a failure.

        Raises:
            TrainingFailed: it came to no result. Any other exception counts as the same.
        """
        ...


class Trainer(Protocol):
    """Trains a model and evaluates it.

    Attributes:
        name: how the command line calls it.
        decides: the metrics by which it decides, unless the user says otherwise; those that the
            outcomes have. Empty: all that they have.
        lower: metrics of which less is better.
    """

    name: str
    decides: Sequence[str]
    lower: Sequence[str]

    def about(self) -> Mapping[str, Any]:
        """Return all that changes its results beside images and seed, as plain JSON.

        It is part of the key of every training: a changed trainer trains anew.
        """
        ...

    def ready(self, split: Split, folder: Path, progress: Progress) -> Ready:
        """Look at the split before anything is trained, and prepare what all trainings share.

        Args:
            split: the split.
            folder: a folder for prepared files, kept while trainings run.
            progress: is told how far it is.

        Raises:
            VisleakError: the split cannot be trained on this way; one line, with what to do.
        """
        ...
