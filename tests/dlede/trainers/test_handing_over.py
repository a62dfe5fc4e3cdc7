"""Lists, folders of links, label files, COCO files: read back by what is not ours."""

import contextlib
import io
import os
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
import yaml
from handed import lesson_of, paint, split_on_disk
from PIL import Image
from pycocotools.coco import COCO

from refusals import refusal
from visleak.dlede.draw import Split
from visleak.dlede.trainers.handover import (
    ImageSizes,
    Side,
    check_files,
    check_split,
    files_of,
    label_lines,
    rows_by_name,
    side_of,
    sizes_of,
    write_coco,
    write_links,
    write_list,
    write_yolo,
)
from visleak.errors import VisleakError
from visleak.formats import Boxes, open_images
from visleak.progress import silent


def label_file(picture):
    """Return where YOLOv5, YOLOv8 and later look for the label file of an image."""
    return Path(f"{os.sep}labels{os.sep}".join(picture.rsplit(f"{os.sep}images{os.sep}", 1))
                .rsplit(".", 1)[0] + ".txt")  # fmt: skip


def label_file_of_yolov7(picture):
    """The same of YOLOv7, utils/datasets.py: the first `/images/` of the path, and the ending."""
    other = picture.replace(f"{os.sep}images{os.sep}", f"{os.sep}labels{os.sep}", 1)
    return Path("txt".join(other.rsplit(picture.rsplit(".", maxsplit=1)[-1], 1)))


@pytest.fixture
def split(tmp_path):
    (tmp_path / "given").mkdir()
    return split_on_disk(tmp_path)


@pytest.fixture
def sizes(split):
    return ImageSizes.of(split, silent)


def test_a_leaked_image_and_a_training_image_of_one_name_stay_apart(tmp_path, split, sizes):
    task = lesson_of(split, leaked=(1, 3))
    folder = write_links(tmp_path / "given", task, sizes, "train")
    links = sorted((folder / "images").iterdir())
    assert [os.readlink(link) for link in links] == files_of(task.train)
    for link, seed in zip(links, (0, 1, 2, 3, 101, 103), strict=True):
        assert cv2.imread(str(link))[10, 20, 0] == 200 + seed % 50


def test_label_files_are_found_as_yolo_finds_them_and_hold_the_boxes(tmp_path, split, sizes):
    task = lesson_of(split, leaked=(1, 2))
    data = yaml.safe_load(write_yolo(tmp_path / "given", task, sizes).read_text())
    assert (data["nc"], data["names"]) == (2, ["car", "bike"])
    pictures = Path(data["train"]).read_text().splitlines()
    assert len(pictures) == 6
    assert len(Path(data["val"]).read_text().splitlines()) == 4
    shown = task.boxes
    for row, picture in enumerate(pictures):
        assert label_file(picture) == label_file_of_yolov7(picture)
        label, x, y, width, height = map(float, label_file(picture).read_text().split())
        at = int(np.flatnonzero(shown.image == row)[0])
        assert label == shown.label[at]
        low, high = (x - width / 2, y - height / 2), (x + width / 2, y + height / 2)
        np.testing.assert_allclose([*low, *high], shown.corners[at] / [40, 20, 40, 20], rtol=1e-5)


def shares(corners, label, crowd):
    image, there = np.zeros(len(label), np.int64), np.array(corners, np.float64)
    names = ("car", "bike")
    return Boxes(names, image, np.array(label), there, np.array(crowd), 1, relative=True)


def test_labels_keep_to_the_picture_and_are_of_objects_alone():
    """A box of no area, an equal line, a crowd and a region of no class are no labels."""
    one = [0.25, 0.25, 0.75, 0.75]
    corners = [[-0.1, 0.2, 0.5, 0.6], [0.9, 0.9, 0.9, 1.0], one, one, one, one]
    shown = shares(corners, [0, 0, 1, 1, 1, -1], [False] * 4 + [True] * 2)
    assert label_lines(shown, None) == [["0 0.25 0.4 0.5 0.4\n", "1 0.5 0.5 0.5 0.5\n"]]
    with pytest.raises(ValueError, match="need the sizes of the images"):
        label_lines(replace(shown, relative=False), None)


def coco_of(path, side):
    with contextlib.redirect_stdout(io.StringIO()):
        return COCO(str(write_coco(path, side)))


def test_coco_files_are_read_by_pycocotools(tmp_path, split, sizes):
    side = side_of(lesson_of(split, leaked=(1,)), sizes, "train")
    read = coco_of(tmp_path / "train.json", side)
    assert [read.imgs[number]["file_name"] for number in sorted(read.imgs)] == side.files
    assert [category["name"] for category in read.cats.values()] == ["car", "bike"]
    last = read.imgToAnns[6][0]
    assert (last["bbox"], last["area"], last["category_id"]) == ([10, 5, 20, 10], 200, 2)
    assert (read.imgs[6]["width"], read.imgs[6]["height"]) == (40, 20)


def test_a_crowd_of_no_class_is_one_of_every_class(tmp_path):
    shown = shares([[0.0, 0, 0.5, 0.5], [0, 0, 1, 1]], [-1, -1], [True, False])
    rows = coco_of(tmp_path / "a.json", Side(["/a.png"], shown, np.array([[40, 20]]))).imgToAnns[1]
    found = [(row["category_id"], row["iscrowd"], row["bbox"]) for row in rows]
    assert found == [(number, 1, [0, 0, 20, 10]) for number in (1, 2)]


def test_names_of_every_kind_come_through(tmp_path):
    hostile = [b"a b.png", b"'q' \"d\".png", b"$(touch x).png", "\u00e9.png".encode(), b"\xff.png"]
    (tmp_path / "train").mkdir()
    for name in hostile:
        paint(tmp_path / "plain.png", 1)
        os.rename(tmp_path / "plain.png", os.fsencode(tmp_path / "train") + b"/" + name)
    images = open_images(tmp_path / "train", name="train")
    check_files(images)
    listed = write_list(tmp_path / "list.txt", files_of(images)).read_bytes().splitlines()
    assert sorted(os.path.basename(line) for line in listed) == sorted(hostile)
    assert all(os.path.isfile(line) for line in listed)


def test_sizes_are_those_of_the_picture_as_it_is_shown(tmp_path):
    (tmp_path / "a").mkdir()
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.new("RGB", (40, 20)).save(tmp_path / "a" / "1.jpg", exif=turned)
    Image.new("RGB", (40, 20)).save(tmp_path / "a" / "2.jpg")
    assert sizes_of(open_images(tmp_path / "a"), silent).tolist() == [[20, 40], [40, 20]]


def test_images_are_named_by_id_path_and_link(tmp_path, split, sizes):
    task = lesson_of(split)
    folder = write_links(tmp_path / "given", task, sizes, "test")
    rows = rows_by_name(tmp_path / "given", task.test)
    assert rows["2.png"] == rows[str(tmp_path / "test" / "2.png")] == 2
    assert rows[str(folder / "images" / "000002.png")] == 2
    assert len(rows) == 12


def test_files_that_are_gone_or_cannot_be_listed_are_refused(tmp_path, split):
    (tmp_path / "test" / "2.png").unlink()
    said = refusal(VisleakError, check_split, split)
    assert said.startswith("set 'test': 1 of 4 images do not exist, such as")
    assert said.endswith(f"remove them from the folder {tmp_path / 'test'}")
    paint(tmp_path / "odd" / "a\nb.png", 1)
    odd = open_images(tmp_path / "odd", name="odd")
    assert "has a line break in its name" in refusal(VisleakError, check_files, odd)
    (tmp_path / "test" / "2.png").write_text("no picture")
    assert "2.png' is not a readable image" in refusal(VisleakError, sizes_of, split.test, silent)


def test_boxes_of_one_set_alone_are_none_of_a_training(split):
    half = Split(split.train, split.test, None, split.test_boxes)
    for side in ("train", "test"):
        assert side_of(lesson_of(half), None, side).boxes is None
