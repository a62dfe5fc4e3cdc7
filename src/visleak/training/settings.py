"""The settings of a trained encoder; they are also options of ``visleak train-encoder``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from visleak.errors import UsageError
from visleak.options import (
    METHOD,
    SETS,
    SPEED,
    Printed,
    Replaced,
    group_column,
    label_column,
    option,
    output,
)

NETWORKS: Final = ("plain-11", "resnet")
SCHEDULES: Final = ("short", "paper")
PRECISIONS: Final = ("fp32", "bf16")

#: Epochs between the warm restarts of ``paper`` (the code of Barz & Denzler 2018).
CYCLES: Final = (12, 24, 48, 96, 192)

#: Bounds of the side of the input, in pixels.
LEAST_SIDE, MOST_SIDE = 16, 512


@dataclass(frozen=True)
class EncoderSettings:
    """Settings of a training run; ``None`` and ``auto`` depend on the set.

    Raises:
        UsageError: one of them is out of its range.
    """

    # whole numbers
    epochs: int | None = option(
        None,
        "Passes over the set. Default: as many as make 300,000 views of images (3 to 100), minutes"
        " on a processor.",
        metavar="N",
        panel=METHOD,
    )
    batch: int | None = option(
        None,
        "Images per step. Default: 128 (without labels 256), fewer for a small set.",
        metavar="N",
        panel=METHOD,
    )
    side: int | None = option(
        None,
        "Side in pixels that images are resized to. Default: 32 or their own for plain-11, 128 for"
        " resnet.",
        "--size",
        metavar="N",
        panel=METHOD,
    )
    # of weights, order, changes and held-out images
    seed: int = option(
        0, "Seed of weights, order, augmentation and the held-out part.", metavar="K", panel=METHOD
    )
    # ``auto`` or ``none``
    labels: str = option(
        "auto",
        "Learn the classes if there are labels, or never: then two augmented views of an image are"
        " matched against all others.",
        metavar="auto|none",
        panel=METHOD,
    )
    # ``auto``, ``plain-11`` or ``resnet``
    network: str = option(
        "auto",
        "Default: plain-11 for images of up to 48 pixels, else a small residual network.",
        metavar="auto|plain-11|resnet",
        panel=METHOD,
    )
    # ``short`` or ``paper``
    schedule: str = option(
        "short",
        "One cycle of the learning rate, or the five of Barz and Denzler with warm restarts: 372"
        " epochs.",
        metavar="short|paper",
        panel=METHOD,
    )
    # ``auto``, ``fp32`` or ``bf16``
    precision: str = option(
        "auto",
        "Floating-point precision of the training run. Default: bf16 if the machine has"
        " instructions for it. The model is written as fp32.",
        metavar="auto|fp32|bf16",
        panel=METHOD,
    )

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
                f"the schedule paper has {sum(CYCLES)} epochs; leave out the epochs, or use the"
                " schedule short"
            )


@dataclass(frozen=True)
class TrainEncoder(Printed, Replaced):
    """Options of ``train-encoder``."""

    out: Path = output(
        Path("model.onnx"),
        "The ONNX file; a JSON file of the same name is written beside it.",
        metavar="FILE",
    )
    test: str | None = option(
        None,
        "Set whose accuracy is reported. Default: a tenth of the training set is held out.",
        metavar="[NAME=]SOURCE",
        panel=SETS,
    )
    label: str | None = label_column()
    group: str | None = group_column()
    device: str = option(
        "auto",
        "Device of the training run. Default: GPU if available.",
        metavar="auto|cpu|cuda|..",
        panel=SPEED,
    )
    threads: int | None = option(
        None,
        "CPU threads. Default: one per core. A different number changes rounding.",
        metavar="N",
        panel=METHOD,
        least=1,
    )
