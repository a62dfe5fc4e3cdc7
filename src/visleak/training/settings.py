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
    Options,
    Printed,
    Replaced,
    group_column,
    label_column,
    option,
    output,
)

#: Epochs between the warm restarts of ``paper`` (the code of Barz & Denzler 2018).
CYCLES: Final = (12, 24, 48, 96, 192)
LEAST_SIDE: Final = 16  # the smallest side of the input, in pixels


@dataclass(frozen=True)
class EncoderSettings(Options, panel=METHOD):
    """Settings of a training run; ``None`` and ``auto`` depend on the set.

    Raises:
        UsageError: one of them is out of its range.
    """

    epochs: int | None = option(
        None,
        "Passes over the set. Default: as many as make 300,000 views of images (3 to 100), minutes"
        " on a processor.",
        least=1,
        most=10_000,
    )
    batch: int | None = option(
        None,
        "Images per step. Default: 128 (without labels 256), fewer for a small set.",
        least=2,
        most=65_536,
    )
    size: int | None = option(
        None,
        "Side in pixels that images are resized to. Default: 32 or their own for plain-11, 128 for"
        " resnet.",
        least=LEAST_SIDE,
        most=512,
    )
    seed: int = option(
        0,
        "Seed of weights, order, augmentation and the held-out part.",
        metavar="K",
        least=0,
        most=2**32 - 1,
    )
    labels: str = option(
        "auto",
        "Learn the classes if there are labels, or never: then two augmented views of an image are"
        " matched against all others.",
        choices=("auto", "none"),
    )
    network: str = option(
        "auto",
        "Default: plain-11 for images of up to 48 pixels, else a small residual network.",
        choices=("auto", "plain-11", "resnet"),
    )
    schedule: str = option(
        "short",
        "One cycle of the learning rate, or the five of Barz and Denzler with warm restarts: 372"
        " epochs.",
        choices=("short", "paper"),
    )
    precision: str = option(
        "auto",
        "Floating-point precision of the training run. Default: bf16 if the machine has"
        " instructions for it. The model is written as fp32.",
        choices=("auto", "fp32", "bf16"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
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
        "The ONNX file; its recipe, a JSON file of the same name, is written next to it.",
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
        panel=METHOD,
        least=1,
    )
