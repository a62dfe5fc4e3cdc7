"""``visleak replace``: what it says, what it writes, how it ends."""

import shutil

import pytest
from calling import check_refused, refusals, refused, run


@pytest.fixture
def asked(planted, tmp_path):
    """The audit, the pool, and how to be quick about it."""
    folder = shutil.copytree(planted / "audit", tmp_path / "audit")
    return [folder, "--pool", planted / "pool", "--workers", 1, "--cache", planted / "cache"]


def test_a_plan_in_words(asked, tmp_path):
    ran = run("replace", *asked, "--select", "auto", "-o", tmp_path / "fair", code=0, err="")
    lines = ran.out.splitlines()
    assert lines[:3] == [
        "5 of 12 images of test are duplicates (near or closer): 4 of a training image, 1 of"
        " another test image",
        "left out, blank: 1 test image",
        "pool: 14 of 18 images can be used; not 1 in the audit already, 1 repeating another one,"
        " 1 blank, 1 unreadable",
    ]
    assert ["all", "5", "5", "0", "9"] in [line.split() for line in lines]
    assert lines[-2:] == [
        "5 of 5 replacements were selected automatically (seed 0); no person has checked them",
        f"dry run: nothing was written; --apply writes the test set to {tmp_path / 'fair'}",
    ]
    assert not (tmp_path / "fair").exists()


def test_what_is_without_a_replacement(asked, tmp_path):
    assert "no replacement: cat/00.png (nothing approved)" in run("replace", *asked).out
    code, message = refused("replace", *asked, "--apply", "-o", tmp_path / "fair")
    assert code == 2
    assert message.startswith("5 of 5 duplicates have no replacement (cat 3, dog 2); approve some")
    ran = run("replace", *asked, "--apply", "--allow-missing", "-o", tmp_path / "fair")
    assert (ran.code, (tmp_path / "fair" / "without_replacement.csv").is_file()) == (0, True)


@refusals("""
    replace {audit} --pool {pool} --apply -> name a folder for it with -o DIR
    review {audit} --no-browser --pool {pool}/nowhere -> nowhere' does not exist
    review {audit} --no-browser --pool {pool} --instructions no.md -> no.md is not a file
    review {audit} --no-browser --instructions no.md -> name a pool with --pool
""")
def test_wrong_options(planted, arguments, words):
    check_refused(arguments, words, audit=planted / "audit", pool=planted / "pool")
