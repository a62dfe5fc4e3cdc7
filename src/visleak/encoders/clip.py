"""``clip``: the image tower of a CLIP, through transformers or open_clip: the same vectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

from visleak.encoders.network import RUNNING, NetworkEncoder, Running, Tower, tensors_digest
from visleak.encoders.preprocessing import (
    PREPS,
    PixelPreparation,
    Preprocessing,
    Scaling,
    clip_preprocessing,
    is_described,
    read_preprocessing,
)
from visleak.encoders.request import OPENAI_CLIP, Request, published
from visleak.encoders.weights import (
    TRANSFORMERS,
    Found,
    Layout,
    find_model,
    hub_model,
    load_weights,
    loading,
    refuse_missing,
    transformers_for,
    whole,
)
from visleak.errors import UsageError, VisleakError
from visleak.lazy import library, member

if TYPE_CHECKING:
    import torch

BACKENDS: Final = ("transformers", "open_clip")


def clip_encoder(request: Request, *, assumed: bool = False) -> NetworkEncoder:
    """Return a CLIP by name or folder; OpenAI's ViT-B/32 by default."""
    backend = backend_of(request)
    prep = request.choice("prep", PREPS, PREPS[0])
    running = Running.of(request)
    if backend == "open_clip":
        tower, preprocessing = load_open_clip(request, prep)
    else:
        tower, found = _load_transformers(request)
        if assumed and not is_described(found):
            preprocessing = clip_preprocessing(int(tower.module.config.image_size), prep)
        else:
            preprocessing = read_preprocessing(found, prep)
    # a name of open_clip is not a name without it
    name = request.named("prep", "backend") if request.argument else request.named("prep")
    encoder = NetworkEncoder(name, tower, preprocessing, running, published(request))
    encoder.running_options["backend"] = backend
    return encoder


def backend_of(request: Request) -> str:
    """Return which library loads a CLIP, one of :data:`BACKENDS`."""
    request.allow_only("prep", "backend", *RUNNING)
    of_open_clip = request.argument.startswith(HUB)
    return request.choice("backend", BACKENDS, BACKENDS[1 if of_open_clip else 0])


def find_clip(request: Request, layout: Layout = TRANSFORMERS) -> Found:
    """Return the folder of a CLIP of transformers."""
    found = find_model(request, OPENAI_CLIP, layout)
    kind = found.config().get("model_type")
    if kind not in ("clip", "clip_vision_model"):
        raise VisleakError(
            f"encoder clip: model {found.name} is a {kind!r}, not a CLIP; other models of"
            f" transformers are hf:{found.name}"
        )
    return found


def _load_transformers(request: Request) -> tuple[Tower, Path]:
    transformers = transformers_for("encoder clip")
    found = find_clip(request)
    stated = found.config()
    with loading(f"model {found.name}: {found.path / 'config.json'} is not understood"):
        if stated.get("model_type") == "clip":
            whole = transformers.CLIPConfig.from_dict(stated)
            config = whole.vision_config
            # the width of the vectors is stated twice, and may differ
            config.projection_dim = whole.projection_dim
        else:
            config = transformers.CLIPVisionConfig.from_dict(stated)
    factory = member(transformers, "CLIPVisionModelWithProjection", "encoder clip")
    module, missing = load_weights(found, factory, config=config)
    refuse_missing(found, missing)
    digest = transformers_digest(module)
    return Tower(
        module, lambda net, inputs: net(pixel_values=inputs).image_embeds, digest
    ), found.path


HUB: Final = "hf-hub:"  # prefixes of open_clip for a name on the hub, and for a folder
_LOCAL: Final = "local-dir:"
_USE: Final = "clip:FOLDER?backend=open_clip"
#: Preprocessing that open_clip's entry of the weights states.
_STATED: Final = ("mean", "std", "interpolation", "resize_mode")
OPEN_CLIP: Final = Layout(
    "open_clip",
    "open_clip_config.json",
    ("open_clip_model.safetensors", "open_clip_pytorch_model.bin"),
)
#: What open_clip calls the paper's network; without ``quickgelu`` it would get another activation.
DEFAULT: Final = ("ViT-B-32-quickgelu", "openai")


def load_open_clip(request: Request, prep: str) -> tuple[Tower, Preprocessing]:
    """Return the image tower of a model of open_clip, and its preprocessing."""
    made, _ = whole_open_clip(request)
    image = made.visual.float()
    tower = Tower(image, lambda module, inputs: module(inputs), open_clip_digest(image))
    return tower, _preprocessing(made, prep)


def whole_open_clip(request: Request, others: tuple[str, ...] = ()) -> tuple[torch.nn.Module, str]:
    """Return a model of open_clip with all of its towers, and what open_clip calls it."""
    open_clip = library("open_clip", "open-clip", "clip through open_clip")
    model, options = _source(request, open_clip, replace(OPEN_CLIP, others=others))
    with loading(f"encoder clip: open_clip cannot load {model}"):
        return open_clip.create_model(model, require_pretrained=True, **options), model


def _source(
    request: Request, open_clip: ModuleType, layout: Layout
) -> tuple[str, Mapping[str, object]]:
    """Return open_clip's name of the model, and more arguments of ``create_model``."""
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
    # open_clip itself would contact the hub first, and wait for a minute if it is unreachable
    bare = replace(OPEN_CLIP, config="", weights=(file,) if file else OPEN_CLIP.weights)
    found = hub_model("encoder clip", name, bare, _USE)
    weights = next(found / each for each in bare.weights if (found / each).is_file())
    stated = {part: config[part] for part in _STATED if config.get(part) is not None}
    return model, {"pretrained": str(weights), "force_preprocess_cfg": stated}


def _with_file(text: str, open_clip: ModuleType) -> tuple[str, Mapping[str, object]]:
    """Return the model and the file of weights that a text ``MODEL:FILE`` names."""
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


def _known(text: str, open_clip: ModuleType) -> tuple[str, str]:
    """Return the model and its weights that a text ``MODEL/WEIGHTS`` names."""
    model, _, tag = text.partition("/")
    known = open_clip.list_pretrained_tags_by_model(model)
    if tag in known:
        quick = f"{model}-quickgelu"
        needed = bool(open_clip.get_pretrained_cfg(model, tag).get("quick_gelu"))
        return (quick if needed and quick in open_clip.list_models() else model), tag
    if model in open_clip.list_models():
        raise UsageError(
            f"encoder clip: open_clip has {model} with {', '.join(known) or 'no weights'}; got"
            f" {text!r}"
        )
    raise UsageError(
        "encoder clip: open_clip takes MODEL/WEIGHTS such as ViT-B-32/laion2b_s34b_b79k,"
        f" MODEL:FILE, hf-hub:OWNER/NAME or a folder with open_clip_config.json; got {text!r}"
    )


def _preprocessing(model: torch.nn.Module, prep: str) -> Preprocessing:
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
            f"encoder clip: open_clip resizes images for this model by {mode!r} to {sides}; only"
            " 'squash', and 'shortest' to a square, are known here"
        )
    mean, std = (tuple(float(value) for value in config[name]) for name in ("mean", "std"))
    return Preprocessing(pixels, Scaling(1 / 255, mean, std))


# The digest is made of transformers' form of the weights, so that it does not depend on the library
# that loads them. open_clip stores the same weights under other names, queries, keys and values in
# one matrix, and the projection transposed.

#: open_clip's name of a weight outside the blocks -> the canonical one.
_OUTSIDE: Final = {
    "class_embedding": "embeddings.class_embedding",
    "positional_embedding": "embeddings.position_embedding.weight",
    "conv1.weight": "embeddings.patch_embedding.weight",
    "ln_pre.weight": "pre_layrnorm.weight",
    "ln_pre.bias": "pre_layrnorm.bias",
    "ln_post.weight": "post_layernorm.weight",
    "ln_post.bias": "post_layernorm.bias",
}
#: The same of a module inside a block.
_INSIDE: Final = {
    "ln_1": "layer_norm1",
    "ln_2": "layer_norm2",
    "attn.out_proj": "self_attn.out_proj",
    "mlp.c_fc": "mlp.fc1",
    "mlp.c_proj": "mlp.fc2",
}


def transformers_digest(module: torch.nn.Module) -> str:
    """Return the digest of a ``CLIPVisionModelWithProjection``."""
    has = module.config
    sizes = has.num_attention_heads, has.image_size, has.patch_size
    about = _recipe(*sizes, has.hidden_act, has.layer_norm_eps)
    state = {n.removeprefix("vision_model."): t for n, t in module.state_dict().items()}
    return tensors_digest(state, about)


def open_clip_digest(tower: torch.nn.Module) -> str:
    """Return the digest of an image tower of open_clip: as transformers has it, if it can."""
    state = tower.state_dict()
    if about := _plain(tower):
        return tensors_digest(dict(_canonical(state)), about)
    # other towers exist in open_clip only
    return tensors_digest(state, {"open_clip": str(tower)})


def _plain(tower: torch.nn.Module) -> dict[str, object] | None:
    """Return the recipe of a plain vision transformer; ``None`` for all other towers."""
    names = set(tower.state_dict())
    blocks = {name.split(".")[2] for name in names if name.startswith("transformer.resblocks.")}
    inside = {f"{module}.{kind}" for module in _INSIDE for kind in ("weight", "bias")}
    inside |= {"attn.in_proj_weight", "attn.in_proj_bias"}
    plain = {f"transformer.resblocks.{block}.{name}" for block in blocks for name in inside}
    if names != plain | set(_OUTSIDE) | {"proj"}:
        return None
    first = tower.transformer.resblocks[0]
    activations = {"QuickGELU": "quick_gelu", "GELU": "gelu"}
    activation = activations.get(type(first.mlp.gelu).__name__)
    if activation is None or tower.pool_type != "tok" or tower.image_size[0] != tower.image_size[1]:
        return None
    sizes = first.attn.num_heads, tower.image_size[0], tower.patch_size[0]
    return _recipe(*sizes, activation, tower.ln_post.eps)


def _canonical(state: Mapping[str, torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield open_clip's weights under their canonical names, in the canonical shapes."""
    for name, tensor in state.items():
        if name in _OUTSIDE:
            yield _OUTSIDE[name], tensor
        elif name == "proj":
            yield "visual_projection.weight", tensor.T
        else:
            block, _, part = name.removeprefix("transformer.resblocks.").partition(".")
            layer = f"encoder.layers.{block}"
            module, _, kind = part.rpartition(".")
            if module in _INSIDE:
                yield f"{layer}.{_INSIDE[module]}.{kind}", tensor
            else:
                kind = part.removeprefix("attn.in_proj_")
                for which, piece in zip("qkv", tensor.chunk(3), strict=True):
                    yield f"{layer}.self_attn.{which}_proj.{kind}", piece


def _recipe(
    heads: int, image: int, patch: int, activation: str, epsilon: float
) -> dict[str, object]:
    """Return everything beside the weights that determines the vectors, as plain values."""
    return {
        "network": "CLIP vision transformer with projection",
        "heads": int(heads),
        "image": int(image),
        "patch": int(patch),
        "activation": activation,
        "epsilon": float(epsilon),
    }
