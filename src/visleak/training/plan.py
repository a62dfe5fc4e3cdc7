"""The plan of a training: everything that determines the weights, in one record."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from visleak.documents import digest_of
from visleak.training.data import Sizes, TrainingData
from visleak.training.settings import CYCLES, LEAST_SIDE, EncoderSettings

HIGHEST: Final = 0.1  # learning rate at its highest, for batches of :data:`USUAL_BATCH`
USUAL_BATCH: Final = 128
MOMENTUM: Final = 0.9
WEIGHT_DECAY: Final = 5e-4
#: Of ``short``: share of the steps with a rising rate, and of the epochs on small images.
WARM_UP: Final = 0.2
SMALL_EPOCHS: Final = 0.6
USUAL_VIEWS: Final = 300_000  # views of images that ``short`` makes by default: minutes on a CPU
FEWEST_EPOCHS, MOST_EPOCHS = 3, 100


@dataclass(frozen=True)
class Plan:
    """A network, and how it is trained."""

    network: str  # ``plain-11`` or ``resnet``
    side: int  # of the network's square input, in pixels
    classes: int  # number of classes; 0 learns to distinguish images instead
    images: int  # number of training images
    epochs: int  # passes over them
    batch: int  # images per step; the rest of an epoch is dropped
    seed: int  # of weights, order and changes
    schedule: str = "short"  # one cycle of the rate, smaller images first; or paper: restarts
    precision: str = "fp32"  # of convolutions and products; everything else is fp32

    @property
    def steps_per_epoch(self) -> int:
        """Steps of an epoch, at least one."""
        return max(1, self.images // self.batch)

    @property
    def steps(self) -> int:
        """Steps in all."""
        return self.epochs * self.steps_per_epoch

    def rate(self, step: int) -> float:
        """Return the learning rate of a step.

        Source: Loshchilov & Hutter 2017, "SGDR", for restarts; Smith & Topin 2018,
        "Super-convergence", for one cycle.
        """
        if self.schedule == "paper":
            for epochs in CYCLES:
                length = epochs * self.steps_per_epoch
                if step < length:
                    return HIGHEST * _cosine(step / length)
                step -= length
            raise ValueError("the step is after the last cycle")
        highest = HIGHEST * min(self.batch / USUAL_BATCH, 4.0)
        warm = max(1, round(self.steps * WARM_UP))
        if step < warm:
            return highest * (step + 1) / warm
        return highest * _cosine((step - warm) / max(1, self.steps - warm))

    def side_at(self, epoch: int) -> int:
        """Return the side of the images of an epoch: three quarters of it at first."""
        small = round(self.side * 3 / 4 / 4) * 4
        early = epoch < math.floor(self.epochs * SMALL_EPOCHS)
        return small if self.schedule == "short" and early and small >= 16 else self.side

    @cached_property
    def work(self) -> tuple[int, ...]:
        """Work before each epoch, and in total, in images of full side."""
        done = [0.0]
        for epoch in range(self.epochs):
            area = (self.side_at(epoch) / self.side) ** 2
            done.append(done[-1] + area * self.steps_per_epoch * self.batch)
        return tuple(round(each) for each in done)

    def done(self, step: int) -> int:
        """Return the work before a step; see :attr:`work`."""
        epoch, inside = divmod(step, self.steps_per_epoch)
        if epoch == self.epochs:
            return self.work[-1]
        start, stop = self.work[epoch], self.work[epoch + 1]
        return start + (stop - start) * inside // self.steps_per_epoch

    def as_dict(self) -> dict[str, object]:
        """Return the plan with the constants behind it, as plain values."""
        plain = asdict(self)
        highest = 0, max(1, round(self.steps * WARM_UP)) - 1  # one of these steps
        plain["pictures"] = plain.pop("images")
        restarts = {"cycles": list(CYCLES)}
        one = {"warm_up": WARM_UP, "small_epochs": SMALL_EPOCHS, "first_side": self.side_at(0)}
        return {
            **plain,
            "highest_rate": round(max(map(self.rate, highest)), 6),
            "momentum": MOMENTUM,
            "weight_decay": WEIGHT_DECAY,
            **(restarts if self.schedule == "paper" else one),
        }

    def key(self, data: str) -> str:
        """Return the digest of the plan and of its data."""
        return digest_of([self.as_dict(), data])


def usual_epochs(images: int) -> int:
    """Return the default number of epochs of ``short``.

    >>> usual_epochs(50_000), usual_epochs(500), usual_epochs(1_000_000)
    (6, 100, 3)
    """
    return min(max(round(USUAL_VIEWS / images), FEWEST_EPOCHS), MOST_EPOCHS)


def _cosine(share: float) -> float:
    return 0.5 * (1 + math.cos(math.pi * share))


#: Images of at most this short side are small, and square ones of at most that side.
SMALL: Final = 48
SMALL_SQUARE: Final = 64
PLAIN_SIDE: Final = 32  # default side of the input
RESIDUAL_SIDE: Final = 128
BATCHES: Final = (128, 256)  # default images per step: classes, instances; fewer of a small set
LEAST_BATCH: Final = 16
STEPS: Final = 16


def shape_for(sizes: Sizes, settings: EncoderSettings) -> tuple[str, int]:
    """Return the network and the side for images of some sizes.

    >>> shape_for(Sizes(32.0, 32), EncoderSettings()), shape_for(Sizes(375.0, 0), EncoderSettings())
    (('plain-11', 32), ('resnet', 128))
    >>> shape_for(Sizes(28.0, 28), EncoderSettings())
    ('plain-11', 28)
    """
    own = sizes.square if LEAST_SIDE <= sizes.square <= SMALL_SQUARE else 0
    small = bool(own) or sizes.short <= SMALL
    if settings.size:
        small = settings.size <= SMALL_SQUARE
    network = settings.network
    if network == "auto":
        network = "plain-11" if small else "resnet"
    usual = PLAIN_SIDE if small or network == "plain-11" else RESIDUAL_SIDE
    return network, settings.size or own or usual


def plan_for(
    material: TrainingData, network: str, side: int, settings: EncoderSettings, device: str
) -> Plan:
    """Return the plan of a training: the settings, and defaults for the rest."""
    count = len(material.rows)
    usual = BATCHES[0] if material.by_class else BATCHES[1]
    batch = settings.batch or min(max(count // STEPS, LEAST_BATCH), usual)
    epochs = settings.epochs or usual_epochs(count)
    precision = settings.precision
    if precision == "auto":
        precision = "bf16" if halves_are_fast(device) else "fp32"
    return Plan(
        network,
        side,
        len(material.names) if material.by_class else 0,
        count,
        sum(CYCLES) if settings.schedule == "paper" else epochs,
        min(batch, count),
        settings.seed,
        settings.schedule,
        precision,
    )


def halves_are_fast(device: str) -> bool:
    """Whether a device has instructions for bfloat16."""
    if device.startswith("cuda"):
        import torch

        return bool(torch.cuda.is_bf16_supported())
    try:
        words = Path("/proc/cpuinfo").read_text().split()
    except OSError:  # another system
        return False
    return "avx512_bf16" in words or "amx_bf16" in words
