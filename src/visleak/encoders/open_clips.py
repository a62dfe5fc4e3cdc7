"""CLIPs through open_clip: its own names (``ViT-B-32/laion2b_s34b_b79k``, ``hf-hub:...``)."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any, Final

from visleak.encoders.clip_form import open_clip_digest
from visleak.encoders.network import Tower
from visleak.encoders.preparing import PixelPreparation
from visleak.encoders.processors import Preprocessing, Scaling
from visleak.encoders.published import OPENAI_CLIP
from visleak.encoders.request import Request
from visleak.encoders.weights import quiet
from visleak.errors import MissingExtra, UsageError, VisleakError

#: What open_clip calls the paper's network; without ``quickgelu`` it would get another activation.
DEFAULT: Final = ("ViT-B-32-quickgelu", "openai")


def load_open_clip(request: Request, prep: str) -> tuple[Tower, Preprocessing]:
    """Return the image tower of a model of open_clip, and its preprocessing.

    Raises:
        MissingExtra: open_clip, or the torchvision it needs, cannot be imported.
        UsageError: the name is none of open_clip's.
        VisleakError: the weights cannot be had.
    """
    open_clip = _library()
    model, pretrained = _named(request, open_clip)
    try:
        with quiet():
            made = open_clip.create_model(model, pretrained=pretrained, require_pretrained=True)
    except Exception as error:
        # open_clip and the libraries below it raise what they like
        text = " ".join(str(error).split())[:160]
        raise VisleakError(
            f"encoder clip: open_clip cannot load {model}{f'/{pretrained}' if pretrained else ''}"
            f" ({type(error).__name__}: {text}); where it can be had: `hf download` the model, then"
            " clip:FOLDER"
        ) from error
    tower = made.visual.float()
    return Tower(tower, _call, open_clip_digest(tower)), _preprocessing(made, prep)


def _library() -> ModuleType:
    try:
        import open_clip
    except (ImportError, RuntimeError) as error:
        # a torchvision that was built for another torch raises RuntimeError
        raise MissingExtra("open-clip", "clip through open_clip") from error
    module: ModuleType = open_clip
    return module


def _named(request: Request, open_clip: ModuleType) -> tuple[str, str | None]:
    """Return the model and the name of its weights, as open_clip calls them."""
    text = request.argument
    if not text or text == OPENAI_CLIP:
        return DEFAULT
    if text.startswith(("hf-hub:", "local-dir:")):
        return text, None
    if Path(text).expanduser().is_dir():
        return f"local-dir:{Path(text).expanduser()}", None
    model, _, pretrained = text.partition("/")
    known = open_clip.list_pretrained_tags_by_model(model)
    if pretrained not in known:
        if model in open_clip.list_models():
            raise UsageError(
                f"encoder clip: open_clip has {model} with {', '.join(known) or 'no weights'}; got"
                f" {text!r}"
            )
        raise UsageError(
            f"encoder clip: open_clip takes MODEL/WEIGHTS such as ViT-B-32/laion2b_s34b_b79k,"
            f" hf-hub:OWNER/NAME or a folder with open_clip_config.json; got {text!r}"
        )
    quick = f"{model}-quickgelu"
    asks = bool(open_clip.get_pretrained_cfg(model, pretrained).get("quick_gelu"))
    return (quick if asks and quick in open_clip.list_models() else model), pretrained


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
