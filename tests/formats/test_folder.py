"""Folders, lists, globs and single files."""

import builtins
import os
import pickle
import stat

import numpy as np
import pytest

from refusals import refused
from visleak.errors import UsageError, VisleakError
from visleak.formats import files, open_images, open_splits
from visleak.images import decode
from visleak.records import Unreadable

ODD = ["<img src=x onerror=alert(1)>.png", "=cmd().png", "a b/ü ñ 漢.png", "#1?x=2.png", "[x]*.png"]


def read(images, positions=None):
    return list(images.opener.read(range(len(images)) if positions is None else positions))


def test_a_folder_lists_every_picture_by_id_with_labels(tmp_path, put):
    kinds = ["png", "jpg", "webp", "tiff", "gif", "bmp", "JPEG", "ppm", "jfif"]
    names = [f"{'dog' if i % 2 else 'cat/tabby'}/{i}.{kind}" for i, kind in enumerate(kinds)]
    for name in reversed(names):
        put(name)
    put("top.png")
    for name in (
        *("notes.txt", "a.json", "b.csv", "c.md", ".DS_Store", "Thumbs.db", ".hid.png"),
        *(".git/x.png", "._a.jpg"),
    ):
        put(name, b"x")
    images = open_images(tmp_path)
    assert images.ids.to_pylist() == sorted([*names, "top.png"])
    want = [None if "/" not in n else n.split("/")[0] for n in images.ids.to_pylist()]
    assert images.labels.to_pylist() == want
    assert images.locators[0].as_py() == str(tmp_path / images.ids[0].as_py())
    assert images.name == tmp_path.name
    assert images.source == str(tmp_path)
    assert images.problems == ()
    for data in read(images):
        assert decode(data).pixels.shape == (32, 48, 3)


def test_a_flat_folder_has_no_labels_and_is_listed_without_reading(tmp_path, put, monkeypatch):
    put("a.png")
    monkeypatch.setattr(builtins, "open", lambda *a, **k: pytest.fail("opened"))
    assert open_images(str(tmp_path)).labels is None


def test_odd_names_are_ids(tmp_path, put):
    for name in ODD:
        put(name)
    images = open_images(tmp_path)
    assert images.ids.to_pylist() == sorted(ODD)
    assert all(isinstance(data, bytes) for data in read(images))
    assert len(open_images(str(tmp_path / ODD[3]))) == 1


def test_names_that_are_not_utf8_can_be_read(tmp_path, put):
    data = put("a.png").read_bytes()
    with open(os.fsencode(tmp_path) + b"/\xff.png", "wb") as file:
        file.write(data)
    images = open_images(tmp_path)
    assert images.ids.to_pylist() == ["\\xff.png", "a.png"]
    assert read(images) == [data, data]


def test_the_order_does_not_depend_on_creation(tmp_path, put):
    names = [f"{c}/{n}.png" for c in "zay" for n in (10, 9, 1)]
    rng = np.random.default_rng(0)
    seen = set()
    for turn in range(3):
        for name in rng.permutation(names):
            put(f"{turn}/{name}", b"x")
        seen.add(tuple(open_images(tmp_path / str(turn)).ids.to_pylist()))
    assert seen == {tuple(sorted(names))}


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
    images = open_images(tmp_path)
    assert images.ids.to_pylist() == ["b/1.png", "c/2.png", "gone.png", "self.png"]
    found = read(images)
    assert [getattr(data, "reason", "") for data in found] == ["", "", "missing", "io-error"]


def test_what_cannot_be_read_has_a_reason(tmp_path, put, monkeypatch):
    contents = {"empty": b"", "text": b"words"}
    for name in ("gone", "dir", "denied", "empty", "text", "huge", "ok"):
        put(f"{name}.jpg", contents.get(name))
    os.mkfifo(tmp_path / "pipe.jpg")
    images = open_images(tmp_path)
    (tmp_path / "gone.jpg").unlink()
    (tmp_path / "dir.jpg").unlink()
    (tmp_path / "dir.jpg").mkdir()
    monkeypatch.setattr(files, "MAX_FILE_BYTES", 10_000)
    (tmp_path / "huge.jpg").write_bytes(b"x" * 10_001)
    system_open = os.open

    def refuse(path, *args, **kwargs):
        if os.fsencode(path).endswith(b"denied.jpg"):
            raise PermissionError(13, "Permission denied")
        return system_open(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuse)
    found = dict(zip(images.ids.to_pylist(), map(decode_any, read(images)), strict=True))
    assert found == {
        "denied.jpg": "no-permission",
        "dir.jpg": "io-error",
        "empty.jpg": "empty",
        "gone.jpg": "missing",
        "huge.jpg": "too-large",
        "ok.jpg": "",
        "pipe.jpg": "io-error",
        "text.jpg": "not-an-image",
    }


def decode_any(data):
    found = data if isinstance(data, Unreadable) else decode(data)
    return getattr(found, "reason", "")


def test_an_unreadable_sub_folder_is_a_problem(tmp_path, put, monkeypatch):
    put("a/1.png")
    put("b/1.png")
    system = os.scandir

    def refuse(path):
        if str(path).endswith("/b"):
            raise PermissionError(13, "Permission denied")
        return system(path)

    monkeypatch.setattr(os, "scandir", refuse)
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


def test_openers_are_pickled_and_yield_the_chosen_images(tmp_path, put):
    data = [put(f"{i}.png", seed=i).read_bytes() for i in range(5)]
    opener = pickle.loads(pickle.dumps(open_images(tmp_path).opener))
    for positions in ([1, 3, 4], np.array([0, 2]), []):
        assert list(opener.read(positions)) == [data[at] for at in positions]


def test_an_empty_folder_and_a_missing_one(tmp_path, put):
    (tmp_path / "e").mkdir()
    refused(VisleakError, r"/e holds no images \(no file below it is an image", tmp_path / "e")
    (tmp_path / "e" / "img_emb_0.npy").write_bytes(b"")
    refused(VisleakError, r"1 \.npy; embeddings are emb:FOLDER\?encoder=NAME", tmp_path / "e")
    refused(UsageError, r"source '.*/nope' does not exist; a source is a folder", tmp_path / "nope")


def test_columns_are_refused(tmp_path, put):
    put("a.png")
    for option in ("id", "label"):
        refused(UsageError, f"{option} 'x': the folder .* has no col", tmp_path, **{option: "x"})
    refused(UsageError, r"group 'x': .* no columns; group may be /regex/ on", tmp_path, group="x")
    refused(UsageError, r"group '/\(/' is not a regular expression: ", tmp_path, group="/(/")


def test_groups_by_a_regular_expression(tmp_path, put):
    for name in ("clip1_001.png", "clip1_002.png", "clip2_001.png", "other.png"):
        put(name)
    images = open_images(tmp_path, group=r"/^(clip\d+)_/")
    assert images.groups.to_pylist() == ["clip1", "clip1", "clip2", None]
    assert open_images(tmp_path, group=r"/clip\d/").groups[2].as_py() == "clip2"


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
    for name in ("a/x/1.png", "a/2.png", "b/1.png", "b/1.jpg", "b/3.txt"):
        put(name) if not name.endswith("txt") else put(name, "x")
    images = open_images(f"{tmp_path}/**/*.png")
    assert images.ids.to_pylist() == ["a/2.png", "a/x/1.png", "b/1.png"]
    assert images.labels.to_pylist() == ["a", "a", "b"]
    assert images.name == tmp_path.name
    assert open_images(f"{tmp_path}/b/*").ids.to_pylist() == ["1.jpg", "1.png"]
    assert all(isinstance(data, bytes) for data in read(images))
    refused(VisleakError, r"\*\.gif holds no images \(no file that matches is", f"{tmp_path}/*.gif")


def test_one_picture(put):
    path = put("cat.png")
    images = open_images(path)
    assert images.ids.to_pylist() == ["cat.png"]
    assert images.name == "cat"
    assert read(images) == [path.read_bytes()]


def test_a_file_without_a_size_is_read_up_to_the_limit(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    path.write_bytes(bytes(range(200)))
    monkeypatch.setattr(files, "PART", 7)
    monkeypatch.setattr(os, "fstat", lambda handle: os.stat_result((stat.S_IFREG, *[0] * 9)))
    assert files.read_file(str(path)) == bytes(range(200))
    monkeypatch.setattr(files, "MAX_FILE_BYTES", 100)
    found = files.read_file(str(path))
    assert (found.reason, found.detail[:9]) == ("too-large", "101 bytes")
