"""Tiny pipelines behind the protocol, without a folder."""

from __future__ import annotations

from typing import Any

import torch

from tiny_pipelines import (
    deepfloyd,
    stable_diffusion,
    stable_diffusion_3,
    stable_diffusion_xl,
)
from visleak.diffusion.families import (
    DeepFloyd,
    StableDiffusion,
    StableDiffusion3,
    StableDiffusionXL,
)
from visleak.diffusion.pipeline import LoadedPipeline, quiet

#: Adapter, maker and scheduler.
FAMILIES: dict[str, tuple[Any, Any, str]] = {
    "sd1": (StableDiffusion, stable_diffusion, "ddim"),
    "sd2": (StableDiffusion, lambda: stable_diffusion("v_prediction", "!"), "ddim"),
    "sdxl": (StableDiffusionXL, stable_diffusion_xl, "own"),
    "sd3": (StableDiffusion3, stable_diffusion_3, "own"),
    "if": (DeepFloyd, deepfloyd, "own"),
}

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}


def tiny(name: str = "sd1", precision: str = "fp32", loud: float = 1.0) -> Any:
    """Return a tiny model; random networks hardly hear a prompt, and attention can be louder."""
    adapter, make, scheduler = FAMILIES[name]
    with quiet():
        pipeline = make()
        adapter.prepare(pipeline, scheduler)
        pipeline.to(PRECISIONS[precision])
    for part in pipeline.components.values():
        if isinstance(part, torch.nn.Module):
            part.eval().requires_grad_(False)
    model = adapter(LoadedPipeline(name, pipeline, "cpu", precision, f"tiny-{name}"))
    for label, module in model.network.named_modules():
        if label.endswith(("attn2.to_out.0", "attn2.to_q", "attn2.to_k")):
            module.weight.data *= loud
    return model
