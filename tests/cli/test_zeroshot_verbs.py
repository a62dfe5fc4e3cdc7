"""``visleak evaluate zeroshot`` and ``retrieve`` from the command line: summaries, refusals."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from calling import HOSTILE, check_refused, refusals, refused, run
from PIL import Image

import toy_clip

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A set of a dozen noisy images in three folders, one hostile, one damaged; and a CLIP."""
    folder = tmp_path_factory.mktemp("zeroshot")
    made = np.random.default_rng(0)
    lines = []
    for name in ("ant", "bee", "big_cat"):
        (folder / "set" / name).mkdir(parents=True)
        for number in range(4):
            file = HOSTILE if (name, number) == ("bee", 3) else f"{number}.png"
            noise = made.integers(0, 256, (40, 40, 3), np.uint8)
            Image.fromarray(noise).save(folder / "set" / name / file, "PNG")
            lines.append(f"{name}/{number}.png,{name} {number}")
    (folder / "set" / "ant" / "z.png").write_text("no picture")
    (folder / "c.csv").write_text("id,caption\n" + "\n".join(lines))
    toy_clip.make_clip(folder / "clip")
    return folder


@pytest.fixture
def here(place, monkeypatch):
    """The folder of these, where ``device=auto`` is the CPU."""
    import torch

    monkeypatch.chdir(place)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    return place


def test_zeroshot_says(here, tmp_path):
    out = tmp_path / "p.parquet"
    ran = run("evaluate", "zeroshot", "set", "--model", "clip:clip", "-o", out)
    assert ran.code == 0
    rows = pq.read_table(out).to_pylist()
    right = sum(row["label"] == row["prediction"] for row in rows)
    lines = ran.out.splitlines()
    assert lines[0] == "12 images of set by clip:clip"
    facts = dict(line.split(maxsplit=1) for line in lines[2:-2])
    assert facts["accuracy"].startswith(f"{100 * right / 12:.2f} % ({right} of 12; 95 % CI ")
    assert facts["classes"] == "3: the set's labels, underscores as spaces"
    assert facts["templates"] == "1: simple; 3 prompts"
    assert facts["unreadable"] == f"1, not counted: {tmp_path}/p.unreadable.csv"
    assert lines[-2:] == [str(out), f"next: visleak impact AUDIT_DIR --predictions {out}"]
    assert ran.err == ""
    assert HOSTILE in {row["id"].removeprefix("bee/") for row in rows}


def test_zeroshot_as_json(here, tmp_path):
    arguments = ["evaluate", "zeroshot", "set", "--model", "clip:clip", "-o", tmp_path / "p.csv"]
    ran = run(*arguments, "--json", "--templates", "openai")
    told = json.loads(ran.out)
    assert (ran.code, ran.err) == (0, "")
    assert told["templates"] == {"name": "openai", "count": 80}
    assert told["prompts"]["count"] == 240
    assert told["accuracy"]["images"] == told["images"] == 12
    assert told["top_5"] is None
    assert told["unreadable"]["images"] == 1
    code, message = refused(*arguments)
    assert (code, f"{tmp_path}/p.csv exists" in message) == (2, True)
    assert run(*arguments, "--force").code == 0


def test_retrieve_says(here, tmp_path):
    out = tmp_path / "p.parquet"
    ran = run(
        "evaluate", "retrieve", "set", "--model", "clip:clip", "--captions", "c.csv", "-o", out
    )
    ranks = np.array(pq.read_table(out)["rank"])
    lines = ran.out.splitlines()
    assert lines[0] == "11 images of set by clip:clip, each among 12 captions"
    for line, k in zip(lines[2:5], (1, 5, 10), strict=True):
        found = int((ranks <= k).sum())
        assert line.split(maxsplit=1)[0] == f"R@{k}"
        assert f" {100 * found / 11:.2f} % ({found} of 11; 95 % CI " in line
    assert "images without a caption, which are not ranked: 1" in lines
    assert ran.err == ""
    told = json.loads(
        run(
            *("evaluate", "retrieve", "set", "--model", "clip:clip", "--captions", "c.csv"),
            *("-o", tmp_path / "q.csv", "--json"),
        ).out
    )
    assert [each["found"] for each in told["recall"]] == [
        int((ranks <= k).sum()) for k in (1, 5, 10)
    ]
    assert (told["queries"], told["collection"]) == (11, 12)


def test_retrieve_from_vectors_draws(tmp_path):
    vectors = np.random.default_rng(0).standard_normal((250, 8))
    np.save(tmp_path / "i.npy", vectors)
    np.save(tmp_path / "t.npy", vectors + np.random.default_rng(1).standard_normal((250, 8)))
    arguments = ["evaluate", "retrieve", "--images", tmp_path / "i.npy", "--texts"]
    arguments += [tmp_path / "t.npy", "-o", tmp_path / "p.parquet"]
    lines = run(*arguments).out.splitlines()
    assert lines[0] == "250 images, each among 250 captions"
    assert lines[5].startswith("drawn  R@1 ")
    assert lines[5].endswith(" % (10 draws of 200 images)")
    other = run(*arguments, "--force", "--seed", 1).out.splitlines()
    assert other[2:5] == lines[2:5]
    assert other[5] != lines[5]


@refusals("""
    zeroshot set --model dinov2 -> the model must be a CLIP, which has a tower for texts
    zeroshot set --model clip:clip --classes no -> --classes no: file not found
    zeroshot set --model clip:clip --templates no -> templates must be openai, simple or
    zeroshot set --model clip:clip --device tpu -> option device of encoder clip must be
    zeroshot set/ant --model clip:clip -> the set has no labels to take names of classes
    retrieve set --model clip:clip -> set 'set' has no captions; give them with --caption
    retrieve set --captions c.csv --caption x -> --caption must be first, all or a number
    retrieve set --captions no.csv -> --captions no.csv: there is no such file; give a
    retrieve -> nothing to search: give SOURCE, a set of images with captions
    retrieve --images a.npy -> --images needs --texts: vectors of both sides
    retrieve --texts a.npy -> --texts needs --images: vectors of both sides
    retrieve set --images a --texts b -> cannot be used with --images and --texts
    retrieve --images a --texts b --model clip -> --model cannot be used with
    retrieve --images a --texts b --caption all -> --caption cannot be used with
    retrieve --images a --texts b -> --images a: there is no a; give emb:FOLDER, or a
""")
def test_refusals(here, tmp_path, arguments, words):
    check_refused(f"evaluate {arguments} -o {tmp_path}/p.parquet", words)
    assert not list(tmp_path.iterdir())


def test_a_model_that_does_not_exist(here, tmp_path):
    command = f"evaluate zeroshot set --model clip:nowhere/at/all -o {tmp_path}/p.csv"
    check_refused(command, "encoder clip: there is no folder nowhere", code=1)
