"""``visleak split`` and ``--group`` from the command line: words, codes, files."""

import json
import re

import pytest
from calling import check_refused, refusals, run
from PIL import Image

CLIPS = r"/(clip\d)_/"


def sides_of(folder):
    return f"--test {folder}/test --train {folder}/train"


@pytest.fixture(scope="module")
def frames(tmp_path_factory, natural):
    """Six clips of two frames, and a split of them that tears every clip."""
    root = tmp_path_factory.mktemp("frames")
    for number, name in enumerate(sorted(natural)[:6]):
        for shift, part in ((0, "train"), (2, "test")):
            piece = natural[name][20:100, 40 + shift : 120 + shift]
            picture = Image.fromarray(piece).resize((40, 40))
            for folder in (root / "all", root / part):
                folder.mkdir(exist_ok=True)
                picture.save(folder / f"clip{number}_{shift}.png")
    return root


def test_plan_then_apply(frames, tmp_path):
    arguments = (
        "split", frames / "all", "--ratios", "train=67%,test=33%", "-o", tmp_path / "s",
        "--group", CLIPS,
    )  # fmt: skip
    plan = run(*arguments, code=0)
    assert plan.out.startswith("12 images would be split: train 8, test 4\n")
    assert re.search(r"tolerance +1 % is kept", plan.out)
    assert "no known duplicate crosses the split" in plan.out
    done = run(*arguments, "--apply", "--format", "link", code=0)
    assert "12 images were split: train 8, test 4" in done.out
    assert "0 of 4 test images (0.00 %" in done.out
    assert len(list((tmp_path / "s" / "data" / "test").iterdir())) == 4
    again = run(*arguments, "--apply", "--format", "link", "--json", code=0)
    content = json.loads(again.out)
    assert content["proof"]["headline"].startswith("0 of 4 test images")
    assert content == json.loads((tmp_path / "s" / "split.json").read_text())


def test_a_missed_tolerance_is_reported_and_not_written(frames, tmp_path):
    given = f"{frames}/all --ratios a=50%,b=50% -o {tmp_path}/s --apply"
    ran = run(f"split {given} --group '/(clip)/'", code=1)
    assert (
        "1 % is missed: one component of 12 images (group clip) is larger than part a"
        in " ".join(ran.out.split())
    )
    assert "the split misses its tolerance of 0.01 (one component of 12 images" in ran.err
    assert ran.err.rstrip().endswith("write it anyway with --allow-unbalanced")
    assert not (tmp_path / "s" / "data").exists()


def test_groups_of_an_audit_trip_a_gate_and_are_repaired(frames, tmp_path):
    given = f"audit {sides_of(frames)} -o {tmp_path}/a --group '{CLIPS}' --no-images"
    ran = run(f"{given} --fail-on group=50%", code=3)
    assert "gate group: 6 of 6 test images (100.00 %) have a group that is on both sides" in ran.err
    assert "6 in both test and train: clip0, clip1, clip2, clip3" in ran.out
    ran = run("split", "--repair", tmp_path / "a", "-o", tmp_path / "f", code=0)
    assert ran.out.startswith("6 images would move to unite 6 components\n")
    rows = (tmp_path / "f" / "assignment.csv").read_text().splitlines()
    assert rows[0] == "set,id,part,component,moved_from"
    assert sum(not row.endswith(",") for row in rows[1:]) == 6


@refusals("""
    split -> split needs a set and --ratios, as in: visleak split photos/ --ratios
    split --repair A --stratify label -> --stratify cannot be used with --repair
    split {all} --ratios a=0.5,b=0.5 --keep-sizes -> --keep-sizes needs --repair
    split {all} --ratios a=0.5,b=0.5 --stratify label -> has no labels
    split {all} --ratios a=0.5,b=0.5 --group kind -> group 'kind':
    audit {sides} --group '/(reel)/' -> matches no id, such as 'clip0_2.png' of set 'test'
    audit {sides} --fail-on group -> --fail-on group needs groups on both sides of one data set
""")
def test_wrong_calls(frames, tmp_path, arguments, words):
    given = arguments.replace("{sides}", sides_of(frames))
    check_refused(f"{given} -o {tmp_path}/s", words, all=frames / "all")
    assert not (tmp_path / "s").exists()


def test_a_shared_group_is_no_clean_bill(frames, tmp_path):
    for part, name in (("test", "clip0_2.png"), ("train", "clip1_0.png")):
        (tmp_path / part).mkdir()
        (tmp_path / part / name).write_bytes((frames / part / name).read_bytes())
    for pattern, clean in (("/(clip)/", False), (CLIPS, True)):
        command = f"audit {sides_of(tmp_path)} -o {tmp_path}/{clean} --group '{pattern}'"
        headline = run(command, code=0).out.splitlines()[0]
        assert ("1 group is on both sides (1 of 1 test images)" in headline) != clean
        page = (tmp_path / f"{clean}" / "report.html").read_text()
        assert ("No leak was found" in page) == clean
