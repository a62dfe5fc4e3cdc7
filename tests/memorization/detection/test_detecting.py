"""From a list of prompts to a folder of results: what is written, reused, gone on with, refused."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from closed_form import ClosedForm
from visleak.errors import UsageError
from visleak.memorization.detection import Analysis, detect, read_detection
from visleak.memorization.detection.document import headlines
from visleak.memorization.detection.records import listing_of
from visleak.memorization.detection.run import BLOCK, SCORES, scored
from visleak.memorization.prompt_files import read_prompts
from visleak.memorization.prompts import Prompts
from visleak.memorization.scores import TriggerScore
from visleak.memorization.settings import ScoreSettings
from visleak.storage import LOCK, KeyValueStore

HOSTILE = "=cmd()|'/C' <img src=x onerror=alert(1)> $x$ 9.5"

#: Twelve memorized prompts by D, two of one image; one nobody knows; the numbers are their D.
LISTED = Prompts(
    (*(f"mem {5 + number / 10}" for number in range(11)), HOSTILE, "unknown 4"),
    (*(True,) * 12, None),
    (*((f"image {number // 2}",) for number in range(12)), ()),
    origin="list.csv",
    notes=("one came twice",),
)
GENERAL = Prompts(tuple(f"ordinary {number / 100}" for number in range(300)), origin="coco.json")


def files(folder):
    return {path.name for path in folder.iterdir()} - {LOCK, SCORES}


def run(out, *, prompts=LISTED, general=GENERAL, **more):
    model = ClosedForm()
    score = TriggerScore(model, ScoreSettings(noises=2))
    return detect(score, prompts, out, general=general, **more), model


def test_the_table_of_scores(tmp_path):
    found, _ = run(tmp_path / "out")
    rows = pq.read_table(tmp_path / "out" / "scores.parquet").to_pylist()
    score = TriggerScore(ClosedForm(), ScoreSettings(noises=2))
    for row in rows:
        alone = score([row["prompt"]])
        assert row["d_l2"] == pytest.approx(alone.d_l2[0], rel=1e-5)
        assert row["d_squared"] == pytest.approx(alone.d_squared[0], rel=1e-5)
        norms = np.sqrt([row["squared_noise_1"], row["squared_noise_2"]])
        assert row["d_l2"] == pytest.approx(norms.mean())
        # the standard error of a mean of two is half their distance
        assert row["d_l2_error"] == pytest.approx(abs(norms[0] - norms[1]) / 2)
    assert [row["rank"] for row in rows] == list(range(1, 14))
    assert [row["d_l2"] for row in rows] == sorted((row["d_l2"] for row in rows), reverse=True)
    assert all(row["reached"] == (row["d_l2"] >= found.threshold.value) for row in rows)
    by_prompt = {row["prompt"]: row for row in rows}
    assert by_prompt["mem 6.0"]["group"] == by_prompt[HOSTILE]["group"]
    general = pq.read_table(tmp_path / "out" / "general.parquet")
    assert general["label"].to_pylist() == [False] * 300
    # tables are lists of prompts again
    again = read_prompts(tmp_path / "out" / "scores.parquet")
    assert set(zip(again.texts, again.labels, again.sources, strict=True)) == set(
        zip(LISTED.texts, LISTED.labels, LISTED.sources, strict=True)
    )
    assert read_prompts(tmp_path / "out" / "scores.csv").labels == again.labels


def test_ties_go_by_prompt(tmp_path):
    run(tmp_path, prompts=Prompts(("2 0", "0 2", "3", "0 0 2")), general=None)
    rows = pq.read_table(tmp_path / "scores.parquet")["prompt"].to_pylist()
    assert rows == ["3", "0 0 2", "0 2", "2 0"]


def test_a_list_alone_has_the_threshold_that_is_given(tmp_path):
    found, _ = run(tmp_path / "out", prompts=Prompts(("cat 1", "dog 2")), general=None)
    assert (found.threshold, found.separation) == (None, None)
    assert not {"roc.csv", "general.csv", "tokens.csv", "roc.svg"} & files(tmp_path / "out")
    assert "the threshold needs ordinary prompts (--general FILE)" in headlines(found)[0]
    assert pq.read_table(tmp_path / "out" / "scores.parquet")["reached"].null_count == 2
    given, _ = run(tmp_path / "two", analysis=Analysis(threshold=2.0), general=None)
    assert (given.threshold.value, given.threshold.rule) == (2.0, "given")
    assert "no ordinary prompts were given" in headlines(given)[0]


def test_limits_of_ordinary_prompts_are_said(tmp_path):
    few = Prompts(GENERAL.texts[:40])
    found, _ = run(tmp_path / "out", general=few)
    assert "40 ordinary prompts cannot support a rate of 1 %, which needs 100" in found.notes[1]
    found, _ = run(tmp_path / "two", general=few, analysis=Analysis(bounded=True))
    assert "which needs 299:" in found.notes[1]
    with pytest.raises(UsageError, match="fpr"):
        Analysis(fpr=1.0)
    shared = Prompts(GENERAL.texts, sources=(("one",),) * 10 + ((),) * 290)
    found, _ = run(tmp_path / "three", general=shared)
    assert "the 300 ordinary prompts share images, in 291 groups" in found.notes[1]


def test_what_is_only_read_otherwise_is_not_scored_again(tmp_path):
    first, _ = run(tmp_path / "out")
    other, model = run(tmp_path / "out", analysis=Analysis(fpr=0.1), force=True)
    assert model.rows == 0
    assert other.throughput.reused == 313
    assert first.threshold != other.threshold
    run(tmp_path / "new", analysis=Analysis(fpr=0.1))
    for name in ("scores.parquet", "general.csv", "roc.csv"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "new" / name).read_bytes()


TEXTS = tuple(f"prompt {number / 100}" for number in range(3 * BLOCK + 17))


def score(fail_after=None):
    return TriggerScore(ClosedForm(fail_after), ScoreSettings(noises=2, batch=32))


@pytest.mark.parametrize("rows", [1, 100, 4 * BLOCK + 10])
def test_a_kill_loses_a_block_at_most_and_changes_nothing(tmp_path, rows):
    with pytest.raises(KeyboardInterrupt):
        scored(score(fail_after=rows), TEXTS, tmp_path, "key")
    again = score()
    told = []
    found, cost = scored(again, TEXTS, tmp_path, "key", progress=lambda *said: told.append(said))
    assert (found.squared == score()(TEXTS).squared).all()
    # two passes per prompt; the block that was not finished is made again
    kept = (rows - 2) // (2 * BLOCK) * BLOCK if rows > 2 else 0
    assert again.calls == 2 * (len(TEXTS) - kept + 1)
    assert told[0] == ("scoring prompts", kept, len(TEXTS))
    assert told[-1] == ("scoring prompts", len(TEXTS), len(TEXTS))
    # what the first run paid for blocks that count is counted too
    assert cost.passes == 2 * (len(TEXTS) + 1 + bool(kept))
    assert cost.prompts_per_second == pytest.approx(len(TEXTS) / cost.seconds)
    assert cost.passes_per_second == pytest.approx(cost.passes / cost.seconds)


@pytest.mark.parametrize("damage", [b"", b"\0" * 8, np.full(4, np.nan).tobytes()])
def test_a_damaged_score_is_made_again(tmp_path, damage):
    scored(score(), TEXTS, tmp_path, "key")
    with KeyValueStore(tmp_path / SCORES, "scores") as store:
        rows = list(store.select("SELECT key FROM entries"))[:5]
        store.add({key: damage for (key,) in rows}, replace=True)
    again = score()
    found, _ = scored(again, TEXTS, tmp_path, "key")
    assert again.calls == 2 * 6
    np.testing.assert_allclose(found.squared, score()(TEXTS).squared, rtol=1e-6)


def test_labels_tell_prompts_apart_and_lists_where_there_are_none():
    labelled = listing_of(Prompts(("a", "b", "c"), (True, None, False)), None)
    assert labelled.kinds == ["memorized", "prompts", "not memorized"]
    assert (labelled.by, labelled.told_apart[0].tolist()) == ("labels", [True, False, False])
    assert labelled.ordinary.tolist() == [False, False, True]
    general = Prompts(("c", "a", "d"), sources=(("w",), (), ("w",)))
    lists = listing_of(Prompts(("a", "b")), general)
    assert lists.kinds == ["prompts", "prompts", "general", "general"]
    assert (lists.by, lists.told_apart[0].tolist()) == ("lists", [True, True, False, False])
    assert lists.ordinary.tolist() == [False, False, True, True]
    groups = dict(zip(lists.texts, lists.groups, strict=True))
    assert groups["c"] == groups["d"] != groups["a"]
    assert lists.notes == ("1 general prompt is in the list too, and count as the list's",)


def test_lists_that_cannot_be():
    one = Prompts(("a", "b"))
    with pytest.raises(UsageError, match=r"prompts x\.csv: there is none to score"):
        listing_of(Prompts((), origin="x.csv"), None)
    memorized = Prompts(("b", "c"), (True, None), origin="g.csv")
    with pytest.raises(UsageError, match=r"general g\.csv: 1 of its prompts are labelled memor"):
        listing_of(one, memorized)
    with pytest.raises(UsageError, match=r"general g\.csv: no prompt in it"):
        listing_of(one, Prompts(("a",), origin="g.csv"))


def test_a_labelled_list_against_a_general_one_and_its_figures(tmp_path, drawn_figures):
    found, model = run(tmp_path / "out", analysis=Analysis(tokens=2))
    assert (found.prompts, found.general, found.known) == (13, 300, 12)
    assert (found.threshold.alarms, found.threshold.negatives) == (3, 300)
    assert (found.reached, found.known_reached) == (13, 12)
    assert (found.separation.by, found.separation.positives) == ("labels", 12)
    assert found.separation.positive_groups == 6
    assert found.separation.auc.value == 1.0
    assert [each.prompt for each in found.top][:2] == [HOSTILE, "mem 6.0"]
    assert [spread.kind for spread in found.spreads] == ["memorized", "prompts", "general"]
    assert found.notes[1].startswith("1 prompt without a label is not part of the figures")
    assert found.throughput.passes == 2 * 314
    # scoring, and each attributed prompt once more a noise
    assert model.rows == 2 * 314 + 2 * 2
    assert files(tmp_path / "out") == {
        "detect.json", "detect.md", "scores.parquet", "scores.csv", "general.parquet",
        "general.csv", "roc.parquet", "roc.csv", "tokens.parquet", "tokens.csv", "scores.svg",
        "scores.png", "roc.svg", "roc.png", "tokens.svg", "tokens.png",
    }  # fmt: skip
    assert read_detection(tmp_path / "out") == found


def test_figures_of_one_prompt_of_no_score(tmp_path, drawn_figures):
    found, _ = run(tmp_path / "out", prompts=Prompts(("0",)), general=Prompts(("0 0",)))
    assert found.separation.auc.value == 0.5
    assert (tmp_path / "out" / "scores.svg").stat().st_size > 1000
