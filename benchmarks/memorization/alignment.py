"""Train a tiny CLIP on a toy world, to score how well an image fits a caption.

usage: python benchmarks/memorization/alignment.py --cache DIR [--world plain|hard]

Writes DIR/clip-WORLD-DIGEST/, a folder for ``transformers.CLIPModel`` with its tokenizer and image
processor. The training data are the general images of the world with noise and their captions,
without memorized pairs and held-out captions.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
from pathlib import Path
from time import perf_counter
from typing import Any

from worlds import WORLDS, World, world

from training import EDITION

#: Token positions of a caption; width of the common space of texts and images.
POSITIONS, SPACE = 24, 48

#: Pairs per update, updates, highest learning rate, weight decay.
BATCH, STEPS, RATE, DECAY = 160, 1200, 2e-3, 0.05

#: Most noise of an image in training, for the range -1 to 1.
NOISE = 0.1


def aligned(name: str, cache: Path | str, steps: int = STEPS) -> Path:
    """Return the folder of a tiny CLIP; train it first if there is none (about 2 minutes)."""
    settings = [EDITION, name, POSITIONS, SPACE, BATCH, steps, RATE, DECAY, NOISE]
    digest = hashlib.blake2b(json.dumps(settings).encode(), digest_size=4).hexdigest()
    target = Path(cache) / f"clip-{name}-{digest}"
    if target.is_dir():
        return target
    part = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    record = _train(world(name), part, steps)
    (part / "training.json").write_text(json.dumps({"settings": settings, **record}) + "\n")
    os.replace(part, target)
    return target


def _tokens(tokenizer: Any, captions: list[str]) -> Any:
    return tokenizer(
        captions, padding="max_length", max_length=POSITIONS, truncation=True, return_tensors="pt"
    )


def _network(tokenizer: Any) -> Any:
    """Return an untrained CLIP of images of 16x16 pixels, 1 M parameters."""
    from transformers import CLIPConfig, CLIPModel

    ids = {f"{kind}_token_id": getattr(tokenizer, f"{kind}_token_id") for kind in ("bos", "eos")}
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": POSITIONS,
        "projection_dim": SPACE,
        "pad_token_id": tokenizer.pad_token_id,
        **ids,
    }
    vision = {
        "hidden_size": 96,
        "intermediate_size": 192,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "image_size": 16,
        "patch_size": 4,
        "projection_dim": SPACE,
    }
    return CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=SPACE))


def _train(here: World, folder: Path, steps: int) -> dict[str, Any]:
    """Train, save, and return the results on held-out captions."""
    import torch
    from toy_networks import prompt_tokenizer

    start = perf_counter()
    torch.manual_seed(0)
    tokenizer = prompt_tokenizer(here.words)
    tokenizer.model_max_length = POSITIONS
    network = _network(tokenizer)
    pictures = torch.tensor(here.pictures).permute(0, 3, 1, 2).float() / 127.5 - 1
    texts = _tokens(tokenizer, list(here.captions))
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=DECAY)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, steps, pct_start=0.1)
    rng = torch.Generator().manual_seed(0)
    for _ in range(steps):
        rows = torch.randint(len(pictures), (BATCH,), generator=rng)
        strength = NOISE * torch.rand(BATCH, 1, 1, 1, generator=rng)
        shown = pictures[rows] + strength * torch.randn(pictures[rows].shape, generator=rng)
        found = network(
            input_ids=texts.input_ids[rows],
            attention_mask=texts.attention_mask[rows],
            pixel_values=shown,
            return_loss=True,
        )
        optimizer.zero_grad()
        found.loss.backward()
        optimizer.step()
        rates.step()
    network.eval()
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(_processor(), indent=1) + "\n")
    kept_back = torch.tensor(here.held_out_pictures).permute(0, 3, 1, 2).float() / 127.5 - 1
    texts = _tokens(tokenizer, list(here.held_out))
    with torch.no_grad():
        found = network(
            input_ids=texts.input_ids, attention_mask=texts.attention_mask, pixel_values=kept_back
        )
    alike = found.image_embeds @ found.text_embeds.T
    return {
        "own_caption": float(alike.diagonal().mean()),
        "another_caption": float(alike.roll(1, 0).diagonal().mean()),
        "own_caption_first": float((alike.argmax(1) == torch.arange(len(alike))).float().mean()),
        "loss_kept_back": float(loss_of(found)),
        "seconds": round(perf_counter() - start, 1),
    }


def loss_of(found: Any) -> Any:
    """Return the contrastive loss of a batch (Radford et al. 2021, figure 3)."""
    import torch

    logits = found.logits_per_image
    wanted = torch.arange(len(logits))
    entropy = torch.nn.functional.cross_entropy
    return (entropy(logits, wanted) + entropy(logits.T, wanted)) / 2


def _processor() -> dict[str, Any]:
    """Return the settings of ``CLIPImageProcessor`` for images of 16x16 pixels."""
    return {
        "image_processor_type": "CLIPImageProcessor",
        "do_resize": True,
        "size": {"shortest_edge": 16},
        "resample": 3,
        "do_center_crop": True,
        "crop_size": {"height": 16, "width": 16},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "do_convert_rgb": True,
    }


def main() -> None:
    """Train one from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--world", choices=WORLDS, default="plain")
    parser.add_argument("--cache", type=Path, required=True)
    wanted = parser.parse_args()
    print(aligned(wanted.world, wanted.cache))


if __name__ == "__main__":
    main()
