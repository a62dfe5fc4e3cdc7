"""What videos share with videos and with images, as intervals of time."""

from __future__ import annotations

import csv
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import visleak
from visleak.formats import open_image_set
from visleak.integrity import check_audit

sys.path.insert(0, str(Path(__file__).parents[1] / "formats"))
from video_making import write_video

HEIGHT, WIDTH, RATE = 96, 128, 10


def footage(picture, frames: int, seed: int):
    """A camera that moves over an image."""
    whole = np.asarray(Image.fromarray(picture).resize((200, 150)))
    rng = np.random.default_rng(seed)
    begin, end = rng.uniform(0, 1, (2, 2))
    for share in np.linspace(0, 1, frames):
        y, x = ((begin + (end - begin) * share / 3) * (150 - HEIGHT, 200 - WIDTH)).astype(int)
        yield np.ascontiguousarray(whole[y : y + HEIGHT, x : x + WIDTH])


@pytest.fixture(scope="module")
def places(tmp_path_factory, natural):
    """A recording, a clip with a part of it, another recording, and stills of the part."""
    folder = tmp_path_factory.mktemp("segments")
    scenes = {
        name: list(footage(natural[name], 30, seed))
        for seed, name in enumerate(("astronaut", "chelsea", "coffee", "rocket", "brick"))
    }
    for name in ("train", "test", "stills"):
        (folder / name).mkdir()
    whole = [*scenes["astronaut"], *scenes["chelsea"], *scenes["coffee"]]
    write_video(folder / "train" / "whole.mp4", whole, rate=RATE)
    write_video(folder / "train" / "other.mp4", scenes["brick"], rate=RATE)
    # 2.0 to 5.5 s of the recording, from 3.0 s on
    write_video(folder / "test" / "clip.mp4", [*scenes["rocket"], *whole[20:55]], rate=RATE)
    for at in range(20, 55, 5):
        Image.fromarray(whole[at]).save(folder / "stills" / f"{at}.png")
    return folder


def segments(audit):
    with (audit.folder / "segments.csv").open(newline="") as lines:
        return list(csv.DictReader(lines))


TIMES = ("query_start", "query_end", "reference_start", "reference_end")


def is_at(row, times, within):
    """Whether a segment begins and ends at these seconds."""
    return all(abs(float(row[n]) - t) <= within for n, t in zip(TIMES, times, strict=True))


@pytest.fixture(scope="module")
def steps():
    """What was reported of each step of the audit."""
    return {}


@pytest.fixture(scope="module")
def audit(places, steps):
    sides = (f"video:{places / 'test'}?every=500ms", f"video:{places / 'train'}?every=200ms")
    return visleak.audit(
        *sides,
        out=places / "audit",
        workers=1,
        report=True,
        within=False,
        progress=lambda step, done, total: steps.update({step: (done, total)}),
    )


def test_segments_of_videos(audit, steps):
    assert [counts for step, counts in steps.items() if "segments" in step] == [(1, 1)]
    (row,) = segments(audit)
    assert (row["query"], row["reference"]) == ("clip.mp4", "whole.mp4")
    assert is_at(row, (3, 6.5, 2, 5.5), within=0.2)
    assert float(row["rate"]) == 1
    (named,) = audit.summary.comparisons[0].segments.named
    assert named.startswith("clip.mp4 ")
    assert named in (audit.folder / "report.html").read_text()
    assert not check_audit(audit.folder).findings


@pytest.mark.slow
def test_segments_beside_images(places, tmp_path):
    audit = visleak.audit(
        f"video:{places / 'test'}?every=500ms", str(places / "stills"), workers=1, within=False
    )
    (row,) = segments(audit)
    assert (row["query"], row["reference"], row["reference_start"]) == ("clip.mp4", "", "")
    assert row["rate"] == ""
    assert abs(float(row["query_start"]) - 3) <= 0.25
    assert abs(float(row["query_end"]) - 6.5) <= 0.25


@pytest.mark.slow
def test_segments_within_a_set(places, tmp_path):
    """Of one set, each couple of recordings once; a mirrored copy is one, too."""
    folder = tmp_path / "all"
    folder.mkdir()
    shutil.copy(places / "test" / "clip.mp4", folder / "a.mp4")
    shutil.copy(places / "train" / "whole.mp4", folder / "b.mp4")
    images = open_image_set(f"video:{folder / 'a.mp4'}#every=all")
    frames = [np.ascontiguousarray(frame[:, ::-1]) for frame in images.opener.read(range(30, 65))]
    write_video(folder / "c.mp4", frames, rate=RATE)
    audit = visleak.audit(f"video:{folder}#every=500ms", out=tmp_path / "audit", workers=1)
    rows = {row["query"][0] + row["reference"][0]: row for row in segments(audit)}
    expected = {"ab": (3, 6.5, 2, 5.5), "ac": (3, 6.5, 0, 3.5), "bc": (2, 5.5, 0, 3.5)}
    assert rows.keys() == expected.keys()
    assert all(is_at(rows[pair], times, within=0.3) for pair, times in expected.items()), rows
    assert not check_audit(audit.folder).findings


@pytest.mark.slow
def test_a_recording_that_is_played_faster(places, tmp_path):
    folder = tmp_path / "fast"
    folder.mkdir()
    images = open_image_set(f"video:{places / 'train' / 'whole.mp4'}#every=all")
    frames = list(images.opener.read(range(0, 90, 2)))
    write_video(folder / "fast.mp4", frames, rate=RATE)
    sides = f"video:{folder}#every=500ms", f"video:{places / 'train'}#every=250ms"
    audit = visleak.audit(*sides, workers=1, within=False)
    (row,) = segments(audit)
    assert float(row["rate"]) == pytest.approx(2, abs=0.1)
    assert abs(float(row["reference_end"]) - 9) <= 0.5
    assert "times its speed" in audit.summary.comparisons[0].segments.named[0]


def test_a_damaged_table_is_found(audit, tmp_path):
    folder = shutil.copytree(audit.folder, tmp_path / "audit")
    path = folder / "segments.csv"
    lines = path.read_text().splitlines(keepends=True)
    for text, words in ((lines[0], "lacks"), ("".join(lines)[:-40], "segments.csv, line")):
        path.write_text(text)
        assert words in " ".join(str(each) for each in check_audit(folder).findings)


def test_sets_without_times_have_no_segments(places):
    audit = visleak.audit(str(places / "stills"), workers=1)
    assert not (audit.folder / "segments.csv").exists()
    assert audit.summary.comparisons[0].segments is None
