"""Verdicts laid over an audit: grades, rates, the headline, and pairs that only people saw."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from visleak.storage import IMAGES, PAIRS, read_summary, read_table
from visleak.verdicts import Ledger, Verdict, digests_of, judged_pairs, judged_summary

Images = dict[tuple[str, str], str]


@pytest.fixture
def folder(audited: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(audited, tmp_path / "audit"))


@pytest.fixture
def digests(audited: Path) -> Images:
    table = read_table(audited, IMAGES, ["set", "id", "digest"])
    return {(row["set"], row["id"]): row["digest"] for row in table.to_pylist()}


def said(digests: Images, query: str, reference: str, judgment: str, who: str = "Ada") -> Verdict:
    left = digests["test", query]
    right = digests.get(("train", reference)) or digests["test", reference]
    return Verdict.of(left, right, judgment, who)


def row(table: pa.Table, query: str, reference: str) -> dict[str, object]:
    found = [
        each
        for each in table.to_pylist()
        if (each["query"], each["reference"]) == (query, reference)
    ]
    assert len(found) == 1
    return found[0]


def test_without_verdicts_nothing_changes(audited: Path) -> None:
    table = judged_pairs(audited)
    assert table.drop(["machine_grade", "judged"]).equals(read_table(audited, PAIRS))
    assert table["judged"].null_count == table.num_rows
    assert table["machine_grade"].equals(table["grade"])
    assert judged_summary(audited) == read_summary(audited)


def test_counting_again_gives_what_the_audit_counted(audited: Path) -> None:
    stored = read_summary(audited).as_dict()
    table = judged_pairs(audited, verdicts=())
    agreeing = [
        Verdict.of(left, right, grade, "Ada")
        for left, right, grade in zip(
            *(side.to_pylist() for side in digests_of(audited, table)),
            table["grade"].to_pylist(),
            strict=True,
        )
    ]
    summary = judged_summary(audited, agreeing).as_dict()
    for key in ("comparisons", "label_conflicts"):
        assert summary[key] == stored[key]
    assert summary["review"]["changed"] == summary["review"]["added"] == 0
    assert summary["headline"] == f"{stored['headline']}, after review"


def test_a_verdict_takes_the_place_of_the_grade(folder: Path, digests: Images) -> None:
    before = read_summary(folder).as_dict()["totals"][0]["rates"]
    assert before["near_or_exact"]["count"] == 2
    with Ledger(folder) as ledger:
        ledger.add(said(digests, "a/mirrored.png", "a/chelsea.png", "different"))
    mirrored = row(judged_pairs(folder), "a/mirrored.png", "a/chelsea.png")
    assert (mirrored["grade"], mirrored["probability"]) == ("different", 0.0)
    assert (mirrored["machine_grade"], mirrored["judged"]) == ("near", "human")
    summary = judged_summary(folder).as_dict()
    rates = summary["totals"][0]["rates"]
    assert rates["near_or_exact"]["count"] == 1
    assert rates["near_or_exact"]["total"] == before["near_or_exact"]["total"]
    assert rates["hard_or_soft"] == before["hard_or_soft"]
    assert summary["headline"].startswith("1 of 5 test images")
    assert summary["headline"].endswith("has a near-duplicate or exact copy in train, after review")
    assert summary["review"] == {
        "judged": 1,
        "disputed": 0,
        "reviewers": {"Ada": 1},
        "changed": 1,
        "added": 0,
    }


def test_a_disputed_pair_keeps_the_machines_grade(folder: Path, digests: Images) -> None:
    with Ledger(folder) as ledger:
        for who, judgment in (("Ada", "different"), ("Ben", "near")):
            ledger.add(said(digests, "a/mirrored.png", "a/chelsea.png", judgment, who))
    stored = row(read_table(folder, PAIRS), "a/mirrored.png", "a/chelsea.png")
    mirrored = row(judged_pairs(folder), "a/mirrored.png", "a/chelsea.png")
    assert mirrored["judged"] == "disputed"
    assert (mirrored["grade"], mirrored["probability"]) == (stored["grade"], stored["probability"])
    summary = judged_summary(folder).as_dict()
    assert summary["review"]["disputed"] == 1
    assert summary["totals"][0]["rates"] == read_summary(folder).as_dict()["totals"][0]["rates"]


def test_what_the_machine_did_not_list_is_added(folder: Path, digests: Images) -> None:
    unlisted = ("b/other.png", "b/moon.png")
    table = read_table(folder, PAIRS)
    table = table.filter(
        pc.invert(pc.and_(pc.equal(table["query"], unlisted[0]),
                          pc.equal(table["reference"], unlisted[1])))
    )  # fmt: skip
    with (folder / PAIRS).open("wb") as file:
        pa.parquet.write_table(table, file)
    replace(read_summary(folder), files=None).save(folder)
    with Ledger(folder) as ledger:
        ledger.add(said(digests, *unlisted, "similar"))
    judged = judged_pairs(folder)
    assert judged.num_rows == table.num_rows + 1
    added = row(judged, *unlisted)
    assert (added["grade"], added["machine_grade"], added["judged"]) == ("similar", None, "human")
    assert (added["query_label"], added["reference_label"]) == ("b", "b")
    assert (added["label_relation"], added["coverage"]) == ("same", "intra")
    order = [(r["query_set"], r["query"], -(r["similarity"] or -9)) for r in judged.to_pylist()]
    assert order == sorted(order)
    assert judged_summary(folder).as_dict()["review"]["added"] == 1
    # a dispute about it adds nothing: there is no grade to show
    with Ledger(folder) as ledger:
        ledger.add(said(digests, *unlisted, "near", "Ben"))
    assert judged_pairs(folder).num_rows == table.num_rows


def test_a_pair_within_the_set_stands_once_lower_id_first(folder: Path, digests: Images) -> None:
    # "other" and "brighter" are listed within test; "copy" and "other" may not be
    with Ledger(folder) as ledger:
        ledger.add(said(digests, "b/other.png", "b/brighter.png", "exact"))
        ledger.add(said(digests, "b/other.png", "a/copy.png", "near"))
    judged = judged_pairs(folder, ["query", "reference", "grade", "coverage", "judged"])
    inside = judged.filter(pc.equal(judged["coverage"], "within"))
    assert row(inside, "b/brighter.png", "b/other.png")["grade"] == "exact"
    assert row(inside, "a/copy.png", "b/other.png")["grade"] == "near"
    within = next(
        c for c in judged_summary(folder).as_dict()["comparisons"] if c["coverage"] == "within"
    )
    assert within["within"]["duplicate_pairs"] == {"exact": 1, "near": 1, "similar": 0}
    assert within["within"]["distinct_images"] == {"exact": 2, "near": 1, "similar": 0}


def test_verdicts_outlive_renames(folder: Path, digests: Images) -> None:
    """The key is what the files hold: another audit with other names takes the same verdict."""
    verdict = said(digests, "a/mirrored.png", "a/chelsea.png", "different")
    images = read_table(folder, IMAGES)
    renamed = pc.replace_substring(images["id"], "mirrored", "renamed")
    table = images.set_column(1, "id", renamed)
    pairs = read_table(folder, PAIRS)
    pairs = pairs.set_column(
        1, "query", pc.replace_substring(pairs["query"], "mirrored", "renamed")
    )
    for name, each in ((IMAGES, table), (PAIRS, pairs)):
        with (folder / name).open("wb") as file:
            pa.parquet.write_table(each, file)
    replace(read_summary(folder), files=None).save(folder)
    judged = judged_pairs(folder, verdicts=[verdict])
    assert row(judged, "a/renamed.png", "a/chelsea.png")["grade"] == "different"


def test_only_the_columns_asked_for_come(folder: Path, digests: Images) -> None:
    assert judged_pairs(folder, ["query", "machine_grade"]).column_names == [
        "query",
        "machine_grade",
    ]
    verdict = said(digests, "b/other.png", "b/moon.png", "near")
    judged = judged_pairs(folder, ["query", "grade"], [verdict])
    assert judged.column_names == ["query", "grade"]


def test_digests_are_those_of_the_images(audited: Path, digests: Images) -> None:
    table = read_table(audited, PAIRS)
    left, right = digests_of(audited, table)
    for each, mine, theirs in zip(
        table.to_pylist(), left.to_pylist(), right.to_pylist(), strict=True
    ):
        assert mine == digests[each["query_set"], each["query"]]
        assert theirs == digests[each["reference_set"], each["reference"]]
