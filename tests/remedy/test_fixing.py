"""Repair of a split that leaks: planted duplicates, hidden ones, sizes, refusals."""

import csv
import json
import shutil
from pathlib import Path

import layout_making as making
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import visleak
from visleak import remedy
from visleak.errors import UsageError
from visleak.groups import numbered
from visleak.remedy import RepairSettings
from visleak.remedy.graph import NO_EDGES, Edges
from visleak.remedy.moves import fewest_moves, kept_sizes
from visleak.remedy.plan import Auditor

SIDE = 40


def piece(image, top, left):
    return Image.fromarray(image[top : top + 2 * SIDE, left : left + 2 * SIDE]).resize((SIDE, SIDE))


@pytest.fixture(scope="module")
def leaking(tmp_path_factory, natural):
    """Twelve train and six test images: one copied, one mirrored, one of train twice in test."""
    root = tmp_path_factory.mktemp("leaking")
    names = sorted(natural)
    train, test = root / "train" / "thing", root / "test" / "thing"
    train.mkdir(parents=True)
    test.mkdir(parents=True)
    for number in range(12):
        corner = 10 + 90 * (number // len(names)), 20 + 60 * (number // len(names))
        piece(natural[names[number % len(names)]], *corner).save(train / f"r{number:02}.png")
    for number in range(3):
        piece(natural[names[number + 3]], 150, 130).save(test / f"free{number}.png")
    (test / "copy.png").write_bytes((train / "r00.png").read_bytes())
    for number, way in enumerate((Image.Transpose.FLIP_LEFT_RIGHT, Image.Transpose.ROTATE_90)):
        Image.open(train / "r03.png").transpose(way).save(test / f"seen{number}.png")
    return root


@pytest.fixture(scope="module")
def audited(leaking, cache, tmp_path_factory):
    out = tmp_path_factory.mktemp("audited") / "a"
    visleak.audit(str(leaking / "test"), str(leaking / "train"), out=out, cache=cache)
    return out


@pytest.fixture
def repair(audited, cache, tmp_path):
    def repair(audited=audited, out="f", apply=False, **chosen):
        settings, place = RepairSettings(**chosen), tmp_path / out
        return remedy.repair(audited, settings, out=place, apply=apply, cache=cache)

    return repair


def moved(folder):
    """Return id and new part of what moved, checked against where it was."""
    with (folder / "assignment.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    for row in rows:
        assert row["moved_from"] == (row["set"] if row["part"] != row["set"] else "")
    return {row["id"].rpartition("/")[2]: row["part"] for row in rows if row["moved_from"]}


def test_the_fewest_images_move_and_the_parts_are_clean(repair, leaking, cache, tmp_path):
    before = making.state(leaking)
    result = repair(apply=True, format="copy")
    assert moved(tmp_path / "f") == {"r03.png": "test", "copy.png": "train"}
    moves = result.content["moves"]
    assert (moves["images"], moves["fewest"], moves["components"]) == (2, 2, 2)
    assert "no fewer moves can unite it" in moves["why"]
    found = visleak.audit(result.sources["test"], result.sources["train"], cache=cache)
    assert found.rate("near_or_exact").count == 0
    assert result.content["written"]["images"] == {"test": 6, "train": 12}
    assert making.state(leaking) == before


def test_duplicates_within_train_move_with_an_image(repair, tmp_path, monkeypatch):
    """The audit did not compare train with itself."""
    searched = []

    def between(self, graph, first, second):
        ids = [graph.id(row) for row in range(len(graph))]
        searched.extend(ids[row] for row in first)
        mine, other = (ids.index(f"thing/{name}.png") for name in ("r03", "r07"))
        if mine not in first:
            return NO_EDGES
        return Edges.of(np.array([mine]), np.array([other]), np.array([False]))

    monkeypatch.setattr(Auditor, "between", between)
    result = repair()
    # two of the four are in train now: as many as in test; sizes decide
    pairs = {"seen0.png", "seen1.png"}, {"r03.png", "r07.png"}
    assert moved(tmp_path / "f").keys() & set.union(*pairs) in pairs
    assert result.content["moves"]["fewest"] == 3
    # duplicates of r07 were searched too, and those of no image twice
    assert "thing/r07.png" in searched
    assert len(searched) == len(set(searched))


def test_sizes_are_kept(repair):
    plain = repair(out="a", grade="exact")
    kept = repair(out="b", grade="exact", keep_sizes=True)
    assert plain.content["moves"]["images"] >= 1
    sizes = {name: about["images"] for name, about in kept.content["parts"].items()}
    assert sizes == {name: about["images"] for name, about in kept.content["before"].items()}
    moves, fewest = kept.content["moves"], plain.content["moves"]["images"]
    assert moves["keeping_sizes"] == moves["images"] - fewest


def test_groups_count_too(repair, tmp_path):
    result = repair(group="/(free2|r11)/")
    assert result.content["groups"] == 2
    result = repair(out="g", group="/(free|r)\\d/")
    # all of train is one group, and r03 ties two test images to it: they come to train
    found = moved(tmp_path / "g")
    assert found == {"seen0.png": "train", "seen1.png": "train", "copy.png": "train"}


def test_an_audit_that_is_not_of_a_split_is_refused(repair, leaking, audited, cache, tmp_path):
    visleak.audit(str(leaking / "test"), out=tmp_path / "alone", cache=cache)
    with pytest.raises(UsageError, match="is an audit of one set, so there is no split to repair"):
        repair(tmp_path / "alone")
    folder = Path(shutil.copytree(audited, tmp_path / "a"))
    content = json.loads((folder / "audit.json").read_text())
    content["sets"][0]["dataset"] = "cats"
    (folder / "audit.json").write_text(json.dumps(content))
    with pytest.raises(UsageError, match=r"compares datasets \(, cats\); images are moved within"):
        repair(folder)
    with pytest.raises(UsageError, match=r"group '/q\(7\)/' matches no id"):
        repair(group="/q(7)/")
    assert not (tmp_path / "f").exists()


def test_sets_that_were_not_compared_are(repair, leaking, cache, tmp_path):
    other = tmp_path / "val"
    other.mkdir()
    shutil.copy(leaking / "test" / "thing" / "free0.png", other / "again.png")
    turned = np.asarray(Image.open(leaking / "train" / "thing" / "r05.png"))[::-1]
    piece(turned, 0, 0).save(other / "own.png")
    folders = {"test": leaking / "test", "val": other}
    sets = [visleak.open_images(folder, name=name) for name, folder in folders.items()]
    train = visleak.open_images(leaking / "train", name="train")
    visleak.audit(sets, [train], out=tmp_path / "a", cache=cache)
    repair(tmp_path / "a")
    found = moved(tmp_path / "f")
    assert ("again.png" in found) != ("free0.png" in found)


@st.composite
def splits(draw):
    count = draw(st.integers(1, 40))
    numbers = st.lists(st.integers(0, 15), min_size=count, max_size=count)
    parts = draw(st.integers(2, 3))
    owner = draw(st.lists(st.integers(0, parts - 1), min_size=count, max_size=count))
    label = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    return numbered(np.array(draw(numbers))), np.array(owner), np.array(label), parts


def united(component, part):
    return all(len(set(part[component == c].tolist())) == 1 for c in set(component.tolist()))


@given(splits())
def test_no_fewer_moves_unite_all(split):
    component, owner, label, parts = split
    moves = fewest_moves(component, owner, label, parts)
    least = sum(
        min(int((owner[component == c] != part).sum()) for part in range(parts))
        for c in set(component.tolist())
    )
    assert moves.uniting == moves.fewest == least == int((moves.part != owner).sum())
    assert united(component, moves.part)
    torn = [c for c in set(component.tolist()) if len(set(owner[component == c].tolist())) > 1]
    assert moves.straddling.tolist() == sorted(torn)
    whole = ~np.isin(component, torn)
    assert (moves.part[whole] == owner[whole]).all()


@pytest.mark.parametrize(
    ("component", "owner", "label", "counts"),
    [
        # ten pairs with one image on each side: five move in each direction
        (np.repeat(np.arange(10), 2), [0, 1] * 10, [0] * 20, [[10, 10]]),
        # two pairs of each of two classes: one of each class moves in each direction
        ([0, 0, 1, 1, 2, 2, 3, 3], [0, 1] * 4, [0, 0, 1, 1, 1, 1, 0, 0], [[2, 2], [2, 2]]),
        # one image has to move to part 1, so the tie moves one back
        ([0, 0, 0, 1, 1], [0, 1, 1, 0, 1], [0] * 5, [[2, 3]]),
    ],
)
def test_ties_keep_sizes_and_classes(component, owner, label, counts):
    component, owner, label = map(np.array, (component, owner, label))
    moves = fewest_moves(component, owner, label, 2)
    assert [np.bincount(moves.part[label == n]).tolist() for n in range(len(counts))] == counts


def test_single_images_of_the_same_class_go_back():
    """Three leaks of one class leave test, and three others of it come, for every seed."""
    # a test image beside four of train, three times; then 40 free images of two classes
    component = np.concatenate([np.repeat(np.arange(3), 5), np.arange(3, 43)])
    owner = np.concatenate([np.tile([0, 1, 1, 1, 1], 3), np.repeat([0, 1], 20)])
    label = np.concatenate([np.zeros(15, np.int64), np.tile([0, 1], 20)])
    moves = fewest_moves(component, owner, label, 2)
    chosen = set()
    for seed in range(5):
        kept = kept_sizes(moves, component, owner, label, 2, seed)
        assert (kept.uniting, kept.back) == (3, 3)
        for name in (0, 1):
            own = label == name
            assert np.bincount(kept.part[own]).tolist() == np.bincount(owner[own]).tolist()
        chosen.add(tuple(np.flatnonzero(kept.part != moves.part).tolist()))
    assert len(chosen) > 1
