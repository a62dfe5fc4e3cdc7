"""YOLO data sets: splits, labels and boxes, in hand-written rows."""

import os

import numpy as np
import pytest
from PIL import Image

import visleak
from refusals import refused
from visleak.errors import UsageError, VisleakError
from visleak.formats import boxes, boxes_of, open_images, open_splits

YAML = "path: .\ntrain: images/train\nval: images/val\nnames:\n  0: cat\n  4: dog\n"


@pytest.fixture
def yolo(put):
    for split, names in (("train", "abc"), ("val", "d")):
        for name in names:
            put(f"images/{split}/{name}.png")
    put("labels/train/a.txt", "0 .5 .5 1 1\n0 .2 .2 .1 .1\n")
    put("labels/train/b.txt", "4 .5 .5 .2 .4\n\n0 0.25 0.5 0.5 1\n")
    put("labels/val/d.txt", "5 .5 .5 1 1\n\nrubbish\n")
    return put("data.yaml", YAML)


def test_yolo(yolo):
    images = open_images(f"yolo:{yolo}#train")
    assert images.ids.to_pylist() == ["a.png", "b.png", "c.png"]
    assert images.labels.to_pylist() == ["cat", None, None]
    assert images.annotated
    assert images.name == "train"
    assert open_images(f"yolo:{yolo}#val").labels.to_pylist() == ["5"]
    assert all(isinstance(data, bytes) for data in images.opener.read(range(3)))
    refused(UsageError, r"add #SPLIT, one of train, val$", f"yolo:{yolo}#test")
    refused(UsageError, r"add #SPLIT, one of train, val$", f"yolo:{yolo}")


def test_yolo_lists_of_folders_and_of_files(yolo, put, tmp_path):
    put("splits/val.txt", f"images/val/d.png\n{tmp_path}/images/train/b.png\n")
    put("near.txt", "./images/train/a.png\n")
    text = "train: [images/train, images/val]\nval: splits/val.txt\ntest: near.txt\n"
    put("data.yaml", f"{text}names: [cat, dog]\n")
    images = open_images(f"yolo:{yolo}#train")
    names = [f"images/{name}.png" for name in ("train/a", "train/b", "train/c", "val/d")]
    assert images.ids.to_pylist() == names
    assert images.labels.to_pylist() == ["cat", None, None, "5"]
    assert open_images(f"yolo:{yolo}#val").ids.to_pylist() == names[1::2]
    assert open_images(f"yolo:{yolo}#test").labels.to_pylist() == ["cat"]
    for source in (yolo, f"yolo:{yolo}"):
        assert list(open_splits(source)) == ["train", "val", "test"]


def test_yolo_places_as_roboflow_writes_them(put):
    """``../`` leads out of the data set, and is meant to lead to the folder beside the YAML."""
    for split, name in (("train", "a"), ("valid", "d")):
        put(f"set/{split}/images/{name}.png")
        put(f"set/{split}/labels/{name}.txt", "0 .5 .5 1 1\n")
    file = put("set/data.yaml", "train: ../train/images\nval: ../valid/images\nnames: [cat]\n")
    assert open_images(f"yolo:{file}#val").ids.to_pylist() == ["d.png"]
    assert open_images(f"yolo:{file}#train").labels.to_pylist() == ["cat"]
    assert all(found.annotated for found in open_splits(file.parent).values())
    put("train/images/b.png")
    assert open_images(f"yolo:{file}#train").ids.to_pylist() == ["b.png"]
    put("set/data.yaml", "train: ../elsewhere/train\nval: ../elsewhere/valid\n")
    assert not open_splits(file.parent)["train"].annotated


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("a: [", VisleakError, "cannot be read as YAML"),
        ("- 1", VisleakError, "is not a YOLO data set: it has no `train` or `val`"),
        ("!!python/object/apply:os.system ['touch pwned']", VisleakError, "cannot be read as YAML"),
        ("val: nowhere", UsageError, "nowhere is neither a folder nor a .txt list"),
        ("path: gone\nval: a", UsageError, "`path: gone` is not a folder either .looked for"),
        ("val: labels", VisleakError, "holds no images"),
        ("names: [a]", UsageError, r"add #SPLIT, one of \(it has none\)"),
    ],
)
def test_yolo_files_that_are_no_good(text, error, said, yolo, put, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put("data.yaml", text)
    refused(error, said, f"yolo:{yolo}#val")
    assert not (tmp_path / "pwned").exists()


def read(path, split="train"):
    return boxes_of(open_images(f"yolo:{path}#{split}"))


def test_rows_are_centre_and_size_in_shares_or_outlines(yolo, put):
    put("labels/train/c.txt", "0 .1 .9 .3 .2 .5 .4\n0 .2 .2 .4 .2 .4 .3 .2 .3\n0 1.005 .5 .2 1\n")
    boxes = read(yolo)
    assert boxes.names == ("cat", "dog")  # number 4 is the second of two names
    assert boxes.image.tolist() == [0, 0, 1, 1, 2, 2, 2]
    assert boxes.label.tolist() == [0, 0, 1, 0, 0, 0, 0]
    first, second, outline, another, beyond = boxes.corners[2:].tolist()
    assert (first, second) == (pytest.approx([0.4, 0.3, 0.6, 0.7]), [0, 0, 0.5, 1])
    assert (outline, another) == ([0.1, 0.2, 0.5, 0.9], [0.2, 0.2, 0.4, 0.3])
    assert beyond == pytest.approx([0.905, 0, 1.105, 1])  # by rounding
    assert not boxes.crowd.any()
    assert boxes.relative
    assert boxes.counts().tolist() == [[2, 0], [1, 1], [3, 0]]
    put("data.yaml", "train: images/train\n")
    assert read(yolo).names == ("0", "4")


def test_key_points_are_not_read(yolo, put):
    put("data.yaml", YAML + "kpt_shape: [2, 3]\n")
    put("labels/train/a.txt", "0 .5 .5 .2 .2 .1 .1 2 .9 .9 0\n")
    put("labels/train/b.txt", "")
    assert read(yolo).corners.tolist() == [pytest.approx([0.4, 0.4, 0.6, 0.6])]
    put("labels/train/a.txt", "0 .5 .5 .2 .2\n")
    refused(VisleakError, r"here 6 numbers of key points follow; got '0 \.5", yolo, read)


def test_names_that_are_no_utf8_and_label_files_beside_images(put, tmp_path):
    put("train/a.png").rename(tmp_path / "train" / os.fsdecode(b"\xff.png"))
    path = put("data.yaml", "train: train\nnames: [cat]\n")
    assert read(path) is None
    labels = put("train/a.txt", "0 .5 .5 1 1\n")
    labels.rename(labels.with_name(os.fsdecode(b"\xff.txt")))
    assert read(path).corners.tolist() == [[0, 0, 1, 1]]
    assert open_images(f"yolo:{path}#train").labels.to_pylist() == ["cat"]


ROW = "a row is `class x y width height`, or `class x y x y x y ...` of an outline, in shares of"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("0 .5 .5 1", ROW),
        ("0 .5 .5 1 1 .99", ROW),  # a prediction with its score
        ("cat .5 .5 1 1", ROW),
        ("0 .5 .5 nan 1", ROW),
        ("0 .5 .5 1_0 1", ROW),
        ("0 320 240 64 64", ROW),  # pixels
        ("0 -.02 .5 .1 .1", ROW),
        ("-1 .5 .5 1 1", ROW),
        ("0.5 .5 .5 1 1", ROW),
        ("0 .5 .5 -.005 1", "width and height are 0 or more"),
        ("1 .5 .5 1 1", r"the class is none of the YAML's `names` \(0 to 4\)"),
        ("1e300 .5 .5 1 1", "the class is none of the YAML's `names`"),
        ("x" * 1000, r"got 'x{60} \.\.\.'$"),
    ],
)
def test_a_damaged_row_is_refused_and_not_left_out(row, said, yolo, put):
    """Half a label file would count what a detector rightly finds as wrong."""
    put("labels/train/b.txt", f"0 .5 .5 1 1\n{row}\n0 .5 .5 1 1\n")
    refused(VisleakError, rf"labels/train/b\.txt, line 2: .*{said}", yolo, read)


def test_label_files_that_cannot_be_read(yolo, put, tmp_path, monkeypatch):
    path = tmp_path / "labels/train/b.txt"
    for make, said in (
        (lambda: path.write_bytes(b"0 .5 .5 1 1\n\xff\xff"), "as UTF-8 text"),
        (lambda: os.mkfifo(path), "no regular file stands at"),
        (lambda: path.symlink_to(path), "Too many levels of symbolic"),
    ):
        path.unlink()
        make()
        refused(VisleakError, rf"labels/train/b\.txt cannot be read.* {said}", yolo, read)
    path.unlink()
    monkeypatch.setattr(boxes, "MAX_LABEL_BYTES", 20)
    refused(VisleakError, r"a\.txt has \d+ bytes; label files up to 20 are read", yolo, read)


@pytest.fixture
def pasted(put):
    """One object on two backgrounds, and boxes of two pixels."""
    values = np.random.default_rng(0).integers(0, 255, (24, 24, 3), np.uint8)
    thing = Image.fromarray(values).resize((72, 72), Image.Resampling.NEAREST)
    for split, at, shade in (("train", (10, 20), 120), ("val", (110, 100), 60)):
        image = Image.new("RGB", (200, 200), (shade,) * 3)
        image.paste(thing, at)
        put(f"images/{split}/a.png", image)
        x, y = ((start + 36) / 200 for start in at)
        put(f"labels/{split}/a.txt", f"1 {x} {y} 0.36 0.36\n0 0.01 0.01 0.01 0.01\n")
    return put("data.yaml", "train: images/train\nval: images/val\nnames: [cup, pen]\n")


def test_boxes_are_images_whose_ids_name_image_and_box(pasted):
    found = open_images(f"yolo:{pasted}#train", objects="boxes")
    assert found.ids.to_pylist() == ["a.png#0", "a.png#1"]
    assert found.labels.to_pylist() == ["pen", "cup"]
    pen, cup = found.opener.read([0, 1])
    assert pen.shape == (72, 72, 3)
    assert cup.reason == "unsupported"
    # alone, as worker processes read them
    assert np.array_equal(next(found.opener.read([0])), pen)
    refused(UsageError, "no annotated boxes", pasted.parent / "images", objects="boxes")
    refused(UsageError, "objects", pasted.parent / "images", objects="masks")


def test_an_audit_of_boxes_finds_an_object_on_another_background(pasted):
    val, train = (
        open_images(f"yolo:{pasted}#{split}", name=split, objects="boxes")
        for split in ("val", "train")
    )
    audit = visleak.audit(val, train, cache=None, workers=1)
    (pair,) = audit.leaks("exact").to_pylist()
    assert pair["query"].endswith("#0")
    assert pair["query_label"] == "pen"
    assert len(audit.unreadable()) == 2
