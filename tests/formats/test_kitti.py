"""KITTI as its site unpacks it: object detection, tracking, raw drives; boxes after its readme."""

import pytest

from refusals import refused
from visleak.errors import UsageError, VisleakError
from visleak.formats import boxes_of, open_images


def row(name, box="10.5 20 110.25 80"):
    return f"{name} 0.00 0 -1.57 {box} 1.6 1.8 3.9 1 2 30 -1.5"


@pytest.fixture
def detection(put):
    for number in range(4):
        put(f"k/training/image_2/{number:06d}.png", seed=number)
    put("k/testing/image_2/000000.png", seed=10)
    put("k/training/label_2/000000.txt", f"{row('Zebra')}\n{row('DontCare', '1 2 3 4')}\n")
    put("k/training/label_2/000001.txt", f"{row('Cyclist')}\n{row('Car', '0 0 5 5')}\n")
    put("k/training/label_2/000002.txt", f"{row('DontCare')}\n")
    put("k/training/label_2/000003.txt", "")
    return put("k/training/calib/000000.txt", "x").parents[2]


@pytest.fixture
def tracking(put):
    for sequence, frames in ((0, 3), (1, 2)):
        for frame in range(frames):
            put(f"t/training/image_02/{sequence:04d}/{frame:06d}.png", seed=frame)
    lines = [f"2 0 {row('Van')}", f"0 -1 {row('DontCare')}", f"0 1 {row('Car')}"]
    lines += [f"1 1 {row('Van')}", f"1 2 {row('Car')}", f"9 1 {row('Tram')}"]
    put("t/training/label_02/0000.txt", "\n".join(lines))
    return put("t/training/label_02/0001.txt", f"1 5 {row('Car')} 0.98\n").parents[2]


def devkit(put, where="k/devkit_object/mapping", order="3, 1, 4, 2"):
    drives = ((1, 7), (1, 9), (2, 0), (5, 3))
    lines = [f"2011_09_26 2011_09_26_drive_{d:04d}_sync {f:010d}\n" for d, f in drives]
    put(f"{where}/train_mapping.txt", "".join(lines))
    put(f"{where}/train_rand.txt", order)


def test_object_detection(detection, put):
    images = open_images(f"kitti:{detection}")
    assert images.ids.to_pylist() == [f"{i:06d}.png" for i in range(4)]
    assert images.labels.to_pylist() == ["Zebra", None, None, None]
    assert images.annotated
    assert images.groups is images.frames is None
    assert images.locators[0].as_py() == f"{detection}/training/image_2/000000.png"
    boxes = boxes_of(images)
    assert boxes.names == ("Car", "Cyclist", "Zebra")  # the readme's order, then others
    assert boxes.image.tolist() == [0, 0, 1, 1, 2]
    assert boxes.label.tolist() == [2, -1, 1, 0, -1]
    assert boxes.crowd.tolist() == [False, True, False, False, True]
    assert boxes.corners[:2].tolist() == [[10.5, 20, 110.25, 80], [1, 2, 3, 4]]
    assert not boxes.relative
    assert boxes.counts().tolist() == [[0, 0, 1], [1, 1, 0], [0, 0, 0], [0, 0, 0]]
    test = open_images(f"kitti:{detection}#test")
    assert (test.name, test.annotated, test.labels, boxes_of(test)) == ("test", False, None, None)
    assert test.locators[0].as_py() == f"{detection}/testing/image_2/000000.png"
    put("k/training/image_3/000000.png")
    right = open_images(f"kitti:{detection}?camera=3")
    assert right.labels.to_pylist() == ["Zebra"]
    assert boxes_of(right) is None
    refused(UsageError, r"val holds neither training/image_2", f"kitti:{put('val/a.png').parent}")
    refused(UsageError, r"holds neither val/image_2", f"kitti:{detection}#val")
    refused(UsageError, r"camera must be one of 0, 1, 2, 3; got '7'", f"kitti:{detection}?camera=7")
    refused(UsageError, r"\?cam= is not an option of it; known are", f"kitti:{detection}?cam=2")


@pytest.mark.parametrize("where", ["k/devkit_object/mapping", "k/mapping", "devkit/mapping"])
def test_the_devkit_tells_the_drives(detection, put, where):
    devkit(put, where)
    images = open_images(f"kitti:{detection}")
    assert images.groups.to_pylist() == [f"2011_09_26_drive_{d:04d}_sync" for d in (2, 1, 5, 1)]
    assert images.frames.to_pylist() == [0, 7, 3, 9]
    assert open_images(f"kitti:{detection}#testing").groups is None
    own = open_images(f"kitti:{detection}", group=r"/(\d)\.png/")
    assert own.groups.to_pylist() == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ("1,2", r"the devkit's mapping names 2 images, and one is number 2; it is of another"),
        ("1,9,2,3", r"train_rand\.txt and train_mapping\.txt cannot be read together: list index"),
        ("0,1,2,3", r"cannot be read together: line 0 does not exist"),
        ("a", r"cannot be read together: invalid literal"),
    ],
)
def test_a_devkit_that_does_not_fit(detection, put, order, said):
    devkit(put, order=order)
    refused(VisleakError, said, f"kitti:{detection}")


def test_tracking(tracking, put):
    images = open_images(f"kitti:{tracking}#training")
    names = [f"0000/00000{frame}.png" for frame in range(3)]
    assert images.ids.to_pylist() == [*names, "0001/000000.png", "0001/000001.png"]
    assert images.groups.to_pylist() == ["0000"] * 3 + ["0001"] * 2
    assert images.frames.to_pylist() == [0, 1, 2, 0, 1]
    assert images.labels.to_pylist() == ["Car", None, "Van", None, "Car"]
    assert images.annotated
    boxes = boxes_of(images)
    assert boxes.names == ("Car", "Van")  # frame 9 is no image of the set
    assert boxes.image.tolist() == [0, 0, 1, 1, 2, 4]
    assert boxes.label.tolist() == [-1, 0, 1, 0, 1, 0]
    # the other part counts its sequences from 0000 too, and they are other drives
    put("t/testing/image_02/0000/000000.png", seed=9)
    assert open_images(f"kitti:{tracking}#testing").groups.to_pylist() == ["testing/0000"]


def test_raw_drives(put):
    drives = [f"2011_09_26/2011_09_26_drive_{d:04d}_sync" for d in (1, 2)]
    for drive in drives:
        for name in ("image_02/data/0000000000", "image_02/data/0000000001", "image_03/data/9"):
            put(f"r/{drive}/{name}.png")
    folder = put("r/readme.txt", "x").parent
    images = open_images(f"kitti:{folder}")
    assert len(images) == 4
    assert images.ids[1].as_py() == f"{drives[0]}/image_02/data/0000000001.png"
    assert images.groups.to_pylist() == [d.rpartition("/")[2] for d in drives for _ in range(2)]
    assert images.frames.to_pylist() == [0, 1, 0, 1]
    assert not images.annotated
    assert boxes_of(images) is None
    right = open_images(f"kitti:{folder}/{drives[1]}?camera=3")
    assert right.groups.to_pylist() == ["2011_09_26_drive_0002_sync"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("Car 0 0 -10", r"a row is `class truncated occluded angle left top right bottom` and 7"),
        (row("Car", "1 1 inf 3"), "a row is `class truncated"),
        (row("Car", "a 1 2 3"), "a row is `class truncated"),
        (row("Car 1 1"), "a row is .*; got 'Car 1 1 0.00 0"),
        (row("Car", "5 1 4 3"), "right and bottom are not before left and top; got 'Car"),
    ],
)
def test_a_damaged_row_is_refused_and_not_left_out(line, said, detection, tracking, put):
    put("k/training/label_2/000002.txt", f"{row('Car')}\n\n{line}")
    images = open_images(f"kitti:{detection}")
    refused(VisleakError, rf"label_2/000002\.txt, line 3: {said}", images, boxes_of)
    put("t/training/label_02/0000.txt", f"0.5 1 {row('Car')}\n")
    images = open_images(f"kitti:{tracking}")
    refused(VisleakError, r"0000\.txt, line 1: a row is `frame track class", images, boxes_of)
