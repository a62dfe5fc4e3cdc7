"""Commands on an audit folder."""

import json
import shutil

import pytest
from calling import HOSTILE, MOSTLY_READABLE, check_refused, refusals, run
from PIL import Image

import visleak
from visleak.auditing import Audit


def test_all_pairs_of_an_image_best_first(audited):
    """Pairs that are graded different are counted, and listed on request."""
    ran = run("show", audited, "thing/mirrored.png", "--all")
    head, _, _, _, first, *rest = ran.out.rstrip("\n").split("\n")
    assert head == "thing/mirrored.png of test (96 x 96, label thing)"
    assert first.startswith("near ")
    assert "thing/t1.png" in first
    table = Audit(audited).pairs().to_pylist()
    mine = [row for row in table if "thing/mirrored.png" in (row["query"], row["reference"])]
    assert 1 + len(rest) == len(mine)
    different = sum(row["grade"] == "different" for row in mine)
    assert different
    shown = run("show", audited, "thing/mirrored.png").out
    assert not any(line.startswith("different ") for line in shown.splitlines())
    assert f"{different} pair" in shown
    # pairs of a reference lead to the queries
    lines = run("show", audited, "thing/t0.png").out.splitlines()
    assert lines[0].startswith("thing/t0.png of train")
    assert sum(line.startswith("exact") for line in lines) == 2


def test_control_characters_in_ids_are_escaped_on_one_line(audited):
    ran = run("show", audited, f"thing/{HOSTILE}", code=0)
    assert "\x1b" not in ran.out
    shown = r"thing/[red]=x\x1b[31m\n.png"
    assert ran.out.startswith(f"{shown} of test")
    assert shown in run("show", audited, "thing/copy.png").out


@refusals("""
    {audit} mirrored -> has the id 'mirrored'; did you mean 'thing/mirrored.png'?
    {audit} nosuch -> no image of this audit has the id 'nosuch'
    {audit} x --set dev -> set must be one of test, train; got 'dev'
    gone x -> gone holds no finished audit (no audit.json); run `visleak audit` first
""")
def test_wrong_calls(audited, arguments, words):
    check_refused(f"show {arguments}", words, audit=audited)
    # ids are suggested from the given set
    assert "did you mean" not in run("show", audited, "thing/copy.png", "--set", "train").err
    check_refused(f"show {audited} thing/text.jpg", "could not be read: not-an-image", code=1)


def test_one_of_several_test_sets_must_be_named(dataset, tmp_path):
    out, test, train = tmp_path / "out", dataset / "test", dataset / "train"
    run(f"audit --test a={test} --test b={test} --train {train} -o {out}", code=0)
    check_refused(f"show {out} thing/copy.png", "is in a and b; choose with --set")
    assert run(f"show {out} thing/copy.png --set b").out.startswith("thing/copy.png of b")
    ids = tmp_path / "ids.txt"
    check_refused(f"export {out} --format ids -o {ids}", "this audit has a, b; choose one with")
    assert not ids.exists()


def test_the_grade_is_that_of_the_audit(dataset, audited):
    test, train = dataset / "test" / "thing", dataset / "train" / "thing"
    pairs = visleak.Audit(audited).pairs().to_pylist()
    for name, other in (("copy.png", "t0.png"), ("mirrored.png", "t1.png"), ("q1.png", "t4.png")):
        ran = run("same", test / name, train / other, "--json")
        found = json.loads(ran.out)
        row = [
            r for r in pairs if (r["query"], r["reference"]) == (f"thing/{name}", f"thing/{other}")
        ]
        grade = row[0]["grade"] if row else "different"
        assert found["grade"] == grade
        assert ran.code == (0 if grade in ("exact", "near") else 3)
    ran = run("same", test / "mirrored.png", train / "t1.png", "--grade", "exact")
    assert (ran.code, ran.out.startswith("near, mirrored: ")) == (3, True)


def test_what_cannot_be_compared(dataset, tmp_path):
    image = dataset / "test" / "thing" / "copy.png"
    check_refused(f"same {image} {tmp_path}/none.png", "is not a file")
    check_refused(f"same {image} {dataset}/test/thing/text.jpg", "not-an-image", code=1)
    Image.new("RGB", (64, 64)).save(tmp_path / "blank.png")
    check_refused(f"same {image} {tmp_path}/blank.png", "blank", code=1)


def test_pixels_in_python(natural):
    image = natural["astronaut"][:96, :96]
    assert visleak.same(image, image[:, ::-1]).grade == "near"
    with pytest.raises(visleak.VisleakError, match="is not a file"):
        visleak.same("nowhere.png", image)


def test_report_is_written_where_it_is_wanted(audited, tmp_path):
    out = tmp_path / "page.html"
    ran = run("report", audited, "-o", out)
    assert (ran.code, ran.out, ran.err) == (0, f"{out}\n", "")
    assert "data:image/webp" in out.read_text()
    check_refused(f"report {audited} -o {out} --no-images", f"{out} exists;")
    assert run("report", audited, "-o", out, "--no-images", "--force").code == 0
    assert "data:image/webp" not in out.read_text()


def test_report_survives_the_loss_of_its_sources(dataset, tmp_path):
    copy, out = tmp_path / "data", tmp_path / "out"
    shutil.copytree(dataset, copy)
    assert run("audit", copy, "-o", out).code == 0
    shutil.rmtree(copy)
    assert "no images of test are shown: source" in run("report", out, code=0).err
    assert "data:image/webp" not in (out / "report.html").read_text()


SCRIPT = "<img src=x onerror=alert(1)>"


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
    ran = run("verdicts", folder, "import", listed, code=0, err="")
    assert ran.out.splitlines() == [
        "imported 2 verdicts of ada",
        "rows on images that the audit does not have: 1 ('thing/nobody.png')",
        "ignored: Mood",
    ]
    out = tmp_path / "out.csv"
    ran = run("verdicts", folder, "export", out)
    assert ran.out.splitlines() == [str(out), str(tmp_path / "out_within_test.csv")]
    rows = [line.split(",") for line in out.read_text().splitlines()[1:]]
    assert {(row[0], row[3]) for row in rows} == {
        *(("thing/mirrored.png", "2"), ("thing/q0.png", "1"))
    }
    ran = run("verdicts", folder, "import", folder / "verdicts.csv", "--json")
    assert json.loads(ran.out)["known"] == 2


def test_verdicts_of_each_reviewer(folder, listed, tmp_path):
    run("verdicts", folder, "import", listed, "--reviewer", f"{SCRIPT}[red]")
    listed.write_text("TestID,TrainID,Judgment\nthing/mirrored.png,thing/t1.png,1\n")
    run("verdicts", folder, "import", listed, "--reviewer", "Ben")
    ran = run("verdicts", folder)
    assert ran.out.startswith("2 pairs judged, 1 disputed\n")
    assert f"{SCRIPT}[red]: similar, Ben: near" in ran.out
    value = json.loads(run("verdicts", folder, "--json").out)
    assert (value["judged"], value["disputed"]) == (2, 1)
    assert "\nnear (disputed)" in run("show", folder, "thing/mirrored.png").out
    assert run("verdicts", folder, "export", tmp_path / "out.csv").err == (
        "disputed pairs, excluded: 1\n"
    )


def test_verdicts_count_in_other_commands(dataset, folder, listed, tmp_path):
    before = (folder / "audit.json").read_bytes()
    assert "pairs judged" not in run("audit", dataset, "-o", folder).out
    run("verdicts", folder, "import", listed)
    assert "similar (judged; machine near)" in run("show", folder, "thing/mirrored.png").out
    # only people listed this pair, and nobody measured it
    first = run("show", folder, "thing/q0.png").out.splitlines()[4]
    assert first.split()[:2] == ["near", "(judged;"]
    out = tmp_path / "pairs.csv"
    assert run("export", folder, "--format", "csv", "--grade", "near", "-o", out).code == 0
    assert "thing/q0.png" in out.read_text()
    assert "thing/mirrored.png" not in out.read_text()
    again = run("audit", dataset, "-o", folder).out
    assert "2 pairs judged; `visleak stats` counts that" in again
    assert "<bdi>ada (2)</bdi>" in (folder / "report.html").read_text()
    assert (folder / "audit.json").read_bytes() == before


@refusals("""
    imprt x.csv -> the action must be import or export; got 'imprt'
    import -> name the file to import
    import x.csv --format csv -> --format cannot be used with import
    export x.csv -> no pair was judged in
""")
def test_wrong_command_lines(audited, arguments, words):
    check_refused(f"verdicts {audited} {arguments}", words)


def test_lists_and_audits_that_are_refused_and_names_that_stay(folder, tmp_path):
    path, out = tmp_path / "list.csv", tmp_path / "out.csv"
    row = f'"thing/{HOSTILE}",thing/t0.png,1\n'
    path.write_text(f"TestID,TrainID,Judgment\na,thing/t0.png,1\n{row}")
    check_refused(f"verdicts {folder} import {path} --strict", "1 of the 2 rows of", code=1)
    check_refused(f"verdicts {folder} export {out}", "no pair was judged in")
    run("verdicts", folder, "import", path, code=0)
    run("verdicts", folder, "export", out, code=0)
    assert f"thing/{HOSTILE}" in out.read_text()
    assert "\x1b" not in run("verdicts", folder).out
    (tmp_path / "audit.json").write_text('{"schema": 99}')
    check_refused(f"report {tmp_path}", "has schema 99, this visleak reads up to", code=1)


def test_counts_and_gates_before_and_after_review(dataset, folder, tmp_path):
    first = run("stats", folder, code=0, err="").out.splitlines()[0]
    # the share that the audit reports
    assert first.partition(" have")[0] == Audit(folder).headline.partition(" have")[0]
    assert first.endswith(") have a duplicate (exact or near) in the training images, in 3 pairs")
    path, out = tmp_path / "ada.csv", tmp_path / "counts"
    path.write_text("TestID,TrainID,Judgment\nthing/mirrored.png,thing/t1.png,3\n")
    assert run("verdicts", folder, "import", path).code == 0
    lines = run("stats", folder, "-o", out).out.splitlines()
    assert lines[0].startswith("2 of 6 test images")
    assert lines[0].endswith("in 2 pairs, after review")
    together = next(line.split() for line in lines if line.startswith("together"))
    # pairs and images after review, then before
    assert together[1:] == ["3", "2", "4", "3"]
    assert len([*out.glob("example-exact-*.png")]) == 3
    value = json.loads(run("stats", folder, "--json").out)
    assert value == json.loads((out / "counts.json").read_text())
    assert value["review"]["reviewers"]["ada"]["different"] == 1
    assert "(exact)" in run("stats", folder, "--grade", "exact").out.splitlines()[0]
    run("audit", dataset, "-o", folder, *MOSTLY_READABLE, "--fail-on", "near=34%", code=0)


@pytest.fixture(scope="module")
def cleaned(dataset, tmp_path_factory):
    """The audit after the copies were deleted and an image renamed."""
    root = tmp_path_factory.mktemp("diffed")
    shutil.copytree(dataset, root / "data")
    test = root / "data" / "test" / "thing"
    (test / "copy.png").unlink()
    (test / "q0.png").rename(test / "moon.png")
    assert run("audit", root / "data", "-o", root / "cleaned").code == 0
    return root / "cleaned"


def test_removed_copies_are_reported(audited, cleaned):
    ran = run("diff", audited, cleaned, code=0, err="")
    lines = ran.out.splitlines()
    assert lines[0] == (
        "cleaned has 0 leaking test images that out had not, 1 is gone, 0 changed grade;"
        " near or exact 50.00 % -> 40.00 %"
    )
    assert "test: 4 the same, 1 renamed, 1 removed" in ran.out
    assert "1 vanished: 1 with an image that cleaned has not" in ran.out
    content = json.loads(run("diff", audited, cleaned, "--json").out)
    (total,) = content["totals"]
    after = total["rates"]["near_or_exact"]["after"]
    assert (total["gone"], after["count"], after["total"]) == (1, 2, 5)
    assert content["pairs"]["vanished"] == {"image gone": 1}
    (test, train) = content["sets"]
    assert (test["renamed"], test["removed"], train["same"]) == (1, 1, 6)
    same = run("diff", audited, audited).out
    assert same.startswith(f"{audited} has the same 3 leaking test images as {audited}; near or")
    assert "vanished" not in same


def test_sets_with_other_names(dataset, audited, tmp_path):
    named = ("--test", f"neu={dataset / 'test'}", "--train", f"alt={dataset / 'train'}")
    assert run("audit", *named, "-o", tmp_path / "renamed").code == 0
    ran = run("diff", audited, tmp_path / "renamed")
    assert ran.out.startswith("renamed has the same 3 leaking neu images as out;")
    assert "test -> neu: 6 the same" in ran.out
    assert run("diff", audited, tmp_path / "renamed", "--rename", "test=neu").code == 0
    two = tmp_path / "two"
    assert run("audit", *named, "--train", f"web={dataset / 'train'}", "-o", two).code == 0
    check_refused(f"diff {audited} {two}", "say which is which, as in --rename train=alt")
    ran = run("diff", audited, two, "--rename", "train=alt")
    assert "web: not in out (6 images)" in ran.out
    assert "of sets that out did not compare" in ran.out


@refusals("""
    --rename test=b -> --rename: B has no set 'b'; it has test, train
    --rename test -> --rename must be OLD=NEW
    --rename test=test --rename train=test -> --rename names a set twice: 'train=test'
""")
def test_wrong_options(arguments, words, audited):
    check_refused(f"diff {audited} {audited} {arguments}", words)


def test_a_damaged_table_is_refused(audited, tmp_path):
    broken = shutil.copytree(audited, tmp_path / "broken")
    (broken / "images.parquet").write_bytes(b"PAR1")
    check_refused(f"diff {audited} {broken}", "images.parquet", code=1)
