"""Boxes of KITTI: rows written by hand after the readme of its devkit."""

from __future__ import annotations

import pytest

from visleak.errors import VisleakError
from visleak.formats import boxes_of, open_images

SPACE = "1.6 1.8 3.9 1 2 30 -1.5"


def row(name, box="10.5 20 110.25 80"):
    return f"{name} 0.00 0 -1.57 {box} {SPACE}"


@pytest.fixture
def detection(put):
    for number in range(4):
        put(f"k/training/image_2/{number:06d}.png", seed=number)
        put(f"k/testing/image_2/{number:06d}.png", seed=number)
    put("k/training/label_2/000000.txt", f"{row('Zebra')}\n{row('DontCare', '1 2 3 4')}\n")
    put("k/training/label_2/000001.txt", f"{row('Cyclist')}\n{row('Car', '0 0 5 5')}\n")
    put("k/training/label_2/000003.txt", "")
    return put("k/training/calib/000000.txt", "x").parents[2]


def test_object_detection(detection):
    boxes = boxes_of(open_images(f"kitti:{detection}"))
    assert boxes.names == ("Car", "Cyclist", "Zebra")  # the readme's order, then others
    assert boxes.image.tolist() == [0, 0, 1, 1]
    assert boxes.label.tolist() == [2, -1, 1, 0]
    assert boxes.crowd.tolist() == [False, True, False, False]
    assert boxes.corners[0].tolist() == [10.5, 20, 110.25, 80]
    assert boxes.corners[1].tolist() == [1, 2, 3, 4]
    assert not boxes.relative
    assert boxes.counts().tolist() == [[0, 0, 1], [1, 1, 0], [0, 0, 0], [0, 0, 0]]


def test_parts_and_cameras_without_boxes(detection, put):
    put("k/training/image_3/000000.png")
    assert boxes_of(open_images(f"kitti:{detection}#testing")) is None
    assert boxes_of(open_images(f"kitti:{detection}?camera=3")) is None
    put("raw/2011_09_26/2011_09_26_drive_0001_sync/image_02/data/0000000000.png")
    assert boxes_of(open_images(f"kitti:{detection.parent}/raw")) is None


def test_tracking_rows_belong_to_their_frame(put):
    for sequence, frames in ((0, 3), (1, 2)):
        for frame in range(frames):
            put(f"t/training/image_02/{sequence:04d}/{frame:06d}.png", seed=frame)
    lines = [f"2 0 {row('Van')}", f"0 -1 {row('DontCare')}", f"0 1 {row('Car')}"]
    put("t/training/label_02/0000.txt", "\n".join([*lines, f"9 1 {row('Tram')}"]))
    last = put("t/training/label_02/0001.txt", f"1 5 {row('Car')} 0.98\n")
    boxes = boxes_of(open_images(f"kitti:{last.parents[2]}"))
    assert boxes.names == ("Car", "Van")  # frame 9 is no image of the set
    assert boxes.image.tolist() == [0, 0, 2, 4]
    assert boxes.label.tolist() == [-1, 0, 1, 0]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("Car 0 0 -10", r"a row is `class truncated occluded angle left top right bottom` and 7"),
        (row("Car", "a 1 2 3"), "a row is `class truncated"),
        (row("Car", "1 1 inf 3"), "a row is `class truncated"),
        (row("Car 1 1"), "a row is .*; got 'Car 1 1 0.00 0"),
        (row("Car", "5 1 4 3"), "right and bottom are not before left and top; got 'Car"),
    ],
)
def test_a_damaged_row_is_refused_and_not_left_out(line, said, detection, put):
    put("k/training/label_2/000002.txt", f"{row('Car')}\n\n{line}")
    with pytest.raises(VisleakError, match=said) as caught:
        boxes_of(open_images(f"kitti:{detection}"))
    assert "label_2/000002.txt, line 3: " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_damaged_row_of_tracking(put):
    put("t/training/image_02/0000/000000.png")
    path = put("t/training/label_02/0000.txt", f"0.5 1 {row('Car')}\n")
    with pytest.raises(VisleakError, match=r"0000\.txt, line 1: a row is `frame track class trunc"):
        boxes_of(open_images(f"kitti:{path.parents[2]}"))
