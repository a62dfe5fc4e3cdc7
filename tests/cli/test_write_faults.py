"""Writes that fail: one line, exit code 1, outputs that are absent, old or whole, and a way on.

As SQLite tests its errors of input and output: every single act of writing of a command fails once,
and the command that runs after it gives what one gives that nobody disturbed.
"""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from calling import Ran, run
from faults import Faults
from PIL import Image

#: Commands; {data}, {audit} and {out} stand for the data set, a copy of its audit and the output.
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "audit": ("audit", "{data}", "-o", "{out}", "--workers", "1"),
    "export": ("export", "{audit}", "--format", "csv", "-o", "{out}"),
    "report": ("report", "{audit}", "-o", "{out}"),
    "show": ("show", "{audit}", "thing/copy.png", "-o", "{out}.png"),
    "diff": ("diff", "{audit}", "{audit}", "-o", "{out}.csv"),
    "purge": (
        *("purge", "{audit}", "--remove-from", "test", "--grade", "near"),
        *("-o", "{out}", "--format", "copy", "--apply"),
    ),
    "purge-list": (
        *("purge", "{audit}", "--remove-from", "test", "--grade", "near"),
        *("-o", "{out}", "--format", "link", "--apply"),
    ),
    "split": (
        *("split", "{data}/train", "--ratios", "train=0.5,test=0.5", "-o", "{out}"),
        *("--format", "copy", "--workers", "1", "--apply"),
    ),
    "calibrate": ("calibrate", "{data}/train", "--fpr", "1e-1", "-o", "{out}.json"),
    "stats": ("stats", "{audit}", "-o", "{out}"),
    "encode": ("encode", "{data}/train", "-o", "{out}", "--workers", "1"),
    "replace": (
        *("replace", "{audit}", "--pool", "{root}/pool", "--select", "auto"),
        *("-o", "{out}", "--format", "copy", "--apply"),
    ),
    "verdicts": ("verdicts", "{audit}", "import", "{lists}", "--reviewer", "Ada"),
}

#: Acts of a command that fail, about.
MOST = 3

#: Files that say that a result is not finished, or that a folder is visleak's.
MARKS = ("unfinished.json", ".visleak.lock", ".shard_0000.json")

#: What differs from run to run: how long something took, and when it was.
MOVING = (
    (re.compile(rb'"(timings|seconds|took|created|time)": (\{[^}]*\}|"[^"]*"|[0-9.e-]+)'), b"-"),
    (re.compile(rb"[0-9.]+ s(econds)?\b"), b"-"),
    (re.compile(rb"20\d\d-\d\d-\d\d[T ][0-9:.+Z]+"), b"-"),
)


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files of results below a folder, without what moves in them."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix != ".sqlite" and path.name not in MARKS:
            data = path.read_bytes()
            if path.suffix in (".json", ".html", ".md", ".csv", ".svg"):
                for pattern, same in MOVING:
                    data = pattern.sub(same, data)
            found[str(path.relative_to(folder))] = data
    return found


@dataclass(frozen=True)
class Scene:
    """A command in a folder of its own."""

    root: Path
    data: Path
    audited: Path
    command: tuple[str, ...]

    def set(self) -> dict[str, bytes]:
        """Begin anew; return the files that are there before the command."""
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.audited, self.root / "audit")
        (self.root / "audit" / ".visleak.lock").unlink(missing_ok=True)
        (self.root / "list.csv").write_text(
            "TestID,TrainID,Judgment\nthing/copy.png,thing/t0.png,0\n"
        )
        for number in range(3):
            (self.root / "pool" / "thing").mkdir(parents=True, exist_ok=True)
            coarse = np.random.default_rng(number).integers(0, 256, (9, 9, 3), np.uint8)
            whole = Image.fromarray(coarse).resize((96, 96))
            whole.save(self.root / "pool" / "thing" / f"{number}.png")
        return contents(self.root)

    def run(self, *more: str) -> Ran:
        places = {
            "root": self.root,
            "data": self.data,
            "audit": self.root / "audit",
            "out": self.root / "out",
            "lists": self.root / "list.csv",
        }
        return run(*(part.format(**places) for part in self.command), *more)

    def whole(self) -> tuple[dict[str, bytes], list[str]]:
        """Return what an undisturbed run leaves, and its acts of writing, with all in the cache."""
        self.set()
        assert self.run().code == 0
        self.set()
        faults = Faults(self.root)
        with faults.at_work():
            ran = self.run()
        assert ran.code == 0, ran.err
        return contents(self.root), faults.acts


def check(scene: Scene, whole: dict[str, bytes], fatal: int, code: int) -> None:
    before = scene.set()
    inputs = contents(scene.data)
    faults = Faults(scene.root, fatal, code)
    with faults.at_work():
        ran = scene.run()
    act = f"{faults.acts[fatal]} failed with {errno.errorcode[code]}: {ran}"
    after = contents(scene.root)
    lines = [line for line in ran.err.splitlines() if line.startswith("visleak: ")]
    if ran.code == 0:
        # what failed was needed by nobody, or can be made again
        assert after == whole, act
    else:
        assert ran.code == 1, act
        assert len(lines) == 1, act
        assert "defect" not in lines[0], act
        assert str(scene.root) in lines[0], act
    for name, data in after.items():
        assert data in (whole.get(name), before.get(name)), f"{name}: {act}"
    assert [name for name in after if ".part" in name or "scratch" in name] == [], act
    assert all(after.get(name, whole.get(name)) for name in before), act
    assert contents(scene.data) == inputs, act
    # the files that stand are of this very run: to write them again must be asked for
    again = scene.run()
    if again.code == 2 and "--force" in again.err:
        again = scene.run("--force")
    assert again.code == 0, f"{again}; after {act}"
    assert contents(scene.root) == whole, act


@pytest.fixture
def scene(dataset: Path, audited: Path, tmp_path: Path) -> Callable[[str], Scene]:
    return lambda name: Scene(tmp_path / "work", dataset, audited, COMMANDS[name])


@pytest.mark.parametrize("name", ["export", "show"])
def test_some_writes_fail(scene: Callable[[str], Scene], name: str) -> None:
    here = scene(name)
    whole, acts = here.whole()
    assert acts
    for fatal in range(len(acts)):
        check(here, whole, fatal, errno.ENOSPC)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_every_write_fails(scene: Callable[[str], Scene], name: str) -> None:
    here = scene(name)
    whole, acts = here.whole()
    # of many alike, as the files of a copy, a few; the last acts make a result one
    chosen = {*range(0, len(acts), max(1, len(acts) // MOST)), *range(len(acts))[-2:]}
    for number, fatal in enumerate(sorted(chosen)):
        check(here, whole, fatal, (errno.ENOSPC, errno.EIO)[number % 2])
