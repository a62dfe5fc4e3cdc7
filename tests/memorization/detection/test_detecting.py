"""From a list of prompts to a folder of results: what is written, reused, gone on with, refused."""

import re

import numpy as np
import pyarrow.parquet as pq
import pytest

from closed_form import ClosedForm
from visleak.errors import UsageError
from visleak.memorization.detection import Analysis, detect, document, read_detection
from visleak.memorization.detection.document import headlines
from visleak.memorization.detection.records import listing_of
from visleak.memorization.detection.run import BLOCK, SCORES, scored
from visleak.memorization.prompt_files import read_prompts
from visleak.memorization.prompts import Prompts
from visleak.memorization.scores import TriggerScore
from visleak.memorization.settings import ScoreSettings
from visleak.storage import LOCK, KeyValueStore

pytestmark = pytest.mark.usefixtures("drawn_figures")

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


@pytest.fixture(autouse=True)
def _undrawn(request, monkeypatch):
    """Draw figures, which takes a second each, where a test is about them only."""
    if "figures" not in request.node.name:
        for name in ("scores_figure", "roc_figure", "tokens_figure"):
            monkeypatch.setattr(document, name, lambda *given: {})


def files(folder):
    return {path.name for path in folder.iterdir()} - {LOCK, SCORES}


def run(out, *, general=GENERAL, **more):
    model = ClosedForm()
    settings = more.pop("settings", ScoreSettings(noises=2))
    prompts = more.pop("prompts", LISTED)
    found = detect(TriggerScore(model, settings), prompts, out, general=general, **more)
    return found, model


def test_a_labelled_list_against_a_general_one_and_its_figures(tmp_path):
    found, model = run(tmp_path / "out", analysis=Analysis(tokens=2))
    assert (found.prompts, found.general, found.known) == (13, 300, 12)
    assert (found.origin, found.general_origin) == ("list.csv", "coco.json")
    assert (found.threshold.rule, found.threshold.alarms, found.threshold.negatives) == (
        "observed", 3, 300,
    )  # fmt: skip
    assert (found.reached, found.known_reached) == (13, 12)
    assert (found.separation.by, found.separation.positives) == ("labels", 12)
    assert found.separation.positive_groups == 6
    assert found.separation.auc.value == 1.0
    assert [each.prompt for each in found.top][:2] == [HOSTILE, "mem 6.0"]
    assert [spread.kind for spread in found.spreads] == ["memorized", "prompts", "general"]
    assert found.notes == (
        "one came twice",
        "1 prompt without a label is not part of the figures that compare kinds",
    )
    assert found.timestep == 981.0
    assert found.model["name"] == "closed form"
    assert found.throughput.passes == 2 * 314
    # scoring, and each attributed prompt once more a noise
    assert model.rows == 2 * 314 + 2 * 2
    assert files(tmp_path / "out") == {
        "detect.json", "detect.md", "scores.parquet", "scores.csv", "general.parquet",
        "general.csv", "roc.parquet", "roc.csv", "tokens.parquet", "tokens.csv", "scores.svg",
        "scores.png", "roc.svg", "roc.png", "tokens.svg", "tokens.png",
    }  # fmt: skip
    assert read_detection(tmp_path / "out") == found
    assert headlines(found)[0] == (
        "13 of 13 prompts reach D >= 2.35, among them 12 of 12 known to be memorized (false"
        " alarms: 3 of 300 ordinary prompts, 1.00 %; at most 2.56 % with 95 % confidence)"
    )


def test_the_table_of_scores(tmp_path):
    found, _ = run(tmp_path / "out")
    table = pq.read_table(tmp_path / "out" / "scores.parquet")
    rows = table.to_pylist()
    assert table.column_names == [
        "rank", "prompt", "d_l2", "d_squared", "d_l2_error", "d_squared_error", "label", "reached",
        "group", "sources", "squared_noise_1", "squared_noise_2",
    ]  # fmt: skip
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
    assert by_prompt["unknown 4"]["label"] is None
    assert by_prompt[HOSTILE]["sources"] == ["image 5"]
    assert by_prompt["mem 6.0"]["group"] == by_prompt[HOSTILE]["group"] + 0
    general = pq.read_table(tmp_path / "out" / "general.parquet")
    assert len(general) == 300
    assert general["label"].to_pylist() == [False] * 300


def test_tables_are_lists_of_prompts_again(tmp_path):
    run(tmp_path / "out")
    for name in ("scores.parquet", "scores.csv"):
        again = read_prompts(tmp_path / "out" / name)
        assert set(again.texts) == set(LISTED.texts)
        labels = dict(zip(again.texts, again.labels, strict=True))
        assert labels == dict(zip(LISTED.texts, LISTED.labels, strict=True))
    sources = dict(zip(again.texts, again.sources, strict=True)) if again.sources else {}
    assert set(sources.values()) <= {()}
    again = read_prompts(tmp_path / "out" / "scores.parquet")
    assert dict(zip(again.texts, again.sources, strict=True)) == dict(
        zip(LISTED.texts, LISTED.sources, strict=True)
    )


def test_ties_go_by_prompt(tmp_path):
    prompts = Prompts(("b 2", "a 2", "c 3", "a 2.0"))
    model = ClosedForm()
    model.encode_prompt = lambda texts: ClosedForm().encode_prompt(
        [re.sub("[a-z]", "", text) for text in texts]
    )
    detect(TriggerScore(model), prompts, tmp_path)
    rows = pq.read_table(tmp_path / "scores.parquet")["prompt"].to_pylist()
    assert rows == ["c 3", "a 2", "a 2.0", "b 2"]


def test_a_list_alone_has_no_threshold(tmp_path):
    found, _ = run(tmp_path / "out", prompts=Prompts(("cat 1", "dog 2")), general=None)
    assert (found.threshold, found.separation) == (None, None)
    assert not {"roc.csv", "general.csv", "tokens.csv", "roc.svg"} & files(tmp_path / "out")
    (line,) = headlines(found)
    assert line == (
        "2 prompts: the highest D is 1.574, median 1.18; the threshold needs ordinary prompts"
        " (--general FILE)"
    )
    assert pq.read_table(tmp_path / "out" / "scores.parquet")["reached"].null_count == 2


def test_a_given_threshold_is_used(tmp_path):
    found, _ = run(tmp_path / "out", analysis=Analysis(threshold=2.0))
    assert (found.threshold.value, found.threshold.rule) == (2.0, "given")
    assert found.threshold.alarms > 3
    alone, _ = run(tmp_path / "two", analysis=Analysis(threshold=2.0), general=None)
    assert headlines(alone)[0] == (
        "13 of 13 prompts reach D >= 2 (its rate of false alarms is not known: no ordinary prompts"
        " were given)"
    )


def test_too_few_ordinary_prompts_are_said(tmp_path):
    few = Prompts(GENERAL.texts[:40])
    found, _ = run(tmp_path / "out", general=few)
    assert found.notes[1] == (
        "40 ordinary prompts cannot support a rate of 1 %, which needs 100: the threshold lies"
        " above all of them"
    )
    found, _ = run(tmp_path / "two", general=few, analysis=Analysis(bounded=True))
    assert "which needs 299:" in found.notes[1]


def test_ordinary_prompts_that_share_images_are_said(tmp_path):
    shared = Prompts(GENERAL.texts, sources=(("one",),) * 10 + ((),) * 290)
    found, _ = run(tmp_path / "out", general=shared)
    assert found.notes[1] == (
        "the 300 ordinary prompts share images, in 291 groups; the bound takes them for independent"
    )


def test_what_is_only_read_otherwise_is_not_scored_again(tmp_path):
    first, _ = run(tmp_path / "out")
    other, model = run(tmp_path / "out", analysis=Analysis(fpr=0.1), force=True)
    assert model.rows == 0
    assert other.throughput.reused == 313
    fresh, _ = run(tmp_path / "new", analysis=Analysis(fpr=0.1))
    assert (other.threshold, other.separation, other.top) == (
        fresh.threshold, fresh.separation, fresh.top,
    )  # fmt: skip
    for name in ("scores.parquet", "general.csv", "roc.csv"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "new" / name).read_bytes()
    assert first.threshold != other.threshold


@pytest.mark.parametrize("wrong", [{"fpr": 1.0}, {"bounded": True, "threshold": 1.0}])
def test_what_cannot_be_asked(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Analysis(**wrong)


def test_figures_of_one_prompt_of_no_score(tmp_path):
    found, _ = run(tmp_path / "out", prompts=Prompts(("0",)), general=Prompts(("0 0",)))
    assert found.separation.auc.value == 0.5
    assert (tmp_path / "out" / "scores.svg").stat().st_size > 1000


# -- blocks of scores -----------------------------------------------------------------------------


TEXTS = tuple(f"prompt {number / 100}" for number in range(3 * BLOCK + 17))


def score(fail_after=None, batch=32):
    return TriggerScore(ClosedForm(fail_after), ScoreSettings(noises=2, batch=batch))


def test_the_scores_are_those_without_blocks(tmp_path):
    made = score()
    found, cost = scored(made, TEXTS, tmp_path, "key")
    whole = score()(TEXTS)
    assert (found.squared == whole.squared).all()
    assert (found.l2 == whole.l2).all()
    # the empty prompt once a noise, however many blocks there are
    assert cost.passes == made.calls == 2 * (len(TEXTS) + 1)
    assert (cost.prompts, cost.reused) == (len(TEXTS), 0)
    assert cost.seconds == pytest.approx(made.seconds)
    assert cost.prompts_per_second == pytest.approx(len(TEXTS) / cost.seconds)
    assert cost.passes_per_second == pytest.approx(cost.passes / cost.seconds)


@pytest.mark.parametrize("rows", [1, 100, 2 * BLOCK + 70, 4 * BLOCK + 10, 6 * BLOCK + 20])
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


# -- two lists as one -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompts", "general", "kinds", "by", "positive"),
    [
        (
            *(Prompts(("a", "b", "c"), (True, None, False), (("u",), ("u", "v"), ())), None),
            *(["memorized", "prompts", "not memorized"], "labels", [True, False, False]),
        ),
        (
            *(Prompts(("a", "b")), Prompts(("c", "a", "d"), sources=(("w",), (), ("w",)))),
            *(["prompts", "prompts", "general", "general"], "lists", [True, True, False, False]),
        ),
        (
            *(Prompts(("a", "b"), (True, False)), Prompts(("d",))),
            *(["memorized", "not memorized", "general"], "labels", [True, False, False]),
        ),
    ],
)
def test_labels_tell_prompts_apart_and_lists_where_there_are_none(
    prompts, general, kinds, by, positive
):
    found = listing_of(prompts, general)
    assert found.kinds == kinds
    assert (found.by, found.told_apart[0].tolist()) == (by, positive)
    assert found.ordinary.tolist() == [kind in ("not memorized", "general") for kind in kinds]
    sources = dict(zip(found.texts, found.groups, strict=True))
    if by == "lists":
        assert sources["c"] == sources["d"] != sources["a"]
        assert found.notes == ("1 general prompt is in the list too, and count as the list's",)


@pytest.mark.parametrize(
    ("prompts", "general", "said"),
    [
        (Prompts((), origin="x.csv"), None, "prompts x.csv: there is none to score"),
        (
            Prompts(("a",)),
            Prompts(("b", "c"), (True, None), origin="g.csv"),
            "general g.csv: 1 of its prompts are labelled memorized; give ordinary prompts only",
        ),
        (Prompts(("a", "b")), Prompts(("a",), origin="g.csv"), "general g.csv: no prompt in it"),
    ],
)
def test_lists_that_cannot_be(prompts, general, said):
    with pytest.raises(UsageError) as raised:
        listing_of(prompts, general)
    assert said in str(raised.value)
