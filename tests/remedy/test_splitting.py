"""Leak-free splits: planted clips from end to end, and components into parts by brute force."""

import csv
import itertools
import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import layout_making as making
import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import visleak
from visleak import remedy
from visleak.errors import UsageError, VisleakError
from visleak.progress import silent
from visleak.remedy import SplitSettings, partition
from visleak.remedy.balance import (
    REASONS,
    Balance,
    Loads,
    count_by_part,
    deviations,
    max_points,
    reasons,
)
from visleak.remedy.graph import NO_EDGES, Edges, Graph
from visleak.remedy.partition import assign
from visleak.remedy.plan import Auditor, UnbalancedSplit
from visleak.storage import read_summary
from visleak.verdicts import Ledger, Verdict

#: Clips, frames of a clip, and the sides of the images.
CLIPS = 7
FRAMES, SIDE = 3, 40

#: What can be read: the clips, a copy and three blank frames.
IMAGES = CLIPS * FRAMES + 4


def frame(image, shift):
    return Image.fromarray(image[8 : 8 + 2 * SIDE, shift : shift + 2 * SIDE]).resize((SIDE, SIDE))


@pytest.fixture(scope="module")
def clips(tmp_path_factory, natural):
    """Seven clips of three panned frames in three classes, a copy, blank frames, a broken file."""
    root = tmp_path_factory.mktemp("clips") / "set"
    for number, name in enumerate(sorted(natural)[:CLIPS]):
        folder = root / ("red", "green", "blue")[number % 3]
        folder.mkdir(parents=True, exist_ok=True)
        for shift in range(FRAMES):
            frame(natural[name], 40 + 2 * shift).save(folder / f"clip{number}_{shift}.png")
    (root / "blue" / "copy.png").write_bytes((root / "red" / "clip0_0.png").read_bytes())
    for number, name in ((0, "black0"), (0, "black1"), (3, "dark")):
        Image.new("RGB", (SIDE, SIDE), (number,) * 3).save(root / "red" / f"{name}.png")
    (root / "red" / "broken.png").write_text("no picture")
    return root


@pytest.fixture(scope="module")
def audited(clips, cache, tmp_path_factory):
    out = tmp_path_factory.mktemp("audited") / "a"
    visleak.audit(str(clips), out=out, cache=cache)
    return out


@pytest.fixture
def split(clips, audited, cache, tmp_path):
    """Splits the clips with the audit, into ``s``, without a bound on the balance."""

    def split(ratios="a=0.5,b=0.5", source=clips, out="s", audited=audited, apply=False, **chosen):
        settings, run = SplitSettings(**{"tolerance": 1.0, **chosen}), {"apply": apply}
        run |= {"out": tmp_path / out, "audited": audited, "cache": cache}
        return remedy.split(source, ratios, settings, **run)

    return split


def assigned(folder):
    with (folder / "assignment.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    return {row["id"]: (row["part"], row["component"]) for row in rows}


def test_applied_split_has_no_pair_between_its_parts(split, cache, tmp_path):
    chosen = {"stratify": "label", "tolerance": 0.2, "format": "copy"}
    result = split("train=0.6,test=0.4", audited=None, apply=True, **chosen)
    parts = result.sources
    found = visleak.audit(parts["test"], parts["train"], cache=cache)
    assert found.rate("near_or_exact").count == 0
    assert sum(result.content["written"]["images"].values()) == IMAGES
    assert result.content["proof"]["headline"].startswith("0 of ")
    # the same fingerprints found the pairs of the clips before
    own = pq.read_table(tmp_path / "s" / "audit" / "pairs.parquet")
    assert pc.sum(pc.equal(own["grade"], "near")).as_py() > CLIPS
    assert result.content["unreadable"] == 1
    assert "broken.png" in (tmp_path / "s" / "data" / "removed.csv").read_text()


def test_components_are_clips_copies_and_equal_blanks(split, tmp_path):
    """Blank images are connected by equal bytes only."""
    split()
    found = assigned(tmp_path / "s")
    of = {name.rpartition("/")[2]: place for name, place in found.items()}
    assert of["copy.png"] == of["clip0_0.png"]
    assert of["black0.png"] == of["black1.png"]
    assert of["dark.png"][1] != of["black0.png"][1]
    assert "broken.png" not in of
    assert len({component for _, component in found.values()}) == len({of[name][1] for name in of})
    for part, component in found.values():
        assert all(p == part for p, c in found.values() if c == component)


def test_groups_stay_together(split, tmp_path):
    result = split({"a": 0.5, "b": 0.5}, group=r"/clip(\d)/", grade="exact")
    parts = {}
    for name, (part, _) in assigned(tmp_path / "s").items():
        if "clip" in name:
            parts.setdefault(name.rpartition("clip")[2][0], set()).add(part)
    assert {len(found) for found in parts.values()} == {1}
    assert len(parts) == CLIPS
    assert result.content["groups"] == CLIPS
    assert result.content["images"] - result.content["grouped"] == 4


def test_verdicts_of_people_count(split, audited, tmp_path):
    folder = Path(shutil.copytree(audited, tmp_path / "a"))
    images = pq.read_table(folder / "images.parquet").to_pylist()
    digests = {row["id"]: row["digest"] for row in images}
    alone = [name for name in digests if "clip5" in name]
    other = next(name for name in digests if "clip6_0" in name)
    apart = [(*pair, "different", "me") for pair in itertools.combinations(alone, 2)]
    disputed = [(alone[0], other, "near", "me"), (alone[0], other, "different", "you")]
    with Ledger(folder) as ledger:
        for one, two, *said in apart + disputed:
            ledger.add(Verdict.of(digests[one], digests[two], *said))
    split(audited=folder)
    found = assigned(tmp_path / "s")
    assert len({found[name][1] for name in alone}) == len(alone)


def test_a_tolerance_that_cannot_be_met_is_explained(split, tmp_path):
    chosen = {"group": "/(clip|black)/", "tolerance": 0.01, "apply": True}
    with pytest.raises(UnbalancedSplit) as raised:
        split("train=0.5,test=0.5", **chosen)
    reason = "one component of 22 images (group clip) is larger than part train allows by 10"
    assert reason in str(raised.value)
    assert raised.value.content["why"][0] == reason
    assert not (tmp_path / "s" / "data").exists()
    result = split("train=0.5,test=0.5", **chosen, allow_unbalanced=True)
    assert result.content["misses"]
    assert sorted(result.content["written"]["images"].values()) == [3, 22]


def test_pairs_that_the_first_audit_did_not_list_are_added(split, cache, monkeypatch):
    """Without edges in the first plan, audits of the parts find them in rounds."""
    real = Graph.edges
    calls = []

    def edges(self, folder, names, grade, verdicts):
        calls.append(folder)
        return NO_EDGES if len(calls) == 1 else real(self, folder, names, grade, verdicts)

    monkeypatch.setattr(Graph, "edges", edges)
    result = split("train=0.6,test=0.4", apply=True)
    assert result.content["pairs"] == result.content["pairs_added"]
    assert result.content["pairs_added"] > 3
    assert result.content["rounds"] > 1
    found = visleak.audit(result.sources["test"], result.sources["train"], cache=cache)
    assert found.rate("near_or_exact").count == 0


def test_a_leak_in_the_written_parts_leaves_nothing(split, tmp_path, monkeypatch):
    monkeypatch.setattr(Graph, "edges", lambda *_: NO_EDGES)
    monkeypatch.setattr(Graph, "components", lambda self, edges: np.arange(len(self)))
    with pytest.raises(VisleakError, match=r"the audit of the parts still finds .* pairs of grade"):
        split("train=0.6,test=0.4", apply=True)
    assert not (tmp_path / "s" / "data").exists()
    assert list((tmp_path / "s").glob(".*.part")) == []
    assert not (tmp_path / "s" / "split.json").exists()


def test_rounds_end(split, monkeypatch):
    number = iter(range(100))

    def always_one(auditor, graph, part):
        next(number)
        pair = np.array([0]), np.array([1 + next(number) % 30])
        return Edges.of(*pair, np.array([False]))

    monkeypatch.setattr(Auditor, "between_parts", always_one)
    with pytest.raises(VisleakError, match="after 8 rounds there are still 1 pairs between"):
        split("a=0.6,b=0.4", apply=True)


def test_the_same_seed_gives_the_same_split(split, audited, tmp_path):
    for name, known in (("a", audited), ("b", audited), ("c", None)):
        split("x=0.6,y=0.4", out=name, audited=known, seed=3)
    first, second, third = (
        (tmp_path / name / "assignment.csv").read_text().splitlines() for name in "abc"
    )
    assert first == second
    # the set is called after its folder, or as that audit called it
    assert [row.partition(",")[2] for row in first] == [row.partition(",")[2] for row in third]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"ratios": "a=0.5,b=0.6"}, "their shares add up to 1; got 2 that add up to 1.1"),
        ({"ratios": "a=0.5,b=x"}, "train=0.8,test=0.2; got b=x"),
        ({"ratios": "a=0.5,a=0.5"}, "two parts are called 'a'; names must differ"),
        ({"ratios": "../a=0.5,b=0.5"}, "part '../a' cannot be the name of a folder"),
        ({"stratify": "a", "label": "b"}, "stratify 'a' and label 'b' name two columns; give one"),
        ({"group": "/none(7)/"}, "group '/none(7)/' matches no id, such as '"),
    ],
)
def test_wrong_calls(split, tmp_path, wrong, said):
    with pytest.raises(UsageError) as raised:
        split(**wrong)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "s").exists()


def test_other_folders_are_refused(split, clips, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(UsageError, match=r"holds other files \(thesis.tex\)"):
        split(out="mine")
    (tmp_path / "done" / "data").mkdir(parents=True)
    with pytest.raises(UsageError, match="holds a split that was written"):
        split(out="done")
    with pytest.raises(UsageError, match=r"did not compare .*red with itself; run `visleak audit"):
        split(source=clips / "red")
    with pytest.raises(UsageError, match="or in it, and inputs are never changed"):
        split(out=clips / "new", audited=None)
    assert not (clips / "new").exists()


def test_an_audit_without_grades_or_of_a_sample_is_refused(split, audited, tmp_path):
    folder = Path(shutil.copytree(audited, tmp_path / "a"))
    content = json.loads((folder / "audit.json").read_text())
    for change, said in (
        ({"grader": None}, "has no grades, because its pairs were not verified"),
        ({"settings": content["settings"] | {"sample": 5}}, "is an audit of a sample of 5 images"),
    ):
        (folder / "audit.json").write_text(json.dumps(content | change))
        with pytest.raises(UsageError, match=said):
            split(audited=folder)


def test_settings_of_the_first_audit_are_those_of_the_proof(audited):
    """Thresholds and views are those of the first audit; its narrower search is not."""
    summary = read_summary(audited)
    own = replace(summary.settings, candidates="nearest", views="mirror")
    first = SimpleNamespace(folder=audited, summary=replace(summary, settings=own))
    found = Auditor(first, "near", None, None, silent).settings
    assert (found.candidates, found.views, found.within) == ("auto", "mirror", False)
    assert found.soft == pytest.approx(summary.thresholds.soft)


def test_an_earlier_audit_is_replaced_unless_people_judged(split, clips, tmp_path):
    source = Path(shutil.copytree(clips / "red", tmp_path / "red"))
    first = split(source=source, audited=None)
    (source / "dark.png").unlink()
    assert split(source=source, audited=None).content["images"] == first.content["images"] - 1
    with Ledger(tmp_path / "s" / "audit") as ledger:
        ledger.add(Verdict.of("a" * 32, "b" * 32, judgment="near", reviewer="me"))
    (source / "black0.png").unlink()
    with pytest.raises(UsageError, match="and people judged pairs there; choose a new folder"):
        split(source=source, audited=None)


def test_a_written_yolo_set_has_the_new_splits_only(split, tmp_path):
    """If val was the folder of train, the new data.yaml must not name it."""
    source = making.yolo(tmp_path)
    path = tmp_path / "yolo" / "data.yaml"
    path.write_text(path.read_text().replace("images/train", "images/val"))
    chosen = {"source": source, "audited": None, "format": "copy"}
    result = split("train=0.6,test=0.4", apply=True, **chosen)
    found = yaml.safe_load((tmp_path / "s" / "data" / "data.yaml").read_text())
    assert found.keys() == {"train", "test", "names"}
    train, test = (making.contents(result.sources[name]).keys() for name in ("train", "test"))
    assert (len(train), len(test), train & test) == (4, 3, set())


def made(rng, components, largest, classes):
    sizes = rng.integers(1, largest + 1, components)
    component = np.repeat(np.arange(components), sizes)
    return component, rng.integers(0, classes, len(component))


def counted(component, stratum, part, parts):
    """Return images by part and class, image by image."""
    counts = np.zeros((parts, int(stratum.max()) + 1), np.int64)
    for own, name in zip(component, stratum, strict=True):
        counts[part[own], name] += 1
    return counts


def largest_by_hand(counts, shares):
    n = counts.sum()
    worst = 0.0
    for p, share in enumerate(shares):
        size = counts[p].sum()
        worst = max(worst, abs(size - share * n) / (share * n))
        for c in range(counts.shape[1]):
            own = counts[p, c] / size if size else 0.0
            worst = max(worst, abs(own - counts[:, c].sum() / n))
    return worst


@pytest.mark.parametrize("shares", [(0.7, 0.3), (0.8, 0.2), (0.5, 0.3, 0.2)])
def test_close_to_the_best_of_all_assignments(shares):
    """On what can be enumerated the mean gap to the optimum is under a fifth of a point."""
    rng = np.random.default_rng(1)
    shares = np.array(shares)
    gaps = []
    for _ in range(6):
        component, stratum = made(rng, int(rng.integers(2, 11 - 2 * (len(shares) > 2))), 12, 3)
        loads = Loads.of(component, stratum)
        every = itertools.product(range(len(shares)), repeat=len(loads.sizes))
        best = min(
            max_points(loads.counts_of(np.array(part), len(shares)), shares) for part in every
        )
        part = assign(component, stratum, shares)
        reached = largest_by_hand(counted(component, stratum, part, len(shares)), shares)
        assert reached >= best - 1e-12
        gaps.append(reached - best)
    assert np.mean(gaps) < 0.002
    assert max(gaps) < 0.02


@st.composite
def instances(draw):
    component = np.unique(draw(st.lists(st.integers(0, 12), min_size=1, max_size=60)))
    images = draw(st.lists(st.sampled_from(range(len(component))), min_size=1, max_size=60))
    own = np.unique(np.array(images), return_inverse=True)[1]
    stratum = draw(st.lists(st.integers(0, 3), min_size=len(own), max_size=len(own)))
    weights = np.array(draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)), float)
    return own, np.array(stratum), weights / weights.sum()


@given(instances(), st.integers(0, 3))
def test_every_component_has_one_part_and_the_seed_decides(instance, seed):
    component, stratum, shares = instance
    part = assign(component, stratum, shares, seed)
    assert part.shape == (component.max() + 1,)
    assert set(part.tolist()) <= set(range(len(shares)))
    assert part.tolist() == assign(component, stratum, shares, seed).tolist()
    counts = Loads.of(component, stratum).counts_of(part, len(shares))
    assert counts.tolist() == counted(component, stratum, part, len(shares)).tolist()


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=80),
    st.sampled_from([(0.8, 0.2), (0.5, 0.3, 0.2)]),
)
def test_single_images_miss_by_rounding_only(stratum, shares):
    """By one image in size, and fewer than two per class."""
    codes = np.unique(np.array(stratum), return_inverse=True)[1]
    shares = np.array(shares)
    part = assign(np.arange(len(codes)), codes, shares)
    counts = counted(np.arange(len(codes)), codes, part, len(shares))
    sizes, _ = deviations(counts, shares)
    assert np.abs(sizes).max() <= 1.0 + 1e-9
    assert np.abs(counts - shares[:, None] * counts.sum(axis=0)).max() < 2.0


def test_exchanges_among_many_components_are_sampled(monkeypatch):
    monkeypatch.setattr(partition, "WORK", 30)
    monkeypatch.setattr(partition, "COMPONENTS", 1)
    component, stratum = made(np.random.default_rng(0), 100, 12, 3)
    part = assign(component, stratum, np.array([0.8, 0.2]))
    counts = Loads.of(component, stratum).counts_of(part, 2)
    assert max_points(counts, np.array([0.8, 0.2])) < 0.01


def test_misses_of_a_balance():
    """Of so few images that no split is even, none is missed."""
    shares, counts = np.array([0.8, 0.2]), np.array([[60, 10], [10, 20]])
    balance = Balance(("train", "test"), shares, ("cat", "dog"), counts)
    assert balance.largest().points == pytest.approx(30 / 20 - 1)
    first, second, *_ = map(str, balance.misses(0.05))
    assert first == "part test is off its size by 50.00 % (10 images too many)"
    assert second == "class cat of part test is off its share by 36.67 points (11 images too few)"
    few = Balance(("a", "b"), np.array([0.5, 0.5]), ("",), np.array([[1], [2]]))
    assert few.misses(0.01) == ()


def reasons_for(component, label, shares=(0.5, 0.5), tolerance=0.01):
    """Return the reasons why an assignment to two parts misses a tolerance, and the misses."""
    component, label, shares = np.array(component), np.array(label), np.array(shares)
    part = assign(component, label, shares)[component]
    classes = tuple("abcdefghij"[: label.max() + 1]) if label.max() else ("",)
    counts = count_by_part(part, 2, label, len(classes))
    balance = Balance(("train", "test"), shares, classes, counts)
    loads, misses = Loads.of(component, label), balance.misses(tolerance)
    return reasons(balance, loads, tolerance, lambda row: f"group g{row}"), misses


@pytest.mark.parametrize(
    ("component", "label", "said"),
    [
        ([0] * 90 + [*range(1, 11)], [0] * 100, "one component of 90 images (group g0) is larger"),
        ([0] * 20 + [*range(1, 81)], [0] * 20 + [1] * 80, "class a: its 20 images are in 1 comp"),
        ([0] * 30 + [*range(1, 71)], [0] * 32 + [1] * 68, "(group g0) holds 30 of its 32 images"),
        (np.repeat([0, 1, 2], 30), [0] * 90, "there are 3 components, the largest of 30 images"),
    ],
)
def test_a_miss_has_its_reason(component, label, said):
    assert any(said in line for line in reasons_for(component, label)[0])


def test_further_reasons_are_counted():
    found, _ = reasons_for(np.repeat(np.arange(10), 10), np.repeat(np.arange(10), 10))
    assert len(found) == REASONS + 1
    assert found[-1] == "and 15 more"


@pytest.mark.parametrize("tolerance", [0.0, 0.05, 0.5, 1.0])
def test_there_are_reasons_exactly_if_something_is_missed(tolerance):
    rng = np.random.default_rng(2)
    for _ in range(5):
        component = np.unique(np.sort(rng.integers(0, 6, 60)), return_inverse=True)[1]
        label = rng.integers(0, 3, 60)
        found, misses = reasons_for(component, label, (0.6, 0.4), tolerance)
        assert bool(found) == bool(misses)
