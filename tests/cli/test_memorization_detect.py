"""``visleak memorization detect`` from the command line, with a model in closed form."""

import json
from types import SimpleNamespace

import pytest
from calling import check_refused, loaded, refusals, run

from closed_form import ClosedForm
from visleak.errors import UsageError
from visleak.memorization.detection import document
from visleak.memorization.prompt_files import read_prompts
from visleak.memorization.scores import score_for
from visleak.memorization.settings import ScoreSettings

DETECT = ("memorization", "detect", "--model", "some/folder")


@pytest.fixture(autouse=True)
def model(monkeypatch):
    """The model that every name stands for; figures are tested with the room."""
    made = ClosedForm()
    made.asked = loaded(monkeypatch, made)
    for name in ("scores_figure", "roc_figure", "tokens_figure"):
        monkeypatch.setattr(document, name, lambda *given: {})
    return made


@pytest.fixture
def lists(tmp_path):
    """Three prompts, two of them known to be memorized, and three hundred ordinary ones."""
    own, general = tmp_path / "own.csv", tmp_path / "general.txt"
    own.write_text('prompt,label\nhouse 6,1\n"[red]cat\x1b[31m 9",1\nplain 0.5,0\n')
    general.write_text("".join(f"ordinary {number / 100}\n" for number in range(300)))
    return own, general


def test_a_sentence_a_table_and_a_folder(lists, tmp_path):
    own, general = lists
    out = tmp_path / "out"
    ran = run(*DETECT, "--prompts", own, "--general", general, "-o", out, code=0, err="")
    lines = ran.out.splitlines()
    assert lines[0].startswith("2 of 3 prompts reach D >= ")
    assert lines[0].endswith(
        ", among them 2 of 2 known to be memorized (false alarms: 3 of 301 ordinary prompts,"
        " 1.00 %; at most 2.56 % with 95 % confidence)"
    )
    assert lines[1].startswith("AUC 1.0000 (95 % CI ")
    assert "2 memorized against 301 others" in lines[1]
    assert "\x1b" not in ran.out
    # sorted by D, and nothing in a prompt is markup or a command to the terminal
    table = [line.split()[0] for line in lines[lines.index("") + 3 :][:3]]
    assert table == ["[red]cat\\x1b[31m", "house", "plain"]
    assert lines[-1] == str(out)
    assert set(read_prompts(out / "scores.parquet").texts) == {
        "house 6", "[red]cat\x1b[31m 9", "plain 0.5",
    }  # fmt: skip


def test_options_reach_the_score(model, lists, tmp_path):
    ran = run(
        f"{' '.join(DETECT)} --prompts {lists[0]} --noises 2 --timestep 999 --norm squared --seed 4"
        " --score-output epsilon --batch 2 --device cpu --precision fp32 --threshold 1.5 --json"
        f" -o {tmp_path}/out",
        code=0,
        err="",
    )
    assert model.asked == [("some/folder", "cpu", "fp32")]
    assert set(model.timesteps) == {999.0}
    content = json.loads(ran.out)
    settings = {"noises": 2, "timestep": 999, "steps": 50, "output": "epsilon", "norm": "squared"}
    assert content["settings"] == settings | {"seed": 4}
    assert (content["threshold"]["rule"], content["threshold"]["value"]) == ("given", 1.5)
    assert ran.out.encode() == (tmp_path / "out" / "detect.json").read_bytes()


def test_tokens_are_shown(lists, tmp_path):
    given = ("--tokens", 1, "--tokens-by", "leave-one-out", "-o", tmp_path / "out")
    ran = run(*DETECT, "--prompts", lists[0], *given)
    (line,) = (line for line in ran.out.splitlines() if line.startswith("tokens of "))
    # the 31 of the escape weighs more than 9, and is named
    assert "31m" in line
    assert "\x1b" not in line


@refusals("""
    --bounded --threshold 1 -> --bounded sets a threshold by --fpr, --threshold gives one
    --general-column x -> --general-column goes with --general FILE
""")
def test_what_is_refused(lists, tmp_path, arguments, words):
    command = f"{' '.join(DETECT)} --prompts {lists[0]} -o {tmp_path}/out"
    check_refused(f"{command} {arguments}", words)
    (tmp_path / "words.csv").write_text("words\nhouse 6\n")
    other = f"{command} --general {tmp_path}/words.csv"
    check_refused(other, "name the one with the prompts (--general-column C)", code=1)


def test_a_timestep_that_the_model_was_not_trained_on_is_refused():
    about = {"train_timesteps": 1000}
    model = SimpleNamespace(device="cpu", prediction="epsilon", about=lambda: about)
    with pytest.raises(UsageError, match="--timestep must be at most 999 for this model"):
        score_for(model, ScoreSettings(timestep=5000), {"timestep"})
    settings = score_for(model, ScoreSettings(timestep=999), {"timestep"})
    assert settings.timestep == 999
