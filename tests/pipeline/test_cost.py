"""The cost before start: counted where it can be counted, timed on real images, cheap itself."""

import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from networks import Network
from PIL import Image
from working import crops

from visleak.auditing import audit
from visleak.encoders import load_encoder
from visleak.formats import open_images
from visleak.pipeline import cost as costs
from visleak.pipeline.context import RunContext
from visleak.pipeline.cost import cost_of
from visleak.pipeline.fingerprints import fingerprint
from visleak.settings import Settings
from visleak.storage.cache import Cache

LOCAL_OFF = Settings(local=False)
UNVERIFIED = Settings(local=False, verify=False, within=False)


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "set").mkdir()
    for n in range(100):
        pixels = rng.integers(0, 256, (20 + n, 30, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "set" / f"{n:03}.png")
    return tmp_path / "set"


class Slow(Network):
    """10 ms an image here, 30 ms an image in the network, and a second the first time."""

    def __init__(self):
        super().__init__(self.prepared)

    def prepared(self, picture):
        time.sleep(0.01)
        return np.zeros((2, 2, 3), np.uint8)

    def forward(self, prepared):
        time.sleep(0.03 * len(prepared) + (0 if self.calls else 1))
        self.calls.append(len(prepared))
        return np.ones((len(prepared), self.width), np.float32)


def cost(tests, trains=(), encoder=None, settings=LOCAL_OFF, processes=1, cache=None):
    return cost_of(tests, trains, encoder or load_encoder(), settings, processes, cache)


def test_counts(folder):
    test, train = open_images(folder, name="test"), open_images(folder, name="train")
    found = cost([test], [train, test])
    assert (found.images, found.timed, found.cache) == (200, 200, 0)
    assert found.bytes == 2 * sum(file.stat().st_size for file in folder.iterdir())
    assert found.scratch == 200 * load_encoder().width * 4
    (folder / "words.png").write_bytes(b"words")
    assert cost([open_images(folder, name="more")]).images == 101
    sampled = cost([test], [train], settings=Settings(local=False, sample=10))
    assert sampled.images == 110
    assert sampled.bytes == pytest.approx(1.1 * found.bytes / 2, rel=0.01)
    local = cost([test], [train], settings=Settings())
    assert local.scratch == found.scratch + 200 * 250 * 144


def test_time_of_a_network(folder, tmp_path, monkeypatch):
    """Warming up does not count; where workers prepare, the slower of the two decides."""
    images = open_images(folder, name="test")
    monkeypatch.setattr(costs, "TIMED", 4)
    alone = cost([images], (), Slow(), UNVERIFIED)
    assert alone.timed == 4
    assert alone.steps["fingerprint"] >= 100 * 0.04
    spread = cost([images], (), Slow(), UNVERIFIED, 10)
    assert 100 * 0.03 <= spread.steps["fingerprint"] < alone.steps["fingerprint"]
    # cached images take none
    with Cache(tmp_path / "cache") as cache, RunContext.at(tmp_path, 1, cache) as place:
        fingerprint(images, Network(), place)
        after = cost([images], (), Slow(), UNVERIFIED, 1, cache)
    assert after.steps["fingerprint"] < 1
    assert after.cache > after.scratch


def test_a_part_of_the_images_stands_for_all(folder, monkeypatch):
    monkeypatch.setattr(costs, "TIMED", 30)
    images = open_images(folder, name="test")
    settings = replace(LOCAL_OFF, within=False)
    found = cost([images], [replace(images, name="train")], settings=settings)
    assert found.timed == 60
    assert found.candidates == pytest.approx(100 * 20, rel=0.1)


def test_it_is_cheap(tmp_path, monkeypatch):
    """A slow source is given up on; few images are read, in order, from the front of a stream."""
    read = []

    def slowly(positions):
        for position in positions:
            read.append(position)
            time.sleep(0.05)
            yield np.zeros((8, 8, 3), np.uint8)

    images = open_images(list(np.zeros((5000, 8, 8, 3), np.uint8)), name="test")
    members = pa.array([f"gone.tar!{n}" for n in range(len(images))])
    images = replace(images, opener=SimpleNamespace(read=slowly), locators=members)
    monkeypatch.setattr(costs, "PATIENCE", 0.2)
    found = cost([images])
    assert read == list(range(len(read)))
    assert len(read) <= 6
    assert found.bytes is None
    assert found.seconds >= 5000 * 0.05


def test_the_steps_add_up_and_count_the_pairs_of_the_audit(natural):
    """Where all images are sampled, the candidates are those of the audit, the best verified."""
    made = crops(natural, 24, 128)
    test, train = (open_images(own, name=n) for n, own in (("q", made[:12]), ("r", made[12:])))
    settings = Settings(within=False)
    found = cost([test], [train], settings=settings)
    assert list(found.steps) == ["fingerprint", "search", "local", "screening", "verification"]
    assert found.seconds == pytest.approx(sum(found.steps.values()))
    assert found.steps["local"] > 0
    assert found.steps["verification"] > found.steps["screening"] > 0
    pairs = audit([test], [train], settings=settings, workers=1, cache=None).pairs()
    assert found.candidates == pytest.approx(pairs.num_rows, rel=0.15)
    assert 0 < found.verified <= 6 * len(test) < found.candidates
    halved = cost([test], [train], settings=settings, processes=2)
    assert halved.steps["local"] < found.steps["local"]
    without = cost([test], [train], settings=replace(settings, verify=False))
    assert without.steps["verification"] == without.candidates == 0
