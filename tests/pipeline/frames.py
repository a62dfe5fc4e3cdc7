"""Frames of a fixed camera (one scene under noise, each file different), and textured images."""

from pathlib import Path

import numpy as np
from PIL import Image

from visleak.auditing import Audit, audit
from visleak.settings import Settings


def scene(seed: int, height: int = 72, width: int = 96) -> np.ndarray:
    """Return blocks of colour and one object, not rounded."""
    rng = np.random.default_rng(seed)
    pixels = np.kron(rng.integers(30, 220, (height // 12, width // 12, 3)), np.ones((12, 12, 1)))
    pixels[height // 4 : height // 2, width // 3 : width // 2] = rng.integers(0, 256, 3)
    return pixels


def textured(seed: int, side: int = 96) -> np.ndarray:
    """Return noise at several scales; images of two seeds are not similar."""
    rng = np.random.default_rng(seed)
    total = np.zeros((side, side))
    for cells in (3, 6, 12, 24):
        small = Image.fromarray(rng.integers(0, 255, (cells, cells), dtype=np.uint8))
        total += np.asarray(small.resize((side, side), Image.Resampling.BICUBIC), float)
    return np.repeat((total / 4).astype(np.uint8)[..., None], 3, axis=2)


def write(folder: Path, name: str, pixels: np.ndarray) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(folder / f"{name}.png")


def write_frames(
    folder: Path, count: int, height: int = 72, width: int = 96, seed: int = 0
) -> None:
    rng = np.random.default_rng(seed)
    still = scene(0, height, width)
    for number in range(count):
        write(folder, f"f{number:03d}", still + rng.normal(0, 3, still.shape))


def audit_frames(folder: Path, queries: int, references: int, *shape: int) -> Audit:
    """Audit frames of one camera, between two sets."""
    write_frames(folder / "test", queries, *shape, seed=1)
    write_frames(folder / "train", references, *shape, seed=2)
    sides = folder / "test", folder / "train"
    return audit(*sides, settings=Settings(within=False), cache=None, workers=1)
