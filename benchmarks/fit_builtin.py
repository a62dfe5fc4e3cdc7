"""Compute the cohort and the thresholds that ship with the built-in encoder.

usage: VISLEAK_DATA=FOLDER python benchmarks/fit_builtin.py [--thresholds]

Writes src/visleak/encoders/builtin_cohort.npy (256 + 64 cluster centres of fingerprints of
CIFAR-10 training images, of photographs of the fitting half and of COCO images: averages of
many images each, as int8) and src/visleak/encoders/builtin.json (thresholds at false-positive
rates 1e-6 and 1e-4 over pairs of different photographs, as `visleak calibrate` finds them).
With `--thresholds` the cohort stays as it is.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
from scipy.cluster.vq import kmeans2

from visleak.encoders.builtin import BuiltinEncoder
from visleak.formats import open_images
from visleak.images import decode
from visleak.records import Unreadable
from visleak.robustness import calibrate

SHIPPED = Path(__file__).parents[1] / "src" / "visleak" / "encoders"
CIFAR_CENTRES, PHOTO_CENTRES = 256, 64
CIFAR_ROWS = 20_000
HARD_RATE, SOFT_RATE = 1e-6, 1e-4


def vectors_of(source: Path, every: int = 1) -> np.ndarray:
    """Return fingerprints of the images of a source, except blank ones."""
    encoder, images = BuiltinEncoder(), open_images(source)
    pictures = [
        decode(data, enough=encoder.enough)
        for data in images.opener.read(range(0, len(images), every))
    ]
    vectors, flat = encoder.encode([p for p in pictures if not isinstance(p, Unreadable)])
    return vectors[~flat]


def centres(vectors: np.ndarray, count: int) -> np.ndarray:
    """Return unit cluster centres."""
    found, _ = kmeans2(vectors.astype(np.float64), count, iter=15, minit="++", seed=0)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def fitting_half(names: list[str]) -> list[int]:
    """Return positions 0 and 1 mod 4 of the photographs sorted by name."""
    assert names == sorted(names)
    return [place for place in range(len(names)) if place % 4 < 2]


def make_cohort(data: Path) -> np.ndarray:
    """Return the cohort as int8."""
    cifar = vectors_of(data / "cifar10" / "train.parquet", every=50_000 // CIFAR_ROWS + 1)
    photos = vectors_of(data / "photos")
    names = open_images(data / "photos").ids.to_pylist()
    photos = photos[fitting_half(names)]
    coco = vectors_of(data / "coco128" / "images")
    both = [centres(cifar, CIFAR_CENTRES), centres(np.concatenate([photos, coco]), PHOTO_CENTRES)]
    found = np.concatenate(both)
    return np.rint(found / np.abs(found).max(axis=1, keepdims=True) * 127).astype(np.int8)


def make_thresholds(data: Path) -> dict:
    """Return thresholds from pairs of different images: those of the fitting half, and COCO's.

    As `visleak calibrate` does under all conditions of the paper. The set is too small for 1e-6, so
    the hard threshold is above every wrong pair, which the entry states.
    """
    photos, coco = data / "photos", data / "coco128" / "images"
    names = open_images(photos).ids.to_pylist()
    chosen = [photos / names[place] for place in fitting_half(names)]
    assert len(chosen) == 250
    assert not {path.name for path in chosen} & {names[i] for i in range(len(names)) if i % 4 > 1}
    chosen += sorted(coco.rglob("*.jpg"))
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder) / "fitting.txt"
        listed.write_text("".join(f"{path.resolve()}\n" for path in chosen))
        images = open_images(listed, name="250 photographs and COCO128")
        found = calibrate(images, BuiltinEncoder(), fpr=(HARD_RATE, SOFT_RATE))
    for note in found.notes:
        print(note)
    (entry,) = found.as_dict()["encoders"].values()
    # a local path is not informative
    del entry["name"], entry["calibration"]["source"]
    return entry


def main() -> None:
    """Write both files."""
    if "VISLEAK_DATA" not in os.environ:
        sys.exit("VISLEAK_DATA is not set: nothing to fit on")
    data = Path(os.environ["VISLEAK_DATA"])
    if sys.argv[1:] != ["--thresholds"]:
        np.save(SHIPPED / "builtin_cohort.npy", make_cohort(data))
    thresholds = make_thresholds(data)
    (SHIPPED / "builtin.json").write_text(json.dumps({"thresholds": thresholds}, indent=1) + "\n")
    print(json.dumps(thresholds, indent=1))


if __name__ == "__main__":
    main()
