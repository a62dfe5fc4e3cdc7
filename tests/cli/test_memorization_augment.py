"""``visleak memorization augment`` and ``diversify`` from the command line."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from calling import check_refused, refusals, refused, run

from toy_prompt_models import FiveProposer, FiveWords, PaperWords
from visleak import diffusion
from visleak.memorization.prompt_files import read_prompts
from visleak.memorization.search import proposals

SMALL = ("--iterations", "4", "--candidates", "4", "--patience", "2", "--top", "6")
ON_L2 = ("--norm", "l2", "--temperature", "0.3", "--kappa", "1.0")


@pytest.fixture(autouse=True)
def _world(monkeypatch):
    """Put a world of five words in the place of models."""
    monkeypatch.setattr(diffusion, "load_model", lambda *given, **how: FiveWords(noisy=True))
    monkeypatch.setattr(proposals, "load_language_model", lambda *given, **how: FiveProposer())


@pytest.fixture
def triggers(tmp_path):
    path = tmp_path / "triggers.txt"
    path.write_text("ant bee cat\neel dog\nyak \n")
    return path


def augment(triggers: Path, out: Path, *more: object) -> Any:
    given = ("--model", "m", "--triggers", triggers, *SMALL, *ON_L2, "-o", out)
    return run("memorization", "augment", *given, *more)


def test_verbs_chain_through_files(tmp_path, triggers):
    ran = augment(triggers, tmp_path / "augmented")
    assert ran.code == 0, ran.err
    made = json.loads((tmp_path / "augmented" / "augment.json").read_text())
    assert ran.out.splitlines()[0] == made["headline"]
    assert "prompts of 3 triggers scored, " in made["headline"]
    assert "1 trigger has pieces that the language model does not know" in ran.out
    assert made["about"]["preset"] == "paper"
    assert made["about"]["origin"] == "triggers.txt (text)"
    assert made["settings"]["preset"] == "paper"
    bank = tmp_path / "augmented" / "prompts.parquet"
    assert len(read_prompts(bank)) <= 12
    picks = run("memorization", "diversify", "--model", "m", "--prompts", bank, "--count", "3",
                "--per-source", "-o", tmp_path / "diverse")  # fmt: skip
    assert picks.code == 0, picks.err
    assert picks.out.startswith("6 of ")
    assert len(read_prompts(tmp_path / "diverse" / "prompts.csv")) == 6
    # what a search found is a list of triggers too
    again = augment(tmp_path / "diverse" / "prompts.parquet", tmp_path / "more")
    assert again.code == 0, again.err


def test_the_codes_way_is_a_preset(tmp_path, triggers, monkeypatch):
    monkeypatch.setattr(diffusion, "load_model", lambda *given, **how: PaperWords())
    ran = run("memorization", "augment", "--model", "m", "--triggers", triggers, "--preset",
              "official-code", "--repeats", 2, "--iterations", 3, "--floor", "0.1", "--json",
              "-o", tmp_path / "out")  # fmt: skip
    assert ran.code == 0, ran.err
    made = json.loads(ran.out)
    settings = made["settings"]
    assert (settings["preset"], settings["top"]) == ("official-code", None)
    assert (settings["norm"], settings["kappa"]) == ("squared", 3.0)
    assert made["about"]["changed"] == ["iterations", "repeats", "floor"]
    assert made["score"]["timestep"] == 999
    assert ran.out.encode() == (tmp_path / "out" / "augment.json").read_bytes()


def test_a_stable_diffusion_2_is_told_of_its_own_preset(tmp_path, triggers, monkeypatch):
    model = PaperWords()
    model.shape = (4, 96, 96)
    model.network = SimpleNamespace(config=SimpleNamespace(cross_attention_dim=1024))
    monkeypatch.setattr(diffusion, "load_model", lambda *given, **how: model)
    asked = ("memorization", "augment", "--model", "m", "--triggers", triggers)
    code, said = refused(*asked, "-o", tmp_path / "out")
    assert code == 2
    assert "or --preset paper-sd2" in said
    ran = run(*asked, "--preset", "paper-sd2", *SMALL, "-o", tmp_path / "out")
    assert ran.code == 0, ran.err


@refusals("""
    --preset sd3 -> preset must be one of paper, paper-sd2, official-code; got 'sd3'
    --norm l2 --kappa 1 -> --norm l2 needs --temperature: the preset's are on the squared scale
    --preset paper -> Give --temperature and --kappa on
    --preset paper-sd2 -> constants of D of Stable Diffusion 2 (temperature 50, kappa 50)
    --preset official-code -> Give --temperature and --kappa and --floor on
""")
def test_an_augmentation_that_cannot_be_is_refused(tmp_path, triggers, arguments, words):
    command = f"memorization augment --model m --triggers {triggers} -o {tmp_path}/out {arguments}"
    check_refused(command, words)


@refusals("""
    {list} --per-source -> --per-source needs the column trigger in triggers.txt (text)
    none.txt -> there is no such file
""")
def test_picks_that_cannot_be_are_refused(tmp_path, triggers, arguments, words):
    command = f"memorization diversify --model m -o {tmp_path}/out --prompts {arguments}"
    check_refused(command, words, list=triggers)
