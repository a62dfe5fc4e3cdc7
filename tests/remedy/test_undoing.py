"""Undo: removal of exactly the unchanged files that were written."""

from __future__ import annotations

import csv
import json

import layout_making as making
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layout_making import piece, state, written

from visleak.errors import VisleakError
from visleak.remedy import undo
from visleak.storage import file_digest

pytestmark = pytest.mark.usefixtures("no_waiting")


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


@settings(max_examples=20)
@given(st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=20))
def test_files_of_any_name_are_removed(tmp_path_factory, stem):
    name = f"{stem}.png"
    if len(name.encode()) > 200 or name.startswith("."):
        return
    root = tmp_path_factory.mktemp("u")
    making.put(root / "in" / "x" / name, making.picture(0))
    for how in ("copy", "link"):
        written(root / how, piece(str(root / "in"), [0]), how=how)
        found = undo(root / how, apply=True)
        assert f"x/{name}" in found.removed
        assert not (root / how).exists()
    assert (root / "in" / "x" / name).exists()
