"""The demo: its set is what it says, and the leaks that must be found are found."""

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
def demo(script):
    return script("demo", "examples")


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


def test_the_set_is_of_the_stated_size_and_comes_out_again(made, demo, tmp_path):
    folder, planted = made
    count = {name: len(images) for name, images in open_splits(folder).items()}
    # a text named .jpg and a blank image; the leaks, a repeat, a cut file, a blank image
    leaks = len(demo.KINDS) * demo.EACH + 1
    assert count == {"train": demo.TRAINING + 2, "test": demo.CLEAN + leaks + 3}
    assert len(planted) == leaks + 1
    assert demo.build(tmp_path) == planted
    for path in (folder / "test").rglob("*.jpg"):
        assert path.read_bytes() == (tmp_path / path.relative_to(folder)).read_bytes()
    # names do not reveal what is planted
    assert all(re.fullmatch(r"\w+/\d{4}\.(jpg|png)", leak.query) for leak in planted)


def test_sure_leaks_are_found_and_nothing_else_is(audited, made, demo):
    counts, alarms = demo.compare(audited.folder, made[1])
    found = {count.kind: (count.found, count.planted) for count in counts}
    assert [kind for kind in SURE if found[kind][0] < found[kind][1]] == [], demo.table(counts, [])
    assert alarms == []
    assert {count.kind for count in counts} == {*demo.KINDS, demo.OTHER_LABEL, demo.REPEAT}


def test_what_is_no_leak_is_counted_apart_and_every_key_is_explained(audited):
    summary = audited.summary.as_dict()
    assert [s["flat"] for s in summary["sets"]] == [1, 1]
    assert [(p.set, p.id, p.reason) for p in audited.unreadable()] == [
        ("test", "coffee/broken.jpg", "truncated"),
        ("train", "coffee/notes.jpg", "not-an-image"),
    ]
    assert summary["label_conflicts"] == 1
    text = (ROOT / "docs" / "output.md").read_text("utf-8")
    (first, second), rates = summary["comparisons"], summary["comparisons"][0]["rates"]
    keys = {*summary, *summary["sets"][0], *summary["thresholds"], *first, *second, *rates}
    assert [key for key in sorted(keys | {*rates["exact"]}) if key not in text] == []


def test_the_command_makes_it_all_and_can_be_run_again(output):
    folder, (first, again) = output
    for printed in (first, again):
        assert str(folder / "audit" / "report.html") in printed.splitlines()[-1]
        assert re.search(r"byte copy +3 +3 +3", printed)
    assert "making a set" in first
    assert "making a set" not in again
    # the same figures stand in the pages
    (shown,) = re.findall(r"```text\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert shown in first
    tour = (ROOT / "docs" / "tour.md").read_text("utf-8")
    stated = re.findall(r"^\d+ of \d+ test images .*", tour, re.MULTILINE)
    assert stated
    assert [line for line in stated if f"{line}\n" not in first] == []
