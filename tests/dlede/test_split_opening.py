"""Splits of two sets, and splits of a recipe as tables of paths."""

import json

import numpy as np
import pytest
from PIL import Image

from toy_splits import split_of as small_split
from visleak.dlede.draw import split_of, write_split_tables
from visleak.dlede.draw.recipes import split_by
from visleak.errors import UsageError, VisleakError
from visleak.formats import open_images
from visleak.formats.files import chosen


def put(path, text=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    if text is None:
        Image.new("RGB", (8, 8)).save(path)
    else:
        path.write_text(text)
    return path


def yolo(folder, names="[cat, dog]"):
    for split, pictures in (("train", "abc"), ("val", "de")):
        for at, name in enumerate(pictures):
            put(folder / "images" / split / f"{name}.png")
            put(folder / "labels" / split / f"{name}.txt", f"{at % 2} .5 .5 .2 .2\n" * (at + 1))
    return put(folder / "data.yaml", f"train: images/train\nval: images/val\nnames: {names}\n")


def opened(path, split, **wishes):
    return open_images(f"yolo:{path}#{split}", **wishes)


def coco(folder, names, shown):
    """A COCO file with an image for each list of class names."""
    for at in range(len(shown)):
        put(folder / f"{at}.png")
    content = {
        "images": [{"id": at, "file_name": f"{at}.png"} for at in range(len(shown))],
        "categories": [{"id": at, "name": name} for at, name in enumerate(names)],
        "annotations": [
            {"image_id": at, "category_id": names.index(name), "bbox": [0, 0, 4, 4]}
            for at, each in enumerate(shown)
            for name in each
        ],
    }
    return put(folder / f"{folder.name}.json", json.dumps(content))


def test_classes_are_matched_by_name(tmp_path):
    train = open_images(f"coco:{coco(tmp_path / 'a', ['car', 'van'], [['car', 'van'], []])}")
    test = open_images(f"coco:{coco(tmp_path / 'b', ['bus', 'car'], [['bus', 'car', 'car']])}")
    split = split_of(test, train)
    assert split.train_boxes.names == split.test_boxes.names == ("car", "van", "bus")
    assert split.train_boxes.counts().tolist() == [[1, 1, 0], [0, 0, 0]]
    assert split.test_boxes.counts().tolist() == [[2, 0, 1]]


def test_regions_of_no_class_stay_so(tmp_path):
    space = "1 1 1 1 1 1 1"
    for name, rows in (("a", ["Car"]), ("b", ["DontCare", "Van"])):
        put(tmp_path / name / "training/image_2/000000.png")
        text = "".join(f"{row} 0 0 0 1 1 2 2 {space}\n" for row in rows)
        put(tmp_path / name / "training/label_2/000000.txt", text)
    sets = [open_images(f"kitti:{tmp_path / name}") for name in ("b", "a")]
    split = split_of(*sets)
    assert split.test_boxes.names == ("Car", "Van")
    assert split.test_boxes.label.tolist() == [-1, 1]
    assert split.test_boxes.crowd.tolist() == [True, False]


def test_sets_that_do_not_go_together(tmp_path):
    path = yolo(tmp_path / "y")
    train, test = opened(path, "train"), opened(path, "val")
    pixels = open_images(f"coco:{coco(tmp_path / 'c', ['cat'], [['cat']])}")
    plain = open_images(tmp_path / "y" / "images", name="plain")
    for sets, said in (
        (
            (test, pixels),
            r"^boxes of set 'val' are shares of the image \(YOLO\), those of set 'c' pixels;",
        ),
        ((pixels, train), r"^boxes of set 'train' are shares of .* those of set 'c' pixels"),
        ((plain, train), r"^set 'plain' has no boxes, and set 'train' has some; open both with"),
        ((test, plain), r"^set 'plain' has no boxes, and set 'val' has some"),
        ((test, opened(path, "train", name="val")), r"^both sets are called 'val'; name them: --t"),
    ):
        with pytest.raises(UsageError, match=said) as caught:
            split_of(*sets)
        assert "\n" not in str(caught.value)


def test_classes_of_one_name_cannot_be_matched(tmp_path):
    path = yolo(tmp_path / "y", "[cat, cat]")
    other = yolo(tmp_path / "z", "[cat, dog]")
    assert split_of(opened(path, "val"), opened(path, "train")).test_boxes.names == ("cat", "cat")
    with pytest.raises(UsageError, match=r"^two classes of set 'train' are called 'cat', and the"):
        split_of(opened(other, "val"), opened(path, "train"))


def test_empty_sets_are_refused(tmp_path):
    path = yolo(tmp_path)
    train, test = opened(path, "train"), opened(path, "val")
    none = chosen(test, np.empty(0, np.int64), "none")
    with pytest.raises(VisleakError, match=r"^set 'none' holds no images$"):
        split_of(none, train)
    with pytest.raises(VisleakError, match=r"^set 'none' holds no images$"):
        split_of(test, none)


def test_a_recipe_parts_images_and_boxes_alike(tmp_path):
    images = opened(yolo(tmp_path), "train")
    split = split_by(images, "first:1")
    assert (split.train.name, split.test.name) == ("train", "test")
    assert split.train.ids.to_pylist() == ["a.png"]
    assert split.test.ids.to_pylist() == ["b.png", "c.png"]
    assert split.train_boxes.counts().tolist() == [[1, 0]]
    assert split.test_boxes.counts().tolist() == [[0, 2], [3, 0]]
    assert split_by(open_images(tmp_path / "images"), "first:1").test_boxes is None


@pytest.fixture
def video(tmp_path):
    for drive in ("=one", "two ä"):
        for frame in range(4):
            path = tmp_path / "video" / drive / f"{frame}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.full((8, 8, 3), 40 * frame, np.uint8)).save(path)
    return open_images(
        str(tmp_path / "video"), group="/^([^/]+)/", frame=r"/(\d+)\.png$/", dataset="film"
    )


def test_parts_open_from_their_tables_as_they_were(tmp_path, video):
    before = split_by(video, "first-groups:1")
    after = write_split_tables(before, tmp_path / "out")
    for name in ("train", "test"):
        old, new = getattr(before, name), getattr(after, name)
        assert new.source == str(tmp_path / "out" / f"{name}.parquet")
        again = open_images(new.source, id="id")
        for column in ("ids", "labels", "groups", "frames", "locators"):
            assert getattr(new, column).equals(getattr(old, column)), column
            assert getattr(again, column).equals(getattr(old, column)), column
        assert (new.name, new.dataset, new.timed) == (name, "film", False)
        one, other = (list(part.opener.read(range(4))) for part in (old, new))
        assert one == other


def test_tables_of_another_split_are_not_written_over(tmp_path, video):
    write_split_tables(split_by(video, "first:6"), tmp_path / "out")
    write_split_tables(split_by(video, "first:6"), tmp_path / "out")
    with pytest.raises(UsageError, match=r"train.parquet is of another split; choose another"):
        write_split_tables(split_by(video, "first:5"), tmp_path / "out")
    forced = write_split_tables(split_by(video, "first:5"), tmp_path / "out", force=True)
    assert len(forced.train) == 5


def test_times_stay_times(tmp_path, video):
    from dataclasses import replace

    timed = replace(video, timed=True)
    test = write_split_tables(split_by(timed, "first:6"), tmp_path / "out").test
    assert test.timed
    assert test.frames is not None
    assert test.frames.to_pylist() == [2, 3]


def test_pictures_that_are_no_files_stay_where_they_are(tmp_path):
    split = small_split(6, 4)
    assert write_split_tables(split, tmp_path / "out") is split
    assert not (tmp_path / "out").exists()
