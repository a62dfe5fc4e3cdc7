"""``timm``: models of timm with the classes they were trained on."""

from __future__ import annotations

from typing import Any

from visleak.encoders.libraries import library
from visleak.encoders.network import RUNNING, Running, tensors_digest
from visleak.encoders.request import Request
from visleak.encoders.timm_models import timm_model, timm_preprocessing
from visleak.impact.evaluators.classes import synonyms
from visleak.impact.evaluators.classifiers import Classifier, Names
from visleak.impact.evaluators.torch_networks import torch_classifier


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
    running = Running.asked(request)
    module = timm_model(timm, name, request.called)
    about = {
        "timm": str(module.pretrained_cfg.get("architecture", name)),
        "modules": str(module),
    }
    digest = tensors_digest(module.state_dict(), about)
    preprocessing = timm_preprocessing(timm, module, name, request.called)
    return torch_classifier(request, module, digest, preprocessing, running, names=_names(module))


def _names(module: Any) -> Names | None:
    """Return the names that come with the weights, if any do."""
    told = module.pretrained_cfg.get("label_names")
    if not isinstance(told, list | tuple) or not told:
        return None
    described = module.pretrained_cfg.get("label_descriptions") or {}
    return tuple(
        (str(name), *synonyms(str(described[name]))) if name in described else synonyms(str(name))
        for name in told
    )
