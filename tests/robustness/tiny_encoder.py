"""A small encoder without weights, and sets to try it on."""

import cv2
import numpy as np


class TinyEncoder:
    """The 6 x 6 thumbnail, centred, in 1/64: coarse enough for equal similarities to occur."""

    name = "tiny"
    digest = "tiny-1"
    width = 108
    enough = 0
    views = 1
    thresholds = {"hard": 0.95, "soft": 0.8, "provenance": "made up"}  # noqa: RUF012
    cohort = None

    def encode(self, pictures):
        rows = []
        for picture in pictures:
            small = cv2.resize(picture.pixels, (6, 6), interpolation=cv2.INTER_AREA)
            row = small.astype(np.float32).ravel() - 127.5
            rows.append(row / max(1e-6, float(np.linalg.norm(row))))
        return np.asarray(rows, np.float32), np.zeros(len(rows), bool)

    def view(self, vectors, view):
        return vectors


class BlindEncoder(TinyEncoder):
    """The same vector for every image."""

    name = "blind"
    digest = "blind-1"

    def encode(self, pictures):
        rows = np.zeros((len(pictures), self.width), np.float32)
        rows[:, 0] = 1.0
        return rows, np.zeros(len(pictures), bool)


def blobs(count, seed=0, side=(96, 120)):
    """Return smooth random images, all different."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        rough = rng.integers(0, 256, (7, 9, 3), np.uint8)
        fine = rng.integers(0, 40, (side[0], side[1], 3), np.uint8)
        smooth = cv2.resize(rough, side[::-1], interpolation=cv2.INTER_CUBIC)
        made.append(cv2.addWeighted(smooth, 0.85, fine, 0.15, 0))
    return made
