"""What is trained: how many test images leak at each step, and how often each step is repeated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from visleak.errors import UsageError

#: Percent of the test images that leak at the steps the paper decides by, and at all of them.
DECIDING: Final = (0, 10, 20)
FULL: Final = tuple(range(0, 101, 10))


@dataclass(frozen=True, slots=True)
class Plan:
    """The trainings of one curve (Babu et al. 2025, section 4).

    Attributes:
        steps: percent of the test images that are in training, ascending from 0.
        repetitions: chains of draws; each is trained at every step.
        nested: a step keeps what leaked before and adds to it; else each draws anew.
        stratified: draws keep the shares of the classes.
        seed: of the draws.
        epochs: that a trainer is asked for; ``None`` leaves it to the trainer.

    Raises:
        UsageError: a value is out of its range.
    """

    steps: tuple[int, ...] = DECIDING
    repetitions: int = 10
    nested: bool = True
    stratified: bool = False
    seed: int = 0
    epochs: int | None = None

    def __post_init__(self) -> None:
        ascending = all(low < high for low, high in zip(self.steps, self.steps[1:], strict=False))
        if len(self.steps) < 2 or self.steps[0] != 0 or not ascending or self.steps[-1] > 100:
            shown = ",".join(map(str, self.steps))
            raise UsageError(
                "steps are whole percents from 0 to 100, ascending and beginning with 0, such as"
                f" 0,10,20; got {shown or 'none'}"
            )
        for name, least in (("repetitions", 1), ("seed", 0), ("epochs", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise UsageError(f"{name} must be {least} or more; got {value}")

    def runs(self) -> Iterator[tuple[int, int]]:
        """Yield (repetition, step): chain by chain, so that what is complete can be judged.

        >>> list(Plan(steps=(0, 10), repetitions=2).runs())
        [(1, 0), (1, 10), (2, 0), (2, 10)]
        """
        for repetition in range(1, self.repetitions + 1):
            for step in self.steps:
                yield repetition, step

    def as_dict(self) -> dict[str, Any]:
        """Return the plan for JSON."""
        return {
            "steps": list(self.steps),
            "repetitions": self.repetitions,
            "nested": self.nested,
            "stratified": self.stratified,
            "seed": self.seed,
            "epochs": self.epochs,
        }
