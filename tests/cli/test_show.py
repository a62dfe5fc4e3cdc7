import re

import pytest
from calling import HOSTILE, check_refused, refusals, refused, run

from visleak.auditing import Audit


def test_all_pairs_of_a_query_best_first(audited):
    ran = run("show", audited, "thing/mirrored.png", "--all")
    head, _, names, _, first, *rest = ran.out.rstrip("\n").split("\n")
    assert head == "thing/mirrored.png of test (96 x 96, label thing)"
    assert re.split(r"  +", names) == [
        *("grade", "set", "image", "transform", "reason", "sim.", "prob."),
    ]
    assert first.startswith("near ")
    assert "thing/t1.png" in first
    assert "mirrored" in first
    table = Audit(audited).pairs().to_pylist()
    mine = [
        row
        for row in table
        if row["query"] == "thing/mirrored.png" or row["reference"] == "thing/mirrored.png"
    ]
    assert 1 + len(rest) == len(mine)


def test_different_pairs_are_counted_and_listed_on_request(audited):
    table = Audit(audited).pairs().to_pylist()
    rows = [r for r in table if "thing/mirrored.png" in (r["query"], r["reference"])]
    different = sum(row["grade"] == "different" for row in rows)
    assert different
    shown = run("show", audited, "thing/mirrored.png").out
    assert not any(line.startswith("different ") for line in shown.splitlines())
    assert f"{different} pair" in shown
    assert "--all" in shown


def test_pairs_of_a_reference_lead_to_the_queries(audited):
    ran = run("show", audited, "thing/t0.png")
    lines = ran.out.splitlines()
    assert lines[0].startswith("thing/t0.png of train")
    exact = [line for line in lines if line.startswith("exact")]
    assert len(exact) == 2
    assert any("thing/copy.png" in line for line in exact)


def test_hostile_ids_stay_text_on_one_line(audited):
    ran = run("show", audited, f"thing/{HOSTILE}")
    assert ran.code == 0
    assert "\x1b" not in ran.out
    shown = r"thing/[red]=x\x1b[31m\n.png"
    assert ran.out.startswith(f"{shown} of test")
    assert shown in run("show", audited, "thing/copy.png").out


@refusals("""
    {audit} mirrored -> has the id 'mirrored'; did you mean 'thing/mirrored.png'?
    {audit} nosuch -> no image of this audit has the id 'nosuch'
    {audit} thing/copy.png --set train -> no image
    {audit} x --set dev -> set must be one of test, train; got 'dev'
    gone x -> gone holds no finished audit (no audit.json); run `visleak audit` first
    {audit} -> missing argument 'ID'; see visleak show --help
""")
def test_wrong_calls(audited, arguments, words):
    check_refused(f"show {arguments}", words, audit=audited)


def test_unreadable_id(audited):
    check_refused(f"show {audited} thing/text.jpg", "could not be read: not-an-image", code=1)


@pytest.fixture(scope="module")
def two_sets(dataset, tmp_path_factory):
    """Two test sets with the same ids."""
    out = tmp_path_factory.mktemp("two") / "out"
    source = dataset / "test"
    ran = run(
        *("audit", "--test", f"a={source}", "--test", f"b={source}"),
        *("--train", dataset / "train", "-o", out),
    )
    assert ran.code == 0, ran.err
    return out


def test_ambiguous_id_asks_for_the_set(two_sets):
    code, message = refused("show", two_sets, "thing/copy.png")
    assert (code, message) == (2, "'thing/copy.png' is in a and b; choose with --set")
    assert run("show", two_sets, "thing/copy.png", "--set", "b").out.startswith(
        "thing/copy.png of b"
    )


def test_lists_of_several_test_sets_ask_for_one(two_sets, tmp_path):
    out = tmp_path / "ids.txt"
    code, message = refused("export", two_sets, "--format", "ids", "-o", out)
    assert (code, message) == (
        2,
        "ids holds one test set, this audit has a, b; choose one with --set",
    )
    assert not out.exists()
