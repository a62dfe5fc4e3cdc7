"""Encoders that take batches: the same rows as one by one, whatever is prepared where and when."""

import re
import tracemalloc

import numpy as np
import pytest
from networks import Network, picky, whole
from test_fingerprints import BAD, GOOD, assert_same, image_set, run, stored

from visleak.errors import VisleakError
from visleak.images import decode
from visleak.pipeline import batches
from visleak.storage.cache import Cache


@pytest.fixture
def images():
    return image_set(stored())


def test_rows_are_those_of_encode(images, tmp_path):
    """Oracle: each image decoded and encoded by itself; the others have a reason."""
    network = Network()
    prints = run(images, tmp_path, encoder=network)
    assert prints.rows.tolist() == GOOD
    assert [(p.id, p.reason) for p in prints.problems] == [(f"id-{n}", BAD[n]) for n in sorted(BAD)]
    items = stored()
    for row, vector, flat in zip(prints.rows, prints.matrix, prints.flat, strict=True):
        expected, blank = Network().encode([decode(items[row])])
        np.testing.assert_array_equal(vector, expected[0])
        assert flat == blank[0]
    assert network.calls == [8, 8, 8, 8, 3]


@pytest.mark.parametrize("first", [1, 7, 512])
@pytest.mark.parametrize("limit", [1, 5_000, 10**9])
def test_chunks_and_memory_limits_change_nothing(images, tmp_path, monkeypatch, first, limit):
    """Not a byte, and not which images come to the network together."""
    expected, network = Network(whole), Network(whole)
    wanted = run(images, tmp_path, encoder=expected)
    monkeypatch.setattr(batches, "FIRST_CHUNK", first)
    monkeypatch.setattr(batches, "TASK_BYTES", limit)
    assert_same(run(images, tmp_path, encoder=network), wanted)
    assert network.calls == expected.calls


def test_workers_and_cache_change_nothing(images, tmp_path, monkeypatch):
    """Two workers without the network; a half-filled cache, a full one, one of half precision."""
    wanted = run(images, tmp_path, encoder=Network())
    monkeypatch.setattr(batches, "FIRST_CHUNK", 6)
    with Cache(tmp_path / "cache") as cache:
        run(images, tmp_path, cache=cache, encoder=Network(), rows=np.arange(3, 12))
        network = Network()
        assert_same(run(images, tmp_path, 2, cache, network), wanted)
        # seven of ids 3 to 11 can be read, and 17 is a copy of one of them
        assert sum(network.calls) == len(GOOD) - 8
        again = Network()
        assert_same(run(images, tmp_path, 2, cache, again), wanted)
        assert again.calls == []
        half = Network(precision="fp16")
        run(images, tmp_path, 1, cache, half)
        # 5 and 17 are copies of 4, which may be known by the time they are read
        assert sum(half.calls) >= len(GOOD) - 2


def test_images_that_cannot_be_prepared_are_problems(images, tmp_path):
    prints = run(images, tmp_path, encoder=Network(picky))
    told = {p.id: f"{p.reason}: {p.detail}" for p in prints.problems}
    cause = "it cannot be prepared for network (ZeroDivisionError: no height)"
    assert told["id-3"] == f"unsupported: {cause}"
    assert told["id-2"] == "too-large: not enough memory to prepare it for network"
    assert prints.rows.tolist() == [n for n in GOOD if n not in (2, 3)]


def test_images_without_finite_vectors_are_problems(tmp_path):
    items = list(np.random.default_rng(3).integers(0, 256, (20, 9, 9, 3), np.uint8))
    images = image_set([*items[:7], b"words", *items[7:]])

    class Broken(Network):
        precision = "fp16"

        def forward(self, prepared):
            vectors = super().forward(prepared)
            vectors[0, 3], vectors[-1, 0] = np.nan, np.inf
            return vectors

    with Cache(tmp_path / "cache") as cache:
        prints = run(images, tmp_path, 1, cache, Broken())
        lost = "the encoder network made no numbers of it in fp16; use --precision fp32"
        found = [(p.id, p.reason) for p in prints.problems if p.detail == lost]
        assert found == [(f"id-{n}", "unsupported") for n in (0, 8, 9, 16, 17, 20)]
        assert [p.id for p in prints.problems][1] == "id-7"
        assert np.isfinite(prints.matrix).all()
        # and they are not kept
        assert len(run(images, tmp_path, 1, cache, Network(precision="fp16"))) == 20


@pytest.mark.parametrize(
    ("error", "batch", "line"),
    [
        (RuntimeError("CUDA out of memory\nsecond line"), 8, "use a smaller batch (--batch 4)"),
        (MemoryError(), 1, "it needs another device (--device cpu) or a smaller network"),
        (RuntimeError("no\nfit"), 8, "failed on 8 images on cuda:0 (RuntimeError: no fit)"),
        (VisleakError("encoder network passes its own errors"), 8, "passes its own errors"),
        (None, 8, "returned an array (8, 74) for 8 images; it must be (8, 75)"),
    ],
)
def test_a_network_that_fails_is_one_line(images, tmp_path, error, batch, line):
    class Failing(Network):
        device = "cuda:0"

        def forward(self, prepared):
            if error is None:
                return np.zeros((8, 74), np.float32)
            raise error

    with pytest.raises(VisleakError, match=f"^encoder network [^\n]*{re.escape(line)}$"):
        run(images, tmp_path, encoder=Failing(batch=batch))


@pytest.mark.slow
def test_memory_is_bounded(tmp_path, monkeypatch):
    """All pixels as the network's input: 120 MB of images never lie in memory together."""
    pixels = np.random.default_rng(0).integers(0, 256, (700, 700, 3), np.uint8)
    images = image_set([pixels] * 80)
    monkeypatch.setattr(batches, "TASK_BYTES", 4_000_000)
    copying = Network(lambda picture: picture.pixels.copy(), batch=4)
    run(image_set([pixels]), tmp_path, encoder=copying)  # imports what it needs
    tracemalloc.start()
    try:
        run(images, tmp_path, encoder=copying)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # the first task has 16 images, but stops at twice the bound
    assert peak < 5 * 4_000_000 + 4 * pixels.nbytes
