"""A benchmark that is killed goes on, and ends with the tables of one that was not."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest

HERE = Path(__file__).parent


def start(folder: Path, seconds: float) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(HERE / "benchmark_slowly.py"), str(folder), str(seconds)],
        env={**os.environ, "PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finished(folder: Path) -> None:
    child = start(folder, 0.0)
    out, err = child.communicate(timeout=480)
    assert child.returncode == 0, err.decode()
    assert out.decode().strip() == "3"


def count(folder: Path, file: str, table: str) -> int:
    """Return how many entries an index has; 0 where it is not there yet."""
    if not (folder / file).is_file():
        return 0
    with closing(sqlite3.connect(folder / file)) as index:
        try:
            return int(index.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
        except sqlite3.OperationalError:
            return 0


def killed_with(folder: Path, file: str, table: str, least: int) -> None:
    """Kill a run when so many entries are there."""
    child = start(folder, 0.3)
    deadline = time.monotonic() + 480
    while count(folder, file, table) < least:
        assert child.poll() is None, child.communicate()[1].decode()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert not (folder / "benchmark.json").exists()


@pytest.mark.slow
def test_a_killed_benchmark_ends_with_the_same_tables(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    finished(whole)
    killed_with(broken, "images.sqlite", "entries", 9)
    killed_with(broken, "measures.sqlite", "entries", 30)
    made = count(broken, "images.sqlite", "entries")
    assert made == 3 * 23
    finished(broken)
    assert count(broken, "images.sqlite", "entries") == made
    for name in ("benchmark.csv", "tradeoff.svg", "tradeoff.png", "worst.png"):
        assert (broken / name).read_bytes() == (whole / name).read_bytes(), name
    one, other = (
        pq.read_table(folder / "measurements.parquet").drop_columns(["seconds"])
        for folder in (whole, broken)
    )
    assert one.equals(other)
    tables = [
        (folder / "benchmark.md").read_text().partition("## Cost")[0] for folder in (whole, broken)
    ]
    assert tables[0] == tables[1]
    names = [
        {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
        for folder in (whole, broken)
    ]
    assert names[0] == names[1]
