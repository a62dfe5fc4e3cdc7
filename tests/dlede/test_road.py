"""The rendered drives of benchmarks/dlede, and the page of their experiment."""

import hashlib
import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import visleak
from visleak.formats import boxes_of

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks" / "dlede"
NUMBERS = range(0, 12, 2)
MODULES = (
    *("road_noise", "road_shapes", "road_places", "road_scene", "road_view"),
    *("road_background", "road_picture", "road"),
)
SIZE = (64, 48)


@pytest.fixture(scope="module")
def road():
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
    hasher = hashlib.blake2b(digest_size=8)
    for frame in shown:
        hasher.update(road.png(frame.pixels) + road.label_lines(frame).encode())
    assert hasher.hexdigest() == "20fbcd1b50e2f645"


def test_boxes_hold_all_that_is_seen_of_an_object(shown):
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


FIGURES = json.loads((FOLDER / "experiment.json").read_text())
PAGE = (ROOT / "examples" / "dlede_road.md").read_text("utf-8")


@pytest.fixture(scope="module")
def page():
    names = ("experiment_figures", "experiment_page")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        yield importlib.import_module("experiment_page")
    for name in names:
        sys.modules.pop(name, None)


def test_page_is_what_the_figures_make(page):
    assert page.page_text(FIGURES) == PAGE


def test_every_figure_of_the_page_is_there():
    shown = [line.split("(")[1].rstrip(")") for line in PAGE.splitlines() if line.startswith("![")]
    assert len(shown) == 4
    assert all((ROOT / "examples" / name).stat().st_size > 1000 for name in shown)


@pytest.mark.parametrize("name", ["sequences", "random"])
def test_means_follow_from_the_trainings(name):
    """Equation 1 by hand, from the scores of single trainings."""
    early = FIGURES["figures"]["splits"][name]["early"]
    assert early["trainings"] == 15
    for judged in early["judgement"]["metrics"]:
        columns = list(zip(*early["scores"][judged["metric"]], strict=True))
        means = [sum(column) / len(column) for column in columns]
        for at in (1, 2):
            rise = (means[at] - means[at - 1]) / means[at - 1]
            assert judged["steps"][at]["increase"]["value"] == pytest.approx(rise, abs=1e-3)
