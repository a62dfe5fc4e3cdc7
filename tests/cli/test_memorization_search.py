"""``visleak memorization search``, ``augment`` and ``diversify``, in a world of five words."""

import json

import pytest
from calling import check_refused, refusals, run

from toy_prompt_models import FiveProposer, FiveWords, PaperWords
from visleak import diffusion
from visleak.memorization.prompt_files import read_prompts
from visleak.memorization.search import proposals
from visleak.memorization.search.proposals import Rules

ON_L2 = ("--norm", "l2", "--temperature", "0.3", "--kappa", "1.0")
SMALL = ("--length", "3", "--iterations", "5", "--candidates", "4", "--chains", "2")


class Hostile(FiveProposer):
    """One of its words is markup and a command of a terminal."""

    def texts(self, states):
        return [text.replace("cat", "[red]=x\x1b[31m") for text in super().texts(states)]


@pytest.fixture
def loaded(monkeypatch):
    """Replace the loaders of models by a small one; return their arguments."""
    seen = {"model": FiveWords(), "proposer": Hostile()}

    def load_model(name, *, device, precision):
        seen.update(name=name, device=device, precision=precision)
        return seen["model"]

    def load_language_model(text, *, rules, device):
        seen.update(lm=text, rules=rules)
        return seen["proposer"]

    monkeypatch.setattr(diffusion, "load_model", load_model)
    monkeypatch.setattr(proposals, "load_language_model", load_language_model)
    return seen


def search(out, *more):
    return run("memorization", "search", "--model", "folder/", *SMALL, "-o", out, *more)


def test_a_search_prints_one_line_and_writes_its_files(tmp_path, loaded):
    ran = search(tmp_path, *ON_L2, "--lm", "bert/")
    assert ran.code == 0, ran.err
    held = json.loads((tmp_path / "search.json").read_text())
    lines = ran.out.splitlines()
    assert lines[0] == held["headline"]
    assert lines[0].startswith("highest D (L2) of 2 chains ")
    assert lines[-1] == str(tmp_path)
    assert "\x1b" not in ran.out
    assert (loaded["name"], loaded["lm"]) == ("folder/", "bert/")
    assert loaded["rules"] == Rules()
    assert set(held["about"]["changed"]) == {
        *("length", "iterations", "candidates", "temperature", "kappa", "norm")
    }
    assert len(read_prompts(tmp_path / "prompts.csv")) >= 1


def test_presets_are_the_papers_or_the_codes(tmp_path, loaded):
    loaded["model"] = PaperWords()
    search(tmp_path / "paper", "--max-calls", "200", "--rounds", "1")
    paper = json.loads((tmp_path / "paper" / "search.json").read_text())
    assert (paper["settings"]["norm"], paper["settings"]["kappa"]) == ("squared", 5.0)
    assert (paper["score"]["timestep"], paper["score"]["asked_at"]) == ("first", 981.0)
    ran = search(tmp_path / "code", "--preset", "official-code")
    assert ran.code == 0, ran.err
    code = json.loads((tmp_path / "code" / "search.json").read_text())
    assert (code["settings"]["kappa"], code["score"]["timestep"]) == (None, 999)
    rules = loaded["rules"]
    assert (rules.prefix, rules.stop, rules.banned_name) == ("Image of a", True, "own")
    assert set(code["about"]["changed"]) == {"length", "iterations", "candidates"}


def test_random_words_are_not_counted_by_another_models_kappa(tmp_path, loaded):
    ran = search(tmp_path / "other", "--method", "random", "--max-calls", "100")
    assert ran.code == 0, ran.err
    assert "kappa is on another scale of D" in ran.err
    held = json.loads((tmp_path / "other" / "search.json").read_text())
    assert {each["reached"] for each in held["best"]} == {None}
    loaded["model"] = PaperWords()
    assert search(tmp_path / "own", "--method", "random", "--max-calls", "100").err == ""
    held = json.loads((tmp_path / "own" / "search.json").read_text())
    assert {each["reached"] for each in held["best"]} == {False}


@refusals("""
    --preset paper -> constants of D of Stable Diffusion 1
    --preset official-code -> Give --temperature on
    --norm l2 -> --norm l2 needs --temperature and --kappa: the preset's are on the squared scale
    --kappa high -> --kappa must be a number, or none; got 'high'
    --banned no/such.txt -> --banned no/such.txt: there is no such file
    --timestep last -> --timestep must be a whole number from 0, or first; got 'last'
    --norm l2 --temperature 0.3 --kappa 1 --length 76 -> --length must be at most 75
""")
def test_what_cannot_be_asked_is_refused(tmp_path, loaded, arguments, words):
    check_refused(f"memorization search --model m -o {tmp_path}/out {arguments}", words)
    assert not (tmp_path / "out").exists()


BRIEF = ("--iterations", "4", "--candidates", "4", "--patience", "2", "--top", "6")


@pytest.fixture
def triggers(tmp_path, loaded):
    loaded.update(model=FiveWords(noisy=True), proposer=FiveProposer())
    path = tmp_path / "triggers.txt"
    path.write_text("ant bee cat\neel dog\nyak \n")
    return path


def augment(triggers, out, *more):
    given = ("--model", "m", "--triggers", triggers, *BRIEF, *ON_L2, "-o", out)
    return run("memorization", "augment", *given, *more)


def test_verbs_chain_through_files(tmp_path, triggers):
    ran = augment(triggers, tmp_path / "augmented")
    assert ran.code == 0, ran.err
    made = json.loads((tmp_path / "augmented" / "augment.json").read_text())
    assert ran.out.splitlines()[0] == made["headline"]
    assert "prompts of 3 triggers scored, " in made["headline"]
    assert "1 trigger has pieces that the language model does not know" in ran.out
    assert made["about"]["origin"] == "triggers.txt (text)"
    bank = tmp_path / "augmented" / "prompts.parquet"
    assert len(read_prompts(bank)) <= 12
    picks = run(
        f"memorization diversify --model m --prompts {bank} --count 3 --per-source -o"
        f" {tmp_path}/diverse",
        code=0,
    )
    assert picks.out.startswith("6 of ")
    assert len(read_prompts(tmp_path / "diverse" / "prompts.csv")) == 6
    # what a search found is a list of triggers too
    again = augment(tmp_path / "diverse" / "prompts.parquet", tmp_path / "more")
    assert again.code == 0, again.err


def test_the_codes_way_is_a_preset(tmp_path, triggers, loaded):
    loaded["model"] = PaperWords()
    given = "--preset official-code --repeats 2 --iterations 3 --floor 0.1 --json"
    command = f"memorization augment --model m --triggers {triggers} {given} -o {tmp_path}/out"
    made = json.loads(run(command, code=0).out)
    settings = made["settings"]
    assert (settings["norm"], settings["kappa"], settings["top"]) == ("squared", 3.0, None)
    assert made["about"]["changed"] == ["iterations", "repeats", "floor"]
    assert made["score"]["timestep"] == 999


@refusals("""
    --norm l2 --kappa 1 -> --norm l2 needs --temperature: the preset's are on the squared scale
    --preset paper-sd2 -> constants of D of Stable Diffusion 2 (temperature 50, kappa 50)
    --preset official-code -> Give --temperature and --kappa and --floor on
""")
def test_an_augmentation_that_cannot_be_is_refused(tmp_path, triggers, arguments, words):
    command = f"memorization augment --model m --triggers {triggers} -o {tmp_path}/out {arguments}"
    check_refused(command, words)


def test_picks_that_cannot_be_are_refused(tmp_path, triggers):
    command = f"memorization diversify --model m -o {tmp_path}/out --prompts {triggers}"
    words = "--per-source needs the column trigger in triggers.txt (text)"
    check_refused(f"{command} --per-source", words)
