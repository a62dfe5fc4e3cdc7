"""``audit --baseline``: gates trip on new leaks only."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from calling import HOSTILE, MOSTLY_READABLE, refused, run
from PIL import Image

from visleak.verdicts import Ledger, Verdict


@pytest.fixture(scope="module")
def changed(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data set with one more leak: a training picture, turned."""
    root = tmp_path_factory.mktemp("changed") / "data"
    shutil.copytree(dataset, root)
    picture = Image.open(root / "train" / "thing" / "t2.png")
    picture.transpose(Image.Transpose.ROTATE_90).save(root / "test" / "thing" / "turned.png")
    return root


def test_known_leaks_pass(dataset: Path, audited: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    call = ("audit", dataset, "-o", out, "--baseline", audited, *MOSTLY_READABLE)
    ran = run(*call, "--fail-on", "near")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("3 of 6 test images")
    assert ran.out.splitlines()[-1] == (
        "gate near: 0 new of 6 test images (0.00 %) have a near-duplicate or exact copy"
        " (3 known from baseline); allowed 0.00 %"
    )


def test_new_leaks_trip_and_are_named(changed: Path, audited: Path, tmp_path: Path) -> None:
    command = ("audit", changed, "-o", tmp_path / "out", "--baseline", audited)
    ran = run(*command, "--fail-on", "near", "--fail-on", "exact", "--fail-on", "unreadable=50%")
    assert ran.code == 3
    near, pair = ran.err.splitlines()
    assert near == (
        "visleak: gate near: 1 new of 7 test images (14.29 %) has a near-duplicate or exact copy"
        " (3 known from baseline); allowed 0.00 %"
    )
    assert pair.startswith("  test thing/turned.png = train thing/t2.png: near, probability ")
    assert "gate exact: 0 new of 7 test images (0.00 %) have an exact copy (2 known" in ran.out
    # a rate bounds the new ones
    ran = run(*command, "--fail-on", "near=20%", *MOSTLY_READABLE)
    assert ran.code == 0
    assert "reused: " in ran.err
    # and without a gate it is only told
    ran = run(*command)
    assert ran.code == 0
    assert ran.out.splitlines()[-1].endswith("(3 known from baseline)")


def test_without_grades_degrees_are_told(dataset: Path, audited: Path, tmp_path: Path) -> None:
    command = ("audit", dataset, "--no-verify", "--baseline", audited)
    ran = run(*command, "-o", tmp_path / "builtin")
    assert ran.code == 0
    assert ran.out.splitlines()[-1].startswith("gate soft: 0 new of 6 test images")
    # nobody knows a threshold of this encoder: there is nothing to tell
    ran = run(*command, "-o", tmp_path / "phash", "--encoder", "phash")
    assert ran.code == 0
    assert "gate" not in ran.out


def test_a_baseline_does_not_hide_the_unreadable(
    dataset: Path, audited: Path, tmp_path: Path
) -> None:
    ran = run(
        *("audit", dataset, "-o", tmp_path / "out", "--baseline", audited),
        *("--fail-on", "unreadable"),
    )
    assert ran.code == 3
    assert "gate unreadable: 1 of 7 test images" in ran.err


def test_json_tells_what_is_new(changed: Path, audited: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ("audit", changed, "-o", out, "--baseline", audited, "--fail-on", "near", "--json")
    ran = run(*command)
    assert ran.code == 3
    content = json.loads(ran.out)
    assert content["baseline"] == [str(audited)]
    (gate,) = content["gates"]
    assert (gate["gate"], gate["query_set"], gate["tripped"]) == ("near", "test", True)
    assert (gate["new"]["count"], gate["known"], gate["new_pairs"]) == (1, 3, 1)
    assert gate["worst"][0]["query"] == "thing/turned.png"
    # the audit itself knows nothing of gates
    stored = json.loads((out / "audit.json").read_text())
    assert not {"gates", "baseline"} & stored.keys()
    assert {k: v for k, v in content.items() if k not in ("gates", "baseline")} == stored


def test_accepted_pairs_from_a_file(changed: Path, audited: Path, tmp_path: Path) -> None:
    accepted, out = tmp_path / "accepted.csv", tmp_path / "out"
    ran = run("export", audited, "--format", "accepted", "-o", accepted)
    assert (ran.code, ran.out) == (0, f"{accepted}\n")
    gates = ("--fail-on", "near", *MOSTLY_READABLE)
    command = ("audit", changed, "-o", out, *gates, "--baseline", accepted)
    assert run(*command).code == 3
    run("export", out, "--format", "accepted", "-o", tmp_path / "all.csv")
    assert run(*command, "--baseline", tmp_path / "all.csv").code == 0
    assert HOSTILE.strip() not in accepted.read_text() or "[red]" in accepted.read_text()


def test_verdicts_of_people_count(dataset: Path, tmp_path: Path) -> None:
    """Of the audit itself, without any baseline, and of the baseline."""
    out = tmp_path / "out"
    assert run("audit", dataset, "-o", out, "--fail-on", "near=34%").code == 3
    import pyarrow.compute as pc

    from visleak.store import read_table

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


@pytest.mark.parametrize("name", ["nowhere", "empty", "file"])
def test_a_wrong_baseline_ends_before_anything_is_done(
    name: str, dataset: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("first,second\nx,y\n")
    out = tmp_path / "out"
    code, message = refused("audit", dataset, "-o", out, "--baseline", tmp_path / name)
    said = {
        "nowhere": (2, "does not exist; give an audit folder or a file of accepted pairs"),
        "empty": (2, "holds no finished audit (no audit.json)"),
        "file": (1, "line 2, cannot be read: first must be a content digest of 32 hex digits"),
    }
    assert code == said[name][0]
    assert said[name][1] in message
    assert not out.exists()


def test_the_output_is_no_baseline(dataset: Path, audited: Path) -> None:
    code, message = refused("audit", dataset, "-o", audited, "--baseline", audited)
    assert code == 2
    assert "is the output folder itself, so the second run would know every leak" in message


def test_a_study_has_no_baseline(audited: Path, tmp_path: Path) -> None:
    code, message = refused("audit", "--config", tmp_path / "a.toml", "--baseline", audited)
    assert code == 2
    assert message.startswith("--baseline cannot be used with --config")
