"""``checkpoint``: weights alone, put into an architecture by its name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final, TypeAlias

from torch import Tensor, nn
from torch.nn import functional

from visleak.encoders.huggingface import timm_preprocessing
from visleak.encoders.network import RUNNING, tensors_digest
from visleak.encoders.onnx import read_recipe
from visleak.encoders.preprocessing import PixelPreparation, Preprocessing, Scaling
from visleak.encoders.request import Request
from visleak.encoders.weights import read_tensors
from visleak.errors import UsageError, VisleakError
from visleak.impact.evaluators.classifiers import (
    Classifier,
    file_of,
    of_recipe,
    plainly,
    running_of,
    torch_classifier,
)
from visleak.lazy import library
from visleak.quantities import some

#: What else takes a whole network, for errors.
WHOLE: Final = ", or give a whole network as torchscript:FILE or onnx:FILE"
_BILINEAR: Final = 2
_MEAN: Final = (0.485, 0.456, 0.406)
_STD: Final = (0.229, 0.224, 0.225)

#: As the published CIFAR checkpoints were trained.
CIFAR: Final = Preprocessing(
    PixelPreparation((32, 32), (), _BILINEAR), Scaling(1 / 255, _MEAN, _STD)
)

#: torchvision's first evaluation: short side 256, the central 224 x 224.
IMAGENET: Final = Preprocessing(
    PixelPreparation((256,), (224, 224), _BILINEAR, "even"), Scaling(1 / 255, _MEAN, _STD)
)

Weights: TypeAlias = "Mapping[str, Tensor]"


@dataclass(frozen=True, slots=True)
class Architecture:
    """A network without its weights."""

    of: str  # its library: `cifar`, `timm` or `torchvision`
    build: Callable[[int], nn.Module]  # from the number of classes to the network
    head: str  # the name of the tensor whose first axis is the classes
    preprocessing: Callable[[], Preprocessing]  # of images by default


def checkpoint_classifier(request: Request) -> Classifier:
    """Return ``checkpoint:FILE?arch=NAME[&prep=FILE.json]``."""
    request.allow_only("arch", "prep", *RUNNING)
    path = file_of(request, "a .pt, .pth, .th or .safetensors file of weights")
    if not (name := request.options.get("arch", "")):
        raise UsageError(
            f"{request.called} needs the architecture that the weights are of:"
            f" checkpoint:FILE?arch=NAME, such as resnet20; got {request.text!r}"
        )
    running = running_of(request)
    architecture = _architecture(request, name)
    weights = read_tensors(path, request.called, WHOLE)
    head = weights.get(architecture.head)
    if head is None or head.ndim < 1:
        raise VisleakError(
            f"{path} is not of the architecture {name}: it has no {architecture.head}; it has"
            f" {some(list(weights))}"
        )
    module = architecture.build(int(head.shape[0]))
    _fill(module, weights, name, path)
    prep = request.options.get("prep")
    recipe = read_recipe(Path(prep)) if prep else None
    about = {"architecture": name, "of": architecture.of, "recipe": recipe and recipe.as_dict()}
    return torch_classifier(
        request,
        module,
        plainly,
        tensors_digest(weights, about),
        of_recipe(recipe) if recipe else architecture.preprocessing(),
        running,
        shown=("arch", "prep"),
        recipe=recipe,
    )


def _architecture(request: Request, name: str) -> Architecture:
    """Return an architecture by name: ours, timm's or torchvision's, in this order."""
    if name in DEPTHS:
        blocks = DEPTHS[name]
        return Architecture("cifar", lambda n: CifarResNet(blocks, n), HEAD, lambda: CIFAR)
    known = list(DEPTHS)
    missing = []
    for kind, find in (("timm", _of_timm), ("torchvision", _of_torchvision)):
        try:
            there, found = find(library(kind, kind, request.called), name, request.called)
        except VisleakError:
            missing.append(kind)
            continue
        if found is not None:
            return found
        known += there
    close = difflib.get_close_matches(name, known, n=3)
    near = "similar names" if close else "known"
    lack = f" ({' and '.join(missing)} cannot be imported here)" if missing else ""
    raise UsageError(
        f"option arch of {request.called} must be an architecture of visleak, timm or"
        f" torchvision{lack}; {near} are {', '.join(close or DEPTHS)}; got {name!r}"
    )


def _of_timm(timm: ModuleType, name: str, what: str) -> tuple[list[str], Architecture | None]:
    """Return the names that timm has, and the architecture of one of them."""
    there = timm.list_models()
    if name not in there:
        return there, None
    template = timm.create_model(name, pretrained=False)
    head = template.pretrained_cfg.get("classifier", "")
    head = f"{head}.weight" if isinstance(head, str) and head else _last(template)
    return there, Architecture(
        "timm",
        lambda n: timm.create_model(name, pretrained=False, num_classes=n),
        head,
        lambda: timm_preprocessing(timm, template, name, what),
    )


def _of_torchvision(
    torchvision: ModuleType, name: str, what: str
) -> tuple[list[str], Architecture | None]:
    """Return the names of classifiers that torchvision has, and the architecture of one of them."""
    models = torchvision.models
    there = models.list_models(module=models)
    if name not in there:
        return there, None
    head = _last(models.get_model(name, weights=None))
    return there, Architecture(
        "torchvision",
        lambda n: models.get_model(name, weights=None, num_classes=n),
        head,
        lambda: IMAGENET,
    )


def _last(module: nn.Module) -> str:
    """Return the last matrix of a network, by name: that of its classes."""
    names: list[str] = [name for name, value in module.state_dict().items() if value.ndim >= 2]
    return names[-1]


def _fill(module: nn.Module, weights: Weights, name: str, path: Path) -> None:
    """Put weights into a network, all of them and nothing else."""
    wanted = module.state_dict()
    # counters of training steps: older checkpoints have none, and no output depends on them
    lacking = [key for key in wanted if key not in weights and not key.endswith("_tracked")]
    beyond = [key for key in weights if key not in wanted]
    other = [
        f"{key} {tuple(weights[key].shape)} for {tuple(value.shape)}"
        for key, value in wanted.items()
        if key in weights and weights[key].shape != value.shape
    ]
    wrong = [
        f"{words} {some(keys)}"
        for words, keys in (("lacks", lacking), ("also has", beyond), ("has", other))
        if keys
    ]
    if wrong:
        raise VisleakError(f"{path} is not of the architecture {name}: it {'; it '.join(wrong)}")
    module.load_state_dict(weights, strict=False)


# The residual networks for CIFAR of He et al. (2016), section 4.2, with shortcuts of option A:
# 6n + 2 layers with weights: a 3 x 3 convolution of 16 channels, three stages of n blocks with 16,
# 32 and 64 channels at 32, 16 and 8 pixels, global averaging, one linear layer. Where a stage
# begins the shortcut takes every second pixel and fills the new channels with zeros, so it has no
# weights. Tensors are named as in the widespread checkpoints.

DEPTHS: Final = {f"resnet{6 * n + 2}": n for n in (3, 5, 7, 9, 18, 200)}  # blocks per stage
HEAD: Final = "linear.weight"  # the tensor whose rows are the classes


class Block(nn.Module):  # type: ignore[misc]
    """Two 3 x 3 convolutions and a shortcut past them."""

    def __init__(self, taken: int, made: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(taken, made, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(made)
        self.conv2 = nn.Conv2d(made, made, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(made)
        self.stride = stride
        # half of the new channels before the old ones, half after
        self.new = (made - taken) // 2

    def forward(self, inputs: Tensor) -> Tensor:
        """Return (n, made, height / stride, width / stride)."""
        made = functional.relu(self.bn1(self.conv1(inputs)))
        made = self.bn2(self.conv2(made))
        past = inputs[:, :, :: self.stride, :: self.stride]
        past = functional.pad(past, (0, 0, 0, 0, self.new, self.new))
        return functional.relu(made + past)


class CifarResNet(nn.Module):  # type: ignore[misc]
    """Images (n, 3, 32, 32) to logits (n, classes)."""

    def __init__(self, blocks: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(16, 16, blocks, 1)
        self.layer2 = _stage(16, 32, blocks, 2)
        self.layer3 = _stage(32, 64, blocks, 2)
        self.linear = nn.Linear(64, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits."""
        made = functional.relu(self.bn1(self.conv1(inputs)))
        made = self.layer3(self.layer2(self.layer1(made)))
        return self.linear(made.mean(dim=(2, 3)))


def _stage(taken: int, made: int, blocks: int, stride: int) -> nn.Sequential:
    first = Block(taken, made, stride)
    return nn.Sequential(first, *(Block(made, made, 1) for _ in range(blocks - 1)))
