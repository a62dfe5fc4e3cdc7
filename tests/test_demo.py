"""The demo: its set is what it says, and the leaks that must be found are found."""

import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from visleak.auditing import Audit
from visleak.formats import open_splits

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.slow

#: Kinds that an audit must find whatever the grader is; the others are reported as they are.
SURE = (
    "byte copy",
    "byte copy under another label",
    "re-encoded as PNG",
    "re-saved, JPEG quality 40",
    "resized to 60 %",
    "mirrored",
    "quarter turn",
    "repeat within the test set",
)


@pytest.fixture(scope="module")
def demo():
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        import demo

        yield demo
    finally:
        sys.path.remove(str(ROOT / "examples"))


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    """What ``make demo`` runs, twice: its folder, and what it printed."""
    folder = tmp_path_factory.mktemp("made") / "demo"
    command = [sys.executable, str(ROOT / "examples" / "demo.py"), str(folder)]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(2)]
    return folder, [run.stdout for run in runs]


@pytest.fixture(scope="module")
def made(output, demo):
    return output[0], demo.read_truth(output[0])


@pytest.fixture(scope="module")
def audited(output):
    return Audit(output[0] / "audit")


def test_the_set_is_of_the_stated_size(made, demo):
    folder, planted = made
    count = {name: len(images) for name, images in open_splits(folder).items()}
    # a text named .jpg and a blank image; the leaks, a repeat, a cut file, a blank image
    leaks = len(demo.KINDS) * demo.EACH + 1
    assert count == {"train": demo.TRAINING + 2, "test": demo.CLEAN + leaks + 3}
    assert len(planted) == leaks + 1


def test_the_same_set_comes_out_again(made, demo, tmp_path):
    folder, planted = made
    assert demo.build(tmp_path) == planted
    for path in (folder / "test").rglob("*.jpg"):
        assert path.read_bytes() == (tmp_path / path.relative_to(folder)).read_bytes()


def test_names_do_not_reveal_what_is_planted(made):
    _, planted = made
    assert all(re.fullmatch(r"\w+/\d{4}\.(jpg|png)", leak.query) for leak in planted)
    kinds = [leak.kind for leak in sorted(planted, key=lambda leak: leak.query.split("/")[1])]
    assert sum(a == b for a, b in itertools.pairwise(kinds)) < len(kinds) / 4


def test_sure_leaks_are_found_and_nothing_else_is(audited, made, demo):
    counts, alarms = demo.compare(audited.folder, made[1])
    found = {count.kind: (count.found, count.planted) for count in counts}
    assert [kind for kind in SURE if found[kind][0] < found[kind][1]] == [], demo.table(counts, [])
    assert alarms == []
    assert {count.kind for count in counts} == {*demo.KINDS, demo.OTHER_LABEL, demo.REPEAT}


def test_what_is_no_leak_is_counted_apart(audited):
    summary = audited.summary.as_dict()
    assert [s["flat"] for s in summary["sets"]] == [1, 1]
    assert [(p.set, p.id, p.reason) for p in audited.unreadable()] == [
        ("test", "coffee/broken.jpg", "truncated"),
        ("train", "coffee/notes.jpg", "not-an-image"),
    ]
    assert summary["label_conflicts"] == 1


def test_every_key_of_the_summary_is_explained(audited):
    text = (ROOT / "docs" / "output.md").read_text("utf-8")
    stored = json.loads((audited.folder / "audit.json").read_text("utf-8"))
    keys = {*stored, *stored["sets"][0], *stored["thresholds"], *stored["comparisons"][1]}
    keys |= {*stored["comparisons"][0]["rates"], *stored["comparisons"][0]["rates"]["exact"]}
    assert [key for key in sorted(keys) if not re.search(rf"\b{key}\b", text)] == []


def test_the_command_makes_it_all_and_can_be_run_again(output):
    folder, (first, again) = output
    for printed in (first, again):
        assert "have a near-duplicate or exact copy in train" in printed
        assert str(folder / "audit" / "report.html") in printed.splitlines()[-1]
        assert re.search(r"byte copy +3 +3 +3", printed)
    (shown,) = re.findall(r"```text\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert shown in first
    # the same figures stand in the tour
    tour = (ROOT / "docs" / "tour.md").read_text("utf-8")
    said_there = re.findall(r"^\d+ of \d+ test images .*", tour, re.MULTILINE)
    assert said_there
    assert [line for line in said_there if f"{line}\n" not in first] == []
    assert "making a set" in first
    assert "making a set" not in again
    assert (folder / "audit" / "report.html").stat().st_size > 50_000
