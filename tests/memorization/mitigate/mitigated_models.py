"""Tiny pipelines behind the protocol, without a folder."""

import torch

from tiny_pipelines import MAKERS
from visleak.diffusion.loading import adapter_of
from visleak.diffusion.pipeline import LoadedPipeline, quiet

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}


def tiny(name="sd1", precision="fp32", loud=1.0):
    """Return a tiny model; random networks hardly hear a prompt, and attention can be louder."""
    with quiet():
        pipeline = MAKERS[name]()
        adapter = adapter_of(name, type(pipeline).__name__)
        adapter.prepare(pipeline, adapter.scheduled)
        pipeline.to(PRECISIONS[precision])
    for part in pipeline.components.values():
        if isinstance(part, torch.nn.Module):
            part.eval().requires_grad_(False)
    model = adapter(LoadedPipeline(name, pipeline, "cpu", precision, f"tiny-{name}"))
    for label, module in model.network.named_modules():
        if label.endswith(("attn2.to_out.0", "attn2.to_q", "attn2.to_k")):
            module.weight.data *= loud
    return model
