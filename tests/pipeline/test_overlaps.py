"""Audits of tiles: shares, scenes, boxes in what is seen, gates, remedies and the drawing."""

import re
from base64 import b64decode
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pyarrow.compute as pc
import pytest
from PIL import Image

import visleak
from visleak.errors import UsageError
from visleak.formats import open_images
from visleak.gating import gates
from visleak.integrity import check_audit
from visleak.pipeline import local_features
from visleak.remedy.graph import strong_pairs
from visleak.remedy.removal import purge
from visleak.remedy.settings import PurgeSettings
from visleak.report.page import build
from visleak.search.votes import Votes
from visleak.settings import Settings
from visleak.storage import IMAGES_SCHEMA, PAIRS_SCHEMA

SIDE = 160
#: Tiles by split: scene and left edge.
TILES = {"train": {"a": (1, 0), "b": (1, 200), "c": (3, 0)}, "val": {"d": (1, 100), "e": (2, 0)}}
#: Boxes by tile: class, and left, top, right, bottom in pixels.
BOXES = {
    # in what a shows (0..60), in what b shows (100..160), in what none shows
    "d": [(0, 10, 20, 50, 60), (1, 110, 20, 150, 60), (0, 65, 20, 95, 60)],
    "a": [(0, 110, 20, 150, 60)],
    "b": [(0, 10, 20, 50, 60)],
}


#: Pairs that overlap.
DA, DB = ("d.png", "a.png"), ("d.png", "b.png")


def scene(seed):
    """Return a textured image, 360 x 160 pixels."""
    rng = np.random.default_rng(seed)
    sums = np.full((SIDE, 360, 3), 128.0, np.float32)
    for blur, gain in ((1.2, 30), (4, 120), (15, 500)):
        noise = rng.normal(0, 1, sums.shape).astype(np.float32)
        sums += gain * np.asarray(cv2.GaussianBlur(noise, (0, 0), blur))
    return np.clip(sums, 0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Return a YOLO data set of tiles."""
    folder = tmp_path_factory.mktemp("tiles")
    for split, tiles in TILES.items():
        for kind in ("images", "labels"):
            (folder / kind / split).mkdir(parents=True)
        for name, (number, left) in tiles.items():
            tile = scene(number)[:, left : left + SIDE]
            Image.fromarray(tile).save(folder / "images" / split / f"{name}.png")
            rows = [
                f"{label} {(x0 + x1) / 2 / SIDE} {(y0 + y1) / 2 / SIDE}"
                f" {(x1 - x0) / SIDE} {(y1 - y0) / SIDE}\n"
                for label, x0, y0, x1, y1 in BOXES.get(name, [])
            ]
            (folder / "labels" / split / f"{name}.txt").write_text("".join(rows))
    (folder / "data.yaml").write_text(
        f"path: {folder}\ntrain: images/train\nval: images/val\nnames: [ship, plane]\n"
    )
    return folder / "data.yaml"


def audited(data, **settings):
    sides = [open_images(f"yolo:{data}#{split}", name=split) for split in ("val", "train")]
    return visleak.audit(*sides, settings=Settings(**settings), workers=1, cache=None)


@pytest.fixture(scope="module")
def found(data):
    return audited(data, overlap=0.1, within=False)


def test_shares_and_scenes_are_those_of_the_tiles(found):
    pairs = found.pairs()
    assert pairs.column_names[: len(PAIRS_SCHEMA)] == PAIRS_SCHEMA.names
    overlapping = pairs.filter(pc.is_valid(pairs["overlap"])).to_pylist()
    shares = {(p["query"], p["reference"]): p["overlap"] for p in overlapping}
    assert shares == pytest.approx({DA: 60 / 160, DB: 60 / 160}, abs=0.01)
    rows = found.images().to_pylist()
    images = {Path(row["id"]).stem: (row["seen"], row["scene"]) for row in rows}
    assert images["d"] == (pytest.approx(120 / 160, abs=0.01), 0)
    assert images["a"] == images["b"] == (None, 0)
    assert (images["c"][1], images["e"][0]) == (None, 0)
    assert found.summary.scenes is not None
    assert (found.summary.scenes.largest, found.summary.scenes.shared) == ((3,), 1)
    rate = found.rate("overlap")
    assert (rate.count, rate.total) == (1, 2)
    assert "seen to at least 10 %" in found.headline
    assert check_audit(found.folder).findings == ()
    # and boxes in what is seen are counted by class
    assert found.summary.boxes is not None
    (boxes,) = found.summary.boxes
    assert (boxes.total, boxes.seen) == (3, 2)
    assert (boxes.same, boxes.different, boxes.unmatched) == (1, 1, 0)


def test_gates_bound_the_share_of_seen_images(found):
    tripped = [
        gates.outcome(gates.parse_all([text]), found.folder).tripped
        for text in ("overlap", "overlap=40%", "overlap=50%")
    ]
    assert [bool(each) for each in tripped] == [True, True, False]
    with pytest.raises(UsageError, match="--overlap"):
        gates.check(gates.parse_all(["overlap"]), verify=True, overlap=False)


def test_purge_removes_images_that_overlap(found):
    cases = ((0.7, "test", {"d"}), (0.8, "test", set()), (0.3, "train", {"a", "b"}))
    for share, side, gone in cases:
        settings = PurgeSettings(remove_from=side, grade="exact", overlap=share)
        (plan,) = purge(found, settings).sets
        assert {Path(each.id).stem for each in plan.removed} == gone
        assert all(each.why == "overlap" for each in plan.removed)
    for side in ("test", "train"):
        settings = PurgeSettings(remove_from=side, grade="exact", overlap=0.3)
        assert "drop 2 of" in purge(found, settings).advice.why
    # a split keeps them together
    connected = strong_pairs(found.folder, "exact", None).to_pylist()
    assert {(pair["query"], pair["reference"]) for pair in connected} == {DA, DB}


def test_the_page_draws_the_scene(found):
    for page in (build(found.folder, found.decoded_images), build(found.folder, private=True)):
        assert "Scene 0" in page
        drawings = re.findall(r"data:image/svg\+xml;base64,([^\"]+)", page)
        assert any(b" %</text></svg>" in b64decode(drawing) for drawing in drawings)


def test_blocks_of_the_search_change_nothing(found, data, monkeypatch):
    monkeypatch.setattr(local_features, "INDEXED", 300)
    monkeypatch.setattr(local_features, "QUERIED", 300)
    assert audited(data, overlap=0.1, within=False).pairs().equals(found.pairs())


def test_few_candidates_have_low_scores():
    """Ties go to the lower place in the order of ids."""
    rows = np.arange(30)
    score = np.where(rows < 20, 2.5, 9.0).astype(np.float32)
    votes = Votes(np.zeros(30, np.int64), rows, score, np.zeros(30, np.int8))
    depth = replace(local_features.DEEP, few=12, best=64)
    found = local_features.candidates(votes, rows[::-1].copy(), depth)
    assert found.reference.tolist() == [*range(29, 19, -1), 19, 18]


def test_an_audit_without_the_option_has_the_released_columns(data):
    assert "overlap" not in Settings().as_dict()
    audit = audited(data)
    assert audit.pairs().column_names == PAIRS_SCHEMA.names
    assert audit.images().column_names == IMAGES_SCHEMA.names
    with pytest.raises(UsageError, match="--overlap"):
        purge(audit, PurgeSettings(overlap=0.1))


@pytest.mark.parametrize("other", [{"verify": False}, {"candidates": "nearest"}, {"local": False}])
def test_settings_that_cannot_measure_overlap_are_refused(other):
    with pytest.raises(UsageError, match="overlap"):
        Settings(overlap=0.1, **other)  # type: ignore[arg-type]
