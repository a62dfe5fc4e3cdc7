"""Encoders that take batches, without any library, for worker processes to import."""

import cv2
import numpy as np

from visleak.encoders.builtin import flat
from visleak.records import DecodedImage


def small(picture):
    """Prepare: the 5 x 5 thumbnail."""
    return cv2.resize(picture.pixels, (5, 5), interpolation=cv2.INTER_AREA)


def whole(picture):
    """Prepare: all pixels."""
    return picture.pixels


def picky(picture):
    """Prepare: fails for images of 23 pixels height."""
    if picture.height == 23:
        raise ZeroDivisionError("no\nheight")
    if picture.height == 22:
        raise MemoryError
    return small(picture)


class Network:
    """The thumbnail, centred; every coordinate depends on its own image alone."""

    name, digest, width, enough, views = "network", "network-1", 75, 0, 1
    thresholds = {"hard": 0.98, "soft": 0.9, "provenance": "made up"}  # noqa: RUF012
    cohort = None
    batch, precision, device = 8, "fp32", "cpu"

    def __init__(self, preparation=small, **others):
        self.preparation = preparation
        self.calls: list[int] = []
        vars(self).update(others)

    def __reduce__(self):
        raise TypeError("the network must not travel")

    def forward(self, prepared):
        self.calls.append(len(prepared))
        made = [small(DecodedImage(p, p.shape[1], p.shape[0])) for p in prepared]
        rows = np.stack(made).reshape(len(made), -1).astype(np.float32) - 127.5
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6)

    def encode(self, pictures):
        return self.forward([self.preparation(picture) for picture in pictures]), flat(pictures)

    def view(self, vectors, view):
        return vectors
