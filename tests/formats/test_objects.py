"""The annotated boxes of a set as a set of their own."""

import numpy as np
import pytest
from PIL import Image

import visleak
from refusals import refused
from visleak.errors import UsageError
from visleak.formats import open_images
from visleak.records import ImageSet, Unreadable


@pytest.fixture
def yolo(tmp_path):
    """Return a YOLO data set: one object is pasted into another image."""
    rng = np.random.default_rng(0)
    thing = rng.integers(0, 255, (24, 24, 3)).repeat(3, axis=0).repeat(3, axis=1).astype(np.uint8)
    for split, at in (("train", (10, 20)), ("val", (110, 100))):
        picture = np.full((200, 200, 3), 120 if split == "train" else 60, np.uint8)
        picture[at[1] : at[1] + 72, at[0] : at[0] + 72] = thing
        for kind in ("images", "labels"):
            (tmp_path / kind / split).mkdir(parents=True)
        Image.fromarray(picture).save(tmp_path / "images" / split / "a.png")
        x, y = ((start + 36) / 200 for start in at)
        lines = f"1 {x} {y} 0.36 0.36\n0 0.01 0.01 0.01 0.01\n"
        (tmp_path / "labels" / split / "a.txt").write_text(lines)
    (tmp_path / "data.yaml").write_text(
        f"path: {tmp_path}\ntrain: images/train\nval: images/val\nnames: [cup, pen]\n"
    )
    return tmp_path / "data.yaml"


def test_boxes_are_images_whose_ids_name_image_and_box(yolo):
    boxes = open_images(f"yolo:{yolo}#train", objects="boxes")
    assert isinstance(boxes, ImageSet)
    assert [each.rpartition("#")[2] for each in boxes.ids.to_pylist()] == ["0", "1"]
    assert boxes.labels is not None
    assert boxes.labels.to_pylist() == ["pen", "cup"]
    pen, cup = boxes.opener.read([0, 1])
    assert isinstance(pen, np.ndarray)
    assert pen.shape == (72, 72, 3)
    assert isinstance(cup, Unreadable)  # two pixels
    # alone, as worker processes read them
    assert np.array_equal(next(iter(boxes.opener.read([0]))), pen)


def test_an_audit_of_boxes_finds_an_object_on_another_background(yolo):
    sides = [
        open_images(f"yolo:{yolo}#{split}", name=split, objects="boxes")
        for split in ("val", "train")
    ]
    audit = visleak.audit(sides[0], sides[1], cache=None, workers=1)
    (pair,) = audit.leaks("exact").to_pylist()
    assert pair["query"].endswith("#0")
    assert pair["query_label"] == "pen"
    assert len(audit.unreadable()) == 2


def test_sources_without_boxes_are_refused(tmp_path):
    Image.new("RGB", (20, 20)).save(tmp_path / "a.png")
    refused(UsageError, "no annotated boxes", str(tmp_path), objects="boxes")
    refused(UsageError, "objects", str(tmp_path), objects="masks")
