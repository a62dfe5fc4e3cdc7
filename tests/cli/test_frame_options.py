"""``--frame``, ``--max-frame-gap`` and ``--fail-on recording`` as a stranger meets them."""

import csv

import numpy as np
import pytest
from calling import check_refused, refusals, run
from PIL import Image

from visleak.auditing import Audit
from visleak.storage import read_summary

#: Frame numbers of each drive on each side: torn apart, and apart.
SIDES = {"test": ((3, 7), (30,)), "train": ((2, 4, 8), (0, 1))}


@pytest.fixture(scope="module")
def road(tmp_path_factory):
    """Folders with frames of two rendered drives, and a list of them with seconds."""
    root = tmp_path_factory.mktemp("road")
    rng = np.random.default_rng(2)
    drives = [rng.integers(0, 255, (5, 60, 3), np.uint8).repeat(8, 0).repeat(8, 1) for _ in "ab"]
    rows = []
    for part, frames in SIDES.items():
        (root / part).mkdir()
        for drive, own in enumerate(frames):
            for frame in own:
                name = f"{part}/drive{drive}_{frame:06}.png"
                picture = drives[drive][:, 4 * frame : 4 * frame + 40]
                Image.fromarray(picture).save(root / name)
                stamp = 1_700_000_000_000_000_000 + frame * 10**8
                when = (f"{frame / 10:.1f}", stamp, 5_000 * frame)
                rows.append((name, part, f"drive{drive}", *when))
    with (root / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("path", "split", "group", "at", "ns", "odd"), *rows])
    return root


@pytest.fixture(scope="module")
def audited(road, tmp_path_factory):
    """Audit with some options; return the folder and what was printed, without the groups."""

    def audited(code, *options):
        folder = tmp_path_factory.mktemp("audit") / "a"
        ran = run("audit", *options, "-o", folder, "--no-images", "--skip-within")
        assert ran.code == code, ran.err
        lines = ran.err.splitlines(keepends=True)
        notes = "".join(line for line in lines if not line.startswith("groups: "))
        return folder, " ".join(ran.out.split()), notes

    return audited


def sides(road):
    return ("--test", road / "test", "--train", road / "train", "--frame", r"/_(\d+)\.png/")


DRIVES = ("--group", r"/(drive\d)/", "--fail-on")


def test_patterns_of_file_names(road, audited):
    folder, out, err = audited(3, *sides(road), *DRIVES, "recording=10%")
    assert "1 recording leaks: 2 of 3 test images lie within 10 frames of a training frame" in out
    assert (
        "recordings 1 of 2 on both sides leaks (test frames within 10 frames): drive0 (2 of 2)"
        in out
    )
    assert (
        "gate recording: 2 of 3 test images (66.67 %) have a training frame of their recording"
        " next to them in time; allowed 10.00 %"
    ) in err
    assert (folder / "recordings.csv").read_text().count("\n") == 3
    assert '<section id="recordings"' in (folder / "report.html").read_text()
    assert Audit(folder).images_of("test").frames.to_pylist() == [3, 7, 30]


def test_nanoseconds_are_times(road, audited):
    """Taken for numbers, no frame would ever lie near another, and the gate would pass."""
    options = (road / "table.csv", "--frame", "ns", "--fail-on", "recording")
    folder, out, err = audited(3, *options)
    assert "1 recording leaks: 2 of 3 test images lie within 1 s of a training frame" in out
    assert read_summary(folder).as_dict()["skipped"] == [
        "repeats within the test sets: not searched"
    ]
    assert "whole numbers are taken for nanoseconds since 1970, as times" in err


def test_seconds_of_a_table(road, audited):
    folder, out, _ = audited(0, road / "table.csv", "--frame", "at", "--max-time-gap", "0.1")
    assert "1 recording leaks: 2 of 3 test images lie within 0.1 s of a training frame" in out
    (comparison,) = read_summary(folder).as_dict()["comparisons"]
    assert (comparison["recordings"]["unit"], comparison["recordings"]["within"]) == ("ms", 100)


def test_numbers_that_may_be_times_pass_no_gate(road, audited):
    options = (road / "table.csv", "--frame", "odd", "--fail-on", "recording")
    folder, out, err = audited(2, *options)
    doubt = "the nearest are 5,000 frames apart; if the numbers are times, give seconds or dates"
    assert (
        f"recordings none of 3 test frames lies within 10 frames of a training frame; {doubt}"
        in out
    )
    assert read_summary(folder).as_dict()["skipped"] == [
        "repeats within the test sets: not searched"
    ]
    assert err == (
        f"visleak: --fail-on recording: of the recordings in test and train {doubt}; if they are"
        " frames, say how near they leak with --max-frame-gap\n"
    )
    audited(0, *options, "--max-frame-gap", "10")
    audited(3, *options, "--max-frame-gap", "5000")
    audited(0, road / "table.csv", "--frame", "odd")


@pytest.mark.parametrize(
    ("options", "note"),
    [
        ("--max-frame-gap 3", "--max-frame-gap is not used: no frames; give --frame"),
        ("--frame odd --max-time-gap 3", "--max-time-gap is not used: the frames are"),
        ("--frame at --max-frame-gap 3", "--max-frame-gap is not used: the frames are"),
        ("--frame odd --max-frame-gap 3", ""),
    ],
)
def test_options_that_do_nothing_say_so(road, audited, options, note):
    _, _, err = audited(0, road / "table.csv", *options.split())
    assert err.startswith(note)
    assert err.count("\n") == bool(note)


def test_frames_without_recordings_say_so(road, audited):
    _, _, err = audited(0, *sides(road))
    assert err.startswith("--frame is not used: no recordings are known on both sides")


@refusals("""
    --frame '/take(.)/' -> frame '/take(.)/' matches no id, such as 'drive0_000003.png'
    --group '/(drive.)/' --fail-on recording -> --fail-on recording needs groups and frames on both
    --max-frame-gap -1 -> within_frames (--max-frame-gap) must be 0 or more
    --max-time-gap 1e9 -> within_seconds (--max-time-gap) must be 0 or more and below 1,000,000,000
""")
def test_wrong_calls(road, tmp_path, arguments, words):
    given = f"--test {road}/test --train {road}/train -o {tmp_path}/a"
    check_refused(f"audit {given} {arguments}", words)
    assert not (tmp_path / "a").exists()
