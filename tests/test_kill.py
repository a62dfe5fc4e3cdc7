"""A run that is killed at any moment is completed by the next with identical results."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from planted_pool import plant, store
from visleak.cli import main
from visleak.pipeline.context import RunContext
from visleak.storage import AUDIT, IMAGES, PAIRS, REPORT, UNREADABLE

#: Moments, spread over the run; of each five one is tested always, the others among the slow tests.
MOMENTS, PART = 15, 5
SEED = 20

#: Seconds after which a run that should have ended has not.
PATIENCE = 120


@dataclass
class Place:
    """A data set, and the names every run writes to: the command stands in its result."""

    root: Path

    def __post_init__(self):
        self.out, self.cache = self.root / "out", self.root / "cache"
        self.printed = self.root / "said.txt"  # what the last run printed

    @property
    def arguments(self):
        data, out, cache = map(str, (self.root / "data", self.out, self.cache))
        return ["audit", data, "-o", out, "--cache", cache, "--workers", "2"]

    def clear(self):
        for folder in (self.out, self.cache):
            shutil.rmtree(folder, ignore_errors=True)

    def start(self):
        command = [sys.executable, "-m", "visleak", *self.arguments]
        with self.printed.open("wb") as printed:
            return subprocess.Popen(command, stdout=printed, stderr=printed, start_new_session=True)

    def wait(self, process, seen):
        """Wait until something is seen, or the run is over; return when that was."""
        end = time.monotonic() + PATIENCE
        while not seen() and process.poll() is None:
            assert time.monotonic() < end
            time.sleep(0.0005)
        return time.monotonic()

    def carry_on(self, monkeypatch):
        """Run to the end in this process, which need not start; one worker gives the same."""
        started = RunContext.at

        def alone(folder, workers, *others):
            return started(folder, 1, *others)

        with monkeypatch.context() as patch, open(os.devnull, "w") as nowhere:
            patch.setattr(RunContext, "at", alone)
            with contextlib.redirect_stdout(nowhere), pytest.raises(SystemExit) as ended:
                main(self.arguments)
        assert ended.value.code == 0


def result_of(place):
    """Return what must be the same, whatever happened before."""
    summary = json.loads((place.out / AUDIT).read_text())
    assert summary.pop("timings")
    tables = {name: (place.out / name).read_bytes() for name in (PAIRS, IMAGES, UNREADABLE)}
    files = {str(path.relative_to(place.out)) for path in place.out.rglob("*")}
    return tables | {AUDIT: summary, "files": files}


@dataclass(frozen=True)
class Reference:
    """An undisturbed run: what it found, and for how long it wrote."""

    place: Place
    result: dict[str, object]
    seconds: float


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    place = Place(tmp_path_factory.mktemp("killed"))
    plant(place.root / "data", fresh=0)
    store(place.root / "data" / "test", "cat/text.jpg", b"no picture")
    process = place.start()
    begun = place.wait(process, place.out.exists)
    assert process.wait(PATIENCE) == 0, place.printed.read_text()
    seconds = time.monotonic() - begun
    result = result_of(place)
    assert b"not-an-image" in result[UNREADABLE]
    return Reference(place, result, seconds)


@pytest.fixture
def place(reference):
    """The place of the reference, with nothing in it but the data."""
    reference.place.clear()
    yield reference.place
    reference.place.clear()


def kill(process):
    """Kill a run and its workers; one that was faster has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(PATIENCE)


def check(reference, place, monkeypatch):
    place.carry_on(monkeypatch)
    found = result_of(place)
    assert [name for name, value in reference.result.items() if found[name] != value] == []


def moments():
    """Yield shares of a run's duration, one at random in each of as many equal parts."""
    rng = np.random.default_rng(SEED)
    for number, share in enumerate((np.arange(MOMENTS) + rng.random(MOMENTS)) / MOMENTS):
        slow = () if number % PART == PART // 2 else pytest.mark.slow
        yield pytest.param((float(share),), marks=slow)


@pytest.mark.parametrize("shares", [*moments(), pytest.param((0.5, 0.9), marks=pytest.mark.slow)])
def test_killed_at_any_moment(reference, place, shares, monkeypatch):
    for share in shares:
        process = place.start()
        begun = place.wait(process, place.out.exists)
        time.sleep(max(0.0, begun + share * reference.seconds - time.monotonic()))
        kill(process)
    check(reference, place, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("name", [f".{PAIRS}.*.part", PAIRS, IMAGES, AUDIT, f".{REPORT}.*.part"])
def test_killed_while_it_writes(reference, place, name, monkeypatch):
    process = place.start()
    place.wait(process, lambda: any(place.out.glob(name)))
    kill(process)
    check(reference, place, monkeypatch)
