"""Image classifiers from transformers, timm, ONNX and TorchScript files, by their text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from visleak.documents import digest_of
from visleak.encoders.huggingface import matters, timm_model, timm_preprocessing
from visleak.encoders.network import (
    RUNNING,
    NetworkEncoder,
    Running,
    Tower,
    load_script,
    tensors_digest,
)
from visleak.encoders.onnx import OnnxEncoder, Recipe, onnx_encoder, recipe_of
from visleak.encoders.preprocessing import Preprocessing, Scaling, read_preprocessing
from visleak.encoders.request import Request, parse
from visleak.encoders.weights import (
    StoredTensors,
    find_model,
    load_weights,
    refuse_missing,
    transformers_for,
)
from visleak.errors import UsageError, VisleakError, brief
from visleak.impact.evaluators.classes import Names, synonyms
from visleak.lazy import library, member
from visleak.records import Float32

if TYPE_CHECKING:
    from torch import Tensor, nn

_HERE: Final = "visleak.impact.evaluators.classifiers"

#: Name on the command line -> function from a request to the classifier, imported on use.
MODELS: Final = {
    **{kind: f"{_HERE}:{kind}_classifier" for kind in ("hf", "timm", "onnx", "torchscript")},
    "checkpoint": "visleak.impact.evaluators.checkpoints:checkpoint_classifier",
}

#: How each is written, for messages.
WRITTEN: Final = "hf:FOLDER, timm:NAME, onnx:FILE, torchscript:FILE or checkpoint:FILE?arch=NAME"


@dataclass
class Classifier:
    """A network with an output per class, which takes prepared images in batches."""

    network: NetworkEncoder | OnnxEncoder
    prepared: Mapping[str, object]  # everything its input depends on, as plain values
    names: Names | None = None  # of its outputs, as the model has them; `None` where it has none

    #: In messages.
    kind = "model"

    def __post_init__(self) -> None:
        made = self.network
        self.name, self.digest, self.width = made.name, made.digest, made.width
        self.batch, self.preparation = made.batch, made.preparation
        self.precision, self.device = made.precision, made.device
        enough = self.prepared.get("enough")
        self.enough = enough if isinstance(enough, int) else made.enough
        if self.width < 2:
            raise VisleakError(
                f"model {self.name} has one output; a classifier has one for each class, two or"
                " more"
            )
        # a list of another length is of another head
        if self.names is not None and len(self.names) != self.width:
            self.names = None

    def forward(self, prepared: Sequence[npt.NDArray[np.generic]]) -> Float32:
        """Return the outputs (n, classes), larger for likelier classes."""
        return self.network.outputs(prepared)


def load_classifier(text: str, **options: object) -> Classifier:
    """Return the classifier of a text, ``NAME:ARGUMENT[?OPTION=VALUE&...]``, see :data:`WRITTEN`.

    Options given by name come before those in the text.
    """
    request = parse(text, "model")
    merged = {**request.options, **{name: str(value) for name, value in options.items()}}
    if request.name not in MODELS:
        raise UsageError(f"a model is written {WRITTEN}; got {text!r}")
    module, _, name = MODELS[request.name].partition(":")
    make: Callable[[Request], Classifier] = getattr(import_module(module), name)
    return make(replace(request, options=merged))


#: Pixels per call of a network on the CPU, without a given batch size: 16 images of 224 x 224.
#: Measured on CIFAR's networks: with few pixels per call its threads mostly wait.
PIXELS: Final = 16 * 224 * 224
MOST: Final = 128  # images per call at most, without a given batch size

#: From a module and its input (n, 3, height, width) to its outputs.
Call: TypeAlias = "Callable[[nn.Module, Tensor], Tensor]"


def torch_classifier(
    request: Request,
    module: nn.Module,
    call: Call,
    digest: str,
    preprocessing: Preprocessing,
    running: Running,
    *,
    names: Names | None = None,
    shown: tuple[str, ...] = (),
    recipe: Recipe | None = None,
) -> Classifier:
    """Return a module as a classifier, tried on a grey image."""
    name = request.named(*shown)

    def outputs(loaded: nn.Module, inputs: Tensor) -> Tensor:
        count = len(inputs)
        if recipe and recipe.channels == "BGR":
            inputs = inputs.flip(1)
        if recipe and recipe.layout == "NHWC":
            inputs = inputs.permute(0, 2, 3, 1).contiguous()
        made = call(loaded, inputs)
        if recipe and recipe.output:
            known = isinstance(made, dict)
            if not known or recipe.output not in made:
                there = f"its outputs are {', '.join(made)}" if known else "it has no names"
                raise VisleakError(f"model {name} has no output {recipe.output!r}; {there}")
            made = made[recipe.output]
        shape = getattr(made, "shape", None)
        if shape is None or len(shape) != 2 or shape[0] != count:
            kind = f"a {type(made).__name__}" if shape is None else f"an array {tuple(shape)}"
            raise VisleakError(
                f"model {name} returns {kind} for a batch of {count}; a classifier returns"
                " (n, classes), a number for each image and class"
            )
        return made

    sides = preprocessing.pixels.shape
    if sides and running.device == "cpu" and "batch" not in request.options:
        fitting = min(MOST, PIXELS // (sides[0] * sides[1]))
        running = replace(running, batch=max(running.batch, fitting))
    try:
        network = NetworkEncoder(name, Tower(module, outputs, digest), preprocessing, running)
    except VisleakError:
        raise
    except Exception as error:
        # a network raises what its code raises: RuntimeError, IndexError, TypeError ...
        size = f"{sides[0]} x {sides[1]}" if sides else "any number of"
        raise VisleakError(
            f"model {name} cannot be run on images of {size} pixels ({brief(error, 240)}); check"
            " how they are prepared (prep=FILE.json)"
        ) from error
    # images are decoded in part where the recipe says that it is enough
    prepared = recipe.as_dict() if recipe else preprocessing.recipe()
    return Classifier(network, prepared, names)


def plainly(module: nn.Module, inputs: Tensor) -> Tensor:
    """Call a module with its input alone."""
    return module(inputs)


def running_of(request: Request) -> Running:
    """Return where and how a network runs, by default in ``fp32``.

    A score is of the network as it was trained; half precision may change it.
    """
    return Running.of(replace(request, options={"precision": "fp32", **request.options}))


def of_recipe(recipe: Recipe) -> Preprocessing:
    """Return the preprocessing of a recipe, for torch."""
    mean, std = recipe.mean, recipe.std
    if recipe.channels == "BGR":
        # channels are scaled before they are swapped
        mean, std = mean[::-1], std[::-1]
    return Preprocessing(recipe.preparation, Scaling(1 / 255, mean, std))


def file_of(request: Request, what: str) -> Path:
    """Return the file that a request names."""
    path = Path(request.wanted_argument("FILE")).expanduser()
    if not path.is_file():
        raise VisleakError(f"{request.called}: there is no file {path}; give {what}")
    return path


def hf_classifier(request: Request) -> Classifier:
    """Return ``hf:FOLDER`` or ``hf:OWNER/NAME``: a model for image classification."""
    request.wanted_argument("FOLDER")
    request.allow_only(*RUNNING)
    found = find_model(request)
    running = running_of(request)
    factory = member(
        transformers_for(request.called), "AutoModelForImageClassification", request.called
    )
    preprocessing = read_preprocessing(found.path)
    module, missing = load_weights(found, factory)
    # without a trained head its predictions would be random
    refuse_missing(found, missing)
    config = found.config()
    about = {"model": matters(config), "outputs": "logits"}
    digest = tensors_digest(StoredTensors(found.path), about)
    names = _hf_names(config.get("id2label"))

    def logits(loaded: nn.Module, inputs: Tensor) -> Tensor:
        return loaded(pixel_values=inputs).logits

    return torch_classifier(request, module, logits, digest, preprocessing, running, names=names)


def _hf_names(id2label: object) -> Names | None:
    """Return the names of the outputs; ``None`` where there are none."""
    if not isinstance(id2label, Mapping):
        return None
    named = {str(number): str(name) for number, name in id2label.items()}
    ordered = [named.get(str(number), "") for number in range(len(named))]
    if not all(ordered) or all(re.fullmatch(r"LABEL_\d+", name) for name in ordered):
        return None
    return tuple(synonyms(name) for name in ordered)


def timm_classifier(request: Request) -> Classifier:
    """Return a model of timm by name, ``hf-hub:OWNER/NAME`` or folder."""
    name = request.wanted_argument("NAME")
    request.allow_only(*RUNNING)
    timm = library("timm", "timm", request.called)
    running = running_of(request)
    module = timm_model(timm, name, request.called)
    about = {"timm": str(module.pretrained_cfg.get("architecture", name)), "modules": str(module)}
    digest = tensors_digest(module.state_dict(), about)
    preprocessing = timm_preprocessing(timm, module, name, request.called)
    names = _timm_names(timm, module)
    return torch_classifier(request, module, plainly, digest, preprocessing, running, names=names)


def _timm_names(timm: ModuleType, module: nn.Module) -> Names | None:
    """Return the names that come with the weights, or ImageNet's where they are of its classes."""
    labels = module.pretrained_cfg.get("label_names")
    if isinstance(labels, list | tuple) and labels:
        described = module.pretrained_cfg.get("label_descriptions") or {}
        return tuple(
            (str(n), *synonyms(str(described[n]))) if n in described else synonyms(str(n))
            for n in labels
        )
    if not (subset := timm.data.infer_imagenet_subset(module)):
        return None
    info = timm.data.ImageNetInfo(subset)
    return tuple(
        (info.index_to_label_name(output), *synonyms(info.index_to_description(output)))
        for output in range(info.num_classes())
    )


def onnx_classifier(request: Request) -> Classifier:
    """Return ``onnx:FILE[?prep=FILE.json]``, run by onnxruntime without torch."""
    network = onnx_encoder(request)
    return Classifier(network, recipe_of(request, Path(request.argument)).as_dict())


def torchscript_classifier(request: Request) -> Classifier:
    """Return ``torchscript:FILE[?prep=FILE.json]``.

    A TorchScript file is a program of torch's own operators, which may also read and write files:
    load trusted files only.
    """
    request.allow_only("prep", *RUNNING)
    advice = "a file that torch.jit.save wrote"
    path = file_of(request, advice)
    recipe = recipe_of(request, path)
    running = running_of(request)
    torch = library("torch", "torch", request.called)
    script, content = load_script(torch, path, request.called, f"give {advice}")
    return torch_classifier(
        request,
        script,
        plainly,
        digest_of([content, {"network": "TorchScript", "recipe": recipe.as_dict()}]),
        of_recipe(recipe),
        running,
        shown=("prep",),
        recipe=recipe,
    )
