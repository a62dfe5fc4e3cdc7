"""``visleak diff`` from the command line, on audits of a data set before and after a clean-up."""

import csv
import json
import shutil

import pytest
from calling import check_refused, refusals, run


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


def test_a_clean_up_is_told(audited, cleaned):
    ran = run("diff", audited, cleaned)
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0] == (
        "cleaned has 0 leaking test images that out had not, 1 is gone, 0 changed grade;"
        " near or exact 50.00 % -> 40.00 %"
    )
    assert "test: 4 the same, 1 renamed, 1 removed" in ran.out
    assert "train: 6 the same" in ran.out
    assert "1 vanished: 1 with an image that cleaned has not" in ran.out


def test_the_same_audit_has_not_changed(audited):
    ran = run("diff", audited, audited)
    first = f"{audited} has the same 3 leaking test images as {audited}; near or exact 50.00 %"
    assert ran.out.splitlines()[0] == first
    assert "vanished" not in ran.out
    assert "differs" not in ran.out


def test_another_encoder_is_told(dataset, audited, tmp_path):
    other = tmp_path / "phash"
    assert run("audit", dataset, "-o", other, "--encoder", "phash").code == 0
    ran = run("diff", audited, other)
    assert "encoder name: builtin -> phash" in ran.out
    assert "the same images in both" in ran.out
    assert "McNemar's exact test, p = " in ran.out
    check_refused(f"diff {audited} {other} --grade soft", "has no thresholds for degrees")


def test_every_pair_is_written(audited, cleaned, tmp_path):
    out = tmp_path / "changes.csv"
    ran = run("diff", audited, cleaned, "-o", out)
    assert ran.out.splitlines()[-1] == str(out)
    with out.open(newline="") as lines:
        leak, repeat = csv.DictReader(lines)
    assert (leak["change"], leak["reason"]) == ("vanished", "image gone")
    assert (leak["query"], leak["reference"]) == ("thing/copy.png", "thing/t0.png")
    assert (leak["before_grade"], leak["after_grade"], leak["within"]) == ("exact", "", "")
    assert leak["query_digest"] == leak["reference_digest"]
    assert len(leak["query_digest"]) == 32
    assert (repeat["within"], repeat["reference_set"]) == ("yes", "test")


def test_json_holds_the_numbers(audited, cleaned):
    content = json.loads(run("diff", audited, cleaned, "--json").out)
    assert content["headline"].startswith("cleaned has 0 leaking test images that out had not")
    (total,) = content["totals"]
    assert (total["new"], total["gone"], total["regraded"]) == (0, 1, 0)
    assert total["rates"]["near_or_exact"]["before"]["count"] == 3
    after = total["rates"]["near_or_exact"]["after"]
    assert (after["count"], after["total"], after["share"]) == (2, 5, 0.4)
    assert total["difference_low"] < -0.1 < total["difference_high"]
    assert total["shared_images"] == 5
    assert not total["same_images"]
    assert content["pairs"]["vanished"] == {"image gone": 1}
    (test, train) = content["sets"]
    assert (test["renamed"], test["removed"], train["same"]) == (1, 1, 6)


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
    --rename a=b -> --rename: A has no set 'a'; it has test, train
    --rename test=b -> --rename: B has no set 'b'; it has test, train
    --rename test -> --rename must be OLD=NEW
    --rename test=test --rename train=test -> --rename names a set twice: 'train=test'
    --grade alike -> grade must be one of exact, near, similar, hard, soft; got
    -o . -> the output . is a folder; choose a file with -o FILE
""")
def test_wrong_options(arguments, words, audited):
    check_refused(f"diff {audited} {audited} {arguments}", words)


def test_what_is_no_audit(audited, tmp_path):
    check_refused(f"diff {audited} {tmp_path}", "holds no finished audit")
    broken = shutil.copytree(audited, tmp_path / "broken")
    (broken / "images.parquet").write_bytes(b"PAR1")
    check_refused(f"diff {audited} {broken}", "images.parquet", code=1)
