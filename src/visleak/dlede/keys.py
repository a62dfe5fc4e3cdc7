"""Digests that say whether a training that is on disk is the one that is asked for."""

from __future__ import annotations

import hashlib
import json
import os

import numpy as np

from visleak.dlede.lesson import Draw, Split
from visleak.images.boxes import Boxes
from visleak.records import ImageSet, Unreadable


def split_digest(split: Split) -> str:
    """Return a digest of the images, their labels and their boxes.

    Files stand in by name, size and time of change, pictures in memory by their content.
    """
    hasher = hashlib.blake2b(digest_size=16)
    for images in (split.train, split.test):
        _add_images(hasher, images)
    for boxes in (split.train_boxes, split.test_boxes):
        _add_boxes(hasher, boxes)
    return hasher.hexdigest()


def draw_digest(draw: Draw) -> str:
    """Return a digest of the rows that are trained on."""
    hasher = hashlib.blake2b(digest_size=16)
    for rows in (draw.kept, draw.leaked):
        hasher.update(np.ascontiguousarray(rows, "<i8").tobytes() + b"|")
    return hasher.hexdigest()


def _add_images(hasher: hashlib.blake2b, images: ImageSet) -> None:
    places = [locator and os.path.abspath(locator) for locator in images.locators.to_pylist()]
    labels = [] if images.labels is None else images.labels.to_pylist()
    for values in (images.ids.to_pylist(), places, labels):
        text = json.dumps(values, ensure_ascii=True)
        hasher.update(text.encode())
    files = {locator.partition("!")[0] for locator in images.locators.to_pylist() if locator}
    found = 0
    for file in sorted(files):
        try:
            status = os.stat(file)
        except OSError:
            continue
        found += 1
        hasher.update(f"{status.st_size} {status.st_mtime_ns} ".encode())
    if not found:
        _add_pictures(hasher, images)


def _add_pictures(hasher: hashlib.blake2b, images: ImageSet) -> None:
    """Add what no file stands for."""
    for picture in images.opener.read(range(len(images))):
        if isinstance(picture, Unreadable):
            hasher.update(b"unreadable")
        elif isinstance(picture, bytes):
            hasher.update(hashlib.blake2b(picture).digest())
        else:
            hasher.update(f"{picture.shape}".encode() + np.ascontiguousarray(picture).tobytes())


def _add_boxes(hasher: hashlib.blake2b, boxes: Boxes | None) -> None:
    if boxes is None:
        hasher.update(b"none")
        return
    hasher.update(json.dumps([list(boxes.names), boxes.images, boxes.relative]).encode())
    for column in (boxes.image, boxes.label, boxes.corners, boxes.crowd):
        hasher.update(np.ascontiguousarray(column).tobytes())
