"""Atomic writing: kills, full disks, changed inputs, existing outputs."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import layout_making as making
import pyarrow as pa
import pytest
from layout_making import piece, state, written

from visleak.errors import UsageError, VisleakError
from visleak.formats import folders, open_images
from visleak.formats.writing import Destination
from visleak.records import ImageSet
from visleak.remedy import writing
from visleak.remedy.manifest import RemovedImage

#: Kills a writer at many moments; prints the content of the final folder after each.
KILLER = """
import json, os, signal, sys, time
import numpy as np
from visleak.formats import open_images
from visleak.remedy.writing import Part, Piece
from visleak.records import ImageSet
from visleak.remedy import writing

source, out, moments = sys.argv[1], sys.argv[2], int(sys.argv[3])

def once(target):
    images = open_images(source, name="test")
    piece = Piece(images, np.arange(0, len(images), 2))
    writing.write([Part("test", (piece,))], writing.Path(target), "copy", about={})

def child(target):
    pid = os.fork()
    if not pid:
        once(target)
        os._exit(0)
    return pid

start = time.perf_counter()
os.waitpid(child(out + "-timed"), 0)
whole = time.perf_counter() - start
for moment in range(moments):
    pid = child(out)
    time.sleep(whole * moment / moments)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    there = os.path.isdir(out)
    print(json.dumps(sorted(os.listdir(out)) if there else None))
    if there:
        os.rename(out, f"{out}-{moment}")
once(out)
"""


def test_a_kill_at_any_moment_leaves_all_or_nothing(tmp_path):
    for i in range(60):
        making.put(tmp_path / "in" / f"{i % 3}" / f"{i:02d}.png", making.picture(i))
    before = state(tmp_path / "in")
    script = tmp_path / "killer.py"
    script.write_text(KILLER)
    (tmp_path / "out").mkdir()
    out = tmp_path / "out" / "clean"
    ran = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "in"), str(out), "14"],
        check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    seen = [json.loads(line) for line in ran.stdout.splitlines()]
    assert None in seen
    whole = sorted(p.name for p in (tmp_path / "out" / "clean-timed").iterdir())
    assert all(names in (None, whole) for names in seen)
    assert state(tmp_path / "in") == before
    assert [p.name for p in (tmp_path / "out").iterdir() if p.name.startswith(".")] == []
    assert state(out) == state(tmp_path / "out" / "clean-timed")


@pytest.mark.parametrize(
    ("code", "said"),
    [(errno.ENOSPC, "No space left on device"), (errno.EACCES, "Permission denied")],
)
@pytest.mark.parametrize("at", [1, 3, 5])
def test_a_failing_disk_leaves_nothing(code, said, at, tmp_path, monkeypatch):
    source = making.folder(tmp_path / "in")
    before = state(tmp_path)
    made, count = Destination.made, []

    def failing(self, name):
        count.append(name)
        if len(count) == at:
            raise OSError(code, os.strerror(code), name)
        return made(self, name)

    monkeypatch.setattr(Destination, "made", failing)
    with pytest.raises(VisleakError, match=f"cannot be written: {said}"):
        written(tmp_path / "out", piece(source))
    assert state(tmp_path) == before


def test_a_folder_that_cannot_be_created_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(VisleakError, match="cannot be written: File exists"):
        written(tmp_path / "file" / "out", piece(making.folder(tmp_path / "in")))


def test_a_small_disk_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    source = making.folder(tmp_path / "in")
    usage = type("Usage", (), {"free": 100})
    monkeypatch.setattr(writing.shutil, "disk_usage", lambda place: usage)
    with pytest.raises(VisleakError) as raised:
        written(tmp_path / "out", piece(source))
    size = sum(p.stat().st_size for p in sorted((tmp_path / "in").rglob("*.png"))[:4]) // 4 * 3
    assert f"needs {size} bytes, its disk has 100 bytes free; make room, or" in str(raised.value)
    written(tmp_path / "out", piece(source), how="link")


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("content", r"image cat/0=ü \.png has another content"),
        ("missing", "it has 2 images and not 3"),
        ("label", "its ids differ"),
    ],
)
def test_what_is_read_back_differently_is_not_kept(broken, said, tmp_path, monkeypatch):
    """Differences are found before the folder is renamed."""
    source = making.folder(tmp_path / "in")
    write_folder = folders.write_folder

    def faulty(part, place):
        opened = write_folder(part, place)
        first = sorted(place.folder.rglob("*.png"))[0]
        if broken == "content":
            first.write_bytes(first.read_bytes()[:-1] + b"x")
        elif broken == "missing":
            first.unlink()
        else:
            (place.folder / "cow").mkdir()
            first.rename(place.folder / "cow" / first.name)
        return opened

    monkeypatch.setattr(folders, "write_folder", faulty)
    with pytest.raises(VisleakError, match=f"not written correctly: {said}; nothing was kept"):
        written(tmp_path / "out", piece(source))
    assert [p.name for p in tmp_path.iterdir()] == ["in"]


def test_labels_are_compared_too(tmp_path, monkeypatch):
    source = making.table(tmp_path / "in")
    read_back = writing.open_image_set

    def other_labels(*args: object, **options: object) -> ImageSet:
        images = read_back(*args, **options)
        return dataclasses.replace(images, labels=pa.array(["x"] * len(images)))

    monkeypatch.setattr(writing, "open_image_set", other_labels)
    with pytest.raises(VisleakError, match="its labels differ"):
        written(tmp_path / "out", piece(source, (0, 1, 2)))


def test_an_earlier_result_is_checked_and_reused(tmp_path):
    source = making.folder(tmp_path / "in")
    out = tmp_path / "out"
    first = written(out, piece(source), about={"a": 1})
    before = state(out)
    again = written(out, piece(source), about={"a": 1})
    assert again.reused
    assert not first.reused
    assert again.sources == first.sources
    assert state(out) == before
    with pytest.raises(UsageError, match="holds another clean data set; choose a new folder"):
        written(out, piece(source, (0, 1)), about={"a": 1})
    (out / "cat" / "0=ü .png").write_bytes(b"other")
    with pytest.raises(UsageError, match=r"holds this result, but cat/0=ü \.png was changed"):
        written(out, piece(source), about={"a": 1})


def test_an_output_with_other_files_is_refused(tmp_path):
    source = making.folder(tmp_path / "in")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("x")
    with pytest.raises(UsageError, match="exists; choose a new folder with -o DIR"):
        written(tmp_path / "out", piece(source))
    (tmp_path / "out" / "manifest.json").write_text('{"name": "my app"}')
    with pytest.raises(UsageError, match="out exists; choose a new folder"):
        written(tmp_path / "out", piece(source))
    (tmp_path / "empty").mkdir()
    written(tmp_path / "empty", piece(source))


@pytest.mark.parametrize(
    ("make", "inside"),
    [
        (making.folder, "pics/out"),
        (making.glob, "pics/cat/out"),
        (making.parquet_shards, "shards/out"),
        (making.yolo, "yolo/images/val/out"),
        (making.kitti, "kitti/out"),
        (making.cifar, "cifar/out"),
    ],
)
def test_an_output_inside_of_an_input_is_refused(make, inside, tmp_path):
    """The next audit would read the copies as images of the set."""
    with pytest.raises(UsageError, match=r"the output .* is the input .*, or in it, and inputs"):
        written(tmp_path / inside, piece(make(tmp_path)))


def test_the_current_folder_may_be_the_output(tmp_path, monkeypatch):
    source = making.folder(tmp_path / "in")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    written(Path("."), piece(source))
    assert (tmp_path / "here" / "cat").is_dir()


@pytest.mark.parametrize("name", ["a/b", "..", ".hidden", ""])
def test_the_name_of_a_part_must_be_a_folder_name(name, tmp_path):
    with pytest.raises(UsageError, match=r"part .* cannot be the name of a folder"):
        written(tmp_path / "out", piece(making.folder(tmp_path)), name=name)


def test_nothing_left_is_no_data_set(tmp_path):
    with pytest.raises(VisleakError, match="no image of 'test' is left; no data set is written"):
        written(tmp_path / "out", piece(making.folder(tmp_path / "in"), ()))


def test_an_image_that_is_not_what_was_audited_is_refused(tmp_path):
    source = making.folder(tmp_path / "in")
    images = open_images(source, name="test")
    digests = [hashlib.blake2b(d, digest_size=16).hexdigest() for d in images.opener.read(range(7))]
    known = {"test": pa.table({"id": images.ids, "digest": pa.array(digests)})}
    written(tmp_path / "fine", piece(source), known=known)
    path = tmp_path / "in" / "pics" / "cat" / "4=ü .png"
    path.write_bytes(making.picture(99))
    with pytest.raises(VisleakError, match=r"set 'test': image 'cat/4=ü \.png' changed since the"):
        written(tmp_path / "out", piece(source), known=known)
    path.unlink()
    path.mkdir()
    with pytest.raises(VisleakError, match=r"it cannot be read \(a folder stands at this name"):
        written(tmp_path / "out", piece(images, [2]), known=known)


def test_leftovers_of_killed_runs_are_removed(tmp_path):
    killed = tmp_path / ".out.4194399.part"  # beyond the largest number of a process
    running = tmp_path / f".out.{os.getppid()}.part"
    other = tmp_path / ".output.4194399.part"
    for folder in (killed, running, other):
        folder.mkdir()
    written(tmp_path / "out", piece(making.folder(tmp_path / "in")))
    assert [path.exists() for path in (killed, running, other)] == [False, True, True]


def test_lists_are_safe_in_a_spreadsheet(tmp_path):
    making.put(tmp_path / "in" / "=cmd().png", making.picture(0))
    removed = [RemovedImage("test", "@x", why="near", partner="+y")]
    written(tmp_path / "out", piece(str(tmp_path / "in"), [0]), removed=removed)
    for name in ("kept.csv", "removed.csv", "files.csv"):
        cells = (tmp_path / "out" / name).read_text().replace("\n", ",").split(",")
        assert not [cell for cell in cells if cell[:1] in ("=", "+", "-", "@")]


def test_names_that_are_not_utf8(tmp_path):
    name = b"caf\xe9.png"
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / os.fsdecode(name)).write_bytes(making.picture(0))
    source = str(tmp_path / "in")
    for how in ("copy", "link"):
        written(tmp_path / how, piece(source, (0,)), how=how)
        assert (tmp_path / how / os.fsdecode(name)).read_bytes() == making.picture(0)
        assert written(tmp_path / how, piece(source, (0,)), how=how).reused
    with pytest.raises(VisleakError, match="is not UTF-8 and cannot be listed; use --format"):
        written(tmp_path / "manifest", piece(source, (0,)), how="manifest")


def test_a_check_that_fails_leaves_nothing(tmp_path):
    source = making.folder(tmp_path / "in")

    def refuse(folder, opened):
        assert len(open_images(opened["test"].source(folder))) == 3
        raise VisleakError("no")

    with pytest.raises(VisleakError, match=r"^no$"):
        written(tmp_path / "out", piece(source), check=refuse)
    assert not (tmp_path / "out").exists()


def test_files_are_flushed_to_the_disk(tmp_path, monkeypatch):
    """A crash of the machine after the rename must not leave empty files."""
    seen = []
    monkeypatch.setattr(writing.os, "fsync", lambda handle: seen.append(os.fstat(handle).st_ino))
    written(tmp_path / "out", piece(making.folder(tmp_path / "in")))
    inodes = {p.stat().st_ino for p in (tmp_path / "out").rglob("*")} | {tmp_path.stat().st_ino}
    assert inodes <= set(seen)
    many = []
    monkeypatch.setattr(writing, "ONE_BY_ONE", 2)
    monkeypatch.setattr(writing.os, "sync", lambda: many.append(1))
    written(tmp_path / "out2", piece(making.folder(tmp_path / "in2")))
    assert many == [1]
