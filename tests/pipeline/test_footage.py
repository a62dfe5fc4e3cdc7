"""The line on which two recordings show the same, and its ends, against ones that are known."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from visleak.formats import open_image_set
from visleak.pipeline.footage import (
    Line,
    Recording,
    beside_images,
    beside_recording,
    fitted,
    followed,
)
from visleak.records import FootageOpener

sys.path.insert(0, str(Path(__file__).parents[1] / "formats"))
from video_making import number_of, numbered, write_video


def footage(seconds: float, seed: int):
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


def recording(time, vectors) -> Recording:
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


def test_a_segment_at_the_ends_of_both_recordings():
    whole = footage(6, 0)
    time = np.arange(0, 5000, 100)
    one, other = (recording(time, whole(time)) for _ in range(2))
    line = followed(Line(2000, 2000, 2000, 2000), one, beside_recording(other, lambda v: v))
    assert (line.start, line.other_start) == (0, 0)
    assert 4900 <= line.end <= 5000


def test_an_interval_beside_images():
    time = np.arange(0, 8000, 100)
    vectors = footage(10, 1)(time)
    both = np.concatenate([vectors, footage(10, 2)(time)])
    query, images = recording(range(0, 16_000, 100), both), vectors[::5]
    line = followed(Line(1000, 6000, 0, 0), query, beside_images(images, lambda v: v))
    assert line.start == 0
    assert abs(line.end - 8000) <= 300


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
