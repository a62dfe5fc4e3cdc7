"""Atomic writing: full disks, faulty writes, changed inputs, existing outputs; and its undo."""

import csv
import dataclasses
import errno
import json
import os
from pathlib import Path

import layout_making as making
import pyarrow as pa
import pytest
from layout_making import piece, state, written

from visleak.errors import UsageError, VisleakError
from visleak.formats.writing import Destination
from visleak.remedy import undo, writing
from visleak.remedy.manifest import RemovedImage
from visleak.storage import file_digest


@pytest.mark.parametrize("at", [1, 5])
def test_a_failing_disk_leaves_nothing(at, tmp_path, monkeypatch):
    source, made, names = making.folder(tmp_path / "in"), Destination.made, []
    before = state(tmp_path)

    def failing(self, name):
        names.append(name)
        if len(names) == at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
        return made(self, name)

    monkeypatch.setattr(Destination, "made", failing)
    with pytest.raises(VisleakError, match="cannot be written: No space left on device"):
        written(tmp_path / "out", piece(source))
    assert state(tmp_path) == before


def test_a_small_disk_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    source = making.folder(tmp_path / "in")
    usage = type("Usage", (), {"free": 100})
    monkeypatch.setattr(writing.shutil, "disk_usage", lambda place: usage)
    with pytest.raises(VisleakError) as raised:
        written(tmp_path / "new" / "out", piece(source))
    size = sum(p.stat().st_size for p in sorted((tmp_path / "in").rglob("*.png"))[:4]) // 4 * 3
    assert f"needs {size} bytes, its disk has 100 bytes free; make room, or" in str(raised.value)
    written(tmp_path / "out", piece(source), how="link")


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("content", r"image cat/0=ü \.png has another content"),
        ("missing", "it has 2 images and not 3"),
        ("moved", "its ids differ"),
        ("relabelled", "its labels differ"),
    ],
)
def test_what_is_read_back_differently_is_not_kept(broken, said, tmp_path, monkeypatch):
    """Differences are found before the folder is renamed."""
    source = making.folder(tmp_path / "in")
    read_back = writing.open_image_set

    def faulty(folder, **options):
        assert not (tmp_path / "out").exists()
        first = sorted(Path(folder).rglob("*.png"))[0]
        if broken == "content":
            first.write_bytes(first.read_bytes()[:-1] + b"x")
        elif broken == "missing":
            first.unlink()
        elif broken == "moved":
            first.rename(first.with_name("z.png"))
        images = read_back(folder, **options)
        other = pa.array(["x"] * len(images))
        return dataclasses.replace(images, labels=other) if broken == "relabelled" else images

    monkeypatch.setattr(writing, "open_image_set", faulty)
    with pytest.raises(VisleakError, match=f"not written correctly: {said}; nothing was kept"):
        written(tmp_path / "out", piece(source))
    assert [p.name for p in tmp_path.iterdir()] == ["in"]


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
    with pytest.raises(VisleakError, match="cannot be written: File exists"):
        written(tmp_path / "out" / "mine.txt" / "new", piece(source))
    (tmp_path / "empty").mkdir()
    written(tmp_path / "empty", piece(source))


@pytest.mark.parametrize(
    ("make", "inside"), [(making.glob, "pics/cat/out"), (making.cifar, "cifar/out")]
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
        assert len(making.contents(opened["test"].source(folder))) == 3
        raise VisleakError("not clean")

    with pytest.raises(VisleakError, match="not clean"):
        written(tmp_path / "out", piece(source), check=refuse)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


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


@pytest.fixture(params=["manifest", "link", "copy"])
def made(request, tmp_path):
    written(tmp_path / "out", piece(making.folder(tmp_path / "in"), range(5)), how=request.param)
    return tmp_path / "out"


def test_a_plan_changes_nothing_and_applying_leaves_nothing(made, tmp_path):
    inputs = state(tmp_path / "in")
    before = state(made)
    planned = undo(made)
    assert not planned.applied
    assert state(made) == before
    assert set(planned.removed) == set(before)
    done = undo(made / "manifest.json", apply=True)
    assert done.removed == planned.removed
    assert not made.exists()
    assert state(tmp_path / "in") == inputs


def test_changed_and_added_files_stay(tmp_path):
    out = tmp_path / "out"
    written(out, piece(making.folder(tmp_path / "in"), range(5)))
    (out / "cat" / "0=ü .png").write_bytes(b"mine now")
    (out / "cat" / "2=ü .png").unlink()
    (out / "notes.txt").write_text("mine")
    found = undo(out, apply=True)
    changes = {"cat/0=ü .png": "its content changed", "cat/2=ü .png": "it is missing"}
    assert dict(found.kept) == changes
    assert found.others == ("notes.txt",)
    assert sorted(state(out)) == ["cat/0=ü .png", "notes.txt"]


def test_links_are_removed_and_never_followed(tmp_path):
    out = tmp_path / "out"
    written(out, piece(making.folder(tmp_path / "in"), range(7)))
    mine = tmp_path / "mine"
    (out / "cat").rename(mine)
    (out / "cat").symlink_to(mine)
    (out / "dog" / "1=ü .png").unlink()
    (out / "dog" / "1=ü .png").symlink_to(mine / "0=ü .png")
    before = state(mine)
    found = undo(out, apply=True)
    assert dict(found.kept)["cat/0=ü .png"] == "its folder is now a link"
    assert dict(found.kept)["dog/1=ü .png"] == "it is now another kind of file"
    assert state(mine) == before
    assert (out / "cat").is_symlink()


@pytest.mark.parametrize(
    "name", ["../victim.txt", "/etc/passwd", "a/../../victim.txt", "", ".", "cat//x.png"]
)
def test_a_list_with_paths_outside_is_refused(name, made, tmp_path):
    """A foreign manifest must not cause the removal of other files."""
    victim = tmp_path / "victim.txt"
    victim.write_text("precious")
    path = made / "files.csv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    rows.append([name, "file", "8", file_digest(victim), ""])
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    content = json.loads((made / "manifest.json").read_text())
    content["files_digest"] = file_digest(path)
    (made / "manifest.json").write_text(json.dumps(content))
    before = state(made)
    with pytest.raises(VisleakError, match=", which is outside of its folder"):
        undo(made, apply=True)
    assert state(made) == before
    assert victim.read_text() == "precious"


def test_a_changed_list_and_other_files_are_refused(made, tmp_path):
    (made / "files.csv").write_text("path,kind,bytes,digest,target\n")
    (tmp_path / "other.json").write_text("{}")
    for path, words in (
        (made, r"files\.csv was changed since it was written"),
        (tmp_path, r"does not exist; give the manifest\.json of a clean"),
        (tmp_path / "other.json", r'does not say "kind": "visleak-clean-set"; give the manifest'),
    ):
        with pytest.raises(VisleakError, match=words):
            undo(path)
