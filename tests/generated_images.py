"""A training set, and what an extraction that replays some of it leaves behind."""

from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from PIL import Image

from visleak.memorization.extraction.run import (
    GENERATED,
    KIND,
    MEDOIDS,
    Cluster,
    Extraction,
    headline,
)
from visleak.storage import RunFolder

Pixels = npt.NDArray[np.uint8]

SIDE = 128


def crop(picture, seed=0):
    """Return a part of an image."""
    rng = np.random.default_rng(seed)
    top, left = (int(rng.integers(0, length - 256)) for length in picture.shape[:2])
    part = picture[top : top + 256, left : left + 256]
    return np.asarray(cv2.resize(part, (SIDE, SIDE), interpolation=cv2.INTER_AREA))


def noisy(picture, seed, deviation=6.0):
    """Return an image as a model replays it: a little blurred, a little noise."""
    rng = np.random.default_rng(seed)
    smooth = cv2.GaussianBlur(picture, (0, 0), 0.6)
    return np.clip(smooth + rng.normal(0, deviation, picture.shape), 0, 255).astype(np.uint8)


def recoloured(picture, seed=0, colours=6):
    """Return an image with another palette: each cluster of colours gets a colour of its own."""
    rows = picture.reshape(-1, 3).astype(np.float32)
    cv2.setRNGSeed(1)
    _, labels, centres = cv2.kmeans(rows, colours, None, (3, 20, 1.0), 1, cv2.KMEANS_PP_CENTERS)
    new = np.random.default_rng(seed).uniform(20, 235, centres.shape)
    made = rows - centres[labels.ravel()] + new[labels.ravel()]
    return np.clip(made, 0, 255).astype(np.uint8).reshape(picture.shape)


@dataclass(frozen=True)
class World:
    """Folders of training images and of an extraction; both sides' images by name."""

    train: Path
    extraction: Path
    training: dict[str, Pixels]
    generated: dict[str, Pixels]


#: Prompts of the four clusters: two bring one image, one its layout, one nothing known.
PROMPTS = ("an astronaut", "=a space poster", "a cat <b>", "a wall")


def make_world(root, natural):
    """Write both folders."""
    train = root / "train"
    train.mkdir(parents=True)
    names = ("astronaut", "chelsea", "coffee", "rocket", "coins", "camera")
    training = {name: crop(natural[name], 1) for name in names}
    for name, pixels in training.items():
        Image.fromarray(pixels).save(train / f"{name}.png")
    generated = {
        "p0c0": noisy(training["astronaut"], 1),
        "p1c0": noisy(training["astronaut"], 2, 9.0),
        "p2c0": noisy(recoloured(training["chelsea"]), 3),
        "p3c0": noisy(crop(natural["brick"], 4), 4),
    }
    extraction = root / "extract"
    write_extraction(extraction, PROMPTS, list(generated.values()), ids=list(generated))
    return World(train, extraction, training, generated)


def write_extraction(folder, prompts, pictures, ids):
    """Write an extraction with one cluster a prompt, and two equal images of each."""
    (folder / "images").mkdir(parents=True)
    clusters, medoids, made = [], [], []
    for number, (prompt, pixels, name) in enumerate(zip(prompts, pictures, ids, strict=True)):
        digest, size = f"{number:032x}", 20 + number
        path = f"images/{digest}.png"
        Image.fromarray(pixels).save(folder / path)
        clusters.append(Cluster(prompt, 0, size, 100, digest, path, number, 0.9))
        medoids.append((name, path, prompt, 0, size, number, prompt))
        made += [(prompt, seed, digest, path, 0) for seed in (0, 1)]
    settings = {"min_cluster": 20, "images": 100}
    result = Extraction(
        folder=folder,
        about={"model": {"name": "toy"}, "sampling": {}, "similarity": {}, "settings": settings},
        prompts=prompts,
        images=len(made),
        clusters=tuple(clusters),
        calls=0,
        seconds=0.0,
    )
    run = RunFolder(folder, KIND)
    tables = {
        MEDOIDS: table(medoids, "id", "path", "prompt", "cluster", "size", "seed", "caption"),
        GENERATED: table(made, "prompt", "seed", "digest", "path", "cluster"),
    }
    run.finish(run.document(headline(result), result), tables)


def table(rows, *names):
    """Return rows as a table that has its columns without any row too."""
    return pa.table({name: [row[place] for row in rows] for place, name in enumerate(names)})
