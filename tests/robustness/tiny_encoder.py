"""A small encoder without weights, and sets to try it on."""

import cv2
import numpy as np


class TinyEncoder:
    """The 6 x 6 thumbnail, centred, in 1/64: coarse enough for equal similarities to occur."""

    name, digest, width, enough, views, cohort = "tiny", "tiny-1", 108, 0, 1, None
    thresholds = {"hard": 0.95, "soft": 0.8, "provenance": "made up"}  # noqa: RUF012

    def encode(self, pictures):
        small = [cv2.resize(p.pixels, (6, 6), interpolation=cv2.INTER_AREA) for p in pictures]
        rows = np.array(small, np.float32).reshape(len(small), self.width) - 127.5
        rows /= np.maximum(1e-6, np.linalg.norm(rows, axis=1, keepdims=True))
        return rows, np.zeros(len(rows), bool)

    def view(self, vectors, view):
        return vectors


class BlindEncoder(TinyEncoder):
    """The same vector for every image."""

    name, digest = "blind", "blind-1"

    def encode(self, pictures):
        rows = np.eye(1, self.width, dtype=np.float32).repeat(len(pictures), axis=0)
        return rows, np.zeros(len(rows), bool)


def blobs(count, side=(96, 120)):
    """Return smooth random images, all different."""
    rng = np.random.default_rng(0)
    made = []
    for _ in range(count):
        rough = rng.integers(0, 256, (7, 9, 3), np.uint8)
        fine = rng.integers(0, 40, (*side, 3), np.uint8)
        smooth = cv2.resize(rough, side[::-1], interpolation=cv2.INTER_CUBIC)
        made.append(cv2.addWeighted(smooth, 0.85, fine, 0.15, 0))
    return made
