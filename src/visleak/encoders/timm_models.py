"""``timm``: any pretrained model of timm, its pooled features, its own preprocessing."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from math import floor
from types import ModuleType
from typing import Any, Final

from visleak.encoders.network import RUNNING, NetworkEncoder, Running, Tower, tensors_digest
from visleak.encoders.preparing import PixelPreparation
from visleak.encoders.processors import Preprocessing, Scaling
from visleak.encoders.request import Request
from visleak.encoders.weights import quiet
from visleak.errors import MissingExtra, UsageError, VisleakError

#: timm's names of Pillow's filters.
_FILTERS: Final = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5}

#: Prefixes behind which timm takes something else than its own names.
_ELSEWHERE: Final = ("hf-hub:", "hf_hub:", "local-dir:")


def timm_encoder(request: Request) -> NetworkEncoder:
    """Return a model of timm by name, ``hf-hub:OWNER/NAME`` or ``local-dir:FOLDER``.

    Raises:
        UsageError: timm knows no such model.
        MissingExtra: timm, or the torchvision it needs, cannot be imported.
        VisleakError: its weights cannot be had, or its preprocessing is not known here.
    """
    name = request.wanted_argument("NAME")
    request.knows(*RUNNING)
    timm = _library()
    running = Running.asked(request)
    if not name.startswith(_ELSEWHERE) and not timm.is_model(name.partition(".")[0]):
        close = ", ".join(difflib.get_close_matches(name, timm.list_models(), n=3))
        raise UsageError(
            f"encoder timm: timm {timm.__version__} has no model {name!r}"
            f"{f'; near are {close}' if close else ''}"
        )
    module = _loaded(timm, name)
    config = timm.data.resolve_model_data_config(module)
    about = {
        "timm": str(module.pretrained_cfg.get("architecture", name)),
        "modules": str(module),
    }
    tower = Tower(module, _call, tensors_digest(iter(module.state_dict().items()), about))
    return NetworkEncoder(request.named(), tower, _preprocessing(name, config), running)


def _library() -> ModuleType:
    try:
        import timm
        import timm.data
    except (ImportError, RuntimeError) as error:
        # a torchvision that was built for another torch raises RuntimeError
        raise MissingExtra("timm", "encoder timm") from error
    module: ModuleType = timm
    return module


def _loaded(timm: ModuleType, name: str) -> Any:
    try:
        with quiet():
            return timm.create_model(name, pretrained=True, num_classes=0).float()
    except Exception as error:
        # timm and the hub's libraries raise what they like
        said = " ".join(str(error).split())[:160]
        raise VisleakError(
            f"encoder timm: the weights of {name} cannot be had ({type(error).__name__}: {said});"
            " where they can be had: `hf download timm/NAME --local-dir FOLDER`, then"
            " timm:local-dir:FOLDER"
        ) from error


def _call(module: Any, inputs: Any) -> Any:
    return module(inputs)


def _preprocessing(name: str, config: Mapping[str, Any]) -> Preprocessing:
    """Return timm's preprocessing for evaluation."""
    channels, height, width = config["input_size"]
    mode, method = config["crop_mode"], config["interpolation"]
    if channels != 3 or mode not in ("center", "squash") or method not in _FILTERS:
        raise VisleakError(
            f"encoder timm: the preprocessing of {name} is not known here (input"
            f" {channels} x {height} x {width}, crop mode {mode!r}, interpolation {method!r});"
            " export it to ONNX and use onnx:FILE"
        )
    sides = floor(height / config["crop_pct"]), floor(width / config["crop_pct"])
    if mode == "center" and height != width:
        raise VisleakError(
            f"encoder timm: {name} crops pictures to {height} x {width}; only squares are known"
            " here: export it to ONNX and use onnx:FILE"
        )
    resize = sides if mode == "squash" else sides[:1]
    pixels = PixelPreparation(resize, (height, width), _FILTERS[method], "even")
    mean, std = (tuple(float(value) for value in config[part]) for part in ("mean", "std"))
    return Preprocessing(pixels, Scaling(1 / 255, mean, std))
