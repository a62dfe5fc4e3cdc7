"""``torch:MODEL[?OPTION=VALUE&...]``: networks of our own, trained from scratch by torch."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from visleak.dlede.lesson import Trainer
from visleak.dlede.trainers import Wish
from visleak.dlede.trainers.classifier import Classifier
from visleak.dlede.trainers.detector import Detector
from visleak.dlede.trainers.teaching import Model, NetworkTrainer, Options, Running
from visleak.encoders.libraries import library
from visleak.encoders.request import Request, parse
from visleak.errors import UsageError
from visleak.search.streaming_device import torch_device

#: Name of a model -> what is taught, and the libraries that it needs.
MODELS: Final[dict[str, tuple[Model, tuple[str, ...]]]] = {
    "detector": (Detector(), ("torch", "pycocotools.coco")),
    "classifier": (Classifier(), ("torch",)),
}

#: Least and most of each option that is a whole number; it is a multiple of the third. The widths
#: are such that layers fill whole vectors: with 8 channels, torch 2.13 (oneDNN 3.12) crashes in the
#: backward pass of the classifier in the layout of channels last.
LIMITS: Final = {"side": (16, 2048, 1), "batch": (2, 1024, 1), "width": (16, 256, 16)}


def torch_trainer(wish: Wish) -> Trainer:
    """Return the trainer that a wish names, such as ``torch:detector?side=320``.

    Raises:
        UsageError: no such model, option, value or device.
        MissingExtra: torch is not installed.
    """
    asked = parse(wish.argument, "trainer")
    if asked.name not in MODELS:
        models = " or ".join(f"torch:{name}" for name in MODELS)
        raise UsageError(f"the trainer torch needs a model: {models}; got {wish.text!r}")
    model, libraries = MODELS[asked.name]
    request = replace(asked, text=wish.text, name=f"torch:{asked.name}")
    request.no_argument()
    request.knows(*LIMITS, "rate")
    for name in libraries:
        library(name, "torch", request.called)
    usual = model.usual
    options = Options(
        _number(request, "side", usual.side),
        _number(request, "batch", usual.batch),
        _number(request, "width", usual.width),
        _rate(request, usual.rate),
    )
    running = Running(torch_device(wish.device) or "cpu", wish.threads)
    return NetworkTrainer(wish.text, model, options, running)


def _number(request: Request, option: str, usual: int) -> int:
    """Return an option that is a whole number within its limits."""
    least, most, multiple = LIMITS[option]
    value = request.options.get(option, str(usual))
    # a thousand digits are no wish; int() would refuse them in its own words
    whole = value.isascii() and value.isdecimal() and len(value) < 10
    if not whole or not least <= int(value) <= most or int(value) % multiple:
        kind = "whole number" if multiple == 1 else f"multiple of {multiple}"
        raise request.refused(option, f"a {kind} from {least} to {most:,}")
    return int(value)


def _rate(request: Request, usual: float) -> float:
    """Return the option ``rate``."""
    try:
        value = float(request.options.get("rate", usual))
    except ValueError:
        value = math.nan
    if not 0 < value <= 1:
        raise request.refused("rate", f"a number above 0 and up to 1, such as {usual:g}")
    return value
