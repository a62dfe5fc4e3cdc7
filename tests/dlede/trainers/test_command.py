"""A command as trainer: a real program reads what it is handed and writes what it measured."""

import json
import os
import pickle
import shlex
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from handed import lesson_of, script, split_on_disk, writes

from refusals import refusal
from visleak.dlede.draw import Split
from visleak.dlede.train import TrainingFailed
from visleak.dlede.trainers import load_trainer
from visleak.dlede.trainers.command import FILLED
from visleak.errors import UsageError, VisleakError
from visleak.formats import open_images
from visleak.progress import silent


def command(*words):
    return "command:" + shlex.join([sys.executable, *map(str, words)])


def trained(text, split, folder, **wanted):
    ready = load_trainer(text).prepare(split, folder / "ready", silent)
    own = folder / "own"
    own.mkdir()
    return pickle.loads(pickle.dumps(ready)).train(lesson_of(split, **wanted), own)


def test_every_placeholder_stands_for_what_it_says(tmp_path, monkeypatch):
    program = script(
        tmp_path / "a.py",
        "words = dict(word.split('=', 1) for word in sys.argv[2:])\n"
        "Path('said.json').write_text(json.dumps(words)); " + writes({"map50": 0.5}),
    )
    others = [f"{name}={{{name}}}" for name in FILLED if name != "out"]
    monkeypatch.chdir(tmp_path)
    split = split_on_disk(tmp_path)
    trained(command(program, "{out}", *others), split, tmp_path, epochs=7, step=20)
    said = json.loads((tmp_path / "said.json").read_text())
    plain = [said.pop(name) for name in ("seed", "epochs", "step", "repetition", "folder")]
    assert plain == ["3", "7", "20", "3", str(tmp_path / "own")]
    assert all(Path(path).exists() and Path(path).is_absolute() for path in said.values())
    assert Path(said["train"]).read_text().splitlines()[-1] == str(tmp_path / "test" / "1.png")
    assert len(list((Path(said["test_folder"]) / "labels").iterdir())) == 4


def test_epochs_are_those_of_the_paper_by_default(tmp_path):
    program = script(tmp_path / "a.py", "print(sys.argv[3]); " + writes({"map50": 0.5}))
    text = command(program, "{out}", "{train}", "{epochs}")
    trained(text, split_on_disk(tmp_path), tmp_path)
    assert (tmp_path / "own" / "log.txt").read_text() == "100\n"
    assert load_trainer(text).about()["epochs"] == 100


def test_epochs_that_cannot_be_passed_on_are_refused(tmp_path):
    with pytest.raises(TrainingFailed, match="7 epochs are requested, and the command has no"):
        trained(command("{out}", "{train}"), split_on_disk(tmp_path), tmp_path, epochs=7)


def test_the_key_changes_with_the_template_alone():
    one = load_trainer(command("a.py", "{train}", "{out}"))
    assert one.about() != load_trainer(command("b.py", "{train}", "{out}")).about()
    slow = load_trainer(command("a.py", "{train}", "{out}"), time_limit=5, threads=2)
    assert one.about() == slow.about()


def test_the_key_changes_with_the_files_that_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    named = ["my-train", "train.py", "a.yaml", "b.yaml", "run/__main__.py", "pack/mod.py"]
    for name in (*named, "unnamed.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("#!one")
        (tmp_path / name).chmod(0o755)
    text = "command:my-train -c 'set -e; python train.py {train} >log && ls' --cfg=a.yaml,b.yaml"
    text += " run -m pack.mod {out}"
    keys = [load_trainer(text).about()]
    for name in (*named, "unnamed.py"):
        (tmp_path / name).write_text("#!two")
        keys.append(load_trainer(text).about())
    assert [one != two for one, two in pairwise(keys)] == [True] * 6 + [False]
    # a program that no other one runs is no file of the command
    assert "files" not in load_trainer(command("{train}", "{out}")).about()


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("", "no command follows; such as command:'python train.py {train} {test} {out} {seed}'"),
        ("a '{train}", "--trainer command: no closing quotation in"),
        ("a {train} {out} {lr}", "{lr} is not a placeholder; there are {train}, {test}"),
        ("a {test} {out}", "does not get the training images; it needs one of {train}, {data}, {t"),
        ("a {train}", "no result can come back; the command needs {out}, the json to be"),
        ("cd x && a {train} {out}", "no shell reads '&&'; write the steps into a script"),
        ("a {train} {out} > log", "no shell reads '>'"),
    ],
)
def test_a_template_that_cannot_work_is_refused(template, text):
    assert text in refusal(UsageError, load_trainer, f"command:{template}")


def test_a_program_that_is_not_there_is_told_before_anything_is_trained(tmp_path):
    split = split_on_disk(tmp_path)
    for word, place in (("no-such-program", "on the PATH"), ("./no/such", "here")):
        ready = load_trainer(f"command:{word} {{train}} {{out}}").prepare
        said = refusal(UsageError, ready, split, tmp_path, silent)
        assert said == f"--trainer command: there is no program '{word}' {place}"


def test_what_cannot_be_handed_over_is_told_before_anything_is_trained(tmp_path):
    split = split_on_disk(tmp_path, boxed=False)
    held = Split(open_images([np.zeros((8, 8, 3), np.uint8)], name="held"), split.test)
    for given, word, folder, text in (
        (split, "{data}", tmp_path, "{data} needs boxes, and set 'train' has none"),
        (split, "{train_json}", tmp_path, "{train_json} needs boxes, and set 'train' has none"),
        (split, "{train_folder}", tmp_path / "images", "is in a folder called images"),
        (held, "{train}", tmp_path, "set 'held': this trainer opens the images itself"),
    ):
        ready = load_trainer(command(word, "{out}")).prepare
        assert text in refusal(VisleakError, ready, given, folder, silent)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("pass", "it ended well and left no result: it has not written {out}"),
        (writes({"map50": "x"}), "metrics.json: map50 is 'x', a text"),
        (writes({"map50": 0.5}) + "; sys.exit(2)", "the command ended with exit code 2"),
    ],
)
def test_a_training_that_fails_says_why(tmp_path, line, text):
    given = command(script(tmp_path / "a.py", line), "{out}", "{train}")
    assert text in refusal(TrainingFailed, trained, given, split_on_disk(tmp_path), tmp_path)


def test_yolos_own_results_are_found_where_no_json_was_written(tmp_path):
    line = (
        "run = Path(sys.argv[1]) / 'run'; run.mkdir()\n"
        "(run / 'results.csv').write_text('epoch,metrics/mAP50(B)\\n1,0.25\\n')"
    )
    given = command(script(tmp_path / "a.py", line), "{folder}", "{data}", "{out}")
    assert trained(given, split_on_disk(tmp_path), tmp_path).metrics == {"map50": 0.25}
