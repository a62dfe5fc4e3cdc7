"""Commands with a source that fails at any read: no wrong answer, nothing half done."""

from __future__ import annotations

import io
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from calling import Ran, run
from PIL import Image

from visleak.formats import files
from visleak.memorization.tracing.sources import Layouts
from visleak.pipeline.context import Progress
from visleak.records import ImageSet, Unreadable

#: Kinds of the files that commands write by name.
FILES = (".png", ".html", ".json", ".onnx", ".csv")

#: How a read may fail: the file is away, cut, or another one.
FAULTS = ("gone", "short", "other")


def picture(seed: int) -> Image.Image:
    coarse = np.random.default_rng(seed).integers(0, 256, (9, 9, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((120, 120))


@dataclass
class Reads:
    """Counts the files that are read, and lets one fail."""

    fails_at: int = 0
    fault: str = ""
    count: int = 0
    hit: str = ""

    def read(self, path: bytes | str) -> bytes | Unreadable:
        self.count += 1
        content = READ(path)
        if self.count != self.fails_at or isinstance(content, Unreadable):
            return content
        self.hit = os.fsdecode(path)
        if self.fault == "gone":
            return Unreadable("missing", "no such file")
        if self.fault == "short":
            return content[: len(content) // 2]
        other = io.BytesIO()
        picture(99).save(other, "PNG")
        return other.getvalue()


READ = files.read_file


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with test and training images, and their audit."""
    place = tmp_path_factory.mktemp("failing")
    named = {
        0: ("train/cat/a.png", "test/cat/a.jpg"),
        1: ("train/dog/b.png", "test/dog/b.jpg"),
        2: ("test/cat/c.png",),
        3: ("train/dog/d.png",),
        4: ("pool/cat/e.jpg",),
    }
    for seed, names in named.items():
        for name in names:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            picture(seed).save(place / name)
    for seed in range(18):
        (place / "many" / "cd"[seed % 2]).mkdir(parents=True, exist_ok=True)
        picture(20 + seed).save(place / "many" / "cd"[seed % 2] / f"{seed}.png")
    command = ["audit", "--test", place / "test", "--train", place / "train", "-o", place / "audit"]
    assert run(*command, "--workers", 1, "--cache", "off").code == 0
    return place


def command(name: str, root: Path, out: Path) -> list[object]:
    """Return a command that reads images."""
    here = ["--workers", 1, "--cache", "off"]
    return {
        "trace": ["memorization", "trace", root / "test", "--source", root / "train", "-o", out,
                  *here],
        "train": ["train-encoder", root / "many", "-o", f"{out}.onnx", "--epochs", 1, "--batch", 2,
                  "--size", 16, "--threads", 1],
        "evaluate": ["evaluate", "classify", root / "train", "--model",
                     f"checkpoint:{root / 'w.pt'}?arch=resnet20", "-o", f"{out}.csv", *here],
        "encode": ["encode", root / "train", "-o", out, *here],
        "find": ["find", root / "test/cat/a.jpg", "--against", root / "train", *here],
        "purge": ["purge", root / "audit", "--remove-from", "train", "-o", out, "--apply",
                  "--format", "copy"],
        "split": ["split", root / "train", "--ratios", "train=0.5,test=0.5", "-o", out, "--apply",
                  "--format", "copy", *here],
        "show": ["show", root / "audit", "cat/a.jpg", "-o", f"{out}.png"],
        "report": ["report", root / "audit", "-o", f"{out}.html"],
        "stats": ["stats", root / "audit", "-o", out],
        "robustness": ["robustness", root / "train", "--conditions", "jpeg-30,collage",
                       "--no-verify", "-o", out, *here],
        "pipeline": ["robustness", root / "train", "--conditions", "jpeg-30", "-o", out, *here],
        "calibrate": ["calibrate", root / "train", "--fpr", "1e-1", "--conditions", "jpeg-30",
                      "-o", f"{out}.json", *here],
    }[name]  # fmt: skip


def made(out: Path) -> dict[str, bytes]:
    """Return the images and tables that a command wrote; a split keeps its audits to go on."""
    found = [*(out.with_suffix(kind) for kind in FILES), *sorted(out.rglob("*"))]
    kept = (*FILES, ".jpg", ".npy", ".parquet", ".csv", ".svg")
    return {
        str(path.relative_to(out.parent)): path.read_bytes()
        for path in found
        if path.suffix in kept
        and path.is_file()
        and path.parent not in (out / "audit", out / "proof")
    }


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    found = Reads()
    monkeypatch.setattr(files, "read_file", found.read)
    return found


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("find", "gone"),
        ("purge", "gone"),
        ("purge", "other"),
        ("show", "gone"),
        ("show", "other"),
        ("report", "gone"),
        ("report", "other"),
        ("stats", "other"),
        ("robustness", "gone"),
        ("train", "gone"),
        *(
            pytest.param(name, fault, marks=pytest.mark.slow)
            for name, faults in {
                "train": ("short",),
                "evaluate": ("gone", "short"),
                "encode": ("gone", "short"),
                "find": ("short", "other"),
                "purge": ("short",),
                "split": ("gone", "short"),
                "show": ("short",),
                "report": ("short",),
                "stats": ("gone", "short"),
                "robustness": ("short", "other"),
                "pipeline": ("gone", "other"),
                "calibrate": ("short",),
            }.items()
            for fault in faults
        ),
    ],
)
def test_a_read_that_fails(root: Path, tmp_path: Path, reads: Reads, name: str, fault: str) -> None:
    out = tmp_path / "out"
    if name in ("train", "evaluate"):
        torch = pytest.importorskip("torch")
        from visleak.impact.evaluators.cifar_resnets import CifarResNet

        torch.manual_seed(0)
        torch.save(CifarResNet(3, 2).state_dict(), root / "w.pt")
    assert run(*command(name, root, out)).code == 0
    undisturbed, total = made(out), reads.count
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    assert total
    positions = range(1, total + 1)
    # a trainer reads sizes first, then pixels
    for position in (1, total // 2 + 1, total) if name == "train" else positions:
        shutil.rmtree(out, ignore_errors=True)
        for kind in (*FILES, ".onnx.json"):
            out.with_suffix(kind).unlink(missing_ok=True)
        reads.count, reads.fails_at, reads.fault = 0, position, fault
        ran = run(*command(name, root, out))
        check(ran, made(out), undisturbed, reads.hit)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def check(ran: Ran, found: dict[str, bytes], undisturbed: dict[str, bytes], hit: str) -> None:
    if ran.code:
        assert ran.code == 1
        assert len(ran.err.splitlines()) == 1, ran.err
        assert "defect" not in ran.err
        assert not found, hit
    elif found != undisturbed or not found:
        # the name of an image on stdout may be the answer itself
        told = f"{ran.out}{ran.err}"
        said = "unreadable" in told or "not be read" in told
        assert said or os.path.basename(hit) in ran.err, hit


def test_an_image_lost_before_layouts_are_compared(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer variants of a layout are never the answer."""
    file, listed = root / "test/cat/a.jpg", Layouts._listed

    def without(self: Layouts, images: ImageSet, progress: Progress) -> list[tuple[str, str, str]]:
        file.rename(tmp_path / "a.jpg")
        try:
            return listed(self, images, progress)
        finally:
            (tmp_path / "a.jpg").rename(file)

    monkeypatch.setattr(Layouts, "_listed", without)
    ran = run(*command("trace", root, tmp_path / "out"))
    assert ran.code == 1
    assert "could be read at first, and not again (1)" in ran.err
    assert not (tmp_path / "out" / "trace.csv").exists()
