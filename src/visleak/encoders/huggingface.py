"""``hf``: any vision model of transformers; ``dinov2`` and ``resnet152`` are two of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from visleak.encoders.libraries import member, said
from visleak.encoders.network import RUNNING, NetworkEncoder, Running, Tower, tensors_digest
from visleak.encoders.preprocessing import read_preprocessing
from visleak.encoders.request import Request
from visleak.encoders.weights import (
    Found,
    StoredTensors,
    find_model,
    load_weights,
    refuse_missing,
    transformers_for,
)
from visleak.errors import UsageError, VisleakError

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


def _projected(module: Any, inputs: Any) -> Any:
    made = module.get_image_features(pixel_values=inputs)
    return getattr(made, "pooler_output", made)


def _mean(module: Any, inputs: Any) -> Any:
    last = module(pixel_values=inputs).last_hidden_state
    return last.mean(dim=(2, 3)) if last.ndim == 4 else last.mean(dim=1)


#: Features that may become the vector, in the order of preference.
FEATURES: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "projected": _projected,
    "image_embeds": lambda module, inputs: module(pixel_values=inputs).image_embeds,
    "pooler_output": lambda module, inputs: module(pixel_values=inputs).pooler_output,
    "cls": lambda module, inputs: module(pixel_values=inputs).last_hidden_state[:, 0],
    "mean": _mean,
}


def dinov2_encoder(request: Request) -> NetworkEncoder:
    """Return DINOv2 (ViT-B/14 by default): the class token after the last layer norm."""
    request.knows(*RUNNING)
    return _encoder(request, find_model(request, DINOV2), "cls", "dinov2")


def resnet152_encoder(request: Request) -> NetworkEncoder:
    """Return ResNet-152, or the ResNet of a folder: the averaged features before the classes."""
    request.knows(*RUNNING)
    return _encoder(request, find_model(request, RESNET152), "pooler_output", "resnet")


def hf_encoder(request: Request) -> NetworkEncoder:
    """Return any vision model by name or folder.

    Its vector is the first available of: ``projected`` (the image side of a model of images and
    texts), ``image_embeds``, ``pooler_output`` if the weights have the pooler, ``cls`` (the class
    token of the last layer), ``mean`` (of the last layer's tokens or feature map). The option
    ``feature`` names one. The digest depends on it.
    """
    request.wanted_argument("NAME_OR_FOLDER")
    request.knows("feature", *RUNNING)
    feature = request.choice("feature", ("auto", *FEATURES), "auto")
    return _encoder(request, find_model(request), feature)


def _encoder(request: Request, found: Found, feature: str, kind: str = "") -> NetworkEncoder:
    running = Running.asked(request)
    stated = str(found.config().get("model_type", ""))
    if kind and not stated.startswith(kind):
        raise VisleakError(
            f"encoder {request.name}: model {found.name} is a {stated!r}, not a {kind}; other"
            f" models of transformers are hf:{found.name}"
        )
    preprocessing = read_preprocessing(found.path)
    what = f"encoder {request.name}"
    factory = member(transformers_for(what), "AutoModel", what)
    module, missing = load_weights(found, factory)
    # a pooler without weights is not a feature
    pooler = frozenset(name for name in missing if "pooler." in f".{name}")
    refuse_missing(found, missing - pooler)
    chosen = _chosen(request, module, feature, pooled=not pooler)
    about = {"model": matters(found.config()), "feature": chosen}
    # of the files, not of the module: its names and defaults change with the library's version
    tower = Tower(module, FEATURES[chosen], tensors_digest(StoredTensors(found.path), about))
    return NetworkEncoder(request.named("feature"), tower, preprocessing, running)


def matters(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a model's configuration that determines what it computes."""
    return {
        name: matters(value) if isinstance(value, Mapping) else value
        for name, value in config.items()
        if name not in _IRRELEVANT
    }


def _chosen(request: Request, module: Any, feature: str, pooled: bool) -> str:
    """Return which feature becomes the vector."""
    available = _features(request, module, pooled)
    if feature == "auto":
        return available[0]
    if feature not in available:
        raise UsageError(
            f"option feature of encoder {request.name} must be one of {', '.join(available)} for"
            f" this model; got {feature!r}"
        )
    return feature


def _features(request: Request, module: Any, pooled: bool) -> list[str]:
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
                f" images alone ({said(error)})"
            ) from error
    last = getattr(made, "last_hidden_state", None)
    names = {name.rsplit(".", 1)[-1] for name in module.state_dict()}
    has_token = last is not None and last.ndim == 3 and {"cls_token", "class_embedding"} & names
    available = {
        "image_embeds": getattr(made, "image_embeds", None) is not None,
        "pooler_output": pooled and getattr(made, "pooler_output", None) is not None,
        "cls": has_token,
        "mean": last is not None,
    }
    found = [name for name, is_there in available.items() if is_there]
    if not found:
        raise VisleakError(
            f"encoder {request.name}: model {request.argument} makes none of {', '.join(FEATURES)}"
        )
    return found
