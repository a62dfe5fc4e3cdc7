"""``visleak memorization search`` from the command line, in a world of five words."""

import json
from pathlib import Path
from typing import Any

import pytest
from calling import Ran, check_refused, refusals, run

from toy_prompt_models import FiveProposer, FiveWords, PaperWords
from visleak import diffusion
from visleak.memorization.prompt_files import read_prompts
from visleak.memorization.search import proposals
from visleak.memorization.search.proposals import Rules

ON_L2 = ("--norm", "l2", "--temperature", "0.3", "--kappa", "1.0")
SMALL = ("--length", "3", "--iterations", "5", "--candidates", "4", "--chains", "2")


class Hostile(FiveProposer):
    """One of its words is markup and a command of a terminal."""

    def texts(self, states: Any) -> list[str]:
        return [text.replace("cat", "[red]=x\x1b[31m") for text in super().texts(states)]


@pytest.fixture
def asked(monkeypatch):
    """Put the small world in the place of models; return what was asked of it."""
    seen: dict[str, Any] = {"model": FiveWords(), "proposer": Hostile()}

    def load_model(name: str, *, device: str, precision: str) -> FiveWords:
        seen.update(name=name, device=device, precision=precision)
        return seen["model"]

    def load_language_model(text: str, *, rules: Rules, device: str) -> FiveProposer:
        seen.update(lm=text, rules=rules)
        return seen["proposer"]

    monkeypatch.setattr(diffusion, "load_model", load_model)
    monkeypatch.setattr(proposals, "load_language_model", load_language_model)
    return seen


def search(out: Path, *more: object) -> Ran:
    return run("memorization", "search", "--model", "folder/", *SMALL, "-o", out, *more)


def test_a_search_says_one_line_and_writes_its_files(tmp_path, asked):
    ran = search(tmp_path, *ON_L2, "--lm", "bert/")
    assert ran.code == 0, ran.err
    held = json.loads((tmp_path / "search.json").read_text())
    lines = ran.out.splitlines()
    assert lines[0] == held["headline"]
    assert lines[0].startswith("highest D (L2) of 2 chains ")
    assert lines[-1] == str(tmp_path)
    assert "\x1b" not in ran.out
    assert (asked["name"], asked["lm"]) == ("folder/", "bert/")
    assert asked["rules"] == Rules()
    assert held["about"]["preset"] == "paper"
    assert set(held["about"]["changed"]) == {
        *("length", "iterations", "candidates", "temperature", "kappa", "norm"),
    }
    assert held["chains"] == 2
    assert len(read_prompts(tmp_path / "prompts.csv")) >= 1


def test_presets_are_the_papers_or_the_codes(tmp_path, asked):
    asked["model"] = PaperWords()
    search(tmp_path / "paper", "--max-calls", "200", "--rounds", "1")
    paper = json.loads((tmp_path / "paper" / "search.json").read_text())
    assert (paper["settings"]["norm"], paper["score"]["norm"]) == ("squared", "squared")
    assert (paper["settings"]["kappa"], paper["settings"]["preset"]) == (5.0, "paper")
    assert paper["score"]["timestep"] == "first"
    assert paper["score"]["asked_at"] == 981.0
    ran = search(tmp_path / "code", "--preset", "official-code")
    assert ran.code == 0, ran.err
    code = json.loads((tmp_path / "code" / "search.json").read_text())
    assert (code["settings"]["kappa"], code["settings"]["preset"]) == (None, "official-code")
    assert code["score"]["timestep"] == 999
    rules = asked["rules"]
    assert (rules.prefix, rules.stop) == ("Image of a", True)
    assert (rules.banned_name, "ocean" in rules.banned) == ("own", True)
    assert set(code["about"]["changed"]) == {"length", "iterations", "candidates"} - {
        # 8 and 200 are the preset's
        name
        for name, value in (("length", 8), ("candidates", 200))
        if code["settings"][name] == value
    }


@refusals("""
    --preset paper -> Give --temperature and --kappa on
    --preset paper --kappa 9 -> Give --temperature on
    --preset paper --temperature 2 -> Give --kappa on
    --preset official-code -> Give --temperature on
""")
def test_constants_of_another_models_d_are_refused(tmp_path, asked, arguments, words):
    command = f"memorization search --model m {' '.join(SMALL)} -o {tmp_path}/out {arguments}"
    check_refused(command, "constants of D of Stable Diffusion 1")
    check_refused(command, words)
    assert not (tmp_path / "out").exists()


def test_random_words_are_not_counted_by_another_models_kappa(tmp_path, asked):
    ran = search(tmp_path / "other", "--method", "random", "--max-calls", "100")
    assert ran.code == 0, ran.err
    assert "kappa is on another scale of D" in ran.err
    held = json.loads((tmp_path / "other" / "search.json").read_text())
    assert {each["reached"] for each in held["best"]} == {None}
    asked["model"] = PaperWords()
    assert search(tmp_path / "own", "--method", "random", "--max-calls", "100").err == ""
    held = json.loads((tmp_path / "own" / "search.json").read_text())
    assert {each["reached"] for each in held["best"]} == {False}


def test_rules_and_random_words_are_options(tmp_path, asked):
    banned = tmp_path / "colours.txt"
    banned.write_text("red\nblue\n")
    assert search(tmp_path / "out", *ON_L2, "--banned", banned).code == 0
    assert asked["rules"] == Rules(banned=("red", "blue"), banned_name="colours.txt")
    ran = search(tmp_path / "r", "--method", "random", "--norm", "l2", "--max-calls", 100, "--json")
    held = json.loads(ran.out)
    assert held["method"] == "random"
    assert held["calls"] <= 100


@refusals("""
    --norm l2 -> --norm l2 needs --temperature and --kappa: the preset's are on the squared scale
    --preset mine -> preset must be one of paper, official-code; got 'mine'
    --kappa high -> --kappa must be a number, or none; got 'high'
    --rounds -1 -> rounds must be 1 or more; got -1
    --method pez -> method must be one of gibbs, random; got 'pez'
    --banned no/such.txt -> --banned no/such.txt: there is no such file
    --timestep last -> --timestep must be a whole number from 0, or first; got 'last'
    --max-seconds 0 -> seconds must be above 0; got 0.0
    --norm l2 --temperature 0.3 --kappa 1 --length 76 -> --length must be at most 75
""")
def test_what_cannot_be_asked_is_refused(tmp_path, asked, arguments, words):
    check_refused(f"memorization search --model m -o {tmp_path}/out {arguments}", words)
    assert not (tmp_path / "out").exists()
