"""Diffs of two audits against a plain search over all images and pairs, written another way."""

import csv
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toy_audit import DEGREES, World, digest, worlds
from toy_audit import GRADES as ORDER
from visleak.diff import diff, document, headlines, write_changes
from visleak.diff.document import COLUMNS, rows
from visleak.errors import UsageError, VisleakError
from visleak.verdicts import Ledger, Verdict, judged_pairs

RATE = {"exact": "exact", "near": "near_or_exact", "similar": "similar_or_closer"}
RATE |= {"hard": "hard", "soft": "hard_or_soft"}


class Plain:
    """An audit as dictionaries, for a search without arrays."""

    def __init__(self, world, folder):
        self.world = world
        self.content = {
            (name, id_): digest(content)
            for name, own in world.images.items()
            for id_, content, _ in own
        }
        blank = {(n, id_) for n, own in world.images.items() for id_, _, flat in own if flat}
        listed = judged_pairs(folder).to_pylist()
        self.pairs = {
            ((r["query_set"], r["query"]), (r["reference_set"], r["reference"])): r
            for r in listed
            if (r["query_set"], r["query"]) not in blank
        }


def partners(before, after):
    """Return the fate of each image that is still there, and its name in the later audit."""
    found = {}
    for name in before.world.images:
        if name not in after.world.images:
            continue
        mine = {i for i in before.content if i[0] == name}
        theirs = {i for i in after.content if i[0] == name}
        contents = [before.content[i] for i in mine] + [after.content[i] for i in theirs]
        if None in contents:
            found |= {i: ("same", i) for i in mine & theirs}
            continue
        for image in sorted(mine & theirs):
            if before.content[image] == after.content[image]:
                found[image] = ("same", image)
        taken = {partner for _, partner in found.values()}
        for image in sorted(mine - found.keys()):
            for other in sorted(theirs - taken):
                if before.content[image] == after.content[other]:
                    found[image] = ("renamed", other)
                    taken.add(other)
                    break
        for image in sorted(mine - found.keys()):
            if image in theirs - taken:
                found[image] = ("changed", image)
                taken.add(image)
    return found


def place(row, level):
    """Return how strong a pair is on the scale of the level; 99 is not at all."""
    scale, column = (DEGREES, "degree") if level in DEGREES else (ORDER, "grade")
    return scale.index(row[column]) if row and row[column] in scale else 99


def limit(level):
    return (DEGREES if level in DEGREES else ORDER).index(level)


def why_alone(row, fates, side, other, level, gone):
    if (row["query_set"], row["reference_set"]) not in other.world.comparisons:
        return "not compared"
    whys = set()
    for fate, end in zip(fates, ("query", "reference"), strict=True):
        name = row[f"{end}_set"]
        if fate == "gone" and (name, row[end]) in other.world.unreadable:
            whys.add("unreadable")
        elif fate == "gone" and other.world.sample and name == "test":
            whys.add("not searched")
        elif fate == "gone":
            whys.add(gone)
        elif fate == "changed":
            whys.add("content changed")
    for why in (gone, "unreadable", "content changed", "not searched"):
        if why in whys:
            return why
    machine = place({"grade": row["machine_grade"]}, level) if level in ORDER else 0
    if row["judged"] == "human" and machine > limit(level):
        return "judged"
    same = side.world.encoder == other.world.encoder
    if same and row["similarity"] is not None and row["similarity"] < other.world.soft:
        return "below threshold"
    return "not searched"


def expected(before, after, level):
    """Return every change: change, reason, and the two images as the later audit has them."""
    forth = partners(before, after)
    back = {partner: (fate, image) for image, (fate, partner) in forth.items()}
    known = {}
    for (query, reference), row in before.pairs.items():
        ends = [forth.get(query), forth.get(reference)]
        if all(end is not None and end[0] in ("same", "renamed") for end in ends):
            moved = tuple(end[1] for end in ends if end)
            key = tuple(sorted(moved)) if query[0] == reference[0] else moved
            known[key] = row
    found, met = Counter(), set()
    for (query, reference), row in after.pairs.items():
        key = tuple(sorted((query, reference))) if query[0] == reference[0] else (query, reference)
        old = known.get(key)
        if old is not None:
            met.add(id(old))
            now, then = place(row, level) <= limit(level), place(old, level) <= limit(level)
            if not now and not then:
                continue
            graded, degreed = row["grade"] != old["grade"], row["degree"] != old["degree"]
            if now and then and not (graded or degreed):
                continue
            change = "changed" if now and then else "appeared" if now else "vanished"
            about_grade = graded and not (level in DEGREES and degreed)
            people = row["judged"] or old["judged"]
            why = ("judged" if people else "regraded") if about_grade else "degree"
            found[change, why, *query, *reference] += 1
        elif place(row, level) <= limit(level):
            fates = tuple(back.get(end, ("gone", end))[0] for end in (query, reference))
            why = why_alone(row, fates, after, before, level, "image new")
            found["appeared", why, *query, *reference] += 1
    for (query, reference), row in before.pairs.items():
        if id(row) in met or place(row, level) > limit(level):
            continue
        fates = tuple(forth.get(end, ("gone", end))[0] for end in (query, reference))
        why = why_alone(row, fates, before, after, level, "image gone")
        found["vanished", why, *query, *reference] += 1
    return found


def got(found):
    return Counter(row[:6] for row in rows(found, np.arange(len(found.changes))))


def judge(draw, world, folder):
    contents = sorted({d for own in world.images.values() for _, d, _ in own if d is not None})
    if len(contents) < 2 or not draw.draw(st.booleans()):
        return
    with Ledger(folder) as ledger:
        for _ in range(draw.draw(st.integers(1, 3))):
            left, right = (digest(draw.draw(st.sampled_from(contents))) for _ in range(2))
            grade = draw.draw(st.sampled_from(ORDER))
            reviewer = draw.draw(st.sampled_from(["Ada", "Ben"]))
            ledger.add(Verdict.of(str(left), str(right), grade, reviewer))


def later(world, drawn):
    if drawn.draw(st.integers(0, 3)) == 0:
        return drawn.draw(worlds())
    names = {}
    for name, own in world.images.items():
        ids = [id_ for id_, _, _ in own]
        names[name] = dict(zip(ids, drawn.draw(st.permutations(ids)), strict=True))
    images = {
        name: [(names[name][id_], content, flat) for id_, content, flat in own]
        for name, own in world.images.items()
    }
    pairs = []
    for query_set, query, reference_set, reference, *values in world.pairs:
        ends = names[query_set][query], names[reference_set][reference]
        if query_set == reference_set:
            ends = min(ends), max(ends)
        fate = drawn.draw(st.sampled_from(["gone", "same", "graded", "moved", "both"]))
        if fate in ("moved", "both"):
            values[0] = drawn.draw(st.sampled_from([0.5, 0.7, 0.95]))
        if fate in ("graded", "both"):
            values[1] = drawn.draw(st.sampled_from(ORDER))
        if fate != "gone":
            pairs.append((query_set, ends[0], reference_set, ends[1], *values))
    # ids that nobody has there any more
    lost = [(name, f"lost {id_}") for name, id_ in world.unreadable]
    return replace(world, images=images, pairs=pairs, unreadable=lost)


@settings(max_examples=40)
@given(worlds(), st.data(), st.sampled_from(list(RATE)))
def test_every_change_and_its_reason(world, drawn, level):
    other = later(world, drawn)
    with tempfile.TemporaryDirectory() as name:
        folders = written(Path(name), world, other)
        for folder, each in zip(folders, (world, other), strict=True):
            judge(drawn, each, folder)
        found = diff(*folders, level)
        sides = [Plain(each, folder) for each, folder in zip((world, other), folders, strict=True)]
        assert got(found) == expected(*sides, level)
        check_images(found, sides)
        check_totals(found, sides, level)
        mirrored(found, diff(*reversed(folders), level))
        itself = diff(folders[0], folders[0], level)
    assert (len(itself.changes), dict(itself.conditions)) == (0, {})
    assert all(each.same == len(world.images[each.before]) for each in itself.sets)
    assert all((t.new, t.gone, t.regraded) == (0, 0, 0) for t in itself.totals)
    assert all(t.paired or not t.rates[RATE[level]][0].total for t in itself.totals)


def check_images(found, sides):
    forth = partners(*sides)
    for turnover in found.sets:
        mine = [i for i in sides[0].content if i[0] == turnover.before]
        theirs = [i for i in sides[1].content if i[0] == turnover.after]
        fates = Counter(forth[i][0] if i in forth else "gone" for i in mine)
        assert (turnover.same, turnover.renamed, turnover.changed, turnover.removed) == tuple(
            fates[word] for word in ("same", "renamed", "changed", "gone")
        )
        kept = len(mine) - fates["gone"]
        assert turnover.added == len(theirs) - kept


def check_totals(found, sides, level):
    forth = partners(*sides)
    total = found.totals[0]
    words = set((DEGREES if level in DEGREES else ORDER)[: limit(level) + 1])
    leaks = [
        {("test", id_) for id_ in side.world.leaking(side.pairs.values(), "test", words)}
        for side in sides
    ]
    moved = {forth[i][1]: i for i in forth}
    new = {i for i in leaks[1] if moved.get(i) not in leaks[0]}
    gone = {i for i in leaks[0] if i not in forth or forth[i][1] not in leaks[1]}
    unseen = [
        {i for i in new if sides[0].world.sample and i not in moved},
        {i for i in gone if sides[1].world.sample and i not in forth},
    ]
    assert (total.new, total.gone) == (len(new - unseen[0]), len(gone - unseen[1]))
    assert total.unseen == len(unseen[0]) + len(unseen[1])
    assert next(iter(total.rates)) == RATE[level]
    before, after = total.rates[RATE[level]]
    assert (before.count, after.count) == (len(leaks[0]), len(leaks[1]))
    assert len(new) - len(gone) == after.count - before.count


def mirrored(found, back):
    swap = {"appeared": "vanished", "vanished": "appeared", "changed": "changed"}
    words = {"image new": "image gone", "image gone": "image new"}
    assert Counter((swap[c], words.get(w, w)) for c, w, *_ in got(found).elements()) == Counter(
        (c, w) for c, w, *_ in got(back).elements()
    )
    for one, other in zip(found.totals, back.totals, strict=True):
        assert (one.new, one.gone, one.regraded) == (other.gone, other.new, other.regraded)
        assert one.shared == other.shared
        assert one.flips == other.flips[::-1]
        assert one.p_value == other.p_value
        low, high = one.interval
        assert other.interval == pytest.approx((-high, -low))
    assert {n: v[::-1] for n, v in found.conditions.items()} == dict(back.conditions)


def written(place, before, after):
    return [each.write(place / name) for name, each in (("before", before), ("after", after))]


def leak(query, grade="near", reference="x"):
    return "test", query, "train", reference, 0.8, grade


def test_a_replaced_image_keeps_its_place(tmp_path):
    """As in ciFAIR: another content under the same id is the same test image, now clean."""
    images = {"test": [("a", 1, False), ("b", 2, False)], "train": [("x", 9, False)]}
    before = World(images, [leak("a")], [("test", "train")])
    fair = {**images, "test": [("a", 7, False), ("b", 2, False)]}
    found = diff(*written(tmp_path, before, replace(before, images=fair, pairs=[])))
    assert found.counts()["vanished"] == {"content changed": 1}
    assert not found.totals[0].paired
    assert next(headlines(found)) == (
        "after has 0 leaking test images that before had not, 1 is gone, 0 changed grade;"
        " near or exact 50.00 % -> 0.00 %"
    )


def test_the_same_images_are_compared_in_pairs(tmp_path):
    """Another training set: eight images leak now alone, one leaked before alone."""
    images = {
        "test": [(f"{n:02}", n, False) for n in range(20)],
        "train": [("x", 30, False), ("y", 31, False)],
    }
    before = World(images, [leak("09")], [("test", "train")])
    new = [leak(f"{n:02}", reference="y") for n in range(8)]
    found = diff(*written(tmp_path, before, replace(before, pairs=new)))
    (total,) = found.totals
    assert total.flips == (1, 8)
    assert total.p_value == pytest.approx(20 / 512)  # (C(9, 0) + C(9, 1)) / 2**9, both tails
    (table,) = document(found).grids()
    words = "8 leak now alone, 1 leaked before alone (McNemar's exact test, p = 0.039)"
    assert any(words in row[1] for row in table.rows)


def test_only_vectors_are_known_by_id(tmp_path):
    images = {"test": [("a", 1, False)], "train": [("x", None, False), ("y", None, False)]}
    before = World(images, [leak("a", None)], [("test", "train")])
    folders = written(tmp_path, before, replace(before, pairs=[leak("a", None, "y")]))
    found = diff(*folders)
    assert found.level.name == "soft"  # nothing was graded
    assert [sum(reasons.values()) for reasons in found.counts().values()] == [1, 1, 0]
    (table,) = document(found).grids()
    assert ["images", "train: 2 the same (by id: contents are not known)"] in table.rows
    with pytest.raises(UsageError, match=r"before has no grades, so nothing can be said at near"):
        diff(*folders, "near")


def test_the_table_of_changes_has_an_order(tmp_path):
    """Leaks first, then repeats, each by id; a table that names unknown images is refused."""
    before = World(
        {"test": [(i, n, False) for n, i in enumerate("abcd")], "train": [("x", 9, False)]},
        [],
        [("test", "train"), ("test", "test")],
    )
    pairs = [leak("c"), ("test", "a", "test", "b", 0.8, "near"), leak("a", "exact")]
    folders = written(tmp_path, before, replace(before, pairs=pairs))
    write_changes(diff(*folders), tmp_path / "a.csv")
    with (tmp_path / "a.csv").open(newline="") as lines:
        table = list(csv.DictReader(lines))
    assert [(row["query"], row["within"]) for row in table] == [("a", ""), ("c", ""), ("a", "yes")]
    assert tuple(table[0]) == COLUMNS
    mixed = replace(before, pairs=[leak("a", reference="y")]).write(tmp_path / "mixed")
    with pytest.raises(VisleakError, match=r"names images that images.parquet does not; run the"):
        diff(mixed, mixed)
