"""What the system allows a process: one line names the cause, and nothing half written stays."""

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from calling import run

VISLEAK = (sys.executable, "-m", "visleak")


def bounded(kind: int, most: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(kind, (most, most))


def refused(*given: str | bytes, limit: Callable[[], None], cwd: Path | None = None) -> str:
    """Return the one line in which a run ends with 1."""
    ran = subprocess.run(
        [*VISLEAK, *given], capture_output=True, text=True, check=False, preexec_fn=limit, cwd=cwd
    )
    assert ran.returncode == 1, ran
    line = ran.stderr.splitlines()[-1]
    assert "defect" not in ran.stderr
    assert "Traceback" not in ran.stderr
    assert line.startswith("visleak: ")
    return line


def left(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.name != ".visleak.lock"]


@pytest.mark.parametrize("megabytes", [300, 800])
def test_too_little_address_space(audited, tmp_path, megabytes):
    line = refused(
        *("stats", str(audited), "-o", str(tmp_path / "out")),
        limit=bounded(resource.RLIMIT_AS, megabytes * 1_000_000),
    )
    assert "memory" in line
    assert f"{megabytes} MB" in line
    assert left(tmp_path) == []


@pytest.mark.parametrize("verb", ["audit", "show", "encode"])
def test_a_limit_on_files(dataset, audited, tmp_path, verb):
    out = tmp_path / "out.png"
    given = {
        "audit": ("audit", str(dataset), "--cache", "off", "--workers", "1"),
        "show": ("show", str(audited), "thing/copy.png"),
        "encode": ("encode", str(dataset / "train"), "--cache", "off", "--workers", "1"),
    }[verb]
    line = refused(*given, "-o", str(out), limit=bounded(resource.RLIMIT_FSIZE, 2_000))
    assert "File too large" in line
    assert str(out) in line
    folders = {"out.png", "unfinished.json", "img_emb", "metadata"}
    assert set(left(tmp_path)) <= folders


def test_verdicts_that_cannot_be_written(audited, tmp_path):
    """SQLite writes them, which no test of writes in Python reaches."""
    folder = Path(shutil.copytree(audited, tmp_path / "audit"))
    given = tmp_path / "list.csv"
    given.write_text("TestID,TrainID,Judgment\nthing/copy.png,thing/t0.png,0\n")
    command = ("verdicts", str(folder), "import", str(given), "--reviewer", "Ada")
    for most in (1_000, 10_000):
        line = refused(*command, limit=bounded(resource.RLIMIT_FSIZE, most))
        assert str(folder / "verdicts.sqlite") in line
        assert not (folder / "verdicts.csv").exists()
    assert run(*command).code == 0
    assert (folder / "verdicts.csv").read_text().count("\n") == 2


def test_a_working_folder_that_was_deleted(audited, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    line = refused(
        *("export", str(audited), "--format", "csv", "-o", "e.csv"), limit=gone.rmdir, cwd=gone
    )
    assert "working folder" in line


@pytest.mark.skipif(sys.platform != "linux", reason="names are any bytes on Linux alone")
def test_names_that_are_not_utf8(dataset, tmp_path):
    name = os.fsdecode(b"na\xefve")
    data = Path(shutil.copytree(dataset, tmp_path / "data"))
    (data / "test" / "thing" / "copy.png").rename(data / "test" / "thing" / f"{name}.png")
    audit = tmp_path / f"audit {name}"
    assert run("audit", data, "-o", audit, "--workers", 1).code == 0
    shown = run("show", audit, f"thing/{name}.png", "-o", tmp_path / f"{name}.jpg")
    assert shown.code == 0
    assert "thing/na\\xefve.png" in shown.out
    assert run("report", audit, "-o", tmp_path / f"{name}.html").code == 0
    assert run("export", audit, "--format", "csv", "-o", tmp_path / f"{name}.csv").code == 0
    assert run("diff", audit, audit, "-o", tmp_path / f"{name}.json").code == 0
    for kind in ("jpg", "html", "csv", "json"):
        assert (tmp_path / f"{name}.{kind}").stat().st_size
