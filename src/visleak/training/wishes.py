"""What somebody wishes of a training, and what the set itself decides."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from visleak.errors import UsageError
from visleak.training.lessons import Lessons
from visleak.training.material import Sizes
from visleak.training.plan import CYCLES, NETWORKS, PRECISIONS, SCHEDULES, Plan, usual_epochs

#: Pictures of at most this short side are small; as is what is square and of this side.
SMALL: Final = 48
SMALL_SQUARE: Final = 64

#: Side of the input where nobody says.
PLAIN_SIDE: Final = 32
RESIDUAL_SIDE: Final = 128
LEAST_SIDE, MOST_SIDE = 16, 512

#: Pictures a step where nobody says: classes, instances; fewer of a small set.
BATCHES: Final = (128, 256)
LEAST_BATCH: Final = 16
STEPS: Final = 16


@dataclass(frozen=True)
class Wishes:
    """What somebody asked of a training; ``None`` and ``auto`` leave it to the set.

    Attributes:
        epochs, batch, side: whole numbers.
        seed: of weights, order, changes and what is held out.
        labels: ``auto`` or ``none``.
        network: ``auto``, ``plain-11`` or ``resnet``.
        schedule: ``short`` or ``paper``.
        precision: ``auto``, ``fp32`` or ``bf16``.

    Raises:
        UsageError: one of them cannot be.
    """

    epochs: int | None = None
    batch: int | None = None
    side: int | None = None
    seed: int = 0
    labels: str = "auto"
    network: str = "auto"
    schedule: str = "short"
    precision: str = "auto"

    def __post_init__(self) -> None:
        choices = {
            "labels": ("auto", "none"),
            "network": ("auto", *NETWORKS),
            "schedule": SCHEDULES,
            "precision": ("auto", *PRECISIONS),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise UsageError(
                    f"{name} must be one of {', '.join(allowed)}; got {getattr(self, name)!r}"
                )
        limits = {"epochs": (1, 10_000), "batch": (2, 65_536), "side": (LEAST_SIDE, MOST_SIDE)}
        for name, (least, most) in {**limits, "seed": (0, 2**32 - 1)}.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                shown = "size" if name == "side" else name
                raise UsageError(f"{shown} must lie between {least} and {most:,}; got {value:,}")
        if self.schedule == "paper" and self.epochs not in (None, sum(CYCLES)):
            raise UsageError(
                f"the schedule paper has {sum(CYCLES)} epochs; leave the epochs out, or take the"
                " schedule short"
            )


def shape_for(sizes: Sizes, wishes: Wishes) -> tuple[str, int]:
    """Return the network and the side for pictures of some sizes.

    >>> shape_for(Sizes(32.0, 32), Wishes()), shape_for(Sizes(375.0, 0), Wishes())
    (('plain-11', 32), ('resnet', 128))
    >>> shape_for(Sizes(28.0, 28), Wishes()), shape_for(Sizes(40.0, 0), Wishes(network="resnet"))
    (('plain-11', 28), ('resnet', 32))
    """
    own = sizes.square if LEAST_SIDE <= sizes.square <= SMALL_SQUARE else 0
    small = bool(own) or sizes.short <= SMALL
    if wishes.side:
        small = wishes.side <= SMALL_SQUARE
    network = wishes.network
    if network == "auto":
        network = "plain-11" if small else "resnet"
    usual = PLAIN_SIDE if small or network == "plain-11" else RESIDUAL_SIDE
    return network, wishes.side or own or usual


def plan_for(lessons: Lessons, network: str, side: int, wishes: Wishes, device: str) -> Plan:
    """Return the plan of a training: what was wished, and the usual for the rest."""
    count = len(lessons.rows)
    usual = BATCHES[0] if lessons.by_class else BATCHES[1]
    batch = wishes.batch or min(max(count // STEPS, LEAST_BATCH), usual)
    epochs = wishes.epochs or usual_epochs(count)
    precision = wishes.precision
    if precision == "auto":
        precision = "bf16" if halves_are_fast(device) else "fp32"
    return Plan(
        network,
        side,
        len(lessons.names) if lessons.by_class else 0,
        count,
        sum(CYCLES) if wishes.schedule == "paper" else epochs,
        min(batch, count),
        wishes.seed,
        wishes.schedule,
        precision,
    )


def halves_are_fast(device: str) -> bool:
    """Whether a device multiplies bfloat16 by instructions of its own."""
    if device.startswith("cuda"):
        import torch

        return bool(torch.cuda.is_bf16_supported())
    try:
        words = Path("/proc/cpuinfo").read_text().split()
    except OSError:  # another system: nobody tells
        return False
    return "avx512_bf16" in words or "amx_bf16" in words
