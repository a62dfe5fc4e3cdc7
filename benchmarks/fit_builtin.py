"""Make what ships with the built-in encoder: its cohort and its provisional thresholds.

usage: VISLEAK_DATA=FOLDER python benchmarks/fit_builtin.py

Writes src/visleak/encoders/builtin_cohort.npy (256 + 64 cluster centres of fingerprints of
CIFAR-10 training pictures, of photographs of the fitting half and of COCO pictures: averages of
many pictures each, as int8) and src/visleak/encoders/builtin.json (thresholds at false-positive
rates 1e-6 and 1e-4 over pairs of different photographs).
"""

from __future__ import annotations

import datetime
import json
import os
import sys
from pathlib import Path

import numpy as np
from scipy.cluster.vq import kmeans2
from scipy.stats import genpareto

from visleak.encoders.builtin import BuiltinEncoder
from visleak.images import decode, open_images
from visleak.records import VIEWS, Unreadable

SHIPPED = Path(__file__).parents[1] / "src" / "visleak" / "encoders"
CIFAR_CENTRES, PHOTO_CENTRES = 256, 64
CIFAR_ROWS = 20_000
TAIL = 0.002


def vectors_of(source: Path, every: int = 1) -> np.ndarray:
    """Return fingerprints of the pictures of a source, flat ones left out."""
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
    """Return thresholds from pairs of different photographs of the fitting half.

    The rate 1e-4 is read off the pairs; 1e-6 lies beyond them and is extrapolated by a
    generalised Pareto tail (Pickands 1975), never below the largest similarity seen.
    """
    encoder = BuiltinEncoder()
    names = open_images(data / "photos").ids.to_pylist()
    vectors = vectors_of(data / "photos")
    assert len(vectors) == len(names)
    own = vectors[fitting_half(names)]
    similarity = np.max([encoder.view(own, v) @ own.T for v in range(len(VIEWS))], axis=0)
    pairs = similarity[np.triu_indices(len(own), 1)].astype(np.float64)
    cut = np.quantile(pairs, 1 - TAIL)
    shape, _, scale = genpareto.fit(pairs[pairs > cut] - cut, floc=0)
    extreme = cut + genpareto.ppf(1 - 1e-6 / TAIL, shape, 0, scale)
    soft, hard = np.quantile(pairs, 1 - 1e-4), max(extreme, pairs.max())
    return {
        "hard": round(float(hard), 3),
        "soft": round(float(soft), 3),
        "provisional": True,
        "provenance": (
            f"provisional: false-positive rates 1e-6 (extrapolated) and 1e-4 over {len(pairs):,}"
            f" pairs of {len(own)} different photographs, all views;"
            f" {datetime.date.today().isoformat()}"
        ),
    }


def main() -> None:
    """Write both files."""
    if "VISLEAK_DATA" not in os.environ:
        sys.exit("VISLEAK_DATA is not set: nothing to fit on")
    data = Path(os.environ["VISLEAK_DATA"])
    np.save(SHIPPED / "builtin_cohort.npy", make_cohort(data))
    thresholds = make_thresholds(data)
    (SHIPPED / "builtin.json").write_text(json.dumps({"thresholds": thresholds}, indent=1) + "\n")
    print(json.dumps(thresholds, indent=1))


if __name__ == "__main__":
    main()
