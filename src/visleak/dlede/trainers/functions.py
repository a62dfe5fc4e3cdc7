"""A Python function as trainer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from visleak.dlede.lesson import Lesson, Outcome, Ready, Split, TrainingFailed
from visleak.pipeline.workplace import Progress


class FunctionTrainer:
    """Trains by a function: it is given a lesson, and returns metrics over the whole test set.

    ``lesson.train`` and ``lesson.test`` are image sets with ids and labels, whose opener reads the
    pictures; ``lesson.boxes`` and ``lesson.split.test_boxes`` are their objects; ``lesson.seed``
    is the seed to use. A function of a module can train in several processes at a time, one that
    was defined inside another only in this one.

    >>> import numpy as np
    >>> import visleak
    >>> def most_frequent(lesson):
    ...     labels = lesson.train.labels.to_pylist()
    ...     guess = max(sorted(set(labels)), key=labels.count)
    ...     return {"accuracy": lesson.test.labels.to_pylist().count(guess) / len(lesson.test)}
    >>> trainer = FunctionTrainer(most_frequent, "most-frequent", decides=("accuracy",))
    >>> trainer.name, trainer.about()
    ('most-frequent', {})

    Args:
        function: from a lesson to a mapping of metrics, or to an
            :class:`visleak.dlede.lesson.Outcome`, which may hold values of single images as well.
        name: of the trainer.
        decides: the metrics it decides by; empty for all.
        lower: metrics of which less is better.
        about: all that changes its results beside images and seed, as plain JSON. Trainings on
            disk are used again while it is the same: change it when you change the function.
    """

    def __init__(
        self,
        function: Callable[[Lesson], Mapping[str, float] | Outcome],
        name: str,
        decides: Sequence[str] = (),
        lower: Sequence[str] = (),
        about: Mapping[str, Any] | None = None,
    ) -> None:
        self.function = function
        self.name = name
        self.decides = decides
        self.lower = lower
        self._about = dict(about or {})

    def about(self) -> Mapping[str, Any]:
        """Return what was given as that."""
        return self._about

    def ready(self, split: Split, folder: Path, progress: Progress) -> Ready:
        """Return the function; it is given the split as it is."""
        return ReadyFunction(self.function)


@dataclass(frozen=True)
class ReadyFunction:
    """A function that trains."""

    function: Callable[[Lesson], Mapping[str, float] | Outcome]

    def train(self, lesson: Lesson, folder: Path) -> Outcome:
        """Call it.

        Raises:
            TrainingFailed: what it returned is neither metrics nor an outcome.
        """
        returned: object = self.function(lesson)
        if isinstance(returned, Outcome):
            return returned
        if not isinstance(returned, Mapping):
            raise TrainingFailed(
                f"the function returned {type(returned).__name__}; it must return metrics, such as"
                ' {"accuracy": 0.9}, or an Outcome'
            )
        return Outcome({_name(name): _value(name, value) for name, value in returned.items()})


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise TrainingFailed(f"the function named a metric {name!r}; names are texts")
    return name


def _value(name: object, value: object) -> float:
    if isinstance(value, bool | str | bytes) or not hasattr(value, "__float__"):
        raise TrainingFailed(
            f"the function returned {type(value).__name__} for {name!r}; metrics are numbers"
        )
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise TrainingFailed(f"the function returned no number for {name!r}: {error}") from error
