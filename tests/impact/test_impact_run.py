"""The whole of it from files: what is refused, what is said, and that nothing depends on order."""

import json
from dataclasses import asdict

import numpy as np
import pytest

from refusals import refused
from toy_audit import Image, Pair, split_audit
from visleak.errors import UsageError
from visleak.impact import ImpactSettings, impact

TEN, FEW = ImpactSettings(draws=10), ImpactSettings(draws=2)
TEST = [Image(f"q{n}", "ab"[n % 2]) for n in range(40)]


@pytest.fixture
def folder(tmp_path):
    pairs = [Pair(f"q{n}", "r", label_relation="same") for n in range(8)]
    return split_audit(tmp_path / "audit", TEST, [Image("r", "a")], pairs)


def file(path, seed, *, column="correct", images=40):
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 2, images) if column == "correct" else rng.random(images)
    lines = [f"q{n},{value}" for n, value in enumerate(values)]
    path.write_text("\n".join([f"id,{column}", *lines]) + "\n")
    return path


@pytest.fixture
def answers(tmp_path):
    return {name: file(tmp_path / f"{name}.csv", n) for n, name in enumerate("xyz")}


def test_order_of_models_and_of_rows_changes_no_number(folder, answers, tmp_path):
    first = impact(folder, answers, TEN)
    header, *rows = answers["y"].read_text().splitlines()
    turned = tmp_path / "turned.csv"
    turned.write_text("\n".join([header, *reversed(rows)]) + "\n")
    again = impact(folder, {"z": answers["z"], "y": turned, "x": answers["x"]}, TEN)

    def numbers(result):
        # as text, for NaN equals nothing
        return {e.model: str(asdict(e)) for e in result.effects}

    assert numbers(first) == numbers(again)
    assert first.models == ("x", "y", "z")
    # what is drawn depends on the seed
    assert numbers(first) != numbers(impact(folder, answers, ImpactSettings(draws=10, seed=1)))


def test_a_note_counts_the_parts_that_are_too_small_to_draw_from(folder, answers):
    for size, said in ((10, True), (4, False)):
        result = impact(folder, {"x": answers["x"]}, ImpactSettings(draws=3, size=size))
        assert any("10 images: they are used as a whole" in note for note in result.notes) == said


def test_a_note_says_that_all_images_of_a_class_leak(tmp_path):
    test = [Image("q0", "a"), Image("q1", "c"), Image("q2", "b")]
    pairs = [Pair("q0", "r"), Pair("q1", "r")]
    audit = split_audit(tmp_path / "b", test, [Image("r")], pairs)
    result = impact(audit, {"m": file(tmp_path / "m.csv", 0, images=3)}, FEW)
    said = "near or exact: all images of 2 classes leak, and the fair score excludes them"
    assert said in result.notes


def test_a_note_says_that_the_audit_was_of_a_sample(folder, answers):
    file = folder / "audit.json"
    summary = json.loads(file.read_text())
    summary["sets"][0]["images"] = 90
    file.write_text(json.dumps(summary))
    listed = folder / "mine.txt"
    listed.write_text("q30\nq31\n")
    result = impact(folder, answers, ImpactSettings(draws=2, subsets={"mine": listed}))
    (note,) = result.notes
    assert note.startswith("the audit is based on a sample of 40 of the 90 images of 'test'")
    assert (result.leaks["near or exact"], result.leaks["mine"]) == (8, 2)


def test_refusals_are_one_line(folder, answers, tmp_path):
    bare = split_audit(tmp_path / "bare", TEST, [Image("r")], [Pair("q0", "r")])
    fair = {"w": answers["x"]}
    refused(UsageError, "^no predictions: give a file per model", folder, impact, predictions={})
    words = "^fair predictions of 'w', .* are x, y, z: use"
    refused(UsageError, words, folder, impact, predictions=answers, fair=fair)
    labels = ImpactSettings(by_label=True)
    words = "^no leaked image of 'test' has a label"
    refused(UsageError, words, bare, impact, predictions=answers, settings=labels)


def test_metrics_of_any_kind_have_no_gap_and_no_share(folder, tmp_path):
    scores = {"m": file(tmp_path / "m.csv", 0, column="iou")}
    result = impact(folder, scores, FEW, fair=scores)
    (effect,) = result.effects
    assert (effect.metric, effect.share, effect.percent) == ("iou", False, True)
    assert result.gaps == ()
    # --fair was asked for, and nothing came of it
    assert any(note.startswith("m: no gap to the fair test set") for note in result.notes)


@pytest.mark.parametrize("own", [False, True])
def test_the_own_loss_of_a_model_is_no_difficulty(folder, answers, tmp_path, own):
    rng = np.random.default_rng(5)
    right = np.loadtxt(answers["x"], delimiter=",", skiprows=1, usecols=1)
    hard = 1 - right if own else rng.random(len(right)) + 0.5 * (1 - right)
    given = tmp_path / "hard.csv"
    rows = [f"q{n},{value}" for n, value in enumerate(hard + 0.1 * rng.random(len(right)))]
    given.write_text("\n".join(["id,difficulty", *rows]))
    settings = ImpactSettings(difficulty=str(given), draws=2)
    found = impact(folder, {"x": answers["x"]}, settings)
    assert ("as its own loss does" in "".join(found.doubts)) == own
