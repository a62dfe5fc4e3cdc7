import json
import shutil
from pathlib import Path

import pytest
from calling import check_refused, run

from visleak.auditing import Audit


@pytest.fixture
def folder(audited, tmp_path):
    return Path(shutil.copytree(audited, tmp_path / "audit"))


def judge(folder: Path, place: Path) -> None:
    path = place / "ada.csv"
    path.write_text("TestID,TrainID,Judgment\nthing/mirrored.png,thing/t1.png,3\n")
    assert run("verdicts", folder, "import", path).code == 0


def test_counts_before_and_after_review(folder, tmp_path):
    ran = run("stats", folder)
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0].startswith("3 of 6 test images (50.00 %, 95 % CI ")
    assert lines[0].endswith(
        ") have a duplicate (exact or near) in the training images, in 3 pairs"
    )
    # the share that the audit reports
    assert lines[0].partition(" have")[0] == Audit(folder).headline.partition(" have")[0]
    assert lines[1].endswith("there or within the set, in 4 pairs")
    assert "no verdicts yet" in ran.out
    judge(folder, tmp_path)
    ran = run("stats", folder)
    lines = ran.out.splitlines()
    assert lines[0].startswith("2 of 6 test images")
    assert lines[0].endswith("in 2 pairs, after review")
    together = next(line.split() for line in lines if line.startswith("together"))
    # pairs and images after review, then before
    assert together[1:] == ["3", "2", "4", "3"]
    assert "1 listed pair has another grade than the automatic one" in ran.out


def test_json_is_all_that_is_printed(folder, tmp_path):
    judge(folder, tmp_path)
    out = tmp_path / "counts"
    ran = run("stats", folder, "--json", "-o", out)
    value = json.loads(ran.out)
    assert value == json.loads((out / "counts.json").read_text())
    (own,) = value["sets"]
    assert (own["before"]["images"], own["after"]["images"]) == (3, 2)
    assert own["after"]["types"]["train-test"]["near"] == {"pairs": 0, "images": 0}
    assert value["review"]["reviewers"]["ada"]["different"] == 1
    assert own["classes"] == [{"label": "thing", "images": 2, "before": 3, "of": 6}]
    # three pairs of copies: of no distance, whatever the percentile
    assert [each["distance"] for each in own["examples"]] == [0.0, 0.0, 0.0]
    assert len([*out.glob("example-exact-*.png")]) == 3


def test_a_narrower_grade_and_wrong_words(folder, tmp_path):
    assert "(exact)" in run("stats", folder, "--grade", "exact").out.splitlines()[0]
    check_refused(f"stats {tmp_path}/none", "holds no finished audit")
    (tmp_path / "file").write_text("")
    check_refused(f"stats {folder} -o {tmp_path}/file", "file is a file")
