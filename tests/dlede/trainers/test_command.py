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
from visleak.dlede.trainers.command import FILLED, Template
from visleak.errors import UsageError, VisleakError
from visleak.formats import open_images
from visleak.progress import silent

#: A learner by heart: it finds a test image if one of equal bytes was in training.
BY_HEART = """
train, test, out, seed = sys.argv[1:]
known = {Path(line).read_bytes() for line in Path(train).read_text().splitlines()}
tested = Path(test).read_text().splitlines()
found = {line: float(Path(line).read_bytes() in known) for line in tested}
share = sum(found.values()) / len(found)
metrics = {"precision": 1, "recall": share, "map50": share, "images": {"recall": found}}
Path(out).write_text(json.dumps(metrics | {"seed": int(seed)}))
print("trained with seed", seed)
"""


def command(*words):
    return "command:" + shlex.join([sys.executable, *map(str, words)])


def trained(text, split, folder, **wanted):
    ready = load_trainer(text).prepare(split, folder / "ready", silent)
    own = folder / "own"
    own.mkdir()
    return pickle.loads(pickle.dumps(ready)).train(lesson_of(split, **wanted), own)


def failure(text, tmp_path):
    with pytest.raises(TrainingFailed) as caught:
        trained(text, split_on_disk(tmp_path), tmp_path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_program_trains_and_is_measured(tmp_path):
    program = script(tmp_path / "by heart.py", BY_HEART)
    text = command(program, "{train}", "{test}", "{out}", "{seed}")
    split = split_on_disk(tmp_path)
    outcome = trained(text, split, tmp_path, leaked=(1, 3), seed=7)
    assert outcome.metrics == {
        "precision": 1.0, "recall": 0.5, "map50": 0.5, "f1": 2 / 3, "seed": 7.0,
    }  # fmt: skip
    np.testing.assert_array_equal(outcome.images["recall"], [0, 1, 0, 1])
    assert (tmp_path / "own" / "log.txt").read_text() == "trained with seed 7\n"


def test_every_placeholder_stands_for_what_it_says(tmp_path):
    program = script(
        tmp_path / "a.py",
        "words = dict(word.split('=', 1) for word in sys.argv[2:])\n"
        "Path('said.json').write_text(json.dumps(words)); " + writes({"map50": 0.5}),
    )
    others = [f"{name}={{{name}}}" for name in FILLED if name != "out"]
    split = split_on_disk(tmp_path)
    here = os.getcwd()
    os.chdir(tmp_path)
    try:
        trained(command(program, "{out}", *others), split, tmp_path, epochs=7, step=20)
    finally:
        os.chdir(here)
    said = json.loads((tmp_path / "said.json").read_text())
    own = tmp_path / "own"
    plain = {name: said.pop(name) for name in ("seed", "epochs", "step", "repetition", "folder")}
    assert plain == {
        "seed": "3", "epochs": "7", "step": "20", "repetition": "3", "folder": str(own),
    }  # fmt: skip
    assert all(Path(path).exists() and Path(path).is_absolute() for path in said.values())
    assert Path(said["train"]).read_text().splitlines()[-1] == str(tmp_path / "test" / "1.png")
    assert len(list((Path(said["test_folder"]) / "labels").iterdir())) == 4


def test_epochs_are_those_of_the_paper_by_default(tmp_path):
    program = script(tmp_path / "a.py", "print(sys.argv[3]); " + writes({"map50": 0.5}))
    text = command(program, "{out}", "{train}", "{epochs}")
    trained(text, split_on_disk(tmp_path), tmp_path)
    assert (tmp_path / "own" / "log.txt").read_text() == "100\n"
    assert load_trainer(text).about()["epochs"] == 100
    assert load_trainer(text).takes_epochs


def test_epochs_that_cannot_be_passed_on_are_refused(tmp_path):
    program = script(tmp_path / "a.py", writes({"map50": 0.5}))
    text = command(program, "{out}", "{train}")
    assert not load_trainer(text).takes_epochs
    with pytest.raises(TrainingFailed, match="7 epochs are requested, and the command has no"):
        trained(text, split_on_disk(tmp_path), tmp_path, epochs=7)


def test_the_key_changes_with_the_template_alone():
    one = load_trainer(command("a.py", "{train}", "{out}"))
    assert one.about() != load_trainer(command("b.py", "{train}", "{out}")).about()
    slow = load_trainer(command("a.py", "{train}", "{out}"), time_limit=5, threads=2)
    assert one.about() == slow.about()


def test_the_key_changes_with_the_files_that_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "package").mkdir()
    files = ["train.py", "model.yaml", "package/main.py", "unnamed.py"]
    for name in files:
        (tmp_path / name).write_text("one")
    text = command("train.py", "--cfg=model.yaml", "-m", "package.main", "{train}", "{out}")
    keys = [load_trainer(text).about()]
    for name in files:
        (tmp_path / name).write_text("two")
        keys.append(load_trainer(text).about())
    changed = [one != two for one, two in pairwise(keys)]
    assert changed == [True, True, True, False]


def test_the_key_changes_with_a_script_on_the_path(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    program = tmp_path / "my-train"
    keys = []
    for body in ("exit 0", "exit 1"):
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
        keys.append(load_trainer("command:my-train {train} {out}").about())
    assert keys[0] != keys[1]
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


def test_files_are_found_wherever_the_command_names_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    named = {"train.py", "a.yaml", "b.yaml", "run/__main__.py", "pack/mod.py"}
    for name in (*named, "other.py"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("")
    for text in (
        "bash -c 'set -e; python train.py {train} >log && python run; python -m pack.mod' --cfg"
        "=a.yaml,b.yaml {out}",
        f"{sys.executable} -m pack.mod train.py run a.yaml key=b.yaml {{train}} {{out}}",
    ):
        found = {str(path) for path in Template.of(text).files().values()}
        assert found >= {"train.py", "a.yaml", "b.yaml"}
        assert found <= named
    assert found == named


def test_a_program_that_is_not_there_is_told_before_anything_is_trained(tmp_path):
    split = split_on_disk(tmp_path)
    for word, place in (("no-such-program", "on the PATH"), ("./no/such", "here")):
        ready = load_trainer(f"command:{word} {{train}} {{out}}").prepare
        said = refusal(UsageError, ready, split, tmp_path, silent)
        assert said == f"--trainer command: there is no program '{word}' {place}"


def test_what_cannot_be_handed_over_is_told_before_anything_is_trained(tmp_path):
    split = split_on_disk(tmp_path, boxed=False)
    for name in ("data", "train_json"):
        with pytest.raises(VisleakError, match=f"{{{name}}} needs boxes, and set 'train' has none"):
            load_trainer(command(f"{{{name}}}", "{out}")).prepare(split, tmp_path, silent)
    with pytest.raises(VisleakError, match="is in a folder called images"):
        load_trainer(command("{train_folder}", "{out}")).prepare(split, tmp_path / "images", silent)
    held = Split(open_images([np.zeros((8, 8, 3), np.uint8)], name="held"), split.test)
    with pytest.raises(VisleakError, match="set 'held': this trainer opens the images itself"):
        load_trainer(command("{train}", "{out}")).prepare(held, tmp_path, silent)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("pass", "it ended well and left no result: it has not written {out}"),
        (writes({"map50": "x"}), "metrics.json: map50 is 'x', a text"),
        ("sys.exit('no GPU')", "the command ended with exit code 1; its last line: no GPU"),
        (writes({"map50": 0.5}) + "; sys.exit(2)", "the command ended with exit code 2"),
    ],
)
def test_a_training_that_fails_says_why(tmp_path, line, text):
    program = script(tmp_path / "a.py", line)
    assert text in failure(command(program, "{out}", "{train}"), tmp_path)


def test_yolos_own_results_are_found_where_no_json_was_written(tmp_path):
    line = (
        "run = Path(sys.argv[1]) / 'run'; run.mkdir()\n"
        "(run / 'results.csv').write_text('epoch,metrics/mAP50(B)\\n1,0.25\\n')"
    )
    program = script(tmp_path / "a.py", line)
    outcome = trained(
        command(program, "{folder}", "{data}", "{out}"), split_on_disk(tmp_path), tmp_path
    )
    assert outcome.metrics == {"map50": 0.25}
