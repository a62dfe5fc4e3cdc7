"""What is listed: images without a known ending, globs and names; what is left out is counted."""

import glob
import json
import os
import shutil
import tarfile
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import visleak
from refusals import refused
from visleak.errors import VisleakError
from visleak.formats import open_images
from visleak.formats.listing import describe_skipped, glob_names, split_glob

FORMATS = {
    "a": "PNG",
    "b.jpg_large": "JPEG",
    "c.img": "WEBP",
    "d.1": "GIF",
    "e.x": "TIFF",
    "f~": "BMP",
}

#: What begins like an image and is none, and what has the ending of something else.
OTHERS = {
    "README": b"P5 is how this text begins, and it goes on",
    "BM": b"BM is how this text begins, and it goes on",
    "scan.nrrd": b"NRRD0004\n" + b"\0" * 128,
    "brain.nii.gz": b"\x1f\x8b" + b"\0" * 40,
    "shot.NEF": b"II*\0" + b"\0" * 60,
    "shot.iiq": b"II*\0" + b"\0" * 60,
    "stack.npy": b"\x93NUMPY" + b"\0" * 60,
    "drawing.svg": b"<svg/>",
    "empty": b"",
    "labels.txt": b"0 0.5 0.5 1 1",
    ".hidden": b"\x89PNG\r\n\x1a\n" + b"\0" * 40,
    ".cat.jpg": b"\xff\xd8\xff" + b"\0" * 40,
    "._a.jpg": b"\0\5\x16\7" + b"\0" * 40,
    "__MACOSX/b.jpg": b"\0\5\x16\7" + b"\0" * 40,
    ".git/c.jpg": b"\xff\xd8\xff" + b"\0" * 40,
}
SKIPPED = {
    "": 3,
    "hidden": 1,
    **dict.fromkeys((".nrrd", ".nii.gz", ".nef", ".iiq", ".npy", ".svg", ".txt"), 1),
}


@pytest.fixture
def folder(tmp_path):
    """Return a folder with images of many names, and other files."""
    place = tmp_path / "set"
    place.mkdir()
    rng = np.random.default_rng(5)
    for name, kind in FORMATS.items():
        picture = rng.integers(0, 255, (9, 9, 3), np.uint8)
        Image.fromarray(np.kron(picture, np.ones((8, 8, 1), np.uint8))).save(place / name, kind)
    for name, content in OTHERS.items():
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_bytes(content)
    return place


def as_source(folder, kind):
    """Return the folder as another source."""
    if kind == "folder":
        return str(folder)
    if kind == "glob":
        return f"{folder}/*"
    if kind == "yolo":
        (folder.parent / "data.yaml").write_text("val: set\n")
        return f"yolo:{folder.parent}/data.yaml#val"
    if kind == "kitti":
        shutil.move(folder, folder.parent / "in/training/image_2")
        return f"kitti:{folder.parent}/in"
    if kind == "zip":
        with zipfile.ZipFile(folder.parent / "set.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for path in folder.rglob("*"):
                archive.write(path, path.relative_to(folder))
        return str(folder.parent / "set.zip")
    with tarfile.open(folder.parent / f"set.{kind}", f"w:{kind[4:]}") as archive:
        archive.add(folder, ".")
    return str(folder.parent / f"set.{kind}")


@pytest.mark.parametrize("kind", ["folder", "glob", "zip", "tar", "tar.gz", "yolo", "kitti"])
def test_the_content_tells_where_the_ending_does_not(folder, kind):
    images = open_images(as_source(folder, kind))
    assert sorted(os.path.basename(id_) for id_ in images.ids.to_pylist()) == sorted(FORMATS)
    # a pattern that does not begin with a dot does not name hidden files
    assert images.skipped == {k: n for k, n in SKIPPED.items() if kind != "glob" or k != "hidden"}
    assert all(isinstance(each, bytes) for each in images.opener.read(range(len(images))))


def test_shards_count_what_is_in_no_sample_and_other_images_of_one(folder):
    shard = folder.parent / "s.tar"
    members = {
        "1.jpg_large": "b.jpg_large",
        "1.npy": "stack.npy",
        "2.left.png": "a",
        "2.right.png": "a",
        "2.json": "labels.txt",
        "3": "a",
        "__index__": "labels.txt",
        "._1.jpg": "._a.jpg",
        ".1.jpg": ".cat.jpg",
    }
    with tarfile.open(shard, "w") as archive:
        for name, file in members.items():
            archive.add(folder / file, name)
    images = open_images(f"wds:{shard}")
    assert images.ids.to_pylist() == ["1", "2"]
    assert images.skipped == {".npy": 1, ".right.png": 1, "": 1, "hidden": 1}
    stored = [(folder / name).read_bytes() for name in ("b.jpg_large", "a")]
    assert list(images.opener.read(range(2))) == stored


def test_a_folder_of_tables_counts_what_lies_beside_them(folder):
    column = pa.array([{"bytes": (folder / "a").read_bytes(), "path": "a.png"}])
    for name in FORMATS:
        (folder / name).unlink()
    refused(VisleakError, r"set .*3 without extension.*1 \.nef", folder)
    pq.write_table(pa.table({"image": column}), folder / "0.parquet")
    images = open_images(folder)
    assert len(images) == 1
    assert images.skipped == SKIPPED


def test_a_pipe_does_not_stop_the_listing(folder):
    os.mkfifo(folder / "pipe")
    assert len(open_images(folder)) == len(FORMATS)


def test_an_audit_counts_what_it_left_out(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "other")
    visleak.audit(tmp_path / "other", folder, out=tmp_path / "out", verify=False)
    stored = json.loads((tmp_path / "out" / "audit.json").read_text())
    assert [each["not_listed"] for each in stored["sets"]] == [SKIPPED, SKIPPED]


def test_what_lies_beside_pictures_is_not_shown():
    beside = {".txt": 1000, ".json": 1}
    assert describe_skipped(beside) == ""
    assert describe_skipped(beside, side=True) == "1,001 files: 1,000 .txt, 1 .json"
    shown = describe_skipped({f".e{number}": 1 for number in range(9)})
    assert shown.startswith("9 files: ")
    assert shown.endswith("4 others")


@pytest.mark.parametrize(
    "pattern",
    [
        *("**/*.png", "*/*.png", "**", "a/**", "a/**/b/*", "**/b/**/*.p?g", "*", "a/[1-2].png"),
        *("**/.h/*", "nope/**"),
    ],
)
def test_globs_find_what_python_finds(pattern, tmp_path, put):
    for name in ("1", "a/1", "a/b/2", "a/c/b/d/3", "b/4", ".h/5", "a/.6"):
        put(f"{name}.png", b"")
    system = glob.glob(pattern, root_dir=tmp_path, recursive=True)
    files = sorted(n for n in system if (tmp_path / n).is_file())
    for name in ("a/x", "a/y", "a/b/z"):  # where Python would go in circles
        (tmp_path / name).symlink_to(tmp_path)
    found = sorted(glob_names(str(tmp_path), pattern, lambda name: not name.startswith(".")))
    assert found == ([] if pattern.startswith("**/.h") else files)


def test_where_a_glob_begins():
    assert split_glob("*.png") == (".", "*.png")
    assert split_glob("/*.png") == ("/", "*.png")
    assert split_glob("a/b?/c/*.png") == ("a", "b?/c/*.png")
