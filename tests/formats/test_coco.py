"""COCO: images, captions and boxes, against pycocotools."""

import contextlib
import io
import json

import numpy as np
import pytest
from pycocotools.coco import COCO

from refusals import refused
from visleak.errors import UsageError, VisleakError
from visleak.formats import boxes_of, open_images

CONTENT = {
    "images": [
        {"id": 20, "file_name": "b.png", "width": 64, "height": 48},
        {"id": 3, "file_name": "sub/a.png"},
        {"id": 5, "file_name": "empty.png"},
        {"id": 4, "file_name": "gone.png"},
    ],
    "annotations": [
        {"id": 1, "image_id": 20, "category_id": 9, "bbox": [1.5, 2, 10, 20.25], "iscrowd": 0},
        {"id": 2, "image_id": 3, "category_id": 7, "bbox": [0, 0, 48, 32]},
        {"id": 3, "image_id": 20, "category_id": 7, "bbox": [-1, 3, 0, 4], "iscrowd": 1},
        {"id": 4, "image_id": 3, "category_id": 7, "bbox": [4, 4, 1, 1], "iscrowd": 0},
        {"id": 5, "image_id": 4, "category_id": 9, "bbox": [0, 0, 1, 1]},
    ],
    "categories": [{"id": 9, "name": "dog"}, {"id": 7, "name": "cat"}, {"id": 90, "name": "x"}],
}


def changed(kind, at, **new):
    rows = [dict(row) for row in CONTENT[kind]]
    rows[at] = {k: v for k, v in (rows[at] | new).items() if v is not ...}
    return CONTENT | {kind: rows}


def coco_set(put, content):
    return open_images(f"coco:{put('x.json', json.dumps(content))}?images={put('a.png').parent}")


@pytest.mark.parametrize(
    ("file", "folder"),
    [
        ("x.json", "."),
        ("x.json", "images"),
        ("annotations/x.json", "images"),
        ("annotations/instances_val2017.json", "val2017"),
        ("annotations/instances_val2017.json", "images/val2017"),
    ],
)
def test_images_are_found_and_labelled(file, folder, put):
    names = ("b.png", "empty.png", "sub/a.png")
    data = [put(f"{folder}/{name}", seed=at).read_bytes() for at, name in enumerate(names)]
    path = put(file, json.dumps(changed("annotations", 4, category_id=8)))
    images = open_images(f"coco:{path}")
    assert images.ids.to_pylist() == ["b.png", "empty.png", "gone.png", "sub/a.png"]
    assert images.labels.to_pylist() == [None, None, "8", "cat"]
    assert (images.name, images.annotated, images.captions) == (path.stem, True, None)
    found = list(images.opener.read(range(4)))
    assert [found[0], found[1], found[3]] == data
    assert found[2].reason == "missing"


def test_coco_with_a_folder_and_captions(put, tmp_path):
    put("far/away/a.png")
    content = {
        "images": [{"id": "x", "file_name": "a.png"}],
        "annotations": [{"image_id": "x", "caption": "one"}, {"image_id": "x", "caption": "2"}],
    }
    path = put("x.json", json.dumps(content))
    images = open_images(f"coco:{path}?images={tmp_path}/far/away")
    assert images.captions.to_pylist() == ["one"]
    assert images.labels.to_pylist() == [None]
    assert open_images(f"coco:{path}?images=far/away").ids.to_pylist() == ["a.png"]
    refused(UsageError, r"images=nope is not a folder; looked for nope", f"coco:{path}?images=nope")
    refused(UsageError, r"images, such as .*, are in none of .*; add \?images=", f"coco:{path}")


def test_coco_files_that_are_no_good(put):
    for text, words in (
        ("[" * 100_000, "cannot be read as JSON"),
        ("[]", "is not a COCO file: it has no list `images`"),
        ('{"images": 3}', "is not a COCO file: it has no list `images`"),
        ('{"images": [{"id": [], "file_name": "a"}]}', "row 0 of `images` needs id and file_name"),
        ('{"images": []}', "holds no images"),
    ):
        refused(VisleakError, words, f"coco:{put('x.json', text)}")


def test_texts_that_cannot_be_written_are_escaped(put):
    rows = [{"image_id": 3, "category_id": 7, "caption": "\udfff"}, {"image_id": 4, "caption": "x"}]
    content = changed("images", 3, file_name="\ud800.png") | {"annotations": rows}
    images = coco_set(put, content | {"categories": [{"id": 7, "name": "c\ud900"}]})
    ids, captions = images.ids.to_pylist(), images.captions.to_pylist()
    assert dict(zip(ids, captions, strict=True))["\\ud800.png"] == "x"
    assert captions[ids.index("sub/a.png")] == "\\udfff"
    assert images.labels[ids.index("sub/a.png")].as_py() == "c\\ud900"


def oracle(path, names):
    """What pycocotools says of a file: (image, class, left, top, width, height, crowd)."""
    with contextlib.redirect_stdout(io.StringIO()):
        found = COCO(path)
    rows = found.loadAnns(found.getAnnIds())
    images = [names.index(found.imgs[row["image_id"]]["file_name"]) for row in rows]
    classes = [found.cats[row["category_id"]]["name"] for row in rows]
    boxes = [(*row["bbox"], bool(row.get("iscrowd", 0))) for row in rows]
    return sorted((*each[:2], *each[2]) for each in zip(images, classes, boxes, strict=True))


def listed(boxes):
    sizes = np.hstack([boxes.corners[:, :2], boxes.corners[:, 2:] - boxes.corners[:, :2]])
    rows = zip(boxes.image, boxes.label, sizes.tolist(), boxes.crowd, strict=True)
    return sorted((image, boxes.names[at], *box, crowd) for image, at, box, crowd in rows)


def test_boxes_are_those_that_pycocotools_reads(put, tmp_path):
    images = coco_set(put, CONTENT)
    boxes = boxes_of(images)
    assert listed(boxes) == oracle(tmp_path / "x.json", images.ids.to_pylist())
    assert boxes.names == ("cat", "dog", "x")  # in the order of their numbers
    assert (boxes.relative, boxes.images) == (False, 4)
    assert boxes.counts().tolist() == [[0, 1, 0], [0, 0, 0], [0, 1, 0], [2, 0, 0]]


def test_captions_and_annotations_of_other_images_are_no_boxes(put):
    rows = [{"image_id": 20, "caption": "a dog"}, {"image_id": 99, "category_id": 7, "bbox": [1]}]
    boxes = boxes_of(coco_set(put, CONTENT | {"annotations": [*CONTENT["annotations"], *rows]}))
    assert len(boxes.image) == 5
    assert boxes_of(coco_set(put, CONTENT | {"annotations": rows[:1]})) is None


BOX = r"`bbox` is \[left, top, width, height\] in pixels; got "


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (changed("annotations", 2, bbox=[1, 2, 3]), rf"x\.json, row 2 of `annotations`: {BOX}\[1"),
        (changed("annotations", 2, bbox=...), rf"{BOX}nothing$"),
        (changed("annotations", 2, bbox=[1, 2, 3, float("nan")]), BOX),
        (changed("annotations", 2, bbox=[1, 2, 3, 1e30]), BOX),
        (changed("annotations", 2, bbox=[1, 2, "3", 4]), BOX),
        (changed("annotations", 0, bbox=[1, 2, -3, 4]), "row 0 of `annotations`: width and"),
        (changed("annotations", 1, iscrowd=2), r"row 1 of `annotations`: `iscrowd` is 0 or 1; got"),
        (changed("annotations", 1, category_id="a\nb"), r"none of `categories`; got 'a\\nb'$"),
        (changed("annotations", 1, category_id=[]), r"is none of `categories`; got \[\]"),
        (changed("images", 1, id=20), r"x\.json: two of `images` have the id 20, so that their"),
        (changed("categories", 1, id=9), r"x\.json: two of `categories` have the id 9$"),
    ],
)
def test_a_damaged_row_is_refused_and_not_left_out(content, said, put):
    images = coco_set(put, content)
    refused(VisleakError, said, images, boxes_of)
