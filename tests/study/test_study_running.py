"""A study does only what is new, and survives what is broken."""

import shutil

import numpy as np
import pytest
from study_making import HOSTILE, SETS, carried_out, sets_of, table, write_pictures

from visleak.errors import UsageError, VisleakError
from visleak.storage import claimed
from visleak.study.running import folder_name

AUDITS = {"crawl", "one-train", "two-train"}
LATE = table("late", dataset="late", roles=["B"], source="crawl")


@pytest.fixture
def place(tmp_path, natural):
    write_pictures(tmp_path, natural, SETS)
    return tmp_path


@pytest.fixture(autouse=True)
def _no_figures(monkeypatch):
    """Drawing takes longer than these studies."""
    monkeypatch.setattr("visleak.study.document._figures", lambda result: iter(()))


def states(folder):
    """Return when each audit was finished."""
    return {path.parent.name: path.stat().st_mtime_ns for path in folder.rglob("audit.json")}


def test_a_study_that_was_stopped_goes_on(place):
    def stop(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        carried_out(place, sets_of(), finished=stop)
    kept = states(place / "out")
    assert len(kept) == 1
    result = carried_out(place, sets_of())
    assert result.run.reused == 1
    assert states(place / "out").items() > kept.items()
    whole = carried_out(place, sets_of(), out="whole")
    assert [cell.rates for cell in result.cells] == [cell.rates for cell in whole.cells]


def test_a_benchmark_that_is_added_is_all_that_is_new(place):
    """A pass over a large training set is not done again for those that have been answered."""
    carried_out(place, sets_of())
    before = states(place / "out")
    more = sets_of() + LATE
    result = carried_out(place, more)
    after = states(place / "out")
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {"one-train+2", "two-train+2", "crawl+2"}
    assert result.run.reused == 3
    whole = carried_out(place, more, out="whole")
    rates = [{c.comparison: c.rates for c in each.cells} for each in (result, whole)]
    assert rates[0] == rates[1]
    assert [u.rates for u in result.unions] == [u.rates for u in whole.unions]
    assert carried_out(place, more).run.reused == 6
    assert states(place / "out") == after
    carried_out(place, more, force=True)  # takes what was added into one audit
    assert set(states(place / "out")) == AUDITS
    assert carried_out(place, more).run.reused == 3


def test_other_settings_are_refused_before_any_work(place):
    carried_out(place, sets_of())
    before, other = states(place / "out"), sets_of("verify = false\nsample = 4")
    with pytest.raises(UsageError, match=r"one-train holds another audit .* --force"):
        carried_out(place, other)
    # it would fail everywhere, hours apart
    with pytest.raises(UsageError, match=r"thresholds .*no\.json is not a file"):
        carried_out(place, sets_of("thresholds = 'no.json'"), out="other")
    assert states(place / "out") == before
    assert carried_out(place, other, force=True).run.reused == 0


def test_one_broken_source_does_not_end_the_rest(place):
    (place / "bad.zip").write_bytes(b"PK\x03\x04 but no archive")
    text = sets_of() + table("bad-train", roles=["T"], source="bad.zip")
    text += table("bad-test", roles=["B"], source="bad.zip")
    result = carried_out(place, text)
    assert {cell.comparison.reference for cell in result.cells} == AUDITS
    failed = {(f.comparison.query, f.comparison.reference) for f in result.failed}
    expected = {("bad-test", name) for name in ("bad-train", *AUDITS)}
    assert failed == {("one-test", "bad-train"), *expected}
    assert all("bad.zip" in f.why and "\n" not in f.why for f in result.failed)
    assert "Not compared" in (place / "out/study.md").read_text()
    # mended, only what failed is made
    (place / "bad.zip").unlink()
    shutil.make_archive(str(place / "bad"), "zip", place / "crawl")
    mended = carried_out(place, text)
    assert mended.failed == ()
    assert mended.run.reused == 3
    assert len(mended.cells) == 8


def test_a_benchmark_that_an_audit_refuses_does_not_take_the_others_along(place):
    """All queries go in one call; vectors of another encoder must not spoil it for images."""
    (place / "emb").mkdir()
    np.save(place / "emb" / "img_emb_0.npy", np.eye(5, 512, dtype=np.float16))
    other = table("other", roles=["B"], source="emb:emb?encoder=clip")
    result = carried_out(place, sets_of() + other)
    assert {left.comparison.query for left in result.failed} == {"other"}
    assert len(result.failed) == 3
    assert all("made with encoder clip, the audit uses builtin" in f.why for f in result.failed)
    assert [cell.comparison.query for cell in result.cells] == ["one-test"] * 3


@pytest.mark.slow
def test_embeddings_and_pictures_in_one_study(place):
    """Vectors have degrees and no grades; a union over both says nothing about grades."""
    from visleak.cli import main

    with pytest.raises(SystemExit) as ended:
        main(["encode", str(place / "crawl"), "--encoder", "builtin", "-o", str(place / "vectors")])
    assert ended.value.code == 0
    text = sets_of("local = false").replace("source = 'crawl'", "source = 'emb:vectors'")
    result = carried_out(place, text)
    plain = carried_out(place, sets_of("local = false"), out="pictures")
    for cell, pictures in zip(result.cells, plain.cells, strict=True):
        assert cell.rates["hard"] == pictures.rates["hard"]
        has_pictures = cell.comparison.reference != "crawl"
        assert (cell.rates["near_or_exact"] is not None) == has_pictures
    assert [u.rates["near_or_exact"] is None for u in result.unions] == [False, True, True]
    assert "near or exact" not in result.headlines[0]


def test_a_damaged_audit_costs_its_own_comparisons(place):
    """It is not written over in silence; --force does it again."""
    carried_out(place, sets_of())
    (place / "out/audits/crawl/audit.json").write_text("{")
    result = carried_out(place, sets_of())
    (left,) = result.failed
    assert left.comparison.reference == "crawl"
    assert "audit.json is damaged" in left.why
    assert (place / "out/audits/crawl/audit.json").read_text() == "{"
    assert result.run.reused == 2
    assert carried_out(place, sets_of(), force=True).failed == ()


@pytest.mark.slow
def test_a_source_that_breaks_later_leaves_its_answer_alone(place):
    """The finished audit cannot be checked any more, so it is not used; nor is it thrown away."""
    carried_out(place, sets_of())
    before = states(place / "out")
    shutil.rmtree(place / "crawl")
    (place / "crawl").write_bytes(b"nonsense")
    result = carried_out(place, sets_of())
    assert {left.comparison.reference for left in result.failed} == {"crawl"}
    assert states(place / "out") == before


def test_missing_sets_are_skipped_and_reported(place):
    text = sets_of() + table("nobody", roles=["P"]) + table("gone", roles=["P"], source="gone/")
    result = carried_out(place, text)
    assert len(result.run.plan.skipped) == 2
    assert result.failed == ()
    page = (place / "out/study.html").read_text()
    assert "source is not filled in (1 comparison)" in page
    assert "gone: source gone/ does not exist (1 comparison)" in page


def test_nothing_to_compare(place):
    with pytest.raises(VisleakError, match=r"nothing to compare: 1 of 2 sets are not there \(set"):
        carried_out(place, table("a", roles=["B"]) + table("b", roles=["T"], source="crawl"))
    with pytest.raises(VisleakError, match="no benchmark meets a training set of another name"):
        carried_out(place, table("a", roles=["B"], source="crawl"))
    assert not (place / "out").exists()


def test_two_runs_at_one_folder(place):
    with claimed(place / "out"), pytest.raises(VisleakError, match="another run is writing to"):
        carried_out(place, sets_of())


def test_names_of_sets_are_harmless_and_different_as_folders():
    names = ["a", "A", "a/b", "a%2Fb", "..", ".", ".hidden", "a b", HOSTILE, "x" * 300, "x" * 301]
    folders = [folder_name(name) for name in names]
    assert len(set(folders)) == len(names)
    for folder in folders:
        assert len(folder) < 200
        assert not {"/", "+"} & set(folder)
        assert not folder.startswith(".")
