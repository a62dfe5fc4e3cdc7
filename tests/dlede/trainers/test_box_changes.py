"""Images, boxes and changes lie over each other: on the canvas, changed, and back."""

import numpy as np
import pytest
from drawn_objects import drawn, set_of

from visleak.dlede.draw import Draw, Split
from visleak.dlede.trainers.detections import Objects
from visleak.dlede.trainers.networks import GREY, decode_images
from visleak.dlede.trainers.torch_networks import (
    LEFT,
    Augmentation,
    in_pixels,
    on_canvas,
    to_originals,
)
from visleak.formats import Boxes
from visleak.formats.memory import MemoryOpener
from visleak.progress import silent


def prepared(split, folder, side=32, multiple=16):
    return decode_images(split, side, multiple, folder, silent)


def split_of_shapes():
    """Return images of several shapes: white, with a black left half."""
    made = []
    for height, width in ((20, 64), (64, 20), (12, 30)):
        pixels = np.full((height, width, 3), 255, np.uint8)
        pixels[:, : width // 2] = 0
        made.append(pixels)
    sets = [
        set_of(name, MemoryOpener(pictures), len(pictures))
        for name, pictures in (("train", made[:2]), ("test", made[2:]))
    ]
    return Split(sets[0], sets[1])


def test_pictures_keep_their_shape_and_are_not_enlarged(tmp_path):
    pictures = prepared(split_of_shapes(), tmp_path)
    assert pictures.sizes.tolist() == [[10, 32], [32, 10], [12, 30]]
    assert pictures.originals.tolist() == [[20, 64], [64, 20], [12, 30]]
    assert pictures.canvas == (32, 32)
    assert pictures.test.tolist() == [2]
    assert pictures.rows(Draw(np.array([1]), np.array([0]))).tolist() == [1, 2]
    shown = pictures.on_canvas(pictures.mapped(), np.array([0, 2]))
    assert shown.shape == (2, 32, 32, 3)
    assert (shown[0, 10:] == GREY).all()
    assert (shown[0, :10, :14] == 0).all()
    assert (shown[0, :10, 18:] == 255).all()
    assert (shown[1, :12, :15] == 0).all()
    assert (shown[1, :12, 15:30] == 255).all()


def boxes_of(corners, image, relative, images):
    count = len(image)
    zeros = np.zeros(count, np.int64)
    there = np.array(corners, np.float64)
    return Boxes(("a",), np.array(image), zeros, there, zeros > 0, images, relative)


def test_boxes_in_pixels_and_in_shares_are_the_same(tmp_path):
    pictures = prepared(split_of_shapes(), tmp_path)
    rows = np.array([0, 1, 2])
    pixels = boxes_of([[0, 0, 32, 20], [10, 32, 20, 64], [15, 0, 45, 6]], [0, 1, 2], False, 3)
    shares = boxes_of([[0, 0, 0.5, 1], [0.5, 0.5, 1, 1], [0.5, 0, 1.5, 0.5]], [0, 1, 2], True, 3)
    expected = [[0, 0, 16, 10], [5, 16, 10, 32], [15, 0, 30, 6]]
    for boxes in (pixels, shares):
        found = on_canvas(boxes, pictures, rows)
        assert [objects.corners[0].tolist() for objects in found] == expected
        assert np.array_equal(in_pixels(boxes, pictures, rows).corners, pixels.corners)
    back = to_originals(np.array(expected, np.float64), pictures, rows)
    assert np.array_equal(
        back, np.minimum(pixels.corners, [[64, 20] * 2, [20, 64] * 2, [30, 12] * 2])
    )


def test_what_lies_outside_is_no_object(tmp_path):
    pictures = prepared(split_of_shapes(), tmp_path)
    boxes = boxes_of([[70, 0, 80, 10], [3, 3, 3, 9], [0, 0, 9, 9]], [0, 0, 1], False, 3)
    found = on_canvas(boxes, pictures, np.array([0, 1, 2]))
    assert [len(objects.label) for objects in found] == [0, 1, 0]


def test_boxes_follow_their_pictures():
    pixels, boxes = drawn(6, 3)
    objects = [
        Objects(boxes.label[mine], boxes.corners[mine], boxes.crowd[mine])
        for mine in (np.flatnonzero(boxes.image == number) for number in range(6))
    ]
    for seed in range(5):
        changes = Augmentation.drawn(6, np.random.default_rng(seed))
        changes = Augmentation(changes.zoom, changes.shift, np.ones(6))
        shown = changes.of_pixels(pixels, "cpu").numpy().mean(1)
        for maps, there in zip(shown, changes.of_objects(objects, (48, 64)), strict=True):
            for label, box in zip(there.label, there.corners, strict=True):
                covered = np.zeros_like(maps, bool)
                left, top, right, bottom = np.round(box).astype(int)
                covered[top:bottom, left:right] = True
                coloured = maps > 190 if label == 0 else maps < 60
                both = (covered & coloured).sum()
                assert both >= 0.75 * (covered | coloured).sum()


def test_an_object_of_which_little_is_left_becomes_a_crowd():
    changes = Augmentation(np.ones((1, 2)), np.array([[-0.1, 0.0]]), np.ones(1))
    size = 100.0
    kept, cut = [5.0, 10.0, 25.0, 20.0], [1.0, 10.0, 12.0, 20.0]
    gone = [1.0, 10.0, 9.0, 20.0]
    whole = Objects(np.array([0, 1, 2]), np.array([kept, cut, gone]), np.zeros(3, np.bool_))
    (made,) = changes.of_objects([whole], (int(size), int(size)))
    assert made.label.tolist() == [0, 1]
    assert made.corners == pytest.approx(np.array([[0, 10, 15, 20], [0, 10, 2, 20]]))
    assert made.crowd.tolist() == [False, True]
    assert 2 / 11 < LEFT < 15 / 20
