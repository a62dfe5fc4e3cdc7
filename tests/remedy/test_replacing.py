"""The fair test set: planned, or written as a whole."""

import csv
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import visleak
from planted_pool import png, scene, store
from visleak.errors import UsageError, VisleakError
from visleak.formats import open_images
from visleak.images import content_digest
from visleak.remedy import ReplaceSettings, replace, substitution
from visleak.remedy.pool import Decisions
from visleak.remedy.substitution import CIFAIR
from visleak.verdicts import Ledger, Verdict

DUPLICATES = ["cat/00.png", "cat/01.png", "cat/02.png", "dog/06.png", "dog/07.png"]


@pytest.fixture
def replaced(planted, folder):
    def replaced(out=None, pool=None, apply=False, **chosen):
        settings = ReplaceSettings(**chosen)
        execution = {"workers": 1, "cache": planted / "cache"}
        source = pool or planted / "pool"
        return replace(folder, source, settings, out=out, apply=apply, **execution)

    return replaced


def approve(opened, tests):
    """Let a person approve the first candidate of some duplicates; return id to id."""
    selection, found = opened(), {}
    for place, each in enumerate(selection.duplicates.images):
        if each.id in tests:
            candidate = selection.offer(place).candidate
            found[each.id] = selection.approve(place, candidate.digest, "ada").pool
    return found


def contents(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*.png")}


def rows(path):
    with path.open(newline="") as lines:
        return list(csv.DictReader(lines))


def test_the_fair_test_set(planted, folder, opened, replaced, tmp_path):
    mine = approve(opened, ["cat/01.png"])
    inputs = {name: contents(planted / name) for name in ("test", "train", "pool")}
    before = sorted(folder.iterdir())
    plan = replaced(tmp_path / "fair", select="auto")
    assert (len(plan.replaced), plan.automatic, plan.missing) == (5, 4, ())
    assert (plan.size, plan.leaks, plan.within, plan.blank) == (12, 4, 1, 1)
    left_out = dict.fromkeys(("in_the_audit", "repeated", "blank", "unreadable"), 1)
    assert plan.pool == {"images": 18, "usable": 14} | left_out
    # a plan writes nothing
    assert sorted(folder.iterdir()) == before
    assert not (tmp_path / "fair").exists()
    plan = replaced(tmp_path / "fair", select="auto", apply=True)
    old, new = inputs["test"], contents(tmp_path / "fair")
    assert sorted(new) == sorted(old)
    assert sorted(name for name in new if new[name] != old[name]) == DUPLICATES
    back = {data: name for name, data in inputs["pool"].items()}
    used = {name: back[new[name]] for name in DUPLICATES}
    assert len(set(used.values())) == 5
    assert all(name.split("/")[0] == pool.split("/")[0] for name, pool in used.items())
    assert used["cat/01.png"] == mine["cat/01.png"]
    assert {name: contents(planted / name) for name in inputs} == inputs
    listed = rows(tmp_path / "fair" / "replacements.csv")
    assert {row["test"]: row["pool"] for row in listed} == used
    assert [row["how"] for row in listed] == ["machine", "person", *["machine"] * 3]
    for row in listed:
        assert content_digest(new[row["test"]]).hex() == row["pool_digest"]
        assert content_digest(old[row["test"]]).hex() == row["test_digest"]
    with Decisions(folder) as decisions:
        assert {d.test: d.pool for d in decisions.standing()} == used
    about = json.loads((tmp_path / "fair" / "manifest.json").read_text())["about"]
    assert (about["duplicates"], about["chosen_by_machine"]) == (5, 4)
    assert plan.written.counts == {"test": 12}
    # it has no duplicates
    test, train = open_images(tmp_path / "fair", name="test"), planted / "train"
    again = visleak.audit(test, train, workers=1, cache=planted / "cache")
    found = again.pairs(grade="similar").to_pylist()
    assert [(row["query"], row["grade"]) for row in found] == [("dog/09.png", "exact")]  # blank


def test_lists_in_the_schema_of_cifair(planted, folder, replaced, tmp_path):
    """Nearest first, with measured distances also for pairs of people; grades as judgments."""
    found = {(p["query"], p["reference"]): p for p in visleak.Audit(folder).pairs().to_pylist()}
    pair = ((planted / name).read_bytes() for name in ("test/cat/03.png", "train/dog/11.png"))
    with Ledger(folder) as ledger:
        digests = [content_digest(data).hex() for data in pair]
        ledger.add(Verdict.of(*digests, "similar", "ada"))
    plan = replaced(tmp_path / "fair", select="auto", grade="similar", apply=True)
    assert plan.duplicates == 6
    table = rows(tmp_path / "fair" / "duplicates.csv")
    assert tuple(table[0]) == CIFAIR
    far = [float(row["Distance"]) for row in table]
    assert far == sorted(far)
    judged = dict.fromkeys(DUPLICATES[:4], "1") | {"cat/03.png": "2"}
    assert {r["TestID"]: r["Judgment"] for r in table} == judged
    for row in table[:4]:
        similarity = found[row["TestID"], row["TrainID"]]["similarity"]
        assert float(row["Distance"]) == pytest.approx(np.sqrt(2 - 2 * similarity), abs=1e-6)
    assert 0.9 < far[-1] < 1.5
    within = rows(tmp_path / "fair" / "duplicates_within_test.csv")
    assert [(r["TestID"], r["TrainID"]) for r in within] == [("dog/07.png", "dog/08.png")]


def test_without_replacement_nothing_is_written(planted, opened, replaced, tmp_path):
    approve(opened, ["cat/00.png"])
    said = r"4 of 5 duplicates have no .* \(cat 2, dog 2\); approve some .* --allow-missing"
    with pytest.raises(UsageError, match=said):
        replaced(tmp_path / "fair", apply=True)
    assert not (tmp_path / "fair").exists()
    plan = replaced(tmp_path / "fair", apply=True, allow_missing=True)
    assert [id_ for id_, _ in plan.missing] == DUPLICATES[1:]
    old, new = contents(planted / "test"), contents(tmp_path / "fair")
    assert [name for name in new if new[name] != old[name]] == ["cat/00.png"]
    listed = rows(tmp_path / "fair" / "without_replacement.csv")
    why = dict.fromkeys(DUPLICATES[1:], "nothing approved")
    assert {row["test"]: row["why"] for row in listed} == why


def test_a_pool_that_is_too_small(folder, replaced, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(VisleakError, match="cannot be written"):
        replaced(tmp_path / "file" / "fair", select="auto", apply=True)
    # automatic choices are not kept without the test set: they are of another pool
    assert not (folder / "replacements.sqlite").exists()
    for number in range(2):
        store(tmp_path / "small", f"cat/{number}.png", png(scene(7000 + number)))
    with pytest.raises(UsageError, match=r"3 of 5 .* \(cat 1, dog 2\); give a larger pool, or"):
        replaced(tmp_path / "fair", pool=tmp_path / "small", select="auto", apply=True)


def test_approvals_of_another_pool_do_not_count(opened, replaced, tmp_path):
    approve(opened, ["cat/00.png"])
    store(tmp_path / "other", "cat/1.png", png(scene(7100)))
    plan = replaced(pool=tmp_path / "other", select="auto")
    assert dict(plan.missing)["cat/00.png"] == "not in this pool"
    assert [each.test for each in plan.replaced] == ["cat/01.png"]


def test_automatic_selection_needs_classes(replaced, tmp_path):
    store(tmp_path / "flat", "one.png", png(scene(7050)))
    with pytest.raises(UsageError, match="have labels and the pool has none"):
        replaced(pool=tmp_path / "flat", select="auto")
    assert len(replaced(pool=tmp_path / "flat").missing) == 5


@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10_000), grade=st.sampled_from(["near", "similar"]))
def test_whatever_the_seed(replaced, seed, grade):
    """Each image of the pool is used once, of the class of the duplicate, without the traps."""
    plan = replaced(select="auto", seed=seed, grade=grade)
    pools = [each.pool for each in plan.replaced]
    assert len(pools) == len(set(pools)) == 5
    assert [each.test for each in plan.replaced] == DUPLICATES
    for each in plan.replaced:
        assert each.pool.startswith(f"{each.label}/")
        assert not each.pool.startswith(("cat/copy", "cat/bytes", "dog/blank"))


def test_approvals_during_the_selection_are_refused(opened, replaced, tmp_path, monkeypatch):
    plan = substitution._plan

    def slow(*arguments):
        made = plan(*arguments)
        approve(opened, ["dog/07.png"])
        return made

    monkeypatch.setattr(substitution, "_plan", slow)
    with pytest.raises(VisleakError, match=r"has a replacement|were approved while|has a decision"):
        replaced(tmp_path / "fair", select="auto", apply=True)
    assert not (tmp_path / "fair").exists()
