"""``visleak memorization compare`` from the command line, with a model in closed form."""

import json

import numpy as np
import pytest
from calling import check_refused, loaded, refusals, run
from PIL import Image

from linear_model import linear_model
from visleak.memorization.baselines import document
from visleak.memorization.prompt_files import read_prompts

COMPARE = ("memorization", "compare", "--model", "some/folder", "--device", "cpu")


@pytest.fixture(autouse=True)
def model(monkeypatch, natural):
    """The model that every name stands for; it lies with the tests of the room."""
    made = linear_model()
    made.replays = {"cow": small(natural["chelsea"])}
    loaded(monkeypatch, made)
    monkeypatch.setattr(document, "discoveries", lambda _: {})
    return made


def small(picture):
    return np.asarray(Image.fromarray(picture).resize((64, 64), Image.Resampling.LANCZOS))


@pytest.fixture
def training(tmp_path, natural):
    folder = tmp_path / "training"
    folder.mkdir()
    for name in ("chelsea", "coffee", "rocket"):
        Image.fromarray(small(natural[name])).save(folder / f"{name}.png")
    return folder


@pytest.fixture
def listed(tmp_path):
    path = tmp_path / "list.txt"
    path.write_text("ant bee\ncow dog\nfox gnu\n")
    return path


def test_a_sentence_a_table_and_a_folder(training, listed, tmp_path):
    out = tmp_path / "out"
    ask = (
        *(*COMPARE, "--methods", "greedy, pez", "--prompts", listed, "--source", training),
        *("--max-calls", 200, "--chains", 3, "--length", 2, "--images", 12, "--min-cluster", 6),
        *("--steps", 2, "--guidance", 1, "--workers", 1, "-o", out),
    )
    ran = run(*ask, code=0)
    lines = ran.out.splitlines()
    assert "greedy found 1 memorized image (" in " ".join(lines)
    assert lines[-1] == str(out)
    assert {each.name for each in out.iterdir() if not each.name.startswith(".")} >= {
        *("compare.json", "compare.csv", "compare.md", "compare.tex", "candidates.csv"),
        *("greedy", "pez"),
    }
    assert "cow dog" in read_prompts(out / "greedy" / "seed-0" / "images" / "medoids.parquet").texts
    again = run(*ask, "--json")
    assert f"{out} holds this comparison, finished" in again.err
    assert again.out.encode() == (out / "compare.json").read_bytes()
    content = json.loads(again.out)
    assert [row["method"] for row in content["methods"]] == ["greedy", "pez"]
    assert content["attempts"][0]["verified"]["reproduced"] == [
        {"reference": "train/chelsea.png", "number": 0, "prompt": "cow dog"}
    ]


@refusals("""
    --methods gibs -> a method is one of gibbs, random, greedy, conzic, zerocap, pez
    --methods pez -> nothing ends the search pez
    --methods pez --max-calls 5 -> a budget of 5 calls holds no step of pez
    --methods pez --iterations x -> --iterations must be a whole number
    --methods pez --prompts {list} -> --prompts is for greedy; add greedy to --me
    --lm no/folder --temperature 0.1 -> language model no/folder: there is no such folder
    --lm no/folder -> constants of D of Stable Diffusion 1 (temperature 0.1)
    --length 99 -> --length must be at most
""")
def test_what_cannot_be_is_refused_in_a_line(arguments, words, training, listed, tmp_path):
    command = f"{' '.join(COMPARE)} --source {training} -o {tmp_path}/out {arguments}"
    check_refused(command, words, list=listed)
