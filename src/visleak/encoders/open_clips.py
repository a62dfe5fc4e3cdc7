"""CLIPs through open_clip: its own names (``ViT-B-32/laion2b_s34b_b79k``, ``hf-hub:...``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from visleak.encoders.clip_form import open_clip_digest
from visleak.encoders.libraries import library, said
from visleak.encoders.network import Tower
from visleak.encoders.preparing import PixelPreparation
from visleak.encoders.processors import Preprocessing, Scaling
from visleak.encoders.published import OPENAI_CLIP
from visleak.encoders.request import Request
from visleak.encoders.weights import Layout, hub_model, quiet, whole
from visleak.errors import UsageError, VisleakError

#: What stands before a name on the hub, and before a folder, as open_clip has it.
HUB: Final = "hf-hub:"
_LOCAL: Final = "local-dir:"
_USE: Final = "clip:FOLDER?backend=open_clip"

#: What the weights' own entry says about pictures.
_TOLD: Final = ("mean", "std", "interpolation", "resize_mode")

LAYOUT: Final = Layout(
    "open_clip",
    "open_clip_config.json",
    ("open_clip_model.safetensors", "open_clip_pytorch_model.bin"),
)

#: What open_clip calls the paper's network; without ``quickgelu`` it would get another activation.
DEFAULT: Final = ("ViT-B-32-quickgelu", "openai")


def load_open_clip(request: Request, prep: str) -> tuple[Tower, Preprocessing]:
    """Return the image tower of a model of open_clip, and its preprocessing.

    Raises:
        MissingExtra: open_clip is not installed.
        UsageError: the name is none of open_clip's.
        VisleakError: the weights cannot be had.
    """
    made, _ = whole_open_clip(request)
    tower = made.visual.float()
    return Tower(tower, _call, open_clip_digest(tower)), _preprocessing(made, prep)


def whole_open_clip(request: Request, others: tuple[str, ...] = ()) -> tuple[Any, str]:
    """Return a model of open_clip with all of its towers, and what open_clip calls it.

    Args:
        request: names the model.
        others: files that are fetched too where the model is named as the hub has it.

    Raises:
        MissingExtra: open_clip is not installed.
        UsageError: the name is none of open_clip's.
        VisleakError: the weights cannot be had.
    """
    open_clip = library("open_clip", "open-clip", "clip through open_clip")
    model, options = _source(request, open_clip, replace(LAYOUT, others=others))
    try:
        with quiet():
            made = open_clip.create_model(model, require_pretrained=True, **options)
    except Exception as error:
        # open_clip and what it calls raise what they like
        raise VisleakError(
            f"encoder clip: open_clip cannot load {model} ({said(error)})"
        ) from error
    return made, model


def _source(request: Request, open_clip: Any, layout: Layout) -> tuple[str, Mapping[str, Any]]:
    """Return what open_clip calls the model, and what else it is to be told."""
    text = request.argument
    if text.startswith(HUB):
        return f"{_LOCAL}{hub_model('encoder clip', text.removeprefix(HUB), layout, _USE)}", {}
    folder = Path(text).expanduser()
    if text and (folder.is_dir() or text.startswith(("/", ".", "~"))):
        return f"{_LOCAL}{whole(text, folder, layout)}", {}
    if ":" in text:
        return _with_file(text, open_clip)
    model, tag = DEFAULT if not text or text == OPENAI_CLIP else _known(text, open_clip)
    config = open_clip.get_pretrained_cfg(model, tag)
    name, _, file = str(config.get("hf_hub", "")).rpartition("/")
    if not name:
        return model, {"pretrained": tag}
    # open_clip itself would ask the hub first and wait for a minute where it cannot be reached
    bare = replace(LAYOUT, config="", weights=(file,) if file else LAYOUT.weights)
    found = hub_model("encoder clip", name, bare, _USE)
    weights = next(found / each for each in bare.weights if (found / each).is_file())
    told = {part: config[part] for part in _TOLD if config.get(part) is not None}
    return model, {"pretrained": str(weights), "force_preprocess_cfg": told}


def _with_file(text: str, open_clip: Any) -> tuple[str, Mapping[str, Any]]:
    """Return what a text ``MODEL:FILE`` names: weights that lie somewhere else."""
    model, _, file = text.partition(":")
    if model not in open_clip.list_models():
        raise UsageError(
            f"encoder clip: open_clip has no network {model!r}; MODEL:FILE takes one of"
            f" open_clip.list_models(), such as ViT-g-14; got {text!r}"
        )
    path = Path(file).expanduser()
    if not path.is_file():
        raise VisleakError(f"encoder clip: there is no file {path} with weights of {model}")
    return model, {"pretrained": str(path)}


def _known(text: str, open_clip: Any) -> tuple[str, str]:
    """Return the model and its weights that a text ``MODEL/WEIGHTS`` names."""
    model, _, tag = text.partition("/")
    known = open_clip.list_pretrained_tags_by_model(model)
    if tag in known:
        quick = f"{model}-quickgelu"
        asks = bool(open_clip.get_pretrained_cfg(model, tag).get("quick_gelu"))
        return (quick if asks and quick in open_clip.list_models() else model), tag
    if model in open_clip.list_models():
        raise UsageError(
            f"encoder clip: open_clip has {model} with {', '.join(known) or 'no weights'}; got"
            f" {text!r}"
        )
    raise UsageError(
        "encoder clip: open_clip takes MODEL/WEIGHTS such as ViT-B-32/laion2b_s34b_b79k,"
        f" MODEL:FILE, hf-hub:OWNER/NAME or a folder with open_clip_config.json; got {text!r}"
    )


def _call(module: Any, inputs: Any) -> Any:
    return module(inputs)


def _preprocessing(model: Any, prep: str) -> Preprocessing:
    """Return open_clip's preprocessing; odd crops begin as transformers does, see the docs."""
    config = dict(model.visual.preprocess_cfg)
    size = config["size"]
    sides = (int(size), int(size)) if isinstance(size, int) else (int(size[0]), int(size[1]))
    mode, resample = config["resize_mode"], {"bilinear": 2, "bicubic": 3}[config["interpolation"]]
    if mode == "squash":
        pixels = PixelPreparation(sides, (), resample, "floor", prep)
    elif mode == "shortest" and sides[0] == sides[1]:
        pixels = PixelPreparation(sides[:1], sides, resample, "floor", prep)
    else:
        raise VisleakError(
            f"encoder clip: open_clip resizes pictures for this model by {mode!r} to {sides}; only"
            " 'squash', and 'shortest' to a square, are known here"
        )
    mean, std = (tuple(float(value) for value in config[name]) for name in ("mean", "std"))
    return Preprocessing(pixels, Scaling(1 / 255, mean, std))
