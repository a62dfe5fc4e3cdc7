"""``hf``: classifiers of transformers, from a folder or the hub."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from visleak.encoders.huggingface import matters
from visleak.encoders.libraries import member
from visleak.encoders.network import RUNNING, tensors_digest
from visleak.encoders.processors import read_preprocessing
from visleak.encoders.request import Request
from visleak.encoders.stored_tensors import StoredTensors
from visleak.encoders.weights import find_model, load_weights, refuse_missing, transformers_for
from visleak.impact.evaluators.classes import synonyms
from visleak.impact.evaluators.classifiers import Classifier, Names
from visleak.impact.evaluators.torch_networks import running_of, torch_classifier


def hf_classifier(request: Request) -> Classifier:
    """Return ``hf:FOLDER`` or ``hf:OWNER/NAME``: a model for image classification.

    Raises:
        MissingExtra: torch or transformers is not installed.
        VisleakError: it cannot be had, is no classifier, or how it prepares pictures is not known.
    """
    request.wanted_argument("FOLDER")
    request.knows(*RUNNING)
    found = find_model(request)
    running = running_of(request)
    factory = member(
        transformers_for(request.called), "AutoModelForImageClassification", request.called
    )
    preprocessing = read_preprocessing(found.path)
    module, missing = load_weights(found, factory)
    # without a trained head its answers would be random
    refuse_missing(found, missing)
    config = found.config()
    about = {"model": matters(config), "outputs": "logits"}
    digest = tensors_digest(StoredTensors(found.path), about)
    names = _names(config.get("id2label"))
    return torch_classifier(request, module, _logits, digest, preprocessing, running, names=names)


def _logits(module: Any, inputs: Any) -> Any:
    return module(pixel_values=inputs).logits


def _names(id2label: object) -> Names | None:
    """Return the names of the outputs; ``None`` where nobody gave any."""
    if not isinstance(id2label, Mapping):
        return None
    named = {str(number): str(name) for number, name in id2label.items()}
    ordered = [named.get(str(number), "") for number in range(len(named))]
    if not all(ordered) or all(re.fullmatch(r"LABEL_\d+", name) for name in ordered):
        return None
    return tuple(synonyms(name) for name in ordered)
