"""``visleak impact`` from the command line: an audit, files of answers, and what comes out."""

import csv
import errno
import json
import random
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from calling import HOSTILE, check_refused, refusals, run

import visleak
from toy_audit import Image, Pair, split_audit
from visleak.impact import read_impact
from visleak.storage import IMAGES

LINKS = ("--framework", "PyTorch", "--code", "https://a.org", "--weights", "https://a.org/w")


@pytest.fixture(scope="module")
def ids(audited):
    """Return the six readable test images; the last three leak."""
    images = pq.read_table(audited / IMAGES, columns=["set", "id"]).to_pylist()
    found = [row["id"] for row in images if row["set"] == "test"]
    leaked = ("copy.png", "mirrored.png", HOSTILE)
    return sorted(found, key=lambda name: (name.endswith(leaked), name))


def answers(path, ids, **columns):
    with path.open("w", newline="", encoding="utf-8") as lines:
        writer = csv.writer(lines)
        writer.writerow(["id", *columns])
        writer.writerows(zip(ids, *columns.values(), strict=True))
    return path


@pytest.fixture
def files(ids, tmp_path):
    """Two models: one is right on leaked images alone, the other on all but one of them."""
    return {
        "one": answers(tmp_path / "one.csv", ids, correct=[0, 0, 1, 1, 1, 1]),
        "two": answers(tmp_path / "two.csv", ids, correct=[1, 1, 1, 1, 1, 0]),
        "fair": answers(tmp_path / "fair.csv", ids, correct=[0, 0, 1, 1, 0, 0]),
    }


def test_tables_figures_and_a_section_of_the_report(folder, files, tmp_path):
    out = tmp_path / "out"
    two = f"second={files['two']}"
    ran = run(
        f"impact {folder} --predictions {files['one']} --predictions {two} -o {out}", code=0, err=""
    )
    lines = ran.out.splitlines()
    assert lines[0].startswith("on all 6 test images one scores 66.67 %, on the 3 without")
    assert "second scores 83.33 %, on the 3 without" in lines[1]
    assert lines[-1] == str(out)
    cells = [line.split() for line in lines]
    assert ["near", "or", "exact", "leaked", "3", "100.00", "+33.33", "66.67", "-16.67"] in cells
    page = (folder / "report.html").read_text()
    assert '<h2 id="section-impact-h">Impact on scores</h2>' in page
    assert "cannot be shown" not in page
    # a page with images keeps them
    assert "data:image/" in page


def test_an_audit_that_may_only_be_read(folder, files, tmp_path, monkeypatch):
    def refusing(path, content):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr("visleak.report.page.write_json", refusing)
    ran = run("impact", folder, "--predictions", files["one"], "-o", tmp_path / "out", code=0)
    assert f"the report of {folder} does not show it: Permission denied" in ran.err
    assert (tmp_path / "out" / "impact.json").is_file()


def test_errors_on_the_fair_set_and_the_leaderboard(folder, files, tmp_path):
    board = tmp_path / "leaderboard.json"
    given = ("impact", folder, "--predictions", files["one"], "--fair-predictions", files["fair"])
    given = (*given, "-o", tmp_path / "out", "--leaderboard", board, *LINKS)
    for more in ((), ("--force",)):
        ran = run(*given, *more, code=0, err="")
    assert ran.out.splitlines()[-2:] == [str(tmp_path / "out"), str(board)]
    assert "the error of one is 33.33 % on the test set and 66.67 % on the fair one" in ran.out
    (entry,) = json.loads(board.read_text())["entries"]
    assert (entry["model"], entry["error_fair"]) == ("one", pytest.approx(4 / 6))
    again = run(*given, "--force", "--json", "--exact-p", code=0, err="")
    assert again.out.encode() == (tmp_path / "out" / "impact.json").read_bytes()
    assert json.loads(again.out)["settings"]["p"] == "exact"


@refusals("""
    {audit} -> nothing to measure: give --predictions [NAME=]FILE
    {audit} {one} {one} -> two models are called 'one'; names must differ
    {audit} {one} --predictions b={file} {fair} -> which has no --predictions; models are 'one', 'b'
    {audit} {one} --subset {file} -> --subset is NAME=FILE with no part empty
    {audit} {one} -o done -> done holds files that visleak did not write
    {audit} {one} --code https://a.org -> --framework, --code and --weights need --leaderboard
    {audit} {one} --leaderboard l.json {links} -> --leaderboard adds one model: give --fair-pred
    {audit} {one} {fair} --leaderboard . {links} -> --leaderboard: . is a folder
    {one} -> one audit folder, or several
    --audit a={audit} --audit b={audit} {one} -> must begin with the name of an audit
    --audit a={audit} --audit b={audit} --predictions a:{file} -> give --predictions b:[NAME=]FILE
    --audit a={audit} --audit a={audit} --predictions a:{file} -> names must differ
    --audit ../x={audit} --predictions a:{file} -> --audit is NAME=FOLDER
    --audit a=none --predictions a:{file} -> there is no folder
    --audit a={audit} --predictions a:{file} --set test -> --set is about one audit
""")
def test_mistakes_are_refused_before_the_work(
    folder, files, tmp_path, monkeypatch, arguments, words
):
    def never(*arguments, **options):
        pytest.fail("the work was begun")

    monkeypatch.setattr("visleak.impact.impact", never)
    (tmp_path / "file").write_text("")
    (tmp_path / "done").mkdir()
    (tmp_path / "done" / "impact.json").write_text("{}")
    given = arguments.replace("{one}", f"--predictions {files['one']}")
    given = given.replace("{fair}", f"--fair-predictions {files['fair']}")
    given = given.replace("{links}", " ".join(LINKS))
    monkeypatch.chdir(tmp_path)
    check_refused(f"impact {given}", words, audit=folder, file=files["one"])


def test_a_file_that_is_mixed_up_is_recognised(tmp_path):
    classes = random.Random(0).choices("abc", k=60)
    test = [Image(f"{n:03d}.png", label) for n, label in enumerate(classes)]
    audit = split_audit(tmp_path / "audit", test, [Image("r", "a")], [Pair("000.png", "r")])
    ids, labels = [image.id for image in test], [image.label for image in test]
    right = answers(tmp_path / "right.csv", ids, prediction=labels)
    off = answers(tmp_path / "off.csv", ids, prediction=[*labels[1:], labels[0]], bleu=range(60))
    before = sorted(audit.rglob("*"))
    ran = run("impact", audit, "--predictions", right, "--check", code=0, err="")
    ran = run("impact", audit, "--predictions", off, "--check", code=1)
    assert ran.out.startswith("warning: off: ids look off by one")
    assert sorted(audit.rglob("*")) == before
    ran = run("impact", audit, "--predictions", off, "-o", tmp_path / "out", "--draws", 2, code=0)
    assert ran.out.startswith("warning: off: ids look off by one")
    ran = run("impact", audit, "--predictions", off, "--check", "--json", code=1)
    assert json.loads(ran.out)["files"][0]["scores"]["bleu"] == pytest.approx(29.5)


def test_a_check_of_few_images_is_inconclusive(folder, ids, tmp_path):
    swapped = answers(tmp_path / "m.csv", ids, prediction=["a", "b"] * 3)
    ran = run("impact", folder, "--predictions", swapped, "--check", code=0)
    assert ran.out.startswith("with predictions for 6 images nothing is known")


def test_leaked_images_against_others_that_are_as_difficult(folder, files, ids, tmp_path):
    hard = answers(tmp_path / "hard.csv", ids, difficulty=[1, 2, 3, 1, 2, 3])
    given = ("--predictions", files["one"], "--difficulty", f"{hard}#difficulty")
    ran = run("impact", folder, *given, "-o", tmp_path / "out", code=0, err="")
    assert "3 images of the same class and difficulty" in ran.out.splitlines()[1]
    rows = csv.DictReader((tmp_path / "out" / "comparisons.csv").read_text().splitlines())
    assert {row["twins"] for row in rows if row["leak"] == "near or exact"} == {"3"}


def test_the_probe_reads_images_that_have_not_changed(dataset, folder, files, tmp_path):
    ids = ["a/q0.png", "b/q1.png", "a/q2.png"]
    for name in ids:
        place = tmp_path / "test" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(dataset / "test" / "thing" / place.name, place)
    visleak.audit(tmp_path / "test", dataset / "train", out=tmp_path / "a", workers=1, cache=None)
    one = answers(tmp_path / "one.csv", ids, correct=[1, 0, 1])
    given = f"impact {tmp_path}/a --predictions {one} --difficulty probe -o {tmp_path}/out"
    ran = run(given, code=0, err="")
    assert "difficulty is that of a probe on built-in fingerprints" in ran.out
    shutil.copy(tmp_path / "test" / ids[1], tmp_path / "test" / ids[0])
    check_refused(f"{given} --force", "1 image of 'test' missing or changed since", code=1)
    # of one class all images are equally difficult
    given = f"impact {folder} --predictions {files['one']} --difficulty probe -o {tmp_path}/none"
    check_refused(given, "all images have the same difficulty", code=1)


def test_several_audits_in_one_table(folder, files, tmp_path):
    other, out = Path(shutil.copytree(folder, tmp_path / "other")), tmp_path / "out"
    given = [
        *("impact", "--audit", f"c10={folder}", "--audit", f"c100={other}", "-o", out),
        *("--predictions", f"c10:x={files['one']}", "--predictions", f"c100:x={files['two']}"),
        *("--predictions", f"c10:y={files['two']}", "--fair-predictions", f"c10:x={files['fair']}"),
    ]
    ran = run(*given, code=0, err="")
    assert "c10: on all 6 test images x scores 66.67 %" in ran.out
    assert "c100: on all 6 test images x scores 83.33 %" in ran.out
    rows = [[c.strip() for c in r.split("|")] for r in (out / "impact.md").read_text().splitlines()]
    x, y = (next(row for row in rows if row[1:2] == [name]) for name in "xy")
    assert (x[2], x[5], y[5]) == ("66.67", "83.33", "")
    assert read_impact(out / "c100").models == ("x",)
    for each in (folder, other):
        assert "Impact on scores" in (each / "report.html").read_text()
    assert run(*given, "--force", "--json").out.encode() == (out / "impact.json").read_bytes()
