"""``clip``: the image tower of a CLIP, through transformers or open_clip: the same vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from visleak.encoders.clip_form import transformers_digest
from visleak.encoders.libraries import member, said
from visleak.encoders.network import RUNNING, NetworkEncoder, Running, Tower
from visleak.encoders.open_clips import HUB, load_open_clip
from visleak.encoders.preparing import PREPS
from visleak.encoders.processors import clip_preprocessing, is_described, read_preprocessing
from visleak.encoders.published import OPENAI_CLIP, published
from visleak.encoders.request import Request
from visleak.encoders.weights import (
    TRANSFORMERS,
    Found,
    Layout,
    find_model,
    load_weights,
    quiet,
    refuse_missing,
    transformers_for,
)
from visleak.errors import VisleakError

BACKENDS: Final = ("transformers", "open_clip")


def clip_encoder(request: Request, *, assumed: bool = False) -> NetworkEncoder:
    """Return a CLIP by name or folder; OpenAI's ViT-B/32 by default.

    Args:
        request: names it.
        assumed: where its folder says nothing of how pictures are prepared, let that be as CLIP's
            own processor does it, at the size of the network.

    Raises:
        UsageError: an option it does not have.
        MissingExtra: the library is not installed.
        VisleakError: the weights cannot be had, or are of no CLIP.
    """
    backend = backend_of(request)
    prep = request.choice("prep", PREPS, PREPS[0])
    running = Running.asked(request)
    if backend == "open_clip":
        tower, preprocessing = load_open_clip(request, prep)
    else:
        tower, found = _load(request)
        if assumed and not is_described(found):
            preprocessing = clip_preprocessing(int(tower.module.config.image_size), prep)
        else:
            preprocessing = read_preprocessing(found, prep)
    # a name that only open_clip knows is no name without it
    name = request.named("prep", "backend") if request.argument else request.named("prep")
    encoder = NetworkEncoder(name, tower, preprocessing, running, published(request))
    encoder.running_options["backend"] = backend
    return encoder


def backend_of(request: Request) -> str:
    """Return which library loads a CLIP, one of :data:`BACKENDS`.

    Raises:
        UsageError: an option that no CLIP has, or no such library.
    """
    request.knows("prep", "backend", *RUNNING)
    of_open_clip = request.argument.startswith(HUB)
    return request.choice("backend", BACKENDS, BACKENDS[1 if of_open_clip else 0])


def find_clip(request: Request, layout: Layout = TRANSFORMERS) -> Found:
    """Return the folder of a CLIP of transformers.

    Raises:
        VisleakError: it cannot be had, or is of another kind.
    """
    found = find_model(request, OPENAI_CLIP, layout)
    kind = found.config().get("model_type")
    if kind not in ("clip", "clip_vision_model"):
        raise VisleakError(
            f"encoder clip: model {found.name} is a {kind!r}, no CLIP; other models of transformers"
            f" are hf:{found.name}"
        )
    return found


def _load(request: Request) -> tuple[Tower, Path]:
    """Return a tower of transformers, and the folder it comes from."""
    transformers = transformers_for("encoder clip")
    found = find_clip(request)
    whole = found.config().get("model_type") == "clip"
    config = _vision_config(transformers, found, whole)
    factory = member(transformers, "CLIPVisionModelWithProjection", "encoder clip")
    module, missing = load_weights(found, factory, config=config)
    refuse_missing(found, missing)
    return Tower(module, _image_embeds, transformers_digest(module)), found.path


def _vision_config(transformers: Any, found: Found, whole: bool) -> Any:
    """Return the configuration of the image tower, in a model that is ``whole`` or that alone."""
    try:
        with quiet():
            if not whole:
                return transformers.CLIPVisionConfig.from_dict(found.config())
            config = transformers.CLIPConfig.from_dict(found.config())
    except Exception as error:
        # the library checks values in many ways
        raise VisleakError(
            f"model {found.name}: {found.path / 'config.json'} is not understood ({said(error)})"
        ) from error
    # the width of the vectors is told twice, and may differ
    config.vision_config.projection_dim = config.projection_dim
    return config.vision_config


def _image_embeds(module: Any, inputs: Any) -> Any:
    return module(pixel_values=inputs).image_embeds
