"""``timm``: any pretrained model of timm, its pooled features, its own preprocessing."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from math import floor
from pathlib import Path
from typing import Any, Final

from visleak.encoders.libraries import library
from visleak.encoders.network import RUNNING, NetworkEncoder, Running, Tower, tensors_digest
from visleak.encoders.preprocessing import PixelPreparation, Preprocessing, Scaling
from visleak.encoders.request import Request
from visleak.encoders.weights import Layout, hub_model, loading, whole
from visleak.errors import UsageError, VisleakError

#: timm's names of Pillow's filters.
_FILTERS: Final = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5}
_LOCAL: Final = "local-dir:"  # prefix of timm for a folder
_USE: Final = "timm:FOLDER"
LAYOUT: Final = Layout("timm", "config.json", ("model.safetensors", "pytorch_model.bin"))


def timm_encoder(request: Request) -> NetworkEncoder:
    """Return a model of timm by name, ``hf-hub:OWNER/NAME`` or folder."""
    name = request.wanted_argument("NAME")
    request.knows(*RUNNING)
    timm = library("timm", "timm", request.called)
    running = Running.asked(request)
    module = timm_model(timm, name, request.called, num_classes=0)
    about = {
        "timm": str(module.pretrained_cfg.get("architecture", name)),
        "modules": str(module),
    }
    tower = Tower(
        module,
        lambda module, inputs: module(inputs),
        tensors_digest(module.state_dict(), about),
    )
    preprocessing = timm_preprocessing(timm, module, name, request.called)
    return NetworkEncoder(request.named(), tower, preprocessing, running)


def timm_model(timm: Any, name: str, what: str, **options: Any) -> Any:
    """Return a pretrained model of timm on the CPU."""
    found, overlay = _weights(timm, name, what)
    with loading(f"{what}: {found} cannot be loaded"):
        return timm.create_model(
            found, pretrained=True, pretrained_cfg_overlay=dict(overlay), **options
        ).float()


def _weights(timm: Any, name: str, what: str) -> tuple[str, Mapping[str, Any]]:
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


def timm_preprocessing(timm: Any, module: Any, name: str, what: str) -> Preprocessing:
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
