"""``visleak train-encoder`` at the command line: what it prints, and every refusal in one line."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from calling import refused, run
from PIL import Image

from visleak.cli import progress

pytest.importorskip("torch")

#: A training of seconds.
QUICK = ("--epochs", "2", "--batch", "8", "--threads", "1")


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a table of bright and dark pictures, with two columns of labels and one of videos."""
    root = tmp_path_factory.mktemp("shapes")
    rng = np.random.default_rng(0)
    lines = ["path,label,other,video"]
    for number in range(40):
        low = 128 * (number % 2)
        pixels = rng.integers(low, low + 128, (16, 16, 3), np.uint8)
        Image.fromarray(pixels).save(root / f"{number:02}.png")
        bright = "bright" if low else "dark"
        lines.append(f"{number:02}.png,{bright},same,{number // 4}")
    table = root / "shapes.csv"
    table.write_text("\n".join(lines) + "\n")
    return table


def test_what_it_prints(shapes: Path, tmp_path: Path) -> None:
    """What was learnt, how well, the files, and how to go on."""
    out = tmp_path / "model.onnx"
    ran = run("train-encoder", shapes, "-o", out, *QUICK, "--group", "video")
    assert ran.code == 0
    assert ran.err == ""
    first, second, files, after = ran.out.splitlines()
    assert first == (
        "plain-11 at 16 pixels: 2 classes, learned from 36 images of shapes in 2 epochs"
    )
    assert second.startswith("  accuracy, held-out part: ")
    assert second.split(": ")[1].split(" (")[0].endswith(" of 4")
    assert files == f"{out}, {out}.json"
    assert after == f"use it with --encoder onnx:{out}"


def test_json_is_the_record_and_notes_go_elsewhere(shapes: Path, tmp_path: Path) -> None:
    """Stdout is the json that stands in the file; what was left out is said on stderr."""
    bare = tmp_path / "pictures"
    bare.mkdir()
    for picture in sorted(shapes.parent.glob("*.png"))[:20]:
        (bare / picture.name).write_bytes(picture.read_bytes())
    (bare / "broken.png").write_bytes(b"no picture")
    out = tmp_path / "m.onnx"
    ran = run("train-encoder", bare, "-o", out, *QUICK, "--json")
    record = json.loads(ran.out)
    assert record == json.loads((tmp_path / "m.onnx.json").read_text())["about"]
    assert record["objective"] == "instances"
    assert ran.err.splitlines() == [
        "1 image of pictures unreadable: excluded",
        "pictures has no labels: the network learns to distinguish images",
    ]
    ran = run("train-encoder", bare, "-o", out, *QUICK, "--force", "--test", bare)
    assert ran.code == 0
    assert "  two views of an image found among all, pictures: " in ran.out


def test_what_it_refuses(shapes: Path, tmp_path: Path) -> None:
    """One line each, before anything is read if that is possible."""
    out = tmp_path / "model.onnx"
    (tmp_path / "there.onnx.json").write_text("{}")
    (tmp_path / "file").write_text("")
    there, inside = tmp_path / "there.onnx", tmp_path / "file" / "m.onnx"
    cases: dict[tuple[object, ...], tuple[int, str]] = {
        ("-o", there): (
            2,
            f"{there}.json exists; choose another file with -o FILE, or --force replaces it",
        ),
        ("-o", tmp_path): (2, f"the output {tmp_path} is a folder; choose a file with -o FILE"),
        ("-o", out, "--label", "other"): (
            1,
            "all images of set 'shapes' have the label 'same'",
        ),
        ("-o", out, "--labels", "some"): (2, "labels must be one of auto, none; got 'some'"),
        ("-o", out, "--size", "9999"): (2, "size must lie between 16 and 512; got 9,999"),
        ("-o", out, "--batch", "1"): (2, "batch must lie between 2 and 65,536; got 1"),
        ("-o", out, "--schedule", "paper", "--epochs", "3"): (
            2,
            "the schedule paper has 372 epochs",
        ),
        ("-o", out, "--device", "tpu"): (
            2,
            "device must be auto, cpu, cuda or cuda:N; got 'tpu'",
        ),
        ("-o", out, "--test", shapes.parent / "00.png", *QUICK): (
            1,
            "no image of the test set '00' has one of the training labels (bright, dark)",
        ),
    }
    for options, (exit_code, words) in cases.items():
        code, text = refused("train-encoder", shapes, *options)
        assert (code, text[: len(words)]) == (exit_code, words)
    code, text = refused("train-encoder", shapes, "-o", inside)
    assert code == 1
    assert text.startswith(f"the output folder {inside.parent / '.m.onnx.training'} cannot be")
    assert not list(tmp_path.glob("*.onnx")) + list(tmp_path.glob(".*"))


@pytest.mark.parametrize("missing", ["torch", "onnx"])
def test_a_missing_library_is_named_before_anything_is_read(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """Torch exports with onnx: to learn that after the training would be late."""
    monkeypatch.setitem(sys.modules, missing, None)
    assert refused("train-encoder", shapes, "-o", tmp_path / "m.onnx") == (
        1,
        "train-encoder needs an extra: pip install 'visleak[torch]'",
    )


def test_an_interrupt_says_what_is_kept(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a checkpoint it is named; the same command then goes on and says so."""
    out = tmp_path / "model.onnx"

    @contextlib.contextmanager
    def stopping() -> Iterator[Callable[[str, int, int], None]]:
        def told(step: str, done: int, total: int) -> None:
            if step.startswith("training") and done > total / 2:
                raise KeyboardInterrupt

        yield told

    with monkeypatch.context() as patched:
        patched.setattr(progress, "bars", stopping)
        kept = out.with_name(".model.onnx.training") / "checkpoint.pt"
        assert refused("train-encoder", shapes, "-o", out, *QUICK) == (
            130,
            f"interrupted; the state of the training run is kept in {kept}; the same command"
            " resumes from there",
        )
    ran = run("train-encoder", shapes, "-o", out, *QUICK)
    assert ran.code == 0
    assert ran.err == "resumed: 4 of 8 steps were done before\n"
    assert out.exists()
    assert not kept.parent.exists()
