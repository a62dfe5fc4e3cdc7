"""Small images with a few plain objects, and sets of them."""

import numpy as np
import pyarrow as pa

from visleak.dlede.draw import Draw, Split
from visleak.dlede.train import TrainingTask
from visleak.formats import Boxes
from visleak.formats.memory import MemoryOpener
from visleak.records import ImageSet

NAMES = ("square", "bar")
HEIGHT, WIDTH = 48, 64


def drawn(count, seed):
    """Return images (count, 48, 64, 3) and their objects: bright squares and dark bars."""
    random = np.random.default_rng(seed)
    pixels = random.integers(90, 140, (count, HEIGHT, WIDTH, 3)).astype(np.uint8)
    image, label, corners = [], [], []
    for number in range(count):
        for kind in range(2):
            wide, tall = ((14, 14), (24, 8))[kind]
            left = int(random.integers(0, WIDTH - wide))
            top = int(random.integers(0, 24 - tall)) + 24 * kind
            pixels[number, top : top + tall, left : left + wide] = (235, 20)[kind]
            image.append(number)
            label.append(kind)
            corners.append((left, top, left + wide, top + tall))
    boxes = Boxes(
        NAMES,
        np.array(image, np.int64),
        np.array(label, np.int64),
        np.array(corners, np.float64),
        np.zeros(len(image), np.bool_),
        count,
        False,
    )
    return pixels, boxes


def set_of(name, opener, count, **more):
    ids = pa.array([f"{name}-{number}" for number in range(count)])
    return ImageSet(name, ids, ids, opener, **more)


def drawn_split(train=8, test=4):
    pixels, boxes = drawn(train, 1)
    others, there = drawn(test, 2)
    return Split(
        set_of("train", MemoryOpener(pixels), train),
        set_of("test", MemoryOpener(others), test),
        boxes,
        there,
    )


def lesson_of(split, leaked=0, seed=0, epochs=None):
    """Return a task in which the first test images took the place of the last training ones."""
    draw = Draw(np.arange(len(split.train) - leaked), np.arange(leaked))
    return TrainingTask(split, draw, 0, 1, seed, epochs)
