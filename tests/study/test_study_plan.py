"""Which sets are compared: the paper's list cell by cell, and what is known to be one set."""

from itertools import product
from pathlib import Path

import pytest
from study_making import table

from visleak.study import read_study
from visleak.study.config import plan, read_paper

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def ramos():
    return read_study(EXAMPLES / "ramos2025.toml")


def couples(made, coverage):
    return {(e.query, e.reference) for e in made.comparisons if e.coverage == coverage}


def planned(tmp_path, *tables):
    file = tmp_path / "sets.toml"
    file.write_text("".join(tables), encoding="utf-8")
    return plan(read_study(file))


def test_the_papers_comparisons_within_a_data_set(ramos):
    """Each COCO test split against train, val and unlabeled, and so on (B3 of the paper notes)."""
    trains = ["coco-train2014", "coco-train2017", "coco-unlabeled"]
    vals = ["coco-val2014", "coco-val2017"]
    tests = ["coco-test2014", "coco-test2015", "coco-test2017"]
    expected = {
        *product(tests, [*trains, *vals]),
        *product(vals, trains),
        ("gcc-val", "gcc-train"),
        *product(["imagenet-val", "imagenet-test"], ["imagenet-train"]),
        *product(["openimages-val", "openimages-test"], ["openimages-train"]),
        ("textcaps-test", "textcaps-train"),
    } - {("coco-val2014", "coco-train2017")}
    made = plan(ramos)
    assert couples(made, "intra") == expected
    (left,) = made.included
    assert (left.comparison.query, left.comparison.reference) == ("coco-val2014", "coco-train2017")
    assert left.why == "coco-val2014 is part of coco-train2017"


def test_the_papers_matrix(ramos):
    """Figure 3: four references by eight queries, of which four cells are within a data set."""
    made = plan(ramos)
    matrix = set(product(ramos.queries, ramos.references))
    assert len(matrix) == 32
    intra = couples(made, "intra")
    assert couples(made, "inter") == matrix - intra
    splits = product(("imagenet", "openimages"), ("val", "test"))
    assert matrix & intra == {(f"{name}-{split}", f"{name}-train") for name, split in splits}
    assert made.idle == ()
    assert len(made.by_reference()) == 10


def test_every_published_value_belongs_to_a_comparison(ramos):
    """A name that nothing computes would never be printed, and nobody would notice."""
    assert ramos.paper is not None
    paper = read_paper(ramos.paper)
    made = couples(plan(ramos), "intra") | couples(plan(ramos), "inter")
    assert set(paper.cells) == set(product(ramos.queries, ramos.references))
    assert set(paper.cells) <= made
    assert set(paper.intra) == {query for query, _ in couples(plan(ramos), "intra")}


def test_the_plan_does_not_depend_on_what_is_there(ramos):
    """What is missing is skipped, named, and nothing else changes."""
    whole = plan(ramos)
    part = plan(ramos, {"laion-400m": "source is not filled in"})
    skipped = {left.comparison for left in part.skipped}
    assert {each.reference for each in skipped} == {"laion-400m"}
    assert {left.why for left in part.skipped} == {"needs laion-400m"}
    assert set(part.comparisons) | skipped == set(whole.comparisons)
    assert part.included == whole.included


def test_without_a_matrix_roles_decide_between_data_sets_too(tmp_path):
    made = planned(
        tmp_path,
        table("a-train", dataset="a", roles=["T"]),
        table("a-val", dataset="a", roles=["T", "B"]),
        table("a-test", dataset="a", roles=["B"]),
        table("b-test", dataset="b", roles=["B"]),
        table("c", roles=["P"]),
    )
    trains = product(["a-test", "b-test"], ["a-train", "a-val"])
    within = {("a-val", "a-train"), ("a-test", "a-train"), ("a-test", "a-val")}
    assert couples(made, "intra") == within
    others = product(["a-val", "a-test", "b-test"], ["c"])
    assert couples(made, "inter") == {*trains, *others} - within


def test_a_set_that_meets_nothing_is_named(tmp_path):
    sets = table("a", roles=["B"]), table("b", roles=["T"]), table("c", roles=["P"])
    made = planned(tmp_path, "[matrix]\nqueries = ['a']\nreferences = ['b']\n", *sets)
    assert couples(made, "inter") == {("a", "b")}
    assert made.idle == ("c",)


def test_a_part_of_a_part_is_a_part_and_both_ways_count(tmp_path):
    """Without this a union of releases reports its own images as leaks."""
    made = planned(
        tmp_path,
        table("test", dataset="d", roles=["B"]),
        table("first", dataset="d", roles=["T"], contains=["test"]),
        table("second", dataset="d", roles=["T"], contains=["first"]),
        table("piece", dataset="d", roles=["T"]),
        table("bench", dataset="d", roles=["B"], contains=["piece"]),
    )
    assert {(e.comparison.query, e.comparison.reference): e.why for e in made.included} == {
        ("test", "first"): "test is part of first",
        ("test", "second"): "test is part of second",
        ("bench", "piece"): "piece is part of bench",
    }
    assert couples(made, "intra") == {("test", "piece"), ("bench", "first"), ("bench", "second")}


def test_inclusions_in_a_circle_end(tmp_path):
    first = table("a", dataset="d", roles=["B"], contains=["b"])
    made = planned(tmp_path, first, table("b", dataset="d", roles=["T"], contains=["a"]))
    assert made.comparisons == ()
    assert len(made.included) == 1
