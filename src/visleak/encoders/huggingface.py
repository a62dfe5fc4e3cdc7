"""Networks of transformers (``hf``, and ``dinov2`` and ``resnet152`` of them) and of timm."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from math import floor
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

from visleak.encoders.network import RUNNING, NetworkEncoder, Running, Tower, tensors_digest
from visleak.encoders.preprocessing import (
    PixelPreparation,
    Preprocessing,
    Scaling,
    read_preprocessing,
)
from visleak.encoders.request import Request
from visleak.encoders.weights import (
    Found,
    Layout,
    StoredTensors,
    find_model,
    hub_model,
    load_weights,
    loading,
    refuse_missing,
    transformers_for,
    whole,
)
from visleak.errors import UsageError, VisleakError, brief
from visleak.lazy import library, member

if TYPE_CHECKING:
    import torch

#: timm's names of Pillow's filters.
_FILTERS: Final = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5}
_LOCAL: Final = "local-dir:"  # prefix of timm for a folder
_USE: Final = "timm:FOLDER"
LAYOUT: Final = Layout("timm", "config.json", ("model.safetensors", "pytorch_model.bin"))
DINOV2: Final = "facebook/dinov2-base"
RESNET152: Final = "microsoft/resnet-152"
#: Parts of a configuration that describe the origin or the training of a model, not what it
#: computes.
_IRRELEVANT: Final = (
    *("transformers_version", "_name_or_path", "_commit_hash", "architectures", "dtype"),
    *("torch_dtype", "id2label", "label2id", "problem_type", "initializer_range"),
    *("initializer_factor", "use_cache", "return_dict", "output_attentions"),
    *("output_hidden_states", "_attn_implementation_autoset"),
)


def timm_encoder(request: Request) -> NetworkEncoder:
    """Return a model of timm by name, ``hf-hub:OWNER/NAME`` or folder."""
    name = request.wanted_argument("NAME")
    request.allow_only(*RUNNING)
    timm = library("timm", "timm", request.called)
    running = Running.of(request)
    module = timm_model(timm, name, request.called, num_classes=0)
    about = {"timm": str(module.pretrained_cfg.get("architecture", name)), "modules": str(module)}
    tower = Tower(
        module, lambda module, inputs: module(inputs), tensors_digest(module.state_dict(), about)
    )
    preprocessing = timm_preprocessing(timm, module, name, request.called)
    return NetworkEncoder(request.named(), tower, preprocessing, running)


def timm_model(timm: ModuleType, name: str, what: str, **options: object) -> torch.nn.Module:
    """Return a pretrained model of timm on the CPU."""
    found, overlay = _weights(timm, name, what)
    with loading(f"{what}: {found} cannot be loaded"):
        return timm.create_model(
            found, pretrained=True, pretrained_cfg_overlay=dict(overlay), **options
        ).float()


def _weights(timm: ModuleType, name: str, what: str) -> tuple[str, Mapping[str, object]]:
    """Return timm's name of a model, and the location of its weights if they are local."""
    for prefix in ("hf-hub:", "hf_hub:"):
        if name.startswith(prefix):
            folder = hub_model(what, name.removeprefix(prefix), LAYOUT, _USE)
            return f"{_LOCAL}{folder}", {}
    folder = Path(name.removeprefix(_LOCAL)).expanduser()
    if name.startswith((_LOCAL, "/", ".", "~")) or folder.is_dir():
        return f"{_LOCAL}{whole(name, folder, LAYOUT)}", {}
    try:
        config = timm.get_pretrained_cfg(name)
    except (RuntimeError, KeyError):
        config = None
    if config is None or not config.has_weights:
        close = ", ".join(difflib.get_close_matches(name, timm.list_pretrained(), n=3))
        raise UsageError(
            f"{what}: timm {timm.__version__} has no weights named {name!r}"
            f"{f'; near are {close}' if close else ''}"
        )
    if not config.hf_hub_id:
        return name, {}
    # timm itself would contact the hub first, and wait for a minute if it is unreachable
    folder = hub_model(what, config.hf_hub_id, LAYOUT, _USE)
    file = next(folder / each for each in LAYOUT.weights if (folder / each).is_file())
    return name, {"file": str(file), "hf_hub_id": None, "url": ""}


def timm_preprocessing(
    timm: ModuleType, module: torch.nn.Module, name: str, what: str
) -> Preprocessing:
    """Return timm's preprocessing of a model for evaluation."""
    config = timm.data.resolve_model_data_config(module)
    channels, height, width = config["input_size"]
    mode, method = config["crop_mode"], config["interpolation"]
    if channels != 3 or mode not in ("center", "squash") or method not in _FILTERS:
        raise VisleakError(
            f"{what}: the preprocessing of {name} is not known here (input"
            f" {channels} x {height} x {width}, crop mode {mode!r}, interpolation {method!r});"
            " export it to ONNX and use onnx:FILE"
        )
    sides = floor(height / config["crop_pct"]), floor(width / config["crop_pct"])
    if mode == "center" and height != width:
        raise VisleakError(
            f"{what}: {name} crops images to {height} x {width}; only squares are known"
            " here: export it to ONNX and use onnx:FILE"
        )
    resize = sides if mode == "squash" else sides[:1]
    pixels = PixelPreparation(resize, (height, width), _FILTERS[method], "even")
    mean, std = (tuple(float(value) for value in config[part]) for part in ("mean", "std"))
    return Preprocessing(pixels, Scaling(1 / 255, mean, std))


def _projected(module: torch.nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    made = module.get_image_features(pixel_values=inputs)
    return getattr(made, "pooler_output", made)


def _mean(module: torch.nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    last = module(pixel_values=inputs).last_hidden_state
    return last.mean(dim=(2, 3)) if last.ndim == 4 else last.mean(dim=1)


#: Features that may become the vector, in the order of preference.
FEATURES: Final[Mapping[str, Callable[[torch.nn.Module, torch.Tensor], torch.Tensor]]] = {
    "projected": _projected,
    "image_embeds": lambda module, inputs: module(pixel_values=inputs).image_embeds,
    "pooler_output": lambda module, inputs: module(pixel_values=inputs).pooler_output,
    "cls": lambda module, inputs: module(pixel_values=inputs).last_hidden_state[:, 0],
    "mean": _mean,
}


def dinov2_encoder(request: Request) -> NetworkEncoder:
    """Return DINOv2 (ViT-B/14 by default): the class token after the last layer norm."""
    request.allow_only(*RUNNING)
    return _encoder(request, find_model(request, DINOV2), "cls", "dinov2")


def resnet152_encoder(request: Request) -> NetworkEncoder:
    """Return ResNet-152, or the ResNet of a folder: the averaged features before the classes."""
    request.allow_only(*RUNNING)
    return _encoder(request, find_model(request, RESNET152), "pooler_output", "resnet")


def hf_encoder(request: Request) -> NetworkEncoder:
    """Return any vision model by name or folder.

    Its vector is the first available of: ``projected`` (the image side of a model of images and
    texts), ``image_embeds``, ``pooler_output`` if the weights have the pooler, ``cls`` (the class
    token of the last layer), ``mean`` (of the last layer's tokens or feature map). The option
    ``feature`` names one. The digest depends on it.
    """
    request.wanted_argument("NAME_OR_FOLDER")
    request.allow_only("feature", *RUNNING)
    feature = request.choice("feature", ("auto", *FEATURES), "auto")
    return _encoder(request, find_model(request), feature)


def _encoder(request: Request, found: Found, feature: str, kind: str = "") -> NetworkEncoder:
    running, what = Running.of(request), f"encoder {request.name}"
    stated = str(found.config().get("model_type", ""))
    if kind and not stated.startswith(kind):
        raise VisleakError(
            f"{what}: model {found.name} is a {stated!r}, not a {kind}; other models of"
            f" transformers are hf:{found.name}"
        )
    preprocessing = read_preprocessing(found.path)
    factory = member(transformers_for(what), "AutoModel", what)
    module, missing = load_weights(found, factory)
    # a pooler without weights is not a feature
    pooler = frozenset(name for name in missing if "pooler." in f".{name}")
    refuse_missing(found, missing - pooler)
    available = _features(request, module, pooled=not pooler)
    chosen = available[0] if feature == "auto" else feature
    if chosen not in available:
        raise UsageError(
            f"option feature of {what} must be one of {', '.join(available)} for this model; got"
            f" {feature!r}"
        )
    about = {"model": matters(found.config()), "feature": chosen}
    # of the files, not of the module: its names and defaults change with the library's version
    tower = Tower(module, FEATURES[chosen], tensors_digest(StoredTensors(found.path), about))
    return NetworkEncoder(request.named("feature"), tower, preprocessing, running)


def matters(config: Mapping[str, object]) -> dict[str, object]:
    """Return the part of a model's configuration that determines what it computes."""
    return {
        name: matters(value) if isinstance(value, Mapping) else value
        for name, value in config.items()
        if name not in _IRRELEVANT
    }


def _features(request: Request, module: torch.nn.Module, pooled: bool) -> list[str]:
    """Return the :data:`FEATURES` of a model, in their order."""
    import torch

    if hasattr(module, "get_image_features"):
        return ["projected"]
    size = getattr(module.config, "image_size", None) or 64
    sides = (size, size) if isinstance(size, int) else tuple(size)
    with torch.inference_mode():
        try:
            made = module.eval()(pixel_values=torch.zeros(1, 3, *sides))
        except Exception as error:
            raise VisleakError(
                f"encoder {request.name}: model {request.argument or request.name} does not take"
                f" images alone ({brief(error)})"
            ) from error
    last = getattr(made, "last_hidden_state", None)
    names = {name.rsplit(".", 1)[-1] for name in module.state_dict()}
    available = {
        "image_embeds": getattr(made, "image_embeds", None) is not None,
        "pooler_output": pooled and getattr(made, "pooler_output", None) is not None,
        "cls": getattr(last, "ndim", 0) == 3 and {"cls_token", "class_embedding"} & names,
        "mean": last is not None,
    }
    found = [name for name, is_there in available.items() if is_there]
    if not found:
        raise VisleakError(
            f"encoder {request.name}: model {request.argument} makes none of {', '.join(FEATURES)}"
        )
    return found
