"""A trained network as an ONNX file, with the JSON that describes how to prepare images."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from visleak.encoders.onnx import OnnxEncoder, Recipe
from visleak.errors import VisleakError
from visleak.records import Bytes8
from visleak.storage import replacing, write_json
from visleak.training.run import TrainedNetwork

#: Version of ONNX's operators that are used; onnxruntime 1.17 and newer have it.
OPSET: Final = 17

#: How far a coordinate from onnxruntime may be off torch's.
TOLERANCE: Final = 1e-5


class Unit(nn.Module):  # type: ignore[misc]
    """A network whose vectors are made unit length.

    Args:
        network: from images to vectors (n, width).
    """

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixels: Any) -> Any:
        """Return unit vectors (n, width)."""
        return nn.functional.normalize(self.network(pixels), dim=1)


def recipe_of(network: TrainedNetwork) -> Recipe:
    """Return how images are prepared for a network.

    Its vectors have unit length; they are normalised again by the encoder, which detects images
    without a vector.
    """
    side = network.plan.side
    scaling = network.scaling
    return Recipe(size=(side, side), mean=scaling.mean, std=scaling.std, input="pixels")


def recipe_path(model: Path) -> Path:
    """Return the path of the JSON of an ONNX file."""
    return model.with_name(f"{model.name}.json")


def onnx_bytes(trained: TrainedNetwork) -> bytes:
    """Return the network as an ONNX file: from images (n, 3, side, side) to unit vectors."""
    side = trained.plan.side
    network = trained.network.to("cpu").eval()
    file = io.BytesIO()
    quiet = logging.getLogger("torch.onnx")
    level = quiet.level
    quiet.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), torch.inference_mode():
            # the exporter that needs no more than torch and writes one file is on its way out
            warnings.simplefilter("ignore")
            torch.onnx.export(
                Unit(network).eval(),
                (torch.zeros(2, 3, side, side),),
                file,
                dynamo=False,
                opset_version=OPSET,
                input_names=["pixels"],
                output_names=["vectors"],
                dynamic_axes={"pixels": {0: "pictures"}, "vectors": {0: "pictures"}},
            )
    finally:
        quiet.setLevel(level)
    return file.getvalue()


def write_model(network: TrainedNetwork, out: Path, about: Mapping[str, Any]) -> None:
    """Write the ONNX file and its JSON, the JSON last: without it the file is not used.

    Args:
        network: the network.
        out: the ONNX file.
        about: stored in the JSON.

    Raises:
        VisleakError: the disk refuses.
    """
    made = onnx_bytes(network)
    recipe = recipe_path(out)
    try:
        recipe.unlink(missing_ok=True)
        with replacing(out) as beside:
            beside.write_bytes(made)
        write_json(recipe, {**recipe_of(network).as_dict(), "about": dict(about)})
    except OSError as error:
        raise VisleakError(f"{out} cannot be written: {error}") from error


def deviation(network: TrainedNetwork, images: Bytes8, folder: Path) -> float | None:
    """Return the largest difference between onnxruntime's vectors and torch's.

    Args:
        network: the network.
        images: ``uint8`` (n, side, side, 3), some to compare.
        folder: for a file that is removed again.

    Returns:
        The largest difference of a coordinate; ``None`` without onnxruntime.

    Raises:
        VisleakError: it is above :data:`TOLERANCE`.
    """
    try:
        import onnxruntime  # noqa: F401
    except ImportError:
        return None
    path = folder / "compared.onnx"
    path.write_bytes(onnx_bytes(network))
    encoder = OnnxEncoder("compared", path, recipe_of(network), device="cpu")
    theirs = encoder.forward(list(np.asarray(images)))
    path.unlink()
    ours = network.vectors(images)
    usable = np.isfinite(theirs).all(1)
    worst = float(np.abs(theirs[usable] - ours[usable]).max(initial=0.0))
    if worst > TOLERANCE:
        raise VisleakError(
            f"the ONNX file's vectors differ from torch's by {worst:.1e}, more than"
            f" {TOLERANCE:g}: this onnxruntime does not run what this torch exports"
        )
    return worst
