"""A run that is killed goes on, and ends with the folder of one that was not."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_extracting import contents

pytest.importorskip("sklearn")

HERE = Path(__file__).parent


def start(folder: Path, seconds: float) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, str(HERE / "extract_slowly.py"), str(folder), str(seconds)],
        env={**os.environ, "PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def pictures(folder: Path) -> set[Path]:
    return set(folder.rglob("images/*/*.png"))


def killed_with(folder: Path, least: int) -> None:
    """Kill a run when so many pictures are there."""
    child = start(folder, 0.15)
    deadline = time.monotonic() + 60
    while len(pictures(folder)) < least:
        assert child.poll() is None, child.communicate()[1].decode()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.communicate()


@pytest.mark.slow
def test_a_killed_run_ends_with_the_same_folder(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    first = start(whole, 0.0)
    out, err = first.communicate(timeout=120)
    assert first.returncode == 0, err.decode()
    assert out.decode().strip() == "2"
    before: dict[Path, int] = {}
    for least in (3, 21, 40):
        killed_with(broken, least)
        assert not (broken / "extract.json").exists()
        # pictures that an earlier run put into the index are not written again
        assert all(path.stat().st_mtime_ns == time_of for path, time_of in before.items())
        kept = indexed(broken)
        assert len(kept) % 8 == 0 or len(kept) == 90  # whole batches
        assert {path.stem for path in pictures(broken)} >= kept
        before = {path: path.stat().st_mtime_ns for path in pictures(broken) if path.stem in kept}
    last = start(broken, 0.0)
    _, err = last.communicate(timeout=120)
    assert last.returncode == 0, err.decode()
    assert contents(broken) == contents(whole)
    assert not list(broken.rglob("*.part"))


def indexed(folder: Path) -> set[str]:
    db = sqlite3.connect(folder / "images.sqlite")
    try:
        return {json.loads(row[0])[2] for row in db.execute("SELECT value FROM entries")}
    finally:
        db.close()
