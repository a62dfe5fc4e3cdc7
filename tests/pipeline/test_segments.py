"""What videos share with videos and with images as intervals of time, and the lines they are on."""

import csv
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import visleak
from visleak.formats import open_image_set
from visleak.integrity import check_audit
from visleak.pipeline.footage import Line, Recording, beside_recording, fitted, followed
from visleak.records import FootageOpener

sys.path.insert(0, str(Path(__file__).parents[1] / "formats"))
from video_making import number_of, numbered, write_video

HEIGHT, WIDTH, RATE = 96, 128, 10


def moving_over(picture, frames, seed):
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
        name: list(moving_over(natural[name], 30, seed))
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


def is_at(row, times, within=0.3):
    """Whether a segment begins and ends at these seconds."""
    return all(abs(float(row[n]) - t) <= within for n, t in zip(TIMES, times, strict=True))


def test_segments_of_videos(places):
    sides = (f"video:{places / 'test'}?every=500ms", f"video:{places / 'train'}?every=200ms")
    audit = visleak.audit(*sides, workers=1, report=True, within=False)
    (row,) = segments(audit)
    assert (row["query"], row["reference"]) == ("clip.mp4", "whole.mp4")
    assert is_at(row, (3, 6.5, 2, 5.5), within=0.2)
    assert float(row["rate"]) == 1
    (named,) = audit.summary.comparisons[0].segments.named
    assert named.startswith("clip.mp4 ")
    assert named in (audit.folder / "report.html").read_text()
    assert not check_audit(audit.folder).findings
    path = audit.folder / "segments.csv"
    lines = path.read_text().splitlines(keepends=True)
    for text, words in ((lines[0], "lacks"), ("".join(lines)[:-40], "segments.csv, line")):
        path.write_text(text)
        assert words in " ".join(str(each) for each in check_audit(audit.folder).findings)


@pytest.mark.slow
def test_segments_beside_images(places):
    sides = f"video:{places / 'test'}?every=500ms", str(places / "stills")
    (row,) = segments(visleak.audit(*sides, workers=1, within=False))
    assert [row[name] for name in ("query", "reference", "rate")] == ["clip.mp4", "", ""]
    assert abs(float(row["query_start"]) - 3) <= 0.25
    assert abs(float(row["query_end"]) - 6.5) <= 0.25


@pytest.mark.slow
def test_segments_within_a_set(places, tmp_path):
    """With a mirrored part."""
    shutil.copy(places / "test" / "clip.mp4", tmp_path / "a.mp4")
    shutil.copy(places / "train" / "whole.mp4", tmp_path / "b.mp4")
    images = open_image_set(f"video:{tmp_path / 'a.mp4'}#every=all")
    frames = [np.ascontiguousarray(frame[:, ::-1]) for frame in images.opener.read(range(30, 65))]
    write_video(tmp_path / "c.mp4", frames, rate=RATE)
    audit = visleak.audit(f"video:{tmp_path}#every=500ms", workers=1)
    rows = {row["query"][0] + row["reference"][0]: row for row in segments(audit)}
    expected = {"ab": (3, 6.5, 2, 5.5), "ac": (3, 6.5, 0, 3.5), "bc": (2, 5.5, 0, 3.5)}
    assert rows.keys() == expected.keys()
    assert all(is_at(rows[pair], times) for pair, times in expected.items()), rows


def footage(seconds, seed):
    """Return a function from times in milliseconds to unit vectors that change over a second."""
    rng = np.random.default_rng(seed)
    knots = rng.normal(size=(int(seconds) + 3, 64))

    def vectors(time):
        at = np.asarray(time) / 1000
        place = np.clip(at.astype(int), 0, len(knots) - 2)
        share = (at - place)[:, None]
        found = knots[place] * (1 - share) + knots[place + 1] * share
        return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)

    return vectors


def recording(time, vectors):
    time = np.asarray(time, np.int64)
    fingerprints = SimpleNamespace(matrix=vectors, rows=np.arange(len(time)))
    images = SimpleNamespace(opener=None)
    side = SimpleNamespace(fingerprints=fingerprints, images=images, order=np.arange(len(time)))
    return Recording(side, np.arange(len(time)), time, int(np.median(np.diff(time))), None)


@pytest.mark.parametrize("rate", [0.5, 0.8, 1.0, 25 / 24, 1.25, 2.0])
@pytest.mark.parametrize("seed", range(3))
def test_a_segment_played_at_any_rate(rate, seed):
    whole = footage(40, seed)
    other = recording(range(0, 40_000, 40), whole(range(0, 40_000, 40)))
    time = np.arange(0, 12_000, 40)
    start, end, begins = 3000, 9000, 11_000
    shared = (time >= start) & (time < end)
    shown = np.where(shared, begins + rate * (time - start), 0)
    own = np.where(shared[:, None], whole(shown), footage(15, seed + 50)(time))
    query = recording(time, own)
    # as frames half a second apart leave it: the ends within a second, the times off by some
    ends = round(begins + rate * 500) + 300, round(begins + rate * 5500) - 200
    line = fitted(Line(3500, 8500, *ends), query, other, lambda vectors: vectors)
    line = followed(line, query, beside_recording(other, lambda vectors: vectors))
    assert abs(line.start - start) <= 160
    assert abs(line.end - end) <= 160
    assert abs(line.other_start - begins) <= 250
    assert abs(line.other_end - begins - rate * (end - start)) <= 250
    assert line.rate == pytest.approx(rate, abs=0.06)


def test_frames_between_those_of_a_set(tmp_path):
    write_video(tmp_path / "a.mp4", [numbered(number) for number in range(100)], rate=25)
    opener = open_image_set(f"video:{tmp_path / 'a.mp4'}#every=1s").opener
    assert isinstance(opener, FootageOpener)
    found = list(opener.between(0, 1000, 2000, 80))
    assert [time // 80 for time, _ in found] == list(range(12, 25))
    assert [number_of(frame) for _, frame in found] == [time // 40 for time, _ in found]
    (tmp_path / "a.mp4").write_bytes(b"words")
    opener.close()
    assert list(opener.between(0, 1000, 2000, 80)) == []
