"""The images that a purge removes, its advice, and its result."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import layout_making as making
import pytest
from audit_making import make_audit, pair
from hypothesis import given, settings
from hypothesis import strategies as st

import visleak
from visleak import remedy
from visleak.errors import UsageError, VisleakError
from visleak.formats import open_images
from visleak.images import content_digest
from visleak.records import GRADES
from visleak.remedy import PurgeSettings, removal
from visleak.verdicts import Ledger, Verdict

_NUMBER = itertools.count()


pytestmark = pytest.mark.usefixtures("no_waiting")


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    root = tmp_path_factory.mktemp("sets")
    return making.flat_folder(root / "test"), making.flat_folder(root / "train", 100)


@pytest.fixture
def own(tmp_path):
    """Sets that a test changes, and their audit."""
    test, train = making.flat_folder(tmp_path / "test"), making.flat_folder(tmp_path / "train", 100)

    def make(*pairs):
        return make_audit(tmp_path / "a", {"test": test}, {"train": train}, pairs)

    return Path(test), Path(train), make


@pytest.fixture
def audited(sources, tmp_path):
    def make(*pairs, **more):
        test, train = sources
        folder = tmp_path / f"audit-{next(_NUMBER)}"
        return make_audit(folder, {"test": test}, {"train": train}, pairs, **more)

    return make


def purge(folder, out=None, **settings):
    return remedy.purge(folder, PurgeSettings(**settings), out=out)


def goes(result):
    return {each.id: each.why for plan in result.sets for each in plan.removed}


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.sampled_from(GRADES)), max_size=12),
    st.sampled_from(["test", "train"]),
    st.sampled_from(GRADES[:-1]),
)
def test_the_images_in_strong_pairs_are_removed(sources, tmp_path_factory, rows, side, grade):
    pairs = {f"{q}-{r}": pair(f"test/{q}.png", f"train/{r}.png", g) for q, r, g in rows}
    folder = tmp_path_factory.mktemp("a") / "audit"
    make_audit(folder, {"test": sources[0]}, {"train": sources[1]}, pairs.values())
    strong = GRADES[: GRADES.index(grade) + 1]
    end = "query" if side == "test" else "reference"
    want: dict[str, str] = {}
    for row in pairs.values():
        if row["grade"] in strong:
            before = want.get(row[end], "different")
            want[row[end]] = min(before, row["grade"], key=GRADES.index)
    assert goes(purge(folder, remove_from=side, grade=grade)) == want


def test_verdicts_of_people_count(audited, sources):
    folder = audited(
        pair("test/0.png", "train/0.png", "near"),
        pair("test/1.png", "train/1.png", "different"),
        pair("test/2.png", "train/2.png", "near"),
    )
    digests = [
        [content_digest(data).hex() for data in making.contents(source).values()]
        for source in sources
    ]
    with Ledger(folder) as ledger:
        for at, judgment in ((0, "different"), (1, "near")):
            ledger.add(Verdict.of(digests[0][at], digests[1][at], judgment, "Ada"))
        for judgment, reviewer in (("near", "Ada"), ("different", "Bob")):
            ledger.add(Verdict.of(digests[0][2], digests[1][2], judgment, reviewer))
    result = purge(folder)
    assert goes(result) == {"1.png": "near"}
    assert result.disputed == 1
    assert goes(purge(folder, include_disputed=True)) == {"1.png": "near", "2.png": "near"}


def test_blank_images_stay_and_are_counted(audited):
    folder = audited(
        pair("test/0.png", "train/0.png", "exact"),
        pair("test/1.png", "train/1.png", "exact"),
        flat=["test/0.png"],
    )
    result = purge(folder)
    assert goes(result) == {"1.png": "exact"}
    assert result.blank == 1


def test_images_with_the_same_bytes_are_removed_too(own):
    """The audit may list one of several equal training images (--candidates nearest)."""
    _, train, make = own
    making.put(train / "again.png", making.picture(102))
    folder = make(pair("test/0.png", "train/2.png", "near"))
    assert goes(purge(folder, remove_from="train")) == {"2.png": "near", "again.png": "near"}


def test_repeats_within_the_test_set(audited):
    """Of each connected group the first image that does not leak stays."""
    rows = [
        pair("test/0.png", "train/0.png", "near"),
        *(pair(f"test/{a}.png", f"test/{b}.png", g) for a, b, g in (
            (0, 1, "near"), (1, 2, "exact"), (2, 3, "near"), (4, 5, "similar"),
        )),
    ]  # fmt: skip
    folder = audited(*rows)
    assert goes(purge(folder)) == {"0.png": "near"}
    dropped = purge(folder, test_duplicates="drop")
    assert goes(dropped) == {"0.png": "near", "2.png": "repeat: exact", "3.png": "repeat: near"}
    assert {r.partner for r in dropped.sets[0].removed[1:]} == {"test/1.png"}
    more = goes(purge(folder, test_duplicates="drop", grade="similar"))
    assert more["5.png"] == "repeat: similar"


def test_degrees_where_there_are_no_grades(audited):
    folder = audited(
        pair("test/0.png", "train/0.png", None, degree="hard"),
        pair("test/1.png", "train/1.png", None, degree="soft"),
        pair("test/2.png", "train/2.png", None, degree=None),
    )
    with pytest.raises(UsageError, match="use --degree hard or --degree soft"):
        purge(folder)
    assert list(goes(purge(folder, degree="hard"))) == ["0.png"]
    assert list(goes(purge(folder, degree="soft"))) == ["0.png", "1.png"]


def test_pairs_without_a_grade_are_noted(audited):
    rows = [pair("test/0.png", "train/0.png"), pair("test/1.png", "train/1.png", None)]
    assert purge(audited(*rows)).caveats == (
        "pairs that were not verified (1) have no grade and do not count; --degree counts them",
    )


def test_class_balance_is_that_of_the_definition(tmp_path):
    test, train = making.folder(tmp_path / "test"), making.flat_folder(tmp_path / "train", 100)
    ids = open_images(test).ids.to_pylist()  # four cats, three dogs
    rows = [pair(f"test/{ids[0]}", "train/0.png"), pair(f"test/{ids[1]}", "train/1.png")]
    (plan,) = purge(make_audit(tmp_path / "a", {"test": test}, {"train": train}, rows)).sets
    assert [(c.label, c.before, c.after) for c in plan.classes] == [("cat", 4, 2), ("dog", 3, 3)]
    assert plan.shift == pytest.approx((abs(4 / 7 - 2 / 5) + abs(3 / 7 - 3 / 5)) / 2)


@pytest.mark.parametrize(
    ("leaks", "more", "side", "said"),
    [
        (1, {}, "train", "1 of 7 images of train (14.29 %)"),
        (3, {"flat": ["train/1.png", "train/2.png"]}, "train", "drop 1 of 7 images of train"),
        (1, {"roles": {"train": ["pretraining"]}}, "test", "train is pretraining data"),
        (3, {}, "test", "drop 3 of 7 images of train (42.86 %); the limit is 20 %"),
    ],
)
def test_the_side_that_is_recommended(leaks, more, side, said, audited, monkeypatch):
    """Ramos et al. section 8: from train if possible, else from test."""
    monkeypatch.setattr(removal, "TRAINING_LIMIT", 0.2)
    rows = [pair("test/0.png", f"train/{i}.png") for i in range(leaks)]
    found = purge(audited(*rows, **more)).advice
    assert found.side == side
    assert said in found.why


def test_embeddings_on_the_training_side(sources, tmp_path):
    """Only the list of ids can be written."""
    rows = [pair("test/0.png", "crawl/x9", None, degree="hard")]
    inside = [*rows, pair("test/1.png", "test/2.png", "exact")]
    folder, graded = (
        make_audit(tmp_path / name, {"test": sources[0]}, {}, pairs, embeddings={"crawl": 1000})
        for name, pairs in (("a", rows), ("b", inside))
    )
    with pytest.raises(UsageError, match="use --degree hard or --degree soft"):
        purge(graded, remove_from="train")
    result = purge(folder, degree="hard")
    assert result.advice.side == "test"
    assert "crawl has embeddings only" in result.advice.why
    asked = {"remove_from": "train", "degree": "hard"}
    train = purge(folder, **asked)
    assert (train.sets[0].total, train.sets[0].stays) == (1000, 999)
    out = tmp_path / "out"
    with pytest.raises(UsageError, match=r"set 'crawl' has embeddings only.*--format manifest"):
        purge(folder, out=out, format="copy", **asked)
    assert purge(folder, out=out, format="manifest", **asked).written.sources == {}
    lines = (out / "removed.csv").read_text().splitlines()
    assert lines[1] == "crawl,x9,,,,hard,test/0.png"


def test_the_result_holds_what_stays(audited, sources, tmp_path):
    folder = audited(pair("test/1.png", "train/4.png"), pair("test/5.png", "train/4.png"))
    result = purge(folder, out=tmp_path / "out", format="copy")
    again = open_images(result.written.sources["test"])
    assert again.ids.to_pylist() == ["0.png", "2.png", "3.png", "4.png", "6.png"]
    rows = (tmp_path / "out" / "removed.csv").read_text().splitlines()
    assert [row.split(",")[1] for row in rows[1:]] == ["1.png", "5.png"]
    assert all(row.endswith(",near,train/4.png") for row in rows[1:])
    content = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert content["about"]["from"] == "test"
    assert content["about"]["audit"] == str(folder)
    train = purge(folder, remove_from="train", out=tmp_path / "out2", format="link")
    assert len(open_images(train.written.sources["train"])) == 6
    assert purge(folder, out=tmp_path / "out", format="copy").written.reused


def test_a_set_that_changed_since_the_audit_is_refused(own, tmp_path):
    test, _, make = own
    folder = make(pair("test/0.png", "train/0.png"))

    def refusal(format="copy"):
        with pytest.raises(VisleakError) as raised:
            purge(folder, out=tmp_path / "out", format=format)
        assert not (tmp_path / "out").exists()
        return str(raised.value)

    making.put(test / "3.png", making.picture(77))
    assert "image '3.png' changed since the audit: its content is different" in refusal("link")
    making.put(test / "3.png", making.picture(3))
    # also of the removed image
    making.put(test / "0.png", making.picture(79))
    assert "image '0.png' changed since the audit: its content" in refusal()
    making.put(test / "0.png", making.picture(0))
    making.put(test / "new.png", making.picture(78))
    assert "image 'new.png' is new since the audit; run `visleak audit` again" in refusal()
    (test / "new.png").unlink()
    (test / "6.png").unlink()
    assert "image '6.png' is missing since the audit" in refusal()
    test.rename(tmp_path / "elsewhere")
    assert f"cannot be opened again as audited: source '{test}' does not exist" in refusal()


def test_an_image_that_can_be_read_since_the_audit_is_refused(tmp_path):
    """It may be a copy."""
    test, train = making.flat_folder(tmp_path / "test"), making.flat_folder(tmp_path / "train")
    repaired = Path(test) / "later.png"
    repaired.write_text("<html>")
    visleak.audit(test, train, out=tmp_path / "a", workers=1, cache=None)
    repaired.write_bytes((Path(train) / "2.png").read_bytes())
    with pytest.raises(VisleakError, match=r"image 'later.png' can be read since the audit; run"):
        purge(tmp_path / "a", remove_from="test", out=tmp_path / "out", format="copy")
    assert not (tmp_path / "out").exists()


def test_audits_that_cannot_be_purged(audited, sources, tmp_path):
    with pytest.raises(UsageError, match=r"a sample of 50 images per set.*without --sample"):
        purge(audited(settings={"sample": 50}))
    with pytest.raises(UsageError, match="set must be one of test; got 'val'"):
        purge(audited(), set_name="val")
    with pytest.raises(UsageError, match="--test-duplicates drop needs"):
        purge(audited(), remove_from="train", test_duplicates="drop")
    alone = make_audit(tmp_path / "a", {"test": sources[0]}, {}, [])
    with pytest.raises(UsageError, match="no training side; use --remove-from test"):
        purge(alone, remove_from="train")
    sets, crossed = dict(zip("ab", sources, strict=True)), [("a", "b"), ("b", "a")]
    both = make_audit(tmp_path / "b", sets, {}, [], compared=crossed)
    with pytest.raises(UsageError, match="would remove both images of a pair; choose"):
        purge(both)
    assert purge(both, set_name="a").sets[0].name == "a"


def test_a_search_for_the_nearest_only_is_noted(audited):
    folder = audited(pair("test/0.png", "train/0.png"), settings={"candidates": "nearest"})
    assert "further copies in training stay" in purge(folder, remove_from="train").caveats[0]
    assert purge(folder).caveats == ()


def test_sets_of_different_layouts_are_written_together(tmp_path):
    tests = {"val": making.table(tmp_path / "v"), "test": making.zipped(tmp_path / "z", 30)}
    train = making.flat_folder(tmp_path / "train", 100)
    ids = open_images(tests["test"]).ids.to_pylist()
    first = open_images(tests["val"]).ids[0].as_py()
    rows = [pair(f"test/{ids[2]}", "train/0.png"), pair(f"val/{first}", "train/1.png")]
    folder = make_audit(tmp_path / "a", tests, {"train": train}, rows)
    result = purge(folder, out=tmp_path / "out", format="copy")
    sizes = {name: len(open_images(each)) for name, each in result.written.sources.items()}
    assert sizes == {"val": 6, "test": 6}
    only = purge(folder, set_name="val", out=tmp_path / "only", format="link")
    assert list(only.written.sources) == ["val"]
