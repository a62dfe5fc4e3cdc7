"""The script of the whole procedure, on a small set of the shape of CIFAR-10."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from planted_pool import darker, png, scene

SCRIPT = Path(__file__).parent.parent / "examples" / "cifair.sh"
VISLEAK = Path(sys.executable).parent / "visleak"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not VISLEAK.exists(), reason="visleak is not installed as a program"),
]


def write(path, pictures):
    columns = {
        "image": [{"bytes": png(p), "path": None} for p in pictures],
        "label": [n % 2 for n in range(len(pictures))],
        "index": np.arange(len(pictures), dtype=np.int32),
    }
    pq.write_table(pa.table(columns), path)


@pytest.fixture
def data(tmp_path):
    """40 test images, of which 4 are in train and 1 repeats another; 60 training images."""
    home = tmp_path / "data" / "cifar10"
    home.mkdir(parents=True)
    train = [scene(20_000 + n, 32) for n in range(60)]
    test = [scene(30_000 + n, 32) for n in range(40)]
    for n in (3, 4, 10, 11):
        test[n] = darker(train[n])
    test[21] = darker(test[20])
    # a person finds what the machine does not; one row is about an image of the pool
    (home / "duplicates_dev.csv").write_text(
        "TestID,TrainID,Distance,Judgment\n4,4,0.1,1\n30,5,0.5,2\n6,59,0.4,1\n"
    )
    (home / "duplicates_within_test_dev.csv").write_text(
        "TestID,TrainID,Distance,Judgment\n20,21,0.1,1\n"
    )
    write(home / "train.parquet", train)
    write(home / "test.parquet", test)
    return tmp_path / "data"


def run(tmp_path, data, *arguments):
    about = {"VISLEAK": VISLEAK, "PYTHON": sys.executable, "VISLEAK_DATA": data, "POOL": 20}
    about |= {"VISLEAK_CACHE": tmp_path / "cache"}
    return subprocess.run(
        ["/bin/sh", str(SCRIPT), *arguments],
        cwd=tmp_path,
        env=os.environ | {name: str(value) for name, value in about.items()},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_from_audit_to_a_fair_test_set(tmp_path, data):
    done = run(tmp_path, data, "out")
    assert done.returncode == 0, done.stderr
    rows = {}
    for line in done.stdout[done.stdout.index("== before and after") :].splitlines():
        name, *counts = line.rsplit(maxsplit=3)
        if len(counts) == 3 and counts[0].isdigit():
            rows[name] = [int(count) for count in counts]
    assert rows["train-test, total"] == [4, 5, 0]
    assert rows["within, total"] == [1, 1, 0]
    assert rows["together"] == [5, 6, 0]
    assert "6 of 6 replacements were selected" in done.stdout
    old = pq.read_table(data / "cifar10" / "test.parquet")
    (path,) = (tmp_path / "out" / "fair").rglob("*.parquet")
    new = pq.read_table(path)
    assert new.drop_columns(["image"]).equals(old.drop_columns(["image"]))
    # the same command again is stopped before it does anything
    again = run(tmp_path, data, "out")
    assert again.returncode == 2
    assert "out exists; name another folder" in again.stderr
