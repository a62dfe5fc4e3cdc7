"""Verdicts laid over an audit: grades, rates, the headline, and pairs that only people saw."""

import shutil
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import visleak
from visleak.storage import IMAGES, PAIRS, read_summary, read_table
from visleak.verdicts import Ledger, Verdict, digests_of, judged_pairs, judged_summary


def save(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), pixels[..., ::-1])


@pytest.fixture(scope="module")
def audited(tmp_path_factory, natural):
    folder = tmp_path_factory.mktemp("judged")
    small = {name: cv2.resize(picture, (96, 96)) for name, picture in natural.items()}
    for name in ("astronaut", "chelsea", "coffee", "rocket", "camera"):
        save(folder / "train" / "a" / f"{name}.png", small[name])
    for name in ("coins", "moon", "brick"):
        save(folder / "train" / "b" / f"{name}.png", small[name])
    save(folder / "test" / "a" / "copy.png", small["astronaut"])
    save(folder / "test" / "a" / "mirrored.png", small["chelsea"][:, ::-1])
    save(folder / "test" / "b" / "other.png", small["grass"])
    save(folder / "test" / "b" / "brighter.png", cv2.convertScaleAbs(small["grass"], beta=25))
    save(folder / "test" / "b" / "blank.png", np.full((96, 96, 3), 40, np.uint8))
    visleak.audit(folder / "test", folder / "train", out=folder / "audit", workers=1, cache=None)
    return folder / "audit"


@pytest.fixture
def folder(audited, tmp_path):
    return Path(shutil.copytree(audited, tmp_path / "audit"))


@pytest.fixture
def digests(audited):
    table = read_table(audited, IMAGES, ["set", "id", "digest"])
    return {(row["set"], row["id"]): row["digest"] for row in table.to_pylist()}


def said(digests, query, reference, judgment, who="Ada"):
    left = digests["test", query]
    right = digests.get(("train", reference)) or digests["test", reference]
    return Verdict.of(left, right, judgment, who)


def row(table, query, reference):
    rows = table.to_pylist()
    (found,) = [each for each in rows if (each["query"], each["reference"]) == (query, reference)]
    return found


def test_without_verdicts_nothing_changes(audited):
    table = judged_pairs(audited)
    assert table.drop(["machine_grade", "judged"]).equals(read_table(audited, PAIRS))
    assert table["judged"].null_count == table.num_rows
    assert table["machine_grade"].equals(table["grade"])
    assert judged_summary(audited) == read_summary(audited)


def test_counting_again_gives_what_the_audit_counted(audited):
    stored = read_summary(audited).as_dict()
    table = judged_pairs(audited, verdicts=())
    columns = (column.to_pylist() for column in (*digests_of(audited, table), table["grade"]))
    agreeing = [Verdict.of(*each, "Ada") for each in zip(*columns, strict=True)]
    summary = judged_summary(audited, agreeing).as_dict()
    for key in ("comparisons", "label_conflicts"):
        assert summary[key] == stored[key]
    assert summary["review"]["changed"] == summary["review"]["added"] == 0
    assert summary["headline"] == f"{stored['headline']}, after review"


def test_a_verdict_takes_the_place_of_the_grade(folder, digests):
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
    assert rates["hard_or_soft"] == before["hard_or_soft"]
    assert summary["headline"].startswith("1 of 5 test images")
    assert (summary["review"]["changed"], summary["review"]["reviewers"]) == (1, {"Ada": 1})


def test_a_disputed_pair_keeps_the_machines_grade(folder, digests):
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


def test_what_the_machine_did_not_list_is_added(folder, digests):
    unlisted = ("b/other.png", "b/moon.png")
    table = read_table(folder, PAIRS)
    ends = zip(("query", "reference"), unlisted, strict=True)
    table = table.filter(pc.invert(pc.and_(*(pc.equal(table[end], id_) for end, id_ in ends))))
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


def test_a_pair_within_the_set_stands_once_lower_id_first(folder, digests):
    with Ledger(folder) as ledger:
        ledger.add(said(digests, "b/other.png", "b/brighter.png", "exact"))
        ledger.add(said(digests, "b/other.png", "a/copy.png", "near"))
    columns = ["query", "reference", "grade", "coverage"]
    judged = judged_pairs(folder, columns)
    assert judged.column_names == columns
    inside = judged.filter(pc.equal(judged["coverage"], "within"))
    assert row(inside, "b/brighter.png", "b/other.png")["grade"] == "exact"
    assert row(inside, "a/copy.png", "b/other.png")["grade"] == "near"
    (within,) = (c.within for c in judged_summary(folder).comparisons if c.coverage == "within")
    assert within["duplicate_pairs"] == {"exact": 1, "near": 1, "similar": 0}
    assert within["distinct_images"] == {"exact": 2, "near": 1, "similar": 0}
