import json
import shutil
from pathlib import Path

import pytest
from calling import HOSTILE, check_refused, refusals, run

SCRIPT = "<img src=x onerror=alert(1)>"


@pytest.fixture
def folder(audited, tmp_path):
    return Path(shutil.copytree(audited, tmp_path / "audit"))


@pytest.fixture
def listed(tmp_path):
    path = tmp_path / "ada.csv"
    path.write_text(
        "TestID,TrainID,Distance,Judgment,Mood\n"
        "thing/mirrored.png,thing/t1.png,0.1,2,good\n"
        "thing/q0.png,thing/t3.png,,1,bad\n"
        "thing/nobody.png,thing/t3.png,,1,bad\n"
    )
    return path


def test_from_import_to_export(folder, listed, tmp_path):
    assert run("verdicts", folder).out.startswith("no pair was judged yet")
    ran = run("verdicts", folder, "import", listed)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        "imported 2 verdicts of ada",
        "rows on images that the audit does not have: 1 ('thing/nobody.png')",
        "ignored: Mood",
    ]
    assert (
        "imported 0 verdicts of ada, 2 already present"
        in run("verdicts", folder, "import", listed).out
    )
    out = tmp_path / "out.csv"
    ran = run("verdicts", folder, "export", out)
    assert ran.out.splitlines() == [str(out), str(tmp_path / "out_within_test.csv")]
    rows = [line.split(",") for line in out.read_text().splitlines()[1:]]
    assert {(row[0], row[3]) for row in rows} == {
        *(("thing/mirrored.png", "2"), ("thing/q0.png", "1")),
    }
    # other audits of other names: the plain copy tells
    ran = run("verdicts", folder, "import", folder / "verdicts.csv", "--json")
    assert json.loads(ran.out)["known"] == 2


def test_who_said_what(folder, listed):
    run("verdicts", folder, "import", listed, "--reviewer", f"{SCRIPT}[red]")
    listed.write_text("TestID,TrainID,Judgment\nthing/mirrored.png,thing/t1.png,1\n")
    run("verdicts", folder, "import", listed, "--reviewer", "Ben")
    ran = run("verdicts", folder)
    assert ran.out.startswith("2 pairs judged, 1 disputed\n")
    assert f"{SCRIPT}[red] and Ben" in ran.out
    assert "test: thing/mirrored.png   train: thing/t1.png" in ran.out
    assert f"{SCRIPT}[red]: similar, Ben: near" in ran.out
    value = json.loads(run("verdicts", folder, "--json").out)
    assert (value["judged"], value["disputed"]) == (2, 1)
    assert value["kappas"] == [
        {"reviewers": [f"{SCRIPT}[red]", "Ben"], "pairs": 1, "agreed": 0, "kappa": 0.0}
    ]
    assert value["disputes"][0]["said"] == {f"{SCRIPT}[red]": "similar", "Ben": "near"}


def test_verdicts_count_in_show_and_export(folder, listed, tmp_path):
    run("verdicts", folder, "import", listed)
    shown = run("show", folder, "thing/mirrored.png").out
    assert "similar (judged; machine near)" in shown
    # only people listed this pair, and nobody measured it
    first = run("show", folder, "thing/q0.png").out.splitlines()[4]
    assert first.split()[:2] == ["near", "(judged;"]
    out = tmp_path / "pairs.csv"
    assert run("export", folder, "--format", "csv", "--grade", "near", "-o", out).code == 0
    text = out.read_text()
    assert "thing/q0.png" in text
    assert "thing/mirrored.png" not in text
    out = tmp_path / "list.csv"
    export = ("export", folder, "--format", "cifair", "--grade", "similar", "-o", out)
    assert run(*export).code == 0
    assert any(line.startswith("thing/mirrored.png,thing/t1.png,") and line.endswith(",2")
               for line in out.read_text().splitlines())  # fmt: skip


def test_the_same_audit_again_says_that_people_judged(dataset, folder, listed):
    before = (folder / "audit.json").read_bytes()
    assert "pairs judged" not in run("audit", dataset, "-o", folder).out
    run("verdicts", folder, "import", listed)
    again = run("audit", dataset, "-o", folder)
    assert "2 pairs judged; `visleak stats` counts that" in again.out
    assert "<bdi>ada (2)</bdi>" in (folder / "report.html").read_text()
    assert (folder / "audit.json").read_bytes() == before


def test_disputed_pairs_are_told_when_left_out(folder, tmp_path):
    for who, judgment in (("Ada", 1), ("Ben", 3)):
        path = tmp_path / "list.csv"
        path.write_text(f"TestID,TrainID,Judgment\nthing/mirrored.png,thing/t1.png,{judgment}\n")
        run("verdicts", folder, "import", path, "--reviewer", who)
    ran = run("verdicts", folder, "export", tmp_path / "out.csv", "--json")
    assert ran.err == "disputed pairs, excluded: 1\n"
    value = json.loads(ran.out)
    assert (value["written"], value["disputed"], len(value["files"])) == (0, 1, 2)
    assert "\nnear (disputed)" in run("show", folder, "thing/mirrored.png").out


@refusals("""
    imprt x.csv -> the action must be import or export; got 'imprt'
    import -> name the file to import
    export x.csv --within -> --within cannot be used with export
    import x.csv --format csv -> --format cannot be used with import
    --strict -> --strict cannot be used with
    import x.csv -> x.csv is not a file; name the one to import
    export x.csv -> no pair was judged in
""")
def test_wrong_command_lines(audited, arguments, words):
    check_refused(f"verdicts {audited} {arguments}", words)


def test_wrong_content(folder, tmp_path):
    path = tmp_path / "list.csv"
    path.write_text("TestID,TrainID,Judgment\nthing/q0.png,thing/t0.png,7\n")
    words = "line 2: Judgment must be 0 exact, 1 near, 2 similar or 3 different; got '7'"
    check_refused(f"verdicts {folder} import {path}", words, code=1)
    path.write_text("TestID,TrainID,Judgment\na,thing/t0.png,1\nthing/q0.png,thing/t0.png,1\n")
    check_refused(f"verdicts {folder} import {path} --strict", "1 of the 2 rows of", code=1)
    check_refused(f"verdicts {tmp_path} import {path}", "holds no finished audit")


def test_hostile_ids_survive(folder, tmp_path):
    path = tmp_path / "list.csv"
    path.write_text(f'TestID,TrainID,Judgment\n"thing/{HOSTILE}",thing/t0.png,1\n')
    assert run("verdicts", folder, "import", path).code == 0
    out = tmp_path / "out.csv"
    assert run("verdicts", folder, "export", out).code == 0
    assert f"thing/{HOSTILE}" in out.read_text()
    assert "\x1b" not in run("verdicts", folder).out
