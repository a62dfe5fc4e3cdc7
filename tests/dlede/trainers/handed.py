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


def split_on_disk(root, size=SIZE, boxed=True):
    """Return a split with equal names on both sides, and one box per image, of two classes."""
    sets, boxes = [], []
    for name, count, seed in (("train", 6, 0), ("test", 4, 100)):
        for row in range(count):
            paint(root / name / f"{row}.png", seed + row, size)
        rows = np.arange(count)
        corners = np.tile(np.outer([0.25, 0.75], size).ravel(), (count, 1))
        sets.append(open_images(root / name, name=name))
        boxes.append(Boxes(("car", "bike"), rows, rows % 2, corners, rows < 0, count, False))
    return Split(*sets, *(boxes if boxed else ()))


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
