"""``timm``: models of timm with the classes they were trained on."""

from __future__ import annotations

from typing import Any

from visleak.encoders.libraries import library
from visleak.encoders.network import RUNNING, tensors_digest
from visleak.encoders.request import Request
from visleak.encoders.timm_models import timm_model, timm_preprocessing
from visleak.impact.evaluators.classes import synonyms
from visleak.impact.evaluators.classifiers import Classifier, Names
from visleak.impact.evaluators.torch_networks import plainly, running_of, torch_classifier


def timm_classifier(request: Request) -> Classifier:
    """Return a model of timm by name, ``hf-hub:OWNER/NAME`` or folder.

    Raises:
        UsageError: timm knows no such model.
        MissingExtra: timm is not installed.
        VisleakError: timm, or the torchvision it needs, cannot be imported; its weights cannot be
            had; it has no classes.
    """
    name = request.wanted_argument("NAME")
    request.knows(*RUNNING)
    timm = library("timm", "timm", request.called)
    running = running_of(request)
    module = timm_model(timm, name, request.called)
    about = {
        "timm": str(module.pretrained_cfg.get("architecture", name)),
        "modules": str(module),
    }
    digest = tensors_digest(module.state_dict(), about)
    preprocessing = timm_preprocessing(timm, module, name, request.called)
    names = _names(timm, module)
    return torch_classifier(request, module, plainly, digest, preprocessing, running, names=names)


def _names(timm: Any, module: Any) -> Names | None:
    """Return the names that come with the weights, or ImageNet's where they are of its classes."""
    told = module.pretrained_cfg.get("label_names")
    if isinstance(told, list | tuple) and told:
        described = module.pretrained_cfg.get("label_descriptions") or {}
        return tuple(
            (str(name), *synonyms(str(described[name])))
            if name in described
            else synonyms(str(name))
            for name in told
        )
    subset = timm.data.infer_imagenet_subset(module)
    if not subset:
        return None
    info = timm.data.ImageNetInfo(subset)
    return tuple(
        (info.index_to_label_name(output), *synonyms(info.index_to_description(output)))
        for output in range(info.num_classes())
    )
