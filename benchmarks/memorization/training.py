"""Train a toy Stable Diffusion that memorizes twelve images; save it as a stock pipeline.

usage: python benchmarks/memorization/training.py --cache DIR [--world plain|hard] [--seed 0]
           [--steps 2000] [--memorised 0.15]

DIR/WORLD-SEED-STEPS-DIGEST/ has ``pipeline/`` (for ``StableDiffusionPipeline``), ``mlm/``
and ``clm/`` (for ``AutoModelForMaskedLM`` and ``AutoModelForCausalLM``), ``memorised/`` and
``training/`` (PNG files), ``world.json`` and ``training.json``. A finished folder is reused;
an interrupted training run resumes from its last checkpoint.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from PIL import Image
from worlds import WORLDS, World, world

#: Version of images, captions and networks, so that models of other versions are not used.
EDITION = 2

#: Images in ``training/``, including the memorized ones.
SAMPLE = 500

#: Share of repeated pairs in training.
MEMORISED = 0.15

#: Updates of each language model.
LANGUAGE_STEPS = 400

PACKAGES = ("torch", "diffusers", "transformers", "tokenizers", "numpy", "Pillow")


def folder_name(name: str, seed: int, steps: int, memorised: float = MEMORISED) -> str:
    """Return the name of a toy's folder, with a digest of its training data and settings."""
    from diffusion import Recipe

    recipe = asdict(Recipe(steps=steps, memorised=memorised))
    settings = [EDITION, LANGUAGE_STEPS, name, seed, recipe]
    digest = hashlib.blake2b(json.dumps(settings).encode(), digest_size=4).hexdigest()
    return f"{name}-{seed}-{steps}-{digest}"


def trained(
    name: str, seed: int, steps: int, cache: Path | str, memorised: float = MEMORISED
) -> Path:
    """Return the folder of a trained toy; train it first if there is none.

    Of several processes one trains, and the others wait for it.

    Args:
        name: of a world, ``plain`` or ``hard``.
        seed: of weights and batches; the world is the same for every seed.
        steps: updates.
        cache: folder of such folders.
        memorised: share of repeated pairs in training, between 0 and 1, both excluded.

    Raises:
        SystemExit: invalid world, steps or share.
    """
    if name not in WORLDS:
        raise SystemExit(f"there is no world {name!r}: name plain or hard")
    if steps < 1:
        raise SystemExit(f"steps must be 1 or more, not {steps}")
    if not 0 < memorised < 1:
        raise SystemExit(f"memorised must be more than 0 and less than 1, not {memorised:g}")
    target = Path(cache) / folder_name(name, seed, steps, memorised)
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with _alone(target.with_name(f".{target.name}.lock")):
        if not target.is_dir():
            _make(target, name, seed, steps, memorised)
    return target


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Hold a lock that ends with its process."""
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _make(target: Path, name: str, seed: int, steps: int, memorised: float) -> None:
    """Train all models into a temporary folder, and rename it at the end."""
    from language import train_causal, train_masked
    from toy_networks import pipeline, prompt_tokenizer

    from diffusion import Recipe, averaged, train

    part = target.with_name(f".{target.name}.part")
    part.mkdir(exist_ok=True)
    checkpoint = part / "checkpoint.pt"
    here, recipe = world(name), Recipe(steps=steps, memorised=memorised)
    start = perf_counter()
    state = train(here, recipe, seed, checkpoint)
    losses = {"diffusion": state.losses}
    networks = averaged(state)
    whole = pipeline(prompt_tokenizer(here.words), networks["text"], networks["unet"])
    whole.save_pretrained(part / "pipeline", safe_serialization=True)
    losses["mlm"] = train_masked(here.words, here.other, part / "mlm", seed, LANGUAGE_STEPS)
    losses["clm"] = train_causal(here.words, here.other, part / "clm", seed, LANGUAGE_STEPS)
    write_world(here, part)
    record = {
        "world": name,
        "seed": seed,
        "recipe": asdict(recipe),
        "edition": EDITION,
        "parameters": sum(value.numel() for value in networks.parameters()),
        "seconds": {"diffusion": state.seconds, "last_process": perf_counter() - start},
        "versions": {"python": platform.python_version(), **{p: version(p) for p in PACKAGES}},
        "losses": losses,
    }
    (part / "training.json").write_text(json.dumps(record) + "\n")
    checkpoint.unlink()
    os.replace(part, target)


def write_world(here: World, folder: Path) -> None:
    """Write a world's captions to ``world.json``, and images to ``memorised``, ``training``."""
    for name in ("memorised", "training"):
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir()
    repeated = [f"memorised-{at:02d}.png" for at in range(len(here.memorised))]
    for name, picture in zip(repeated, here.memorised_pictures, strict=True):
        for place in ("memorised", "training"):
            Image.fromarray(picture).save(folder / place / name)
    for at in range(SAMPLE - len(repeated)):
        Image.fromarray(here.pictures[at]).save(folder / "training" / f"general-{at:04d}.png")
    mean = np.concatenate([here.pictures, here.memorised_pictures]).mean(axis=0)
    content: dict[str, Any] = {
        "world": here.name,
        "vocabulary": here.words,
        "colours": here.colours,
        "brands": here.brands,
        "memorised": [
            {"caption": caption, "picture": f"memorised/{name}", "training": f"training/{name}"}
            for caption, name in zip(here.memorised, repeated, strict=True)
        ],
        "held_out": here.held_out,
        "hard": here.hard,
        "general": here.captions,
        "other": here.other,
        "mean": np.round(mean, 3).tolist(),
    }
    (folder / "world.json").write_text(json.dumps(content) + "\n")


def main() -> None:
    """Train one toy from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--world", choices=WORLDS, default="plain")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--memorised", type=float, default=MEMORISED)
    parser.add_argument("--cache", type=Path, required=True)
    wanted = parser.parse_args()
    print(trained(wanted.world, wanted.seed, wanted.steps, wanted.cache, wanted.memorised))


if __name__ == "__main__":
    main()
