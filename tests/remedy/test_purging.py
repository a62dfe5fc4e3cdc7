"""The images that a purge removes, its advice, and its result."""

import json
from pathlib import Path

import layout_making as making
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toy_audit import image_row, write_audit
from toy_audit import pair_row as pair
from visleak import remedy
from visleak.errors import UsageError, VisleakError
from visleak.formats import open_images
from visleak.images import content_digest, decode
from visleak.records import GRADES, Problem, Unreadable
from visleak.remedy import PurgeSettings, removal
from visleak.verdicts import Ledger, Verdict

pytestmark = pytest.mark.usefixtures("no_waiting")


def make_audit(
    folder,
    tests,
    trains,
    pairs,
    *,
    flat=(),
    roles=None,
    settings=None,
    compared=(),
    embeddings=None,
):
    """Write an audit of these sources; embeddings are sets without images."""
    rows, problems, sets = [], [], {}
    for name, source in (tests | trains).items():
        images = open_images(source, name=name)
        count = len(images)
        labels = [None] * count if images.labels is None else images.labels.to_pylist()
        columns = images.ids.to_pylist(), labels, images.locators.to_pylist()
        read = images.opener.read(range(count))
        for stored, id_, label, locator in zip(read, *columns, strict=True):
            if isinstance(decoded := decode(stored), Unreadable):
                problems.append(Problem(name, id_, "", decoded.reason))
                continue
            more = {"label": label, "locator": locator, "flat": f"{name}/{id_}" in flat}
            rows.append(image_row(name, id_, digest=content_digest(stored).hex(), **more))
        sets[name] = {"source": source, "options": dict(images.options), "images": count}
        sets[name] |= {"readable": count, "unreadable": 0, "flat": 0}
    pairs = list(pairs)
    for name, count in (embeddings or {}).items():
        # of embeddings that are not kept, the images in pairs are known
        listed = {row["reference"] for row in pairs if row["reference_set"] == name}
        rows += [image_row(name, id_, locator=None) for id_ in sorted(listed)]
        sets[name] = {"source": f"emb:{name}", "images": count, "readable": count}
        sets[name] |= {"has_pixels": False}
    for name, about in sets.items():
        usual = ["benchmark" if name in tests else "training"]
        side = "query" if name in tests else "reference"
        about |= {"dataset": "", "side": side, "roles": (roles or {}).get(name, usual)}
    references = [*trains, *(embeddings or {})]
    found = [*compared, *((t, r) for t in tests for r in references), *((t, t) for t in tests)]
    about = {"limits": (0.9, 0.8), "sets": sets, "key": "0" * 32, "opened_in": "/"}
    about["settings"] = {"sample": 0, "candidates": "auto"} | (settings or {})
    write_audit(folder, rows, pairs, found, problems=problems, **about)
    return folder


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    root = tmp_path_factory.mktemp("sets")
    return making.flat_folder(root / "test"), making.flat_folder(root / "train", 100)


@pytest.fixture
def audited(sources, tmp_path_factory):
    def make(*pairs, sources=sources, **more):
        test, train = sources
        folder = tmp_path_factory.mktemp("a") / "audit"
        return make_audit(folder, {"test": test}, {"train": train}, pairs, **more)

    return make


@pytest.fixture
def own(tmp_path):
    """Sets that a test changes."""
    return making.flat_folder(tmp_path / "test"), making.flat_folder(tmp_path / "train", 100)


def purge(folder, out=None, **settings):
    return remedy.purge(folder, PurgeSettings(**settings), out=out)


def leak(query, reference, grade="near", **more):
    return pair(f"test/{query}.png", f"train/{reference}.png", grade, **more)


def goes(result):
    return {each.id: each.why for plan in result.sets for each in plan.removed}


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.sampled_from(GRADES)), max_size=12),
    st.sampled_from(["test", "train"]),
    st.sampled_from(GRADES[:-1]),
)
def test_the_images_in_strong_pairs_are_removed(audited, rows, side, grade):
    pairs = {f"{q}-{r}": leak(q, r, g) for q, r, g in rows}
    folder = audited(*pairs.values())
    strong = GRADES[: GRADES.index(grade) + 1]
    end = "query" if side == "test" else "reference"
    want = {}
    for row in pairs.values():
        if row["grade"] in strong:
            before = want.get(row[end], "different")
            want[row[end]] = min(before, row["grade"], key=GRADES.index)
    assert goes(purge(folder, remove_from=side, grade=grade)) == want


def test_verdicts_of_people_count(audited, sources):
    folder = audited(leak(0, 0, "near"), leak(1, 1, "different"), leak(2, 2, "near"))
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
    folder = audited(leak(0, 0, "exact"), leak(1, 1, "exact"), flat=["test/0.png"])
    result = purge(folder)
    assert goes(result) == {"1.png": "exact"}
    assert result.blank == 1


def test_images_with_the_same_bytes_are_removed_too(audited, own):
    """The audit may list one of several equal training images (--candidates nearest)."""
    making.put(Path(own[1]) / "again.png", making.picture(102))
    folder = audited(leak(0, 2, "near"), sources=own)
    assert goes(purge(folder, remove_from="train")) == {"2.png": "near", "again.png": "near"}


def test_repeats_within_the_test_set(audited):
    """Of each connected group the first image that does not leak stays."""
    within = (0, 1, "near"), (1, 2, "exact"), (2, 3, "near"), (4, 5, "similar")
    rows = [pair(f"test/{a}.png", f"test/{b}.png", grade) for a, b, grade in within]
    folder = audited(leak(0, 0), *rows)
    assert goes(purge(folder)) == {"0.png": "near"}
    dropped = purge(folder, test_duplicates="drop")
    assert goes(dropped) == {"0.png": "near", "2.png": "repeat: exact", "3.png": "repeat: near"}
    assert {r.partner for r in dropped.sets[0].removed[1:]} == {"test/1.png"}
    more = goes(purge(folder, test_duplicates="drop", grade="similar"))
    assert more["5.png"] == "repeat: similar"


def test_degrees_where_there_are_no_grades(audited):
    folder = audited(
        leak(0, 0, None, degree="hard"),
        leak(1, 1, None, degree="soft"),
        leak(2, 2, None, degree=None),
    )
    with pytest.raises(UsageError, match="use --degree hard or --degree soft"):
        purge(folder)
    assert list(goes(purge(folder, degree="hard"))) == ["0.png"]
    assert list(goes(purge(folder, degree="soft"))) == ["0.png", "1.png"]


def test_leaks_that_the_audit_cannot_know_are_noted(audited):
    """Of pairs without a grade, and after a search for the nearest images only."""
    rows = [leak(0, 0), leak(1, 1, None)]
    assert "not verified (1) have no grade" in purge(audited(*rows)).caveats[0]
    folder = audited(rows[0], settings={"candidates": "nearest"})
    assert "further copies in training stay" in purge(folder, remove_from="train").caveats[0]
    assert purge(folder).caveats == ()


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
    rows = [leak(0, i) for i in range(leaks)]
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
    folder = audited(leak(1, 4), leak(5, 4))
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


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("3.png", making.picture(77), "image '3.png' changed since the audit: its content is"),
        # also of the removed image
        ("0.png", making.picture(79), "image '0.png' changed since the audit: its content is"),
        ("new.png", making.picture(78), "image 'new.png' is new since the audit; run `visleak"),
        ("broken.png", making.picture(5), "image 'broken.png' can be read since the audit; run"),
        ("6.png", None, "image '6.png' is missing since the audit"),
        ("", None, "cannot be opened again as audited: source '.*' does not exist"),
    ],
)
def test_a_set_that_changed_since_the_audit_is_refused(name, data, said, audited, own, tmp_path):
    path = Path(own[0], name)
    making.put(Path(own[0]) / "broken.png", "<html>")
    folder = audited(leak(0, 0), sources=own)
    if data is None:
        path.rename(tmp_path / "elsewhere")
    else:
        path.write_bytes(data)
    with pytest.raises(VisleakError, match=said):
        purge(folder, out=tmp_path / "out", format="link")
    assert not (tmp_path / "out").exists()


def test_audits_that_cannot_be_purged(audited, sources, tmp_path):
    with pytest.raises(UsageError, match="an audit of a sample of 50 images; an audit of all"):
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
