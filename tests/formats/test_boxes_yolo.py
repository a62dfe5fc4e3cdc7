"""Boxes of YOLO data sets: hand-written rows, and real ones."""

from __future__ import annotations

import os

import pytest

from visleak.errors import VisleakError
from visleak.formats import boxes, boxes_of, open_images

DATA = os.environ.get("VISLEAK_DATA")

YAML = "train: images/train\nval: images/val\nnames:\n  0: cat\n  4: dog\n"


@pytest.fixture
def yolo(put):
    """Images a, b, c of which a and b have label files."""
    for name in "abc":
        put(f"images/train/{name}.png")
    put("labels/train/a.txt", "4 .5 .5 .2 .4\n\n0 0.25 0.5 0.5 1\n")
    put("labels/train/b.txt", "")
    return put("data.yaml", YAML)


def read(path, split="train"):
    return boxes_of(open_images(f"yolo:{path}#{split}"))


def test_rows_are_centre_and_size_in_shares(yolo):
    boxes = read(yolo)
    assert boxes.names == ("cat", "dog")  # number 4 is the second of two names
    assert boxes.image.tolist() == [0, 0]
    assert boxes.label.tolist() == [1, 0]
    assert boxes.corners.tolist() == [pytest.approx([0.4, 0.3, 0.6, 0.7]), [0, 0, 0.5, 1]]
    assert not boxes.crowd.any()
    assert boxes.relative
    assert boxes.counts().tolist() == [[1, 1], [0, 0], [0, 0]]


def test_outlines_become_their_bounding_box(yolo, put):
    put("labels/train/b.txt", "0 .1 .9 .3 .2 .5 .4\n0 .2 .2 .4 .2 .4 .3 .2 .3\n")
    assert read(yolo).corners[2:].tolist() == [[0.1, 0.2, 0.5, 0.9], [0.2, 0.2, 0.4, 0.3]]


def test_key_points_are_passed_over(yolo, put):
    put("data.yaml", YAML + "kpt_shape: [2, 3]\n")
    put("labels/train/a.txt", "0 .5 .5 .2 .2 .1 .1 2 .9 .9 0\n")
    assert read(yolo).corners.tolist() == [pytest.approx([0.4, 0.4, 0.6, 0.6])]
    put("labels/train/a.txt", "0 .5 .5 .2 .2\n")
    with pytest.raises(VisleakError, match=r"here 6 numbers of key points follow; got '0 \.5"):
        read(yolo)


def test_without_names_classes_are_called_by_number(yolo, put):
    put("data.yaml", "train: images/train\n")
    assert read(yolo).names == ("0", "4")


def test_label_files_beside_pictures(put):
    put("train/a.png")
    put("train/a.txt", "0 .5 .5 1 1\n")
    path = put("data.yaml", "train: train\nnames: [cat]\n")
    assert read(path).corners.tolist() == [[0, 0, 1, 1]]
    assert open_images(f"yolo:{path}#train").labels.to_pylist() == ["cat"]


def test_no_label_file_at_all_means_no_boxes(put):
    put("images/val/a.png")
    assert read(put("data.yaml", YAML), "val") is None


def test_names_that_are_no_utf8(put, tmp_path):
    put("images/train/a.png").rename(tmp_path / "images/train" / os.fsdecode(b"\xff.png"))
    put("labels/train/a.txt", "0 .5 .5 1 1\n").rename(
        tmp_path / "labels/train" / os.fsdecode(b"\xff.txt")
    )
    assert len(read(put("data.yaml", YAML)).image) == 1


ROW = "a row is `class x y width height`, or `class x y x y x y ...` of an outline, in shares of"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("0 .5 .5 1", ROW),
        ("0 .5 .5 1 1 .99", ROW),  # a prediction with its score
        ("0 .1 .1 .2", ROW),
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
    with pytest.raises(VisleakError, match=said) as caught:
        read(yolo)
    assert "labels/train/b.txt, line 2: " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_rounding_beyond_the_picture_is_tolerated(yolo, put):
    put("labels/train/a.txt", "0 1.005 .5 .2 1\n")
    assert read(yolo).corners.tolist() == [pytest.approx([0.905, 0, 1.105, 1])]


def test_label_files_that_cannot_be_read(yolo, put, tmp_path, monkeypatch):
    path = tmp_path / "labels/train/b.txt"
    path.write_bytes(b"0 .5 .5 1 1\n\xff\xff")
    with pytest.raises(VisleakError, match=r"labels/train/b\.txt cannot be read as UTF-8 text"):
        read(yolo)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(VisleakError, match=r"b\.txt cannot be read: no regular file stands at"):
        read(yolo)
    path.unlink()
    path.symlink_to(path)
    with pytest.raises(VisleakError, match=r"b\.txt cannot be read: Too many levels of symbolic"):
        read(yolo)
    path.unlink()
    monkeypatch.setattr(boxes, "MAX_LABEL_BYTES", 20)
    with pytest.raises(VisleakError, match=r"a\.txt has \d+ bytes; label files up to 20 are read"):
        read(yolo)
