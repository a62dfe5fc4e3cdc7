"""A run that is killed at any moment is completed by the next with identical results."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

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

    def __post_init__(self) -> None:
        self.out, self.cache = self.root / "out", self.root / "cache"
        self.printed = self.root / "said.txt"  # what the last run printed

    @property
    def arguments(self) -> list[str]:
        data, out, cache = map(str, (self.root / "data", self.out, self.cache))
        return ["audit", data, "-o", out, "--cache", cache, "--workers", "2"]

    def clear(self) -> None:
        for folder in (self.out, self.cache):
            shutil.rmtree(folder, ignore_errors=True)

    def start(self) -> subprocess.Popen[bytes]:
        with self.printed.open("wb") as printed:
            return subprocess.Popen(
                [sys.executable, "-m", "visleak", *self.arguments],
                stdout=printed,
                stderr=printed,
                start_new_session=True,
            )

    def claimed(self, process: subprocess.Popen[bytes]) -> float:
        """Wait until a run begins to write; return when that was."""
        return self.wait(process, self.out.exists)

    def wait(self, process: subprocess.Popen[bytes], seen: Callable[[], bool]) -> float:
        """Wait until something is seen, or the run is over; return when that was."""
        end = time.monotonic() + PATIENCE
        while not seen() and process.poll() is None:
            assert time.monotonic() < end
            time.sleep(0.0005)
        return time.monotonic()

    def carry_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Run to the end in this process, which need not start; one worker gives the same."""
        started = RunContext.at

        def alone(folder, workers, *others):
            return started(folder, 1, *others)

        with monkeypatch.context() as patch, open(os.devnull, "w") as nowhere:
            patch.setattr(RunContext, "at", alone)
            with contextlib.redirect_stdout(nowhere), pytest.raises(SystemExit) as ended:
                main(self.arguments)
        assert ended.value.code == 0


def result_of(place: Place) -> dict[str, object]:
    """Return what must be the same, whatever happened before."""
    summary = json.loads((place.out / AUDIT).read_text())
    assert summary.pop("timings")
    tables = {name: (place.out / name).read_bytes() for name in (PAIRS, IMAGES, UNREADABLE)}
    return tables | {AUDIT: summary, "files": files_of(place.out)}


@dataclass(frozen=True)
class Reference:
    """An undisturbed run: what it found, and for how long it wrote."""

    place: Place
    result: dict[str, object]
    seconds: float


def files_of(folder: Path) -> frozenset[str]:
    return frozenset(str(path.relative_to(folder)) for path in folder.rglob("*"))


def make_data(root: Path, natural: dict[str, np.ndarray]) -> None:
    """Write 15 test and 45 training images; one test image in five leaks, one is broken."""
    rng = np.random.default_rng(0)
    sources = list(natural.values())

    def crop() -> Image.Image:
        source = sources[rng.integers(len(sources))]
        top, left = (int(rng.integers(0, side - 64)) for side in source.shape[:2])
        return Image.fromarray(source[top : top + 64, left : left + 64])

    for name, count in (("train", 45), ("test", 15)):
        for label in ("a", "b"):
            (root / name / label).mkdir(parents=True)
        for number in range(count):
            crop().save(root / name / "ab"[number % 2] / f"{number:03}.png")
    for number in range(0, 15, 5):
        label = "ab"[number % 2]
        source = Image.open(root / "train" / label / f"{number:03}.png")
        changed = (source, ImageOps.mirror(source), source.convert("L"))[number % 3]
        changed.save(root / "test" / label / f"{number:03}.png")
    (root / "test" / "a" / "text.jpg").write_text("no picture")


@pytest.fixture(scope="module")
def reference(tmp_path_factory, natural):
    place = Place(tmp_path_factory.mktemp("killed"))
    make_data(place.root / "data", natural)
    process = place.start()
    begun = place.claimed(process)
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


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a run and its workers; one that was faster has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(PATIENCE)


def check(reference: Reference, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.carry_on(monkeypatch)
    found = result_of(place)
    assert [name for name, value in reference.result.items() if found[name] != value] == []


def moments() -> Iterator[object]:
    """Yield shares of a run's duration, one at random in each of as many equal parts."""
    rng = np.random.default_rng(SEED)
    for number, share in enumerate((np.arange(MOMENTS) + rng.random(MOMENTS)) / MOMENTS):
        slow = () if number % PART == PART // 2 else pytest.mark.slow
        yield pytest.param(float(share), marks=slow)


@pytest.mark.parametrize("share", list(moments()))
def test_killed_at_any_moment(reference, place, share, monkeypatch):
    process = place.start()
    begun = place.claimed(process)
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


@pytest.mark.slow
def test_killed_twice(reference, place, monkeypatch):
    for share in (0.5, 0.9):
        process = place.start()
        time.sleep(max(0.0, place.claimed(process) + share * reference.seconds - time.monotonic()))
        kill(process)
    check(reference, place, monkeypatch)


def workers_of(process: subprocess.Popen[bytes]) -> list[int]:
    """Return the worker processes that a run has begun."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            parent = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1]
            if (
                int(parent) == process.pid
                and b"spawn_main" in Path(f"/proc/{name}/cmdline").read_bytes()
            ):
                found.append(int(name))
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_killed_worker_changes_no_answer(reference, place):
    process = place.start()
    place.wait(process, lambda: len(workers_of(process)) == 2)
    os.kill(workers_of(process)[-1], signal.SIGKILL)
    assert process.wait(PATIENCE) == 0, place.printed.read_text()
    printed = place.printed.read_text().splitlines()
    lines = [line for line in printed if line.startswith("visleak: ")]
    assert len(lines) == 1
    assert "killed" in lines[0]
    assert "--workers 1" in lines[0]
    assert result_of(place) == reference.result


def test_half_written_files_of_dead_processes_go_and_of_living_ones_stay(place, tmp_path):
    from visleak.storage import remove_leftovers

    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    for name in (f".{PAIRS}.{dead.pid}.part", f".{REPORT}.{os.getpid()}.part", ".mine.part", PAIRS):
        (tmp_path / name).touch()
    remove_leftovers(tmp_path)
    assert files_of(tmp_path) == {f".{REPORT}.{os.getpid()}.part", ".mine.part", PAIRS}
