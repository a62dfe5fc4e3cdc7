"""``visleak train-encoder`` at the command line: what it prints, and every refusal in one line."""

import json
import sys

import numpy as np
import pytest
from calling import check_refused, refusals, refused, run
from PIL import Image

from visleak.cli import command
from visleak.progress import Silent, Step

pytest.importorskip("torch")

#: A training of seconds.
QUICK = ("--epochs", "2", "--batch", "8", "--threads", "1")


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    """Return a table of bright and dark images, with two columns of labels and one of videos."""
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


def test_what_it_prints(shapes, tmp_path):
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


def test_json_is_the_record_and_notes_go_elsewhere(shapes, tmp_path):
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


@refusals("""
    -o {here}/there.onnx -> there.onnx.json exists; choose another file with -o FILE
    -o {here} -> is a folder; choose a file with -o FILE
    -o {here}/m.onnx --labels some -> labels must be one of auto, none; got 'some'
    -o {here}/m.onnx --size 9999 -> size must be from 16 to 512; got 9999
    -o {here}/m.onnx --batch 1 -> batch must be from 2 to 65,536; got 1
    -o {here}/m.onnx --schedule paper --epochs 3 -> the schedule paper has 372 epochs
    -o {here}/m.onnx --device tpu -> device must be auto, cpu, cuda or cuda:N; got 'tpu'
""")
def test_what_it_refuses(shapes, tmp_path, arguments, words):
    (tmp_path / "there.onnx.json").write_text("{}")
    check_refused(f"train-encoder {shapes} {arguments}", words, here=tmp_path)
    assert not [*tmp_path.glob("*.onnx"), *tmp_path.glob(".*")]


@refusals("""
    -o {here}/m.onnx --label other -> all images of set 'shapes' have the label 'same'
    -o {here}/m.onnx --test {images}/00.png --epochs 2 -> has one of the training labels (bright
    -o {here}/file/m.onnx -> the output folder {here}/file/.m.onnx.training cannot be
""")
def test_content_it_refuses(shapes, tmp_path, arguments, words):
    (tmp_path / "file").write_text("")
    places = {"here": tmp_path, "images": shapes.parent}
    check_refused(f"train-encoder {shapes} {arguments}", words, code=1, **places)
    assert not [*tmp_path.glob("*.onnx"), *tmp_path.glob(".*")]


@pytest.mark.parametrize("missing", ["torch", "onnx"])
def test_a_missing_library_is_named_before_anything_is_read(shapes, tmp_path, monkeypatch, missing):
    """Torch exports with onnx: to learn that after the training would be late."""
    monkeypatch.setitem(sys.modules, missing, None)
    assert refused("train-encoder", shapes, "-o", tmp_path / "m.onnx") == (
        1,
        "train-encoder needs an extra: pip install 'visleak[torch]'",
    )


def test_an_interrupt_says_what_is_kept(shapes, tmp_path, monkeypatch):
    out = tmp_path / "model.onnx"

    class Stopping(Silent):
        """Interrupts the run in the middle of the training."""

        def show(self, step: Step, *, new: bool) -> None:
            if step.name.startswith("training") and step.done > step.total / 2:
                raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(command, "display_for", lambda *stream, **options: Stopping())
        kept = out.with_name(".model.onnx.training") / "checkpoint.pt"
        code, message = refused("train-encoder", shapes, "-o", out, *QUICK)
        assert (code, f"is kept in {kept}; the same command" in message) == (130, True)
    ran = run("train-encoder", shapes, "-o", out, *QUICK)
    assert ran.code == 0
    assert ran.err == "resumed: 4 of 8 steps were done before\n"
    assert out.exists()
    assert not kept.parent.exists()
