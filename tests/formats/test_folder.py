"""Folders, lists, globs and single files: what is listed, read and left out."""

import glob
import json
import os
import pickle
import shutil
import stat
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import visleak
from refusals import refused
from visleak.errors import UsageError, VisleakError
from visleak.formats import files, open_images, open_splits
from visleak.formats.listing import glob_names

ODD = ["<img src=x onerror=alert(1)>.png", "=cmd().png", "a b/ü ñ 漢.png", "#1?x=2.png", "[x]*.png"]


def read(images):
    return list(images.opener.read(range(len(images))))


def refusing(system, ending):
    """Return a function of the system that is refused for paths with an ending."""

    def call(path, *args, **kwargs):
        if os.fsencode(path).endswith(ending):
            raise PermissionError(13, "Permission denied")
        return system(path, *args, **kwargs)

    return call


def test_a_folder_lists_every_picture_by_id_with_labels(tmp_path, put):
    kinds = ["png", "jpg", "webp", "tiff", "gif", "bmp", "JPEG", "ppm", "jfif"]
    names = [f"{'dog' if i % 2 else 'cat/tabby'}/{i}.{kind}" for i, kind in enumerate(kinds)]
    names += ODD
    data = {name: put(name, seed=i).read_bytes() for i, name in enumerate(reversed(names))}
    images = open_images(tmp_path)
    assert images.ids.to_pylist() == sorted(names)
    want = [None if "/" not in n else n.split("/")[0] for n in sorted(names)]
    assert images.labels.to_pylist() == want
    assert images.locators[0].as_py() == str(tmp_path / sorted(names)[0])
    assert (images.name, images.source) == (tmp_path.name, str(tmp_path))
    opener = pickle.loads(pickle.dumps(images.opener))
    for positions in (range(len(names)), [1, 3, 4], np.array([0, 2]), []):
        assert list(opener.read(positions)) == [data[sorted(names)[at]] for at in positions]
    one = open_images(str(tmp_path / ODD[3]))
    assert (one.ids.to_pylist(), one.name) == ([ODD[3]], "#1?x=2")
    assert read(one) == [data[ODD[3]]]


def test_names_that_are_not_utf8_can_be_read(tmp_path, put):
    data = put("a.png").read_bytes()
    (tmp_path / os.fsdecode(b"\xff.png")).write_bytes(data)
    images = open_images(tmp_path)
    assert images.ids.to_pylist() == ["\\xff.png", "a.png"]
    assert read(images) == [data, data]


def test_links_neither_loop_nor_list_twice(tmp_path, put):
    put("b/1.png")
    (tmp_path / "a").mkdir()
    (tmp_path / "a/loop").symlink_to(tmp_path)
    (tmp_path / "a/again").symlink_to(tmp_path / "b")
    (tmp_path / "self.png").symlink_to("self.png")
    (tmp_path / "gone.png").symlink_to("nowhere.png")
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    put(f"../{outside.name}/2.png")
    (tmp_path / "c").symlink_to(outside)
    os.mkfifo(tmp_path / "pipe")  # which does not stop the listing
    images = open_images(tmp_path)
    assert images.ids.to_pylist() == ["b/1.png", "c/2.png", "gone.png", "self.png"]
    found = read(images)
    assert [getattr(data, "reason", "") for data in found] == ["", "", "missing", "io-error"]


def test_what_cannot_be_read_has_a_reason(tmp_path, put, monkeypatch):
    for name in ("gone", "dir", "denied", "huge", "ok"):
        put(f"{name}.jpg")
    os.mkfifo(tmp_path / "pipe.jpg")
    images = open_images(tmp_path)
    (tmp_path / "gone.jpg").unlink()
    (tmp_path / "dir.jpg").unlink()
    (tmp_path / "dir.jpg").mkdir()
    monkeypatch.setattr(files, "MAX_FILE_BYTES", 10_000)
    (tmp_path / "huge.jpg").write_bytes(b"x" * 10_001)
    monkeypatch.setattr(os, "open", refusing(os.open, b"denied.jpg"))
    reasons = [getattr(data, "reason", "") for data in read(images)]
    assert dict(zip(images.ids.to_pylist(), reasons, strict=True)) == {
        "denied.jpg": "no-permission",
        "dir.jpg": "io-error",
        "gone.jpg": "missing",
        "huge.jpg": "too-large",
        "ok.jpg": "",
        "pipe.jpg": "io-error",
    }


def test_an_unreadable_sub_folder_is_a_problem(tmp_path, put, monkeypatch):
    put("a/1.png")
    put("b/1.png")
    monkeypatch.setattr(os, "scandir", refusing(os.scandir, b"/b"))
    images = open_images(tmp_path, name="s")
    assert images.ids.to_pylist() == ["a/1.png"]
    [problem] = images.problems
    assert (problem.set, problem.id, problem.reason) == ("s", "b", "no-permission")


@pytest.mark.parametrize("given", ["", "yolo:"])
def test_a_folder_that_may_not_be_listed_is_named(tmp_path, put, monkeypatch, given):
    put("a.png")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    for opening in (open_images, open_splits):
        words = f"{given}{tmp_path}': the system does not let this user read the folder"
        refused(VisleakError, words, f"{given}{tmp_path}", opening)


def test_an_empty_folder_and_a_missing_one(tmp_path, put):
    (tmp_path / "e").mkdir()
    refused(VisleakError, r"/e holds no images \(no file below it is an image", tmp_path / "e")
    (tmp_path / "e" / "img_emb_0.npy").write_bytes(b"")
    refused(VisleakError, r"1 \.npy; embeddings are emb:FOLDER\?encoder=NAME", tmp_path / "e")
    refused(UsageError, r"source '.*/nope' does not exist; a source is a folder", tmp_path / "nope")


def test_groups_by_a_regular_expression(tmp_path, put):
    for name in ("clip1_001.png", "clip1_002.png", "clip2_001.png", "other.png"):
        put(name)
    images = open_images(tmp_path, group=r"/^(clip\d+)_/")
    assert images.groups.to_pylist() == ["clip1", "clip1", "clip2", None]
    assert open_images(tmp_path, group=r"/clip\d/").groups[2].as_py() == "clip2"
    refused(UsageError, r"group '/\(/' is not a regular expression: ", tmp_path, group="/(/")
    refused(UsageError, r"group 'x': .* no columns; group may be /regex/ on", tmp_path, group="x")
    refused(UsageError, "id 'x': the folder .* has no col", tmp_path, id="x")


def test_a_list_keeps_its_order(tmp_path, put):
    data = {name: put(name, seed=i).read_bytes() for i, name in enumerate(["z/1.png", "a b.png"])}
    listing = put("lists/of.txt", f"\ufeff../z/1.png\r\n\n{tmp_path}/a b.png\n../gone.png\n")
    images = open_images(listing)
    assert images.ids.to_pylist() == ["../z/1.png", f"{tmp_path}/a b.png", "../gone.png"]
    assert images.name == "of"
    assert read(images)[:2] == list(data.values())
    assert read(images)[2].reason == "missing"
    beside = put("list.txt", f"./z//1.png\n{tmp_path}/a b.png\n")
    assert open_images(beside).ids.to_pylist() == ["z/1.png", "a b.png"]
    refused(VisleakError, r"id 'a.png' occurs more", put("twice.txt", "a.png\nb.png\n./a.png\n"))
    refused(VisleakError, r"none\.txt holds no images", put("none.txt", "\n\n"))
    refused(VisleakError, r"bytes\.txt cannot be read as UTF-8", put("bytes.txt", b"\xff\xfe\n"))


def test_a_glob(tmp_path, put):
    for name in ("a/x/1.png", "a/2.png", "b/1.png", "b/1.jpg"):
        put(name)
    put("b/3.txt", "x")
    images = open_images(f"{tmp_path}/**/*.png")
    assert images.ids.to_pylist() == ["a/2.png", "a/x/1.png", "b/1.png"]
    assert images.labels.to_pylist() == ["a", "a", "b"]
    assert images.name == tmp_path.name
    flat = open_images(f"{tmp_path}/b/*")
    assert (flat.ids.to_pylist(), flat.labels) == (["1.jpg", "1.png"], None)
    refused(VisleakError, r"\*\.gif holds no images \(no file that matches is", f"{tmp_path}/*.gif")


def test_a_file_without_a_size_is_read_up_to_the_limit(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    path.write_bytes(bytes(range(200)))
    monkeypatch.setattr(files, "PART", 7)
    monkeypatch.setattr(os, "fstat", lambda handle: os.stat_result((stat.S_IFREG, *[0] * 9)))
    assert files.read_file(str(path)) == bytes(range(200))
    monkeypatch.setattr(files, "MAX_FILE_BYTES", 100)
    found = files.read_file(str(path))
    assert (found.reason, found.detail[:9]) == ("too-large", "101 bytes")


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
def folder(tmp_path, put, picture, encode):
    """Return a folder with images of many names, and other files."""
    images = {name: encode(picture(), kind) for name, kind in FORMATS.items()}
    for name, content in (images | OTHERS).items():
        put(f"set/{name}", content)
    return tmp_path / "set"


@pytest.mark.parametrize("kind", ["folder", "glob", "zip", "tar", "gztar"])
def test_the_content_tells_where_the_ending_does_not(folder, kind):
    source = {"folder": folder, "glob": f"{folder}/*"}.get(kind)
    images = open_images(source or shutil.make_archive(str(folder), kind, folder))
    assert sorted(os.path.basename(id_) for id_ in images.ids.to_pylist()) == sorted(FORMATS)
    # a pattern that does not begin with a dot does not name hidden files
    assert images.skipped == {k: n for k, n in SKIPPED.items() if kind != "glob" or k != "hidden"}
    assert all(isinstance(each, bytes) for each in images.opener.read(range(len(images))))


def test_shards_count_what_is_in_no_sample_and_other_images_of_one(folder):
    shard = folder.parent / "s.tar"
    images = {"1.jpg_large": "b.jpg_large", "2.left.png": "a", "2.right.png": "a", "3": "a"}
    others = {"1.npy": "stack.npy", "2.json": "labels.txt", "__index__": "labels.txt"}
    hidden = {"._1.jpg": "._a.jpg", ".1.jpg": ".cat.jpg"}
    with tarfile.open(shard, "w") as archive:
        for name, file in sorted((images | others | hidden).items()):
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


def test_an_audit_counts_what_it_left_out(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "other")
    visleak.audit(tmp_path / "other", folder, out=tmp_path / "out", verify=False)
    stored = json.loads((tmp_path / "out" / "audit.json").read_text())
    assert [each["not_listed"] for each in stored["sets"]] == [SKIPPED, SKIPPED]


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
