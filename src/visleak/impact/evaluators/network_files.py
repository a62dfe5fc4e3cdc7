"""``onnx`` and ``torchscript``: whole networks in a file, prepared for as a json beside it says."""

from __future__ import annotations

import hashlib
from pathlib import Path

from visleak.encoders.libraries import library
from visleak.encoders.network import RUNNING
from visleak.encoders.network import digest as digest_of
from visleak.encoders.onnx import onnx_encoder, recipe_of
from visleak.encoders.request import Request
from visleak.encoders.sscd import load_script
from visleak.impact.evaluators.classifiers import Classifier
from visleak.impact.evaluators.torch_networks import (
    file_of,
    of_recipe,
    plainly,
    running_of,
    torch_classifier,
)


def onnx_classifier(request: Request) -> Classifier:
    """Return ``onnx:FILE[?prep=FILE.json]``, run by onnxruntime without torch.

    Raises:
        UsageError: there is no such file, or none that says how pictures are prepared for it.
        MissingExtra: onnxruntime is not installed.
        VisleakError: it is no network from pictures to a row of outputs.
    """
    network = onnx_encoder(request)
    return Classifier(network, recipe_of(request, Path(request.argument)).as_dict())


def torchscript_classifier(request: Request) -> Classifier:
    """Return ``torchscript:FILE[?prep=FILE.json]``.

    A TorchScript file is a program of torch's own operators, which may also read and write files:
    load those only whose maker you trust.

    Raises:
        UsageError: nothing says how pictures are prepared for it.
        MissingExtra: torch is not installed.
        VisleakError: there is no such file, or it is no network from pictures to a row of outputs.
    """
    request.knows("prep", *RUNNING)
    advice = "a file that torch.jit.save wrote"
    path = file_of(request, advice)
    recipe = recipe_of(request, path)
    running = running_of(request)
    torch = library("torch", "torch", request.called)
    with path.open("rb") as file:
        content = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    script = load_script(torch, path, request.called, f"give {advice}")
    return torch_classifier(
        request,
        script,
        plainly,
        digest_of(content, {"network": "TorchScript", "recipe": recipe.as_dict()}),
        of_recipe(recipe),
        running,
        shown=("prep",),
        recipe=recipe,
    )
