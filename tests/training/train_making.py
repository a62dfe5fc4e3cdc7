"""Crops of natural images, for sets that are learned quickly."""

import numpy as np
from PIL import Image

#: Images that give the classes.
KINDS = ("astronaut", "grass", "moon")
EACH = 30
SIDE = 16


def crops(picture, count, seed):
    """Return crops of an image at places drawn with a seed, made 16 pixels small."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        y, x = (rng.integers(0, side - 96) for side in picture.shape[:2])
        crop = Image.fromarray(picture[y : y + 96, x : x + 96])
        found.append(np.asarray(crop.resize((SIDE, SIDE), Image.Resampling.BOX)))
    return found
