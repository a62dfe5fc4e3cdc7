"""The whole of it from files: what is refused, what is said, and that nothing depends on order."""

import json
from dataclasses import asdict

import numpy as np
import pytest

from toy_audit import Image, Pair, digest_of, split_audit
from visleak.errors import UsageError
from visleak.impact import ImpactSettings, impact
from visleak.verdicts import Ledger, Verdict

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


def test_what_is_asked_stands_in_the_result(folder, answers):
    listed = folder.parent / "mine.txt"
    listed.write_text("q30\nq31\n")
    result = impact(
        folder, answers, ImpactSettings(draws=10, subsets={"mine": listed}, exact_p=True, seed=7)
    )
    assert (result.test_set, result.references, result.images) == ("test", ("train",), 40)
    assert result.leaks["near or exact"] == 8
    assert result.leaks["mine"] == 2
    assert (result.settings["p"], result.settings["seed"]) == ("exact", 7)
    assert result.metrics == ("accuracy",)
    assert {flip.leak for flip in result.flips} >= {"near or exact", "mine"}
    effect = result.effect("x", "accuracy")
    assert effect.row("near or exact", "same label") is not None
    assert effect.row("mine", "same label") is None


def test_a_note_counts_the_parts_that_are_too_small_to_draw_from(folder, answers):
    result = impact(folder, {"x": answers["x"]}, ImpactSettings(draws=3, size=10))
    # eight images leak, all with the same label, as hard, near or exact and so on
    assert any(
        note.endswith(
            "parts have no more than 10 images: they are used as a whole, without a deviation"
        )
        for note in result.notes
    )
    drawn = impact(folder, {"x": answers["x"]}, ImpactSettings(draws=3, size=4))
    assert not any("used as a whole" in note for note in drawn.notes)


def test_a_note_says_that_all_images_of_a_class_leak(tmp_path):
    test = [Image("q0", "a"), Image("q1", "b"), Image("q2", "b")]
    audit = split_audit(tmp_path / "a", test, [Image("r")], [Pair("q0", "r")])
    result = impact(audit, {"m": file(tmp_path / "m.csv", 0, images=3)}, FEW)
    assert (
        "near or exact: all images of 1 class leak, and the fair score excludes them"
        in result.notes
    )
    two = [Image("q0", "a"), Image("q1", "c"), Image("q2", "b")]
    pairs = [Pair("q0", "r"), Pair("q1", "r")]
    audit = split_audit(tmp_path / "b", two, [Image("r")], pairs)
    result = impact(audit, {"m": file(tmp_path / "m.csv", 0, images=3)}, FEW)
    said = "near or exact: all images of 2 classes leak, and the fair score excludes them"
    assert said in result.notes


def test_a_note_says_where_images_stand_that_nobody_judged(folder, answers):
    known = [digest_of("test", TEST[0]), digest_of("train", Image("r", "a"))]
    with Ledger(folder) as ledger:
        ledger.add(Verdict.of(*known, "near", "Ada"))
    told = "only reviewed pairs count"
    alone = impact(folder, answers, ImpactSettings(draws=2, reviewed_only=True))
    assert alone.leaks["near or exact"] == 1
    assert alone.notes[-1].startswith(told)
    assert not any(note.startswith(told) for note in impact(folder, answers, FEW).notes)


def test_a_note_says_that_the_audit_was_of_a_sample(folder, answers):
    assert not any("sample" in note for note in impact(folder, answers, FEW).notes)
    file = folder / "audit.json"
    summary = json.loads(file.read_text())
    summary["sets"][0]["images"] = 90
    file.write_text(json.dumps(summary))
    note, *_ = impact(folder, answers, FEW).notes
    assert note == (
        "the audit is based on a sample of 40 of the 90 images of 'test': every number here is of"
        " these alone"
    )


def test_refusals_are_one_line(folder, answers, tmp_path):
    bare = split_audit(tmp_path / "bare", TEST, [Image("r")], [Pair("q0", "r")])
    other = {"fair": {"w": answers["x"]}}
    wanted = {"settings": ImpactSettings(by_label=True)}
    for call, said in (
        (lambda: impact(folder, {}), r"^no predictions: give a file per model, --predictions"),
        (
            lambda: impact(folder, answers, **other),
            r"^fair predictions of 'w', .* are x, y, z: use",
        ),
        (lambda: ImpactSettings(draws=1), r"^draws must be 2 or more; got 1$"),
        (lambda: ImpactSettings(size=0), r"^size must be 1 or more; got 0$"),
        (
            lambda: impact(bare, answers, **wanted),
            r"^no leaked image of 'test' has a label that can",
        ),
    ):
        with pytest.raises(UsageError, match=said):
            call()


def test_metrics_of_any_kind_have_no_gap_and_no_share(folder, tmp_path):
    scores = {"m": file(tmp_path / "m.csv", 0, column="iou")}
    result = impact(folder, scores, FEW, fair=scores)
    (effect,) = result.effects
    assert (effect.metric, effect.share, effect.percent) == ("iou", False, True)
    assert result.gaps == ()
    # --fair was asked for, and nothing came of it
    assert (
        "m: no gap to the fair test set, because no metric of both files is 0 or 1 per image"
        " (test set: iou; fair: iou)"
    ) in result.notes


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
