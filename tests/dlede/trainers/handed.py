"""Small splits of images on disk, with boxes, for trainers that open the files themselves."""

import json

import cv2
import numpy as np

from visleak.dlede.draw import Draw, Split
from visleak.dlede.train import TrainingTask
from visleak.formats import Boxes, open_images

#: Width and height of the images.
SIZE = (40, 20)


def paint(path, seed, size=SIZE):
    pixels = np.random.default_rng(seed).integers(0, 90, (size[1], size[0], 3), np.uint8)
    width, height = size
    pixels[height // 4 : height * 3 // 4, width // 4 : width * 3 // 4] = 200 + seed % 50
    path.parent.mkdir(parents=True, exist_ok=True)
    data = cv2.imencode(path.suffix, pixels)[1].tobytes()
    path.write_bytes(data)


def boxes(count, corners=(10, 5, 30, 15)):
    """Return one box an image, in pixels, of two classes in turn."""
    return Boxes(
        ("car", "bike"),
        np.arange(count),
        np.arange(count) % 2,
        np.tile(np.array(corners, np.float64), (count, 1)),
        np.zeros(count, np.bool_),
        count,
        relative=False,
    )


def split_on_disk(root, train=6, test=4, size=SIZE, boxed=True):
    """Return a split whose test images are called as the training images are."""
    for row in range(train):
        paint(root / "train" / f"{row}.png", row, size)
    for row in range(test):
        paint(root / "test" / f"{row}.png", 100 + row, size)
    width, height = size
    corners = (width / 4, height / 4, width * 3 / 4, height * 3 / 4)
    sides = (boxes(train, corners), boxes(test, corners)) if boxed else (None, None)
    return Split(
        open_images(root / "train", name="train"), open_images(root / "test", name="test"), *sides
    )


def lesson_of(split, leaked=(1,), **wanted):
    """Return a training in which some test images took the place of the last training images."""
    kept = np.arange(len(split.train) - len(leaked))
    draw = Draw(kept, np.array(leaked, np.int64))
    known = {"step": 10, "repetition": 3, "seed": 3} | wanted
    return TrainingTask(split, draw, **known)


def script(path, text):
    path.write_text(f"import json, os, sys, time\nfrom pathlib import Path\n{text}\n")
    return path


def writes(value):
    return f"Path(sys.argv[1]).write_text({json.dumps(value)!r})"
