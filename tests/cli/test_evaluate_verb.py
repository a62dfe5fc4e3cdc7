"""``visleak evaluate classify`` from the command line: what it says, and its refusals."""

import json
import os

import numpy as np
import pyarrow.parquet as pq
import pytest
from calling import HOSTILE, check_refused, refusals, run
from PIL import Image

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    """What the verb sets for its own process is no matter of other tests."""
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Three classes of two noisy images each, one of a hostile name, and one that is damaged."""
    folder = tmp_path_factory.mktemp("evaluate") / "pictures"
    made = np.random.default_rng(0)
    for name in ("ant", "bee", "cat"):
        (folder / name).mkdir(parents=True)
        for file in ("a.png", HOSTILE if name == "bee" else "b.png"):
            noise = made.integers(0, 256, (32, 32, 3), np.uint8)
            Image.fromarray(noise).save(folder / name / file, "PNG")
    (folder / "ant" / "z.png").write_text("no picture")
    return folder


@pytest.fixture(scope="module")
def model(pictures):
    """A ResNet-20 of six classes."""
    from visleak.impact.evaluators.checkpoints import CifarResNet

    torch.set_num_threads(1)
    torch.manual_seed(0)
    file = pictures.parent / "w.pt"
    torch.save(CifarResNet(3, 6).state_dict(), file)
    (pictures.parent / "six.txt").write_text("fly\nCAT\nbee\nant\ndog\nemu\n")
    return f"checkpoint:{file}?arch=resnet20"


def test_what_is_said(pictures, model, tmp_path):
    out, names = tmp_path / "my model.parquet", pictures.parent / "six.txt"
    ran = run(
        "evaluate", "classify", f"S={pictures}", "--model", model, "-o", out, "--classes", names
    )
    assert (ran.code, ran.err) == (0, "")
    table = pq.read_table(out).to_pylist()
    right = sum(row["label"] == row["prediction"] for row in table)
    five = sum(row["label"] in row["predictions"] for row in table)
    lines = ran.out.splitlines()
    assert lines[0] == f"6 images of S by {model}"
    facts = dict(line.split(maxsplit=1) for line in lines[2:-2])
    assert facts["accuracy"].startswith(f"{100 * right / 6:.2f} % ({right} of 6; 95 % CI ")
    assert facts["top-5"].startswith(f"{100 * five / 6:.2f} % ({five} of 6; 95 % CI ")
    assert facts["classes"] == "6: the names in the file"
    assert facts["time"].endswith("images/s")
    assert facts["unreadable"] == f"1, not counted: {tmp_path}/my model.unreadable.csv"
    assert lines[-2:] == [str(out), f"next: visleak impact AUDIT_DIR --predictions '{out}'"]
    assert {row["id"] for row in table} >= {f"bee/{HOSTILE}", "cat/b.png"}
    assert {row["label"] for row in table} == {"ant", "bee", "cat"}


def test_the_summary_as_json(pictures, model, tmp_path):
    out = tmp_path / "p.csv"
    names = pictures.parent / "six.txt"
    ran = run(
        *("evaluate", "classify", pictures, "--model", model, "-o", out),
        *("--classes", names, "--restrict", "--json", "--workers", 1, "--batch", 2),
    )
    found = json.loads(ran.out)
    assert found["images"] == found["accuracy"]["images"] == 6
    assert found["accuracy"]["low"] <= found["accuracy"]["value"] <= found["accuracy"]["high"]
    assert found["top_5"] is None
    assert found["classes"] == {"count": 6, "rule": "the names in the file"}
    assert found["unreadable"] == {"images": 1, "file": str(tmp_path / "p.unreadable.csv")}
    rows = out.read_text().splitlines()
    assert rows[0] == "id,label,prediction,confidence"
    assert {row.split(",")[2] for row in rows[1:] if row[0] in "ac"} <= {"ant", "bee", "cat"}


@refusals("""
    classify {set} --model resnet50 -> a model is written hf:FOLDER, timm:NAME
    classify {set} --model hf: -> model hf needs FOLDER after its name: hf:FOLDER
    classify {set} --model {model} --device tpu -> option device of model checkpoint must
    classify {set}/nowhere --model {model} -> does not exist
    classify {set} --model {model} --classes x -> --classes x c
    classify {set} --model hf:/nowhere --scores -> the scores of all classes need a .parquet
    classify {set} -> --model
    clasify {set} -> clasify
""")
def test_what_is_refused(pictures, model, tmp_path, arguments, words):
    check_refused(f"evaluate {arguments} -o {tmp_path}/p.csv", words, set=pictures, model=model)
    assert not list(tmp_path.iterdir())


def test_content_that_is_refused(pictures, model, tmp_path):
    (tmp_path / "empty").mkdir()
    out = tmp_path / "p.parquet"
    given = f"evaluate classify --model {model} -o {out}"
    words = "which of the model's 6 outputs is which of the set's 3 classes is not known"
    check_refused(f"{given} {pictures}", words, code=1)
    check_refused(f"{given} {tmp_path}/empty", "empty", code=1)
    assert not out.exists()
    out.write_text("mine")
    check_refused(f"{given} {pictures}", "exists")
    assert out.read_text() == "mine"
    assert run("encode", pictures, "-o", tmp_path / "e").code == 0
    check_refused(f"evaluate classify emb:{tmp_path}/e --model {model}", "emb")


def test_threads_that_wait_leave_the_cores_to_others(monkeypatch):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    run("evaluate")
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    run("evaluate")
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"


def test_help_warns_of_programs():
    """A TorchScript file is a program; the help says so before anybody loads one."""
    ran = run("evaluate", "classify", "--help")
    words = " ".join(ran.out.replace("│", " ").split())
    assert "torchscript:FILE (a program: load trusted files only)" in words
    alone = run("evaluate")
    assert (alone.code, alone.err) == (0, "")
    assert alone.out == run("evaluate", "--help").out
    assert "classify" in alone.out
