"""The rendered drives of benchmarks/dlede: the same everywhere, and boxes where the objects are."""

from __future__ import annotations

import hashlib
import importlib
import io
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

import visleak
from visleak.formats import boxes_of

FOLDER = Path(__file__).parents[2] / "benchmarks" / "dlede"
NUMBERS = range(0, 12, 2)
MODULES = (
    *("road_noise", "road_shapes", "road_places", "road_scene", "road_view"),
    *("road_background", "road_picture", "road"),
)
SIZE = (64, 48)


@pytest.fixture(scope="module")
def road() -> Iterator[ModuleType]:
    """Load the scripts from their folder, which is no package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        for name in MODULES:
            patch.delitem(sys.modules, name, raising=False)
        yield importlib.import_module("road")
        for name in MODULES:
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def recordings(road):
    return [road.Recording(road.SEED, number, 50) for number in NUMBERS]


@pytest.fixture(scope="module")
def shown(road, recordings):
    """Frame 20 of some recordings, which most tests look at."""
    return [road.render(recording, 20, *SIZE) for recording in recordings]


def test_same_bytes_on_every_machine(road, shown):
    """Figures of the experiment hold for these very bytes; a renderer that changes makes others."""
    hasher = hashlib.blake2b(digest_size=8)
    for frame in shown:
        hasher.update(road.png(frame.pixels) + road.label_lines(frame).encode())
    assert hasher.hexdigest() == "20fbcd1b50e2f645"


def test_frames_do_not_depend_on_those_before(road, shown):
    """A frame is a function of its number: workers may render in any order."""
    recording = road.Recording(road.SEED, NUMBERS[1], 50)
    other = road.render(recording, 3, *SIZE)
    again = road.render(recording, 20, *SIZE)
    assert (again.pixels == shown[1].pixels).all()
    assert again.boxes == shown[1].boxes
    assert (other.pixels != again.pixels).any()


def test_png_is_read_by_others(road, shown):
    with Image.open(io.BytesIO(road.png(shown[0].pixels))) as picture:
        assert (np.asarray(picture) == shown[0].pixels).all()


def test_boxes_hold_all_that_is_seen_of_an_object(shown):
    """What nothing hides fills its box from edge to edge; what is hidden in parts lies within."""
    whole = 0
    for frame in shown:
        assert len(frame.boxes) == len(frame.things) > 0
        for box, thing in zip(frame.boxes, frame.things, strict=True):
            rows, columns = np.nonzero(frame.owner == thing)
            seen = np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]) / 2
            edges = np.array([box.left, box.top, box.right, box.bottom])
            assert (seen[:2] >= edges[:2]).all()
            assert (seen[2:] <= edges[2:]).all()
            assert box.visible >= 0.4
            if box.visible == 1.0:
                whole += 1
                assert (seen == edges).all()
    assert whole >= 5


def test_a_sign_taken_away_changes_the_picture_in_its_box_only(road):
    """By pixels alone: noise and all else stay, and signs cast no shadow."""
    width, height = road.SIZE
    for number, at in ((0, 30), (7, 0), (7, 30)):
        recording = road.Recording(road.SEED, number, 50)
        frame = road.render(recording, at, width, height)
        box, thing = next(
            (box, thing)
            for box, thing in zip(frame.boxes, frame.things, strict=True)
            if road.CLASSES[box.label] == "sign" and box.visible == 1.0
        )
        unseen = replace(recording.things[thing], z=-1e3)
        recording.things = (*recording.things[:thing], unseen, *recording.things[thing + 1 :])
        other = road.render(recording, at, width, height)
        rows, columns = np.nonzero((other.pixels != frame.pixels).any(axis=2))
        assert (columns.min(), columns.max()) == (int(box.left), int(np.ceil(box.right)) - 1)
        assert (rows.min(), rows.max()) == (int(box.top), int(np.ceil(box.bottom)) - 1)


def test_hidden_and_small_objects_are_not_annotated(road, recordings, shown):
    picture = importlib.import_module("road_picture")
    left_out = 0
    for recording, frame in zip(recordings, shown, strict=True):
        for thing in set(frame.owner.ravel().tolist()) - {-1, *frame.things}:
            if recording.things[thing].kind not in road.CLASSES:
                continue
            left_out += 1
            rows, columns = np.nonzero(frame.owner == thing)
            tall, wide = np.ptp(rows) + 1, np.ptp(columns) + 1
            small = tall < 2 * picture.LEAST_HEIGHT or wide < 2 * picture.LEAST_WIDTH
            # a large one without a box shows less than a box of what is seen would hold
            assert small or len(rows) < tall * wide
    assert left_out > 10
    assert any(0.4 <= box.visible < 0.9 for frame in shown for box in frame.boxes)


def test_neighbours_in_time_are_alike_and_recordings_are_not(road, recordings, shown):
    """As in real recordings: mean difference in grey levels, noise included."""

    def pixels(frames):
        return np.array([frame.pixels for frame in frames], np.float64)

    def apart(a, b):
        return np.abs(a - b).mean(axis=(1, 2, 3))

    first = pixels(shown)
    after, later = (pixels(road.render(r, at, *SIZE) for r in recordings) for at in (21, 40))
    others = [apart(first, np.roll(first, n, axis=0)) for n in range(1, len(first))]
    assert (apart(first, after) < apart(first, later)).all()
    assert (apart(first, after) < np.min(others, axis=0)).all()


def test_data_set_is_read_with_recordings_and_boxes(road, tmp_path):
    objects = road.write_road(tmp_path, sequences=2, frames=3, size=SIZE, workers=1)
    images = visleak.open_images(f"yolo:{tmp_path / 'data.yaml'}#val", group="/^([^/]+)//")
    assert images.ids.to_pylist() == [f"seq-0{s}/00{f}.png" for s in (1, 2) for f in range(3)]
    assert images.groups.to_pylist() == ["seq-01"] * 3 + ["seq-02"] * 3
    boxes = boxes_of(images)
    assert boxes.names == road.CLASSES
    assert len(boxes.image) == objects > 0
    frame = road.render(road.Recording(road.SEED, 1, 3), 2, *SIZE)
    mine = boxes.corners[boxes.image == 5] * [*SIZE, *SIZE]
    edges = [(box.left, box.top, box.right, box.bottom) for box in frame.boxes]
    np.testing.assert_allclose(mine, edges, atol=1e-4)
