"""SIGINT and SIGTERM at any moment: exit code 130 or 143, one line, and nothing half written."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

#: Seconds after which a run that was stopped has ended.
PATIENCE = 60

#: Python itself is loading before: what it says then is not visleak's.
EARLIEST = 0.25

VERBS = {
    "audit": ("audit", "{data}", "-o", "{out}", "--cache", "off", "--workers", "2"),
    "encode": ("encode", "{data}/train", "-o", "{out}", "--cache", "off"),
    "report": ("report", "{audit}", "-o", "{out}"),
    "export": ("export", "{audit}", "--format", "csv", "-o", "{out}"),
    "purge": (
        *("purge", "{audit}", "--remove-from", "test", "--grade", "near"),
        *("-o", "{out}", "--format", "copy", "--apply"),
    ),
}


def started(verb: str, dataset: Path, audited: Path, out: Path) -> subprocess.Popen[str]:
    given = [part.format(data=dataset, audit=audited, out=out) for part in VERBS[verb]]
    return subprocess.Popen(
        [sys.executable, "-m", "visleak", *given],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def stop_and_check(process, number, *, group, out):
    """Send a signal to a run, or to its workers too; it ends in good order or was faster."""
    (os.killpg if group else os.kill)(process.pid, number)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode in (0, 128 + number), said
    if process.returncode:
        # a machine with other work says how far a slow step is
        *progress, line = said.splitlines()
        assert all(other.startswith("step ") for other in progress), said
        assert line.startswith("visleak: ")
        assert ("interrupted" if number == signal.SIGINT else "terminated") in line
    left = [path.name for path in out.parent.rglob("*")]
    assert [name for name in left if name.endswith(".part") or "scratch" in name] == []


@pytest.mark.parametrize(
    ("verb", "number"), [("report", signal.SIGINT), ("export", signal.SIGTERM)]
)
def test_a_signal_while_it_loads(dataset, audited, tmp_path, verb, number):
    process = started(verb, dataset, audited, tmp_path / "out")
    time.sleep(2 * EARLIEST)
    stop_and_check(process, number, group=False, out=tmp_path / "out")


def test_a_signal_to_the_group_while_workers_load(dataset, audited, tmp_path):
    process = started("audit", dataset, audited, tmp_path / "out")
    while not list((tmp_path / "out").glob(".visleak-scratch-*/workers-*")):
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(0.2)
    stop_and_check(process, signal.SIGINT, group=True, out=tmp_path / "out")


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["audit", "encode", "purge"])
def test_a_signal_at_any_moment(dataset, audited, tmp_path, verb):
    draw = random.Random(verb)
    start = time.monotonic()
    _, said = started(verb, dataset, audited, tmp_path / "whole").communicate(timeout=PATIENCE)
    took = time.monotonic() - start
    whole = {path.name for path in tmp_path.rglob("*")}
    assert whole, said
    for moment in range(2):
        out = tmp_path / f"{moment}" / "whole"
        out.parent.mkdir()
        process = started(verb, dataset, audited, out)
        time.sleep(draw.uniform(EARLIEST, took))
        number = draw.choice([signal.SIGINT, signal.SIGTERM])
        stop_and_check(process, number, group=draw.random() < 0.5, out=out)
        shutil.rmtree(out.parent)
