"""``visleak audit --config`` from the command line."""

import json

import pytest
from calling import MOSTLY_READABLE, check_refused, refusals, run

from visleak.auditing import Audit

TEXT = """
title = 'tiny'
[audit]
views = 'mirror'
local = false
[sets.test]
dataset = 'd'
roles = ['B']
source = 'test'
[sets.train]
dataset = 'd'
roles = ['T']
source = 'train'
[sets.nobody]
roles = ['P']
"""


@pytest.fixture(scope="module")
def config(dataset, tmp_path_factory):
    file = tmp_path_factory.mktemp("config") / "sets.toml"
    file.write_text(
        TEXT.replace("'test'", f"'{dataset}/test'").replace("'train'", f"'{dataset}/train'")
    )
    return file


def test_a_study_prints_its_result_and_folder(config, tmp_path):
    ran = run("audit", "--config", config, "-o", tmp_path / "out", code=0, err="")
    lines = ran.out.splitlines()
    assert lines[0].startswith("test: 3 of 6 (50.00 %, 95 % CI 18.76-81.24) leak into train: hard")
    assert "not there: nobody: source is not filled in (1 comparison)" in lines
    assert lines[-1] == str(tmp_path / "out" / "study.html")
    again = run("audit", "--config", config, "-o", tmp_path / "out")
    assert "1 audit finished before; --force runs all again" in again.out
    assert again.out.splitlines()[0] == lines[0]
    as_json = run("audit", "--config", config, "-o", tmp_path / "out", "--json")
    assert as_json.out == (tmp_path / "out" / "study.json").read_text()


def test_gates(config, tmp_path):
    given = ("audit", "--config", config, "-o", tmp_path / "out", "--no-images")
    tripped = run(*given, "--fail-on", "near=10%", code=3)
    assert "gate near: 3 of 6 test images (50.00 %)" in tripped.err
    assert run(*given, "--fail-on", "near=60%", *MOSTLY_READABLE).code == 0
    assert run(*given, "--fail-on", "near=60%").code == 3
    file = tmp_path / "sets.toml"
    file.write_text(config.read_text() + "[sets.gone]\nroles = ['T']\nsource = 'nowhere'\n")
    given = ("audit", "--config", file, "-o", tmp_path / "gone", "--no-images")
    ran = run(*given, "--fail-on", "near=60%", *MOSTLY_READABLE)
    assert (ran.code, "set 'gone' was compared with nothing" in ran.err) == (3, True)


def test_another_study_is_replaced_and_kept_aside(config, tmp_path):
    out, previous, file = tmp_path / "out", tmp_path / "out.previous", tmp_path / "sets.toml"
    for views, note in (("mirror", False), ("none", True)):
        file.write_text(config.read_text().replace("'mirror'", f"'{views}'"))
        ran = run("audit", "--config", file, "-o", out, "--no-images", "--fail-on", "near=10%")
        assert (ran.code, f"kept in {out}.previous" in ran.err) == (3, note)
    read = [Audit(place / "audits" / "train").summary.settings.views for place in (out, previous)]
    assert read == ["none", "mirror"]


def test_the_plan_is_printed_and_nothing_is_done(config, tmp_path):
    ran = run("audit", "--config", config, "-o", tmp_path / "out", "--dry-run", code=0)
    assert not (tmp_path / "out").exists()
    assert ran.out.startswith("1 comparison in 1 audit; 0 left out as known")
    planned = json.loads(run("audit", "--config", config, "--dry-run", "--json").out)
    assert planned["comparisons"] == [
        {"query_set": "test", "reference_set": "train", "coverage": "intra"}
    ]


def test_a_comparison_that_fails_is_reported_and_ends_with_1(config, dataset, tmp_path):
    (tmp_path / "bad.zip").write_bytes(b"PK\x03\x04 no archive")
    file = tmp_path / "sets.toml"
    file.write_text(config.read_text() + "[sets.bad]\nroles = ['T']\nsource = 'bad.zip'\n")
    ran = run("audit", "--config", file, "-o", tmp_path / "out", "--no-images", code=1)
    (line,) = ran.err.splitlines()
    assert line.startswith("visleak: test against bad: set 'bad': ")
    assert "bad.zip" in line
    assert json.loads((tmp_path / "out/study.json").read_text())["failed"][0]["query_set"] == "test"
    assert ran.out.startswith("test: 3 of 6 ")


@refusals("""
    --config no.toml -> config no.toml is not a file; it is a TOML file
    --config {config} --hard 0.9 -> --hard cannot be used with --config
    --config {no_pixels} --fail-on near -> asks for a grade
    --config {config} --fail-on recording -> --fail-on recording is for one audit
""")
def test_what_cannot_be_is_refused(config, tmp_path, arguments, words):
    file = tmp_path / "sets.toml"
    file.write_text(config.read_text().replace("local = false", "verify = false"))
    check_refused(f"audit {arguments}", words, config=config, no_pixels=file)
