"""Frames of a fixed camera (one scene under noise, each file different), and textured images."""

import numpy as np
from PIL import Image

from visleak.auditing import audit
from visleak.settings import Settings


def scene(seed, height=72, width=96):
    """Return blocks of colour and one object, not rounded."""
    rng = np.random.default_rng(seed)
    pixels = np.kron(rng.integers(30, 220, (height // 12, width // 12, 3)), np.ones((12, 12, 1)))
    pixels[height // 4 : height // 2, width // 3 : width // 2] = rng.integers(0, 256, 3)
    return pixels


def textured(seed, side=96):
    """Return noise at several scales; images of two seeds are not similar."""
    rng = np.random.default_rng(seed)
    total = np.zeros((side, side))
    for cells in (3, 6, 12, 24):
        small = Image.fromarray(rng.integers(0, 255, (cells, cells), dtype=np.uint8))
        total += np.asarray(small.resize((side, side), Image.Resampling.BICUBIC), float)
    return np.repeat((total / 4).astype(np.uint8)[..., None], 3, axis=2)


def write(folder, name, pixels):
    folder.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(folder / f"{name}.png")


def write_frames(folder, count, height=72, width=96, seed=0):
    rng = np.random.default_rng(seed)
    still = scene(0, height, width)
    for number in range(count):
        write(folder, f"f{number:03d}", still + rng.normal(0, 3, still.shape))


def audit_frames(folder, queries, references, *shape):
    """Audit frames of one camera, between two sets."""
    write_frames(folder / "test", queries, *shape, seed=1)
    write_frames(folder / "train", references, *shape, seed=2)
    sides = folder / "test", folder / "train"
    return audit(*sides, settings=Settings(within=False), cache=None, workers=1)
