"""Networks that name the class of a picture, by the text that the command line has for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Final, Protocol

import numpy.typing as npt

from visleak.encoders.request import Request, parse
from visleak.errors import UsageError, VisleakError
from visleak.records import Float32, Preparation

#: Name on the command line -> function from a request to the classifier, imported on use.
MODELS: Final = {
    "hf": "visleak.impact.evaluators.transformers_models:hf_classifier",
    "timm": "visleak.impact.evaluators.timm_classifiers:timm_classifier",
    "onnx": "visleak.impact.evaluators.network_files:onnx_classifier",
    "torchscript": "visleak.impact.evaluators.network_files:torchscript_classifier",
    "checkpoint": "visleak.impact.evaluators.checkpoints:checkpoint_classifier",
}

#: How each is written, for messages.
WRITTEN: Final = "hf:FOLDER, timm:NAME, onnx:FILE, torchscript:FILE or checkpoint:FILE?arch=NAME"

#: What each output of a network is called: its names, the first of them the usual one.
Names = tuple[tuple[str, ...], ...]


class Computes(Protocol):
    """A loaded network; an encoder of :mod:`visleak.encoders` that runs one has these parts."""

    name: str
    digest: str
    enough: int
    width: int
    batch: int
    precision: str
    device: str

    @property
    def preparation(self) -> Preparation:
        """Makes the network's input of a picture."""
        ...

    def outputs(self, prepared: Sequence[npt.NDArray[Any]]) -> Float32:
        """Return what the network makes of prepared pictures, (n, width)."""
        ...


@dataclass
class Classifier:
    """A network with an output a class; :class:`visleak.impact.evaluators.feeding.Network`.

    Attributes:
        network: whose outputs they are.
        prepared: everything its input depends on, as plain values.
        names: of its outputs, as the model has them; ``None`` where it does not say.
    """

    network: Computes
    prepared: Mapping[str, Any]
    names: Names | None = None

    #: In messages.
    kind = "model"

    def __post_init__(self) -> None:
        made = self.network
        self.name, self.digest, self.width = made.name, made.digest, made.width
        self.batch, self.preparation = made.batch, made.preparation
        self.precision, self.device = made.precision, made.device
        self.enough = int(self.prepared.get("enough", made.enough))
        if self.width < 2:
            raise VisleakError(
                f"model {self.name} has one output; a classifier has one for each class, two or"
                " more"
            )
        # a list of another length is of another head
        if self.names is not None and len(self.names) != self.width:
            self.names = None

    def forward(self, prepared: Sequence[npt.NDArray[Any]]) -> Float32:
        """Return the outputs (n, classes), larger for likelier classes."""
        return self.network.outputs(prepared)


def load_classifier(text: str, **options: object) -> Classifier:
    """Return the classifier of a text, ``NAME:ARGUMENT[?OPTION=VALUE&...]``.

    Args:
        text: see :data:`WRITTEN`.
        options: more options, by name; they come before those in the text.

    Raises:
        UsageError: there is no such kind of model, or an option cannot be used.
        MissingExtra: it needs a package that is not installed.
        VisleakError: it cannot be had, or is no classifier.
    """
    request = parse(text, "model")
    told = {**request.options, **{name: str(value) for name, value in options.items()}}
    if request.name not in MODELS:
        raise UsageError(f"a model is written {WRITTEN}; got {text!r}")
    module, _, name = MODELS[request.name].partition(":")
    make: Callable[[Request], Classifier] = getattr(import_module(module), name)
    return make(replace(request, options=told))
