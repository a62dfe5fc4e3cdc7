"""The canonical form of CLIP's image tower: that of transformers.

open_clip stores the same weights under other names, queries, keys and values in one matrix, the
projection transposed. The digest is made of the canonical form, so that it tells what the vectors
are and not which library made them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from visleak.encoders.network import tensors_digest

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


def transformers_digest(module: Any) -> str:
    """Return the digest of a ``CLIPVisionModelWithProjection``."""
    config = module.config
    about = _recipe(
        heads=config.num_attention_heads,
        image=config.image_size,
        patch=config.patch_size,
        activation=config.hidden_act,
        epsilon=config.layer_norm_eps,
    )
    state = module.state_dict().items()
    return tensors_digest(
        {name.removeprefix("vision_model."): tensor for name, tensor in state}, about
    )


def open_clip_digest(tower: Any) -> str:
    """Return the digest of an image tower of open_clip; transformers' where it has that one."""
    state = tower.state_dict()
    about = _plain(tower)
    if about is None:
        # other towers exist in open_clip only: its names are as good as any
        return tensors_digest(state, {"open_clip": str(tower)})
    return tensors_digest(dict(_canonical(state)), _recipe(**about))


def _plain(tower: Any) -> Mapping[str, Any] | None:
    """Return what a plain vision transformer does; ``None`` for all other towers."""
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
    return {
        "heads": first.attn.num_heads,
        "image": tower.image_size[0],
        "patch": tower.patch_size[0],
        "activation": activation,
        "epsilon": tower.ln_post.eps,
    }


def _canonical(state: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
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


def _recipe(heads: int, image: int, patch: int, activation: str, epsilon: float) -> dict[str, Any]:
    """Return what a CLIP does with its weights, as plain values."""
    return {
        "network": "CLIP vision transformer with projection",
        "heads": int(heads),
        "image": int(image),
        "patch": int(patch),
        "activation": activation,
        "epsilon": float(epsilon),
    }
