"""Joining a cluster: what is refused, in one line each; and a run that brings its own."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from PIL import Image

from refusals import refusal
from visleak.errors import MissingExtra, UsageError, VisleakError
from visleak.pipeline.ray_engine import joined


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    said = "--engine ray needs an extra: pip install 'visleak[ray]'"
    assert refusal(MissingExtra, joined, None, 1) == said


@pytest.mark.parametrize("address", ["ray://head:10001", "head:", ":6379", "head:port"])
def test_an_invalid_address_is_refused(address):
    said = refusal(UsageError, joined, address, 1)
    assert said.startswith("the address of a Ray cluster (--ray-address, RAY_ADDRESS) is auto or")


def test_an_address_without_a_cluster_is_refused_at_once():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        begun = time.monotonic()
        said = refusal(VisleakError, joined, address, 1)
    assert time.monotonic() - begun < 5
    assert said.startswith(f"no Ray cluster can be joined at '{address}' (")


def _started(folder, count, *more):
    """Start an audit with a cluster of its own, whose files lie in the folder."""
    rng = np.random.default_rng(0)
    for name, many in (("train", count), ("test", 20)):
        (folder / "data" / name).mkdir(parents=True)
        for number in range(many):
            pixels = rng.integers(0, 256, (160, 160, 3), np.uint8)
            Image.fromarray(pixels).save(folder / "data" / name / f"{number}.png")
    command = [
        sys.executable, "-m", "visleak", "audit", str(folder / "data"), "-o", str(folder / "out"),
        "--cache", str(folder / "cache"), "--workers", "2", "--engine", "ray", *more,
    ]  # fmt: skip
    own = {"TMPDIR": str(folder), "HOME": str(folder), "MPLCONFIGDIR": mpl.get_cachedir()}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, **pipes, env={**os.environ, **own}, start_new_session=True)


@pytest.fixture
def short():
    """A folder of a short name: Ray's sockets lie in it."""
    with tempfile.TemporaryDirectory(prefix="vl-", dir="/tmp") as name:
        yield Path(name)


@pytest.mark.slow
def test_a_run_starts_its_own_cluster_and_ends_it(short):
    """Nothing is printed by Ray, nothing is left: no files, no token in the home, no process."""
    pytest.importorskip("ray")
    process = _started(short, 60, "--no-verify", "--json", "--quiet")
    said, complained = process.communicate(timeout=100)
    assert (process.returncode, complained) == (0, "")
    assert said == (short / "out" / "audit.json").read_text()
    assert {path.name for path in short.iterdir()} == {"cache", "data", "out"}
    assert not _alive(process.pid)


@pytest.mark.slow
def test_an_interrupt_ends_the_cluster(short):
    pytest.importorskip("ray")
    process = _started(short, 400, "--quiet")
    end = time.monotonic() + 60
    while not (short / "cache").exists() and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(2)
    os.killpg(process.pid, signal.SIGINT)
    said, complained = process.communicate(timeout=100)
    assert (process.returncode, said) == (130, "")
    assert complained.startswith("visleak: interrupted; ")
    assert complained.count("\n") == 1
    assert not list(short.glob("visleak-ray-*"))
    assert not _alive(process.pid)


def _alive(group):
    """Whether processes of a group are left, after a while in which they may end."""
    for _ in range(100):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.1)
    return True
