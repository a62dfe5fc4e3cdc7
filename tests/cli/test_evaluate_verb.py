"""``visleak evaluate``: classify, zeroshot and retrieve, what they say and refuse."""

import json
import os

import numpy as np
import pyarrow.parquet as pq
import pytest
from calling import HOSTILE, check_refused, refusals, run
from PIL import Image

import toy_clip

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A set of a dozen images in three folders, one hostile, one damaged; and two models."""
    from visleak.impact.evaluators.checkpoints import CifarResNet

    folder = tmp_path_factory.mktemp("evaluate")
    made, lines = np.random.default_rng(0), ["id,caption"]
    for name in ("ant", "bee", "cat"):
        (folder / "set" / name).mkdir(parents=True)
        for number in range(4):
            file = HOSTILE if (name, number) == ("bee", 3) else f"{number}.png"
            noise = Image.fromarray(made.integers(0, 256, (32, 32, 3), np.uint8))
            noise.save(folder / "set" / name / file, "PNG")
            lines.append(f"{name}/{number}.png,{name} {number}")
    (folder / "set" / "ant" / "z.png").write_text("no picture")
    (folder / "c.csv").write_text("\n".join(lines))
    (folder / "six.txt").write_text("fly\nCAT\nbee\nant\ndog\nemu\n")
    np.save(folder / "v.npy", np.eye(2, dtype=np.float32))
    toy_clip.make_clip(folder / "clip")
    torch.manual_seed(0)
    torch.save(CifarResNet(3, 6).state_dict(), folder / "w.pt")
    return folder


@pytest.fixture(autouse=True)
def _here(place, monkeypatch):
    """Work in the folder of these, where ``device=auto`` is the CPU."""
    monkeypatch.chdir(place)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    # what the verb sets for its own process is no matter of other tests
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")


MODEL = "checkpoint:w.pt?arch=resnet20"


def test_classify(tmp_path):
    out = tmp_path / "my model.parquet"
    given = f"evaluate classify S=set --model {MODEL} -o '{out}' --classes six.txt"
    ran = run(given, code=0, err="")
    table = pq.read_table(out).to_pylist()
    right = sum(row["label"] == row["prediction"] for row in table)
    lines = ran.out.splitlines()
    assert lines[0] == f"12 images of S by {MODEL}"
    facts = dict(line.split(maxsplit=1) for line in lines[2:-2])
    assert facts["accuracy"].startswith(f"{100 * right / 12:.2f} % ({right} of 12; 95 % CI ")
    assert facts["unreadable"] == f"1, not counted: {tmp_path}/my model.unreadable.csv"
    assert lines[-2:] == [str(out), f"next: visleak impact AUDIT_DIR --predictions '{out}'"]
    assert {row["id"] for row in table} >= {f"bee/{HOSTILE}", "cat/1.png"}
    found = json.loads(run(given, "--restrict", "--json", "--force").out)
    assert found["images"] == found["accuracy"]["images"] == 12
    rows = pq.read_table(out).to_pylist()
    assert {row["prediction"] for row in rows} <= {"ant", "bee", "cat"}


def test_content_that_is_refused(tmp_path):
    out = tmp_path / "p.parquet"
    given = f"evaluate classify set --model {MODEL} -o {out}"
    words = "which of the model's 6 outputs is which of the set's 3 classes is not known"
    check_refused(given, words, code=1)
    assert not out.exists()
    out.write_text("mine")
    check_refused(given, "exists")
    assert out.read_text() == "mine"


def test_threads_that_wait_leave_the_cores_to_others(monkeypatch):
    monkeypatch.delenv("OMP_WAIT_POLICY")
    run("evaluate")
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    run("evaluate")
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"


def test_zeroshot(tmp_path):
    given = f"evaluate zeroshot set --model clip:clip -o {tmp_path}/p.csv"
    ran = run(given, code=0, err="")
    assert ran.out.startswith("12 images of set by clip:clip\n")
    found = json.loads(run(given, "--force", "--json", "--templates", "openai", err="").out)
    assert found["templates"] == {"name": "openai", "count": 80}
    assert (found["images"], found["unreadable"]["images"]) == (12, 1)


def test_retrieve(tmp_path):
    given = f"evaluate retrieve set --model clip:clip --captions c.csv -o {tmp_path}/p.parquet"
    ran = run(given, err="")
    ranks = np.array(pq.read_table(tmp_path / "p.parquet")["rank"])
    lines = ran.out.splitlines()
    assert lines[0] == "11 images of set by clip:clip, each among 12 captions"
    for line, k in zip(lines[2:5], (1, 5, 10), strict=True):
        found = int((ranks <= k).sum())
        assert line.split(maxsplit=1)[0] == f"R@{k}"
        assert f" {100 * found / 11:.2f} % ({found} of 11; 95 % CI " in line
    assert "images without a caption, which are not ranked: 1" in lines
    found = json.loads(run(given, "--force", "--json").out)
    assert (found["queries"], found["collection"]) == (11, 12)


def test_retrieve_from_vectors_draws(tmp_path):
    vectors = np.random.default_rng(0).standard_normal((250, 8))
    np.save(tmp_path / "i.npy", vectors)
    np.save(tmp_path / "t.npy", vectors + np.random.default_rng(1).standard_normal((250, 8)))
    given = f"evaluate retrieve --images {tmp_path}/i.npy --texts {tmp_path}/t.npy -o {tmp_path}/p"
    lines = run(f"{given}.parquet").out.splitlines()
    assert lines[0] == "250 images, each among 250 captions"
    assert lines[5].startswith("drawn  R@1 ")
    assert lines[5].endswith(" % (10 draws of 200 images)")
    other = run(f"{given}.csv --seed 1").out.splitlines()
    assert other[2:5] == lines[2:5]
    assert other[5] != lines[5]


@refusals("""
    classify set --model hf: -> model hf needs FOLDER after its name: hf:FOLDER
    classify nowhere --model {model} -> does not exist
    classify set --model {model} --classes x -> --classes x c
    classify emb:v.npy?encoder=clip --model {model} -> is a set of embeddings: there are no pixels
    zeroshot emb:v.npy?encoder=clip --model clip:clip -> is a set of embeddings: there are no pixels
    retrieve emb:v.npy?encoder=clip --model clip:clip -> is a set of embeddings: there are no pixels
    zeroshot set --model clip:clip --device tpu -> option device of encoder clip must be
    retrieve set --captions c.csv --caption x -> --caption must be first, all or a number
    retrieve -> nothing to search: give SOURCE, a set of images with captions
    retrieve --images a.npy -> --images needs --texts: vectors of both sides
    retrieve set --images a --texts b -> cannot be used with --images and --texts
    retrieve --images a --texts b -> --images a: there is no a; give emb:FOLDER, or a
""")
def test_refusals(tmp_path, arguments, words):
    check_refused(f"evaluate {arguments} -o {tmp_path}/p.parquet", words, model=MODEL)
    assert not list(tmp_path.iterdir())
