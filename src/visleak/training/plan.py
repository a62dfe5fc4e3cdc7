"""How a network is trained on a set: everything that decides its weights, in one record."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Final

from visleak.documents import digest_of

NETWORKS: Final = ("plain-11", "resnet")
SCHEDULES: Final = ("short", "paper")
PRECISIONS: Final = ("fp32", "bf16")

#: Learning rate at its highest, for batches of :data:`USUAL_BATCH`.
HIGHEST: Final = 0.1
USUAL_BATCH: Final = 128
MOMENTUM: Final = 0.9
WEIGHT_DECAY: Final = 5e-4

#: Epochs between the warm restarts of ``paper`` (the code of Barz & Denzler 2018).
CYCLES: Final = (12, 24, 48, 96, 192)

#: Of ``short``: share of the steps in which the rate rises, and of the epochs on small pictures.
WARM_UP: Final = 0.2
SMALL_EPOCHS: Final = 0.6

#: Views of pictures that ``short`` makes where nobody says how many epochs: minutes of a CPU.
USUAL_VIEWS: Final = 300_000
FEWEST_EPOCHS, MOST_EPOCHS = 3, 100


@dataclass(frozen=True)
class Plan:
    """What is trained, and how long.

    Attributes:
        network: one of :data:`NETWORKS`.
        side: of the network's square input, in pixels.
        classes: how many it tells apart; 0 learns to tell pictures apart instead.
        pictures: that it learns from.
        epochs: passes over them.
        batch: pictures a step; what is left of an epoch waits for another one.
        seed: of weights, order and changes.
        schedule: ``short`` has one cycle of the learning rate and begins on smaller pictures;
            ``paper`` has warm restarts (:data:`CYCLES`).
        precision: of convolutions and products; everything else is ``fp32``.
    """

    network: str
    side: int
    classes: int
    pictures: int
    epochs: int
    batch: int
    seed: int
    schedule: str = "short"
    precision: str = "fp32"

    @property
    def steps_an_epoch(self) -> int:
        """Steps of an epoch, at least one."""
        return max(1, self.pictures // self.batch)

    @property
    def steps(self) -> int:
        """Steps in all."""
        return self.epochs * self.steps_an_epoch

    def rate(self, step: int) -> float:
        """Return the learning rate of a step.

        Source: Loshchilov & Hutter 2017, "SGDR", for restarts; Smith & Topin 2018,
        "Super-convergence", for one cycle.
        """
        if self.schedule == "paper":
            return self._restarted(step)
        highest = HIGHEST * min(self.batch / USUAL_BATCH, 4.0)
        warm = max(1, round(self.steps * WARM_UP))
        if step < warm:
            return highest * (step + 1) / warm
        return highest * _cosine((step - warm) / max(1, self.steps - warm))

    def _restarted(self, step: int) -> float:
        start = 0
        for epochs in CYCLES:
            length = epochs * self.steps_an_epoch
            if step < start + length:
                return HIGHEST * _cosine((step - start) / length)
            start += length
        raise ValueError(f"step {step} lies behind the last cycle")

    def side_at(self, epoch: int) -> int:
        """Return the side of the pictures of an epoch: three quarters of it at first."""
        small = round(self.side * 3 / 4 / 4) * 4
        early = epoch < math.floor(self.epochs * SMALL_EPOCHS)
        return small if self.schedule == "short" and early and small >= 16 else self.side

    @cached_property
    def work(self) -> tuple[int, ...]:
        """What is done before each epoch, and in all, in pictures of full side."""
        done = [0.0]
        for epoch in range(self.epochs):
            area = (self.side_at(epoch) / self.side) ** 2
            done.append(done[-1] + area * self.steps_an_epoch * self.batch)
        return tuple(round(each) for each in done)

    def done(self, step: int) -> int:
        """Return what is done before a step; see :attr:`work`."""
        epoch, inside = divmod(step, self.steps_an_epoch)
        if epoch == self.epochs:
            return self.work[-1]
        start, stop = self.work[epoch], self.work[epoch + 1]
        return start + (stop - start) * inside // self.steps_an_epoch

    def as_dict(self) -> dict[str, Any]:
        """Return the plan with the constants behind it, as plain values."""
        restarts = {"cycles": list(CYCLES)}
        one = {"warm_up": WARM_UP, "small_epochs": SMALL_EPOCHS, "first_side": self.side_at(0)}
        return {
            **asdict(self),
            "highest_rate": round(max(self.rate(step) for step in self._turns), 6),
            "momentum": MOMENTUM,
            "weight_decay": WEIGHT_DECAY,
            **(restarts if self.schedule == "paper" else one),
        }

    @property
    def _turns(self) -> tuple[int, int]:
        """Steps of which one has the highest rate."""
        return 0, max(1, round(self.steps * WARM_UP)) - 1

    def key(self, data: str) -> str:
        """Return the digest of the plan and of the data it is carried out on."""
        return digest_of([self.as_dict(), data])


def usual_epochs(pictures: int) -> int:
    """Return how many epochs ``short`` has where nobody says.

    >>> usual_epochs(50_000), usual_epochs(500), usual_epochs(1_000_000)
    (6, 100, 3)
    """
    return min(max(round(USUAL_VIEWS / pictures), FEWEST_EPOCHS), MOST_EPOCHS)


def _cosine(share: float) -> float:
    """Return the share of the rate that is left after a share of a cycle."""
    return 0.5 * (1 + math.cos(math.pi * share))
