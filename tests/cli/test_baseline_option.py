"""``audit --baseline``: gates trip on new leaks only."""

import json
import shutil

import pytest
from calling import HOSTILE, MOSTLY_READABLE, check_refused, run
from PIL import Image

from visleak.verdicts import Ledger, Verdict


@pytest.fixture(scope="module")
def changed(dataset, tmp_path_factory):
    """The data set with one more leak: a training image, turned."""
    root = tmp_path_factory.mktemp("changed") / "data"
    shutil.copytree(dataset, root)
    picture = Image.open(root / "train" / "thing" / "t2.png")
    picture.transpose(Image.Transpose.ROTATE_90).save(root / "test" / "thing" / "turned.png")
    return root


def test_known_leaks_pass(dataset, audited, tmp_path):
    call = ("audit", dataset, "-o", tmp_path / "out", "--baseline", audited)
    ran = run(*call, *MOSTLY_READABLE, "--fail-on", "near")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("3 of 6 test images")
    last = ran.out.splitlines()[-1]
    assert last.startswith("gate near: 0 new of 6 test images (0.00 %)")
    assert "(3 known from baseline)" in last
    ran = run(*call, "--fail-on", "unreadable")
    assert (ran.code, "gate unreadable: 1 of 7 test images" in ran.err) == (3, True)


def test_new_leaks_trip_and_are_named(changed, audited, tmp_path):
    out = tmp_path / "out"
    command = ("audit", changed, "-o", out, "--baseline", audited)
    gates = ("--fail-on", "near", "--fail-on", "exact", "--fail-on", "unreadable=50%")
    ran = run(*command, *gates)
    assert ran.code == 3
    near, pair = ran.err.splitlines()
    assert near.startswith("visleak: gate near: 1 new of 7 test images (14.29 %)")
    assert pair.startswith("  test thing/turned.png = train thing/t2.png: near, probability ")
    assert "gate exact: 0 new of 7 test images (0.00 %) have an exact copy (2 known" in ran.out
    ran = run(*command, "--fail-on", "near=20%", *MOSTLY_READABLE)
    assert (ran.code, "reused: " in ran.err) == (0, True)
    ran = run(*command)
    assert (ran.code, ran.out.splitlines()[-1][-23:]) == (0, "(3 known from baseline)")
    # as JSON, beside the audit, which is independent of gates
    ran = run(*command, "--fail-on", "near", "--json")
    content = json.loads(ran.out)
    assert (ran.code, content.pop("baseline")) == (3, [str(audited)])
    (gate,) = content.pop("gates")
    assert (gate["gate"], gate["query_set"], gate["tripped"]) == ("near", "test", True)
    assert (gate["new"]["count"], gate["known"], gate["new_pairs"]) == (1, 3, 1)
    assert gate["worst"][0]["query"] == "thing/turned.png"
    assert content == json.loads((out / "audit.json").read_text())


def test_without_grades_degrees_are_told(dataset, audited, tmp_path):
    command = ("audit", dataset, "--no-verify", "--baseline", audited)
    ran = run(*command, "-o", tmp_path / "builtin")
    assert ran.code == 0
    assert ran.out.splitlines()[-1].startswith("gate soft: 0 new of 6 test images")
    # nobody knows a threshold of this encoder: there is nothing to tell
    ran = run(*command, "-o", tmp_path / "phash", "--encoder", "phash")
    assert ran.code == 0
    assert "gate" not in ran.out


def test_accepted_pairs_from_a_file(changed, audited, tmp_path):
    accepted, out = tmp_path / "accepted.csv", tmp_path / "out"
    ran = run("export", audited, "--format", "accepted", "-o", accepted)
    assert (ran.code, ran.out) == (0, f"{accepted}\n")
    gates = ("--fail-on", "near", *MOSTLY_READABLE)
    command = ("audit", changed, "-o", out, *gates, "--baseline", accepted)
    assert run(*command).code == 3
    run("export", out, "--format", "accepted", "-o", tmp_path / "all.csv")
    assert run(*command, "--baseline", tmp_path / "all.csv").code == 0
    assert HOSTILE.strip() not in accepted.read_text() or "[red]" in accepted.read_text()


def test_verdicts_of_people_count(dataset, tmp_path):
    out = tmp_path / "out"
    assert run("audit", dataset, "-o", out, "--fail-on", "near=34%").code == 3
    import pyarrow.compute as pc

    from visleak.storage import read_table

    images = read_table(out, "images.parquet")
    ids = dict(zip(images["id"].to_pylist(), images["digest"].to_pylist(), strict=True))
    assert pc.sum(pc.equal(images["id"], "thing/mirrored.png")).as_py() == 1
    with Ledger(out) as ledger:
        ledger.add(Verdict.of(ids["thing/mirrored.png"], ids["thing/t1.png"], "different", "Ada"))
    assert run("audit", dataset, "-o", out, "--fail-on", "near=34%", *MOSTLY_READABLE).code == 0
    again = tmp_path / "again"
    gates = ("--fail-on", "near", *MOSTLY_READABLE)
    ran = run("audit", dataset, "-o", again, *gates, "--baseline", out)
    assert ran.code == 0
    assert "(3 known from baseline)" in ran.out


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("nowhere", 2, "does not exist; give an audit folder or a file of accepted pairs"),
        ("empty", 2, "holds no finished audit (no audit.json)"),
        ("file", 1, "line 2: first must be a content digest of 32 hex digits"),
        ("out", 2, "is the output folder itself, so the second run would know every leak"),
    ],
)
def test_a_wrong_baseline_ends_before_anything_is_done(
    name, code, words, dataset, audited, tmp_path
):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("first,second\nx,y\n")
    out, baseline = tmp_path / "out", tmp_path / name
    if name == "out":
        out = baseline = audited
    check_refused(f"audit {dataset} -o {out} --baseline {baseline}", words, code)
    assert not (tmp_path / "out").exists()
