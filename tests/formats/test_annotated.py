"""COCO and YOLO."""

from __future__ import annotations

import json

import pytest

from visleak.errors import UsageError, VisleakError
from visleak.formats import open_images, open_splits

COCO = {
    "images": [
        {"id": 2, "file_name": "b.png"},
        {"id": 1, "file_name": "sub/a.png"},
        {"id": 3, "file_name": "c.png"},
        {"id": 4, "file_name": "gone.png"},
    ],
    "annotations": [
        {"image_id": 1, "category_id": 7, "bbox": [0, 0, 1, 1]},
        {"image_id": 1, "category_id": 7},
        {"image_id": 2, "category_id": 7},
        {"image_id": 2, "category_id": 9},
        {"image_id": 4, "category_id": 8},
    ],
    "categories": [{"id": 7, "name": "cat"}, {"id": 9, "name": "dog"}],
}


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
def test_coco(file, folder, put, tmp_path):
    data = [
        put(f"{folder}/{n}.png", seed=i).read_bytes() for i, n in enumerate(["b", "c", "sub/a"])
    ]
    path = put(file, json.dumps(COCO))
    images = open_images(f"coco:{path}")
    assert images.ids.to_pylist() == ["b.png", "c.png", "gone.png", "sub/a.png"]
    assert images.labels.to_pylist() == [None, None, "8", "cat"]
    assert images.annotated
    assert images.captions is None
    assert images.name == path.stem
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
    with pytest.raises(
        UsageError, match=r"images=nope is not a folder; looked for nope and .*nope"
    ):
        open_images(f"coco:{path}?images=nope")
    with pytest.raises(UsageError, match=r"images, such as .*, are in none of .*; add \?images="):
        open_images(f"coco:{path}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "cannot be read as JSON"),
        ("[" * 100_000, "cannot be read as JSON"),
        ("[]", "is not a COCO file: it has no list `images`"),
        ('{"images": 3}', "is not a COCO file: it has no list `images`"),
        ('{"images": [{"id": 1}]}', "row 0 of `images` needs id and file_name"),
        ('{"images": [{"id": [], "file_name": "a"}]}', "row 0 of `images` needs id and file_name"),
        ('{"images": []}', "holds no images"),
    ],
)
def test_coco_files_that_are_no_good(text, said, put):
    with pytest.raises(VisleakError, match=said):
        open_images(f"coco:{put('x.json', text)}")


YAML = "path: .\ntrain: images/train\nval: images/val\nnames:\n  0: cat\n  1: dog\n"


@pytest.fixture
def yolo(put):
    for split, names in (("train", "abc"), ("val", "d")):
        for name in names:
            put(f"images/{split}/{name}.png")
    put("labels/train/a.txt", "0 .5 .5 1 1\n0 .2 .2 .1 .1\n")
    put("labels/train/b.txt", "0 .5 .5 1 1\n1 .2 .2 .1 .1\n")
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
    with pytest.raises(UsageError, match=r"add #SPLIT, one of train, val$"):
        open_images(f"yolo:{yolo}#test")
    with pytest.raises(UsageError, match=r"add #SPLIT, one of train, val$"):
        open_images(f"yolo:{yolo}")


def test_yolo_lists_of_folders_and_of_files(yolo, put, tmp_path):
    put("splits/val.txt", f"images/val/d.png\n{tmp_path}/images/train/b.png\n")
    put("near.txt", "./images/train/a.png\n")
    put(
        "data.yaml",
        "train: [images/train, images/val]\nval: splits/val.txt\ntest: near.txt\n"
        "names: [cat, dog]\n",
    )
    images = open_images(f"yolo:{yolo}#train")
    assert images.ids.to_pylist() == [
        f"images/{n}.png" for n in ("train/a", "train/b", "train/c", "val/d")
    ]
    assert images.labels.to_pylist() == ["cat", None, None, "5"]
    assert open_images(f"yolo:{yolo}#val").ids.to_pylist() == [
        "images/train/b.png",
        "images/val/d.png",
    ]
    assert open_images(f"yolo:{yolo}#test").labels.to_pylist() == ["cat"]
    assert list(open_splits(f"yolo:{yolo}")) == ["train", "val", "test"]


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


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("a: [", VisleakError, "cannot be read as YAML"),
        ("- 1", VisleakError, "is not a YOLO data set: it has no `train` or `val`"),
        ("!!python/object/apply:os.system ['touch pwned']", VisleakError, "cannot be read as YAML"),
        ("val: nowhere", UsageError, "nowhere is neither a folder nor a .txt list"),
        (
            "path: gone\nval: a",
            UsageError,
            "`path: gone` is not a folder either .looked for .*gone",
        ),
        ("val: labels", VisleakError, "holds no images"),
        ("names: [a]", UsageError, r"add #SPLIT, one of \(it has none\)"),
    ],
)
def test_yolo_files_that_are_no_good(text, error, said, yolo, put, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put("data.yaml", text)
    with pytest.raises(error, match=said) as caught:
        open_images(f"yolo:{yolo}#val")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "pwned").exists()


def test_texts_that_cannot_be_written_are_made_so(put):
    put("a.png")
    content = (
        '{"images": [{"id": 1, "file_name": "a.png"}, {"id": 2, "file_name": "\\ud800.png"}],'
        ' "annotations": [{"image_id": 1, "category_id": 7, "caption": "\\udfff"},'
        ' {"image_id": 2, "category_id": []}],'
        ' "categories": [{"id": 7, "name": "c\\ud900"}]}'
    )
    images = open_images(f"coco:{put('x.json', content)}")
    assert images.ids.to_pylist() == ["\\ud800.png", "a.png"]
    assert images.labels.to_pylist() == ["[]", "c\\ud900"]
    assert images.captions.to_pylist() == [None, "\\udfff"]
    assert next(images.opener.read([0])).reason == "missing"
