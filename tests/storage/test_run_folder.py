"""The folder of a run: what is reused, refused, replaced and removed."""

import json
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from refusals import refused
from visleak.errors import UsageError, VisleakError
from visleak.storage import RunFolder, claimed, keep_file

KIND = "visleak toy count"


@dataclass(frozen=True)
class Count:
    """A result."""

    folder: Path
    total: int
    share: float
    key: str


def finished(folder, key="k", **files):
    run = RunFolder(folder, KIND)
    with run.claimed():
        made = Count(folder, 3, float("nan"), key)
        run.finish(run.document("3 things", made, more=[1]), files)
    return run


def test_a_finished_result_is_read_as_it_was(tmp_path):
    run = finished(tmp_path, **{"a.txt": "text"})
    content = json.loads((tmp_path / "count.json").read_text())
    assert (content["kind"], content["headline"]) == (KIND, "3 things")
    assert (content["total"], content["share"], content["more"]) == (3, None, [1])
    assert "folder" not in content
    for force in (False, True):
        found = run.reused(Count, "k", force=force, files=["a.txt"], folder=tmp_path)
        assert found is not None
        assert (found.folder, found.total, found.key) == (tmp_path, 3, "k")
    # without one of its files it is not finished
    (tmp_path / "a.txt").unlink()
    assert run.reused(Count, "k", force=True, files=["a.txt"], folder=tmp_path) is None


def test_another_request_is_refused_and_replaced_by_force(tmp_path):
    run = finished(tmp_path)
    with pytest.raises(UsageError, match=r"count\.json.*--force replaces it and keeps its images$"):
        run.reused(Count, "other", keeps="and keeps its images", folder=tmp_path)
    assert run.reused(Count, "other", force=True, folder=tmp_path) is None


def test_a_damaged_result_is_replaced_by_force_only(tmp_path):
    run = finished(tmp_path)
    content = json.loads(run.result.read_text())
    run.result.write_text(json.dumps(content | {"total": "many"}))
    with pytest.raises(UsageError, match=r"damaged .*--force replaces it"):
        run.reused(Count, "k", folder=tmp_path)
    refused(VisleakError, "damaged", Count, run.read, folder=tmp_path)
    assert run.reused(Count, "k", force=True, folder=tmp_path) is None


def test_an_empty_folder_holds_no_result_and_a_foreign_one_is_refused(tmp_path):
    run = RunFolder(tmp_path / "new", KIND)
    assert run.reused(Count, "k", folder=tmp_path) is None
    refused(UsageError, "no finished result", Count, run.read, folder=tmp_path)
    (tmp_path / "own.txt").write_text("of the user")
    with pytest.raises(UsageError, match="files that visleak did not write"):
        RunFolder(tmp_path, KIND).reused(Count, "k", force=True, folder=tmp_path)
    with pytest.raises(UsageError, match="is a file; choose a folder"):
        RunFolder(tmp_path / "own.txt", KIND).reused(Count, "k", folder=tmp_path)


def test_files_are_written_by_their_names_and_those_of_an_earlier_result_go(tmp_path):
    table = pa.table({"n": [1, None], "name": ["=a", "b"], "list": [["x"], []]})
    files = {"t.parquet": table, "t.csv": table, "a.txt": "text", "b.bin": b"bytes", "c.txt": ""}
    finished(tmp_path, **files)
    assert pq.read_table(tmp_path / "t.parquet").equals(table)
    assert (tmp_path / "t.csv").read_text() == "n,name\n1,'=a\n,b\n"
    assert (tmp_path / "a.txt").read_text() == "text"
    assert (tmp_path / "b.bin").read_bytes() == b"bytes"
    assert not (tmp_path / "c.txt").exists()
    finished(tmp_path, **dict.fromkeys(files))
    assert [each.name for each in tmp_path.iterdir() if each.name in files] == []


def test_a_kill_while_files_are_written_leaves_no_result(tmp_path, monkeypatch):
    finished(tmp_path, **{"a.txt": "old"})

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("visleak.storage.run_folder.write_text", killed)
    with pytest.raises(KeyboardInterrupt):
        finished(tmp_path, "new", **{"a.txt": "new"})
    assert not (tmp_path / "count.json").exists()
    assert (tmp_path / "a.txt").read_text() == "old"


def refuse_in(folder):
    with claimed(folder):
        if folder.name == "used":
            (folder / "half.txt").write_text("kept")
        raise UsageError("no")


def test_what_is_refused_leaves_no_folder_behind(tmp_path):
    """A new folder goes, one that was there or holds something stays."""
    (tmp_path / "old").mkdir()
    for name in ("new", "old", "used"):
        refused(UsageError, "no", tmp_path / name, refuse_in)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old", "used"]
    assert (tmp_path / "used" / "half.txt").exists()


def test_a_file_is_kept_aside_where_it_is_of_the_kind(tmp_path):
    path, about = tmp_path / "p.parquet", json.dumps({"kind": "visleak predictions"})
    pq.write_table(pa.table({"id": ["a"]}).replace_schema_metadata({"visleak": about}), path)
    assert keep_file(path, "visleak thresholds") is None
    assert keep_file(path, "visleak predictions") == tmp_path / "p.previous.parquet"
    pq.write_table(pa.table({"id": ["a"]}), path)
    assert keep_file(path, "visleak predictions") is None
    assert keep_file(tmp_path / "none.json", "visleak thresholds") is None
