"""Workers on other machines: the same bytes, from what travels alone."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import cluster_working
import numpy as np
import pytest
from networks import Network
from PIL import Image
from working import crops

from pickling_executor import PicklingExecutor, pickling_context
from visleak.auditing import audit
from visleak.embedding import encode
from visleak.encoders import load_encoder
from visleak.errors import VisleakError
from visleak.formats import open_images
from visleak.pipeline.context import RunContext
from visleak.pipeline.encoded_set import EncodedSet
from visleak.pipeline.fingerprints import fingerprint
from visleak.pipeline.pixels import Pixels, SharedPixels, read_pixels
from visleak.pipeline.remote import _loaded, opener_for
from visleak.pipeline.streaming import CachedHits, streamed
from visleak.search.hits import Wanted
from visleak.storage import IMAGES, PAIRS
from visleak.storage.cache import Cache
from visleak.vectors import unit_rows
from visleak.verification.check import bounded


@pytest.fixture
def alone(tmp_path):
    (tmp_path / "alone").mkdir()
    with RunContext.at(tmp_path / "alone", 1, None) as place:
        yield place


def test_every_step_of_an_audit_of_images(natural, tmp_path, monkeypatch):
    monkeypatch.setattr("visleak.pipeline.remote.PART", 16)
    train = crops(natural, 40, 64)
    test = [np.ascontiguousarray(train[n][:, ::-1]) for n in range(6)] + crops(natural, 6, 64, 1)
    here = audit(test, train, out=tmp_path / "here", cache=None, workers=1)
    executor = PicklingExecutor()
    audit(test, train, out=tmp_path / "there", cache=tmp_path / "c", engine=lambda *_: executor)
    for name in (PAIRS, IMAGES):
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()
    assert {"_encode", "_search", "_screen", "_check"} <= set(executor.tasks)
    assert "near" in here.pairs()["grade"].to_pylist()


def test_vectors_written_as_files(natural, tmp_path):
    images = open_images(crops(natural, 30, 40), name="test")
    encode(images, "builtin", tmp_path / "here", shard=12, cache=None, workers=1)
    executor = PicklingExecutor()
    encode(images, "builtin", tmp_path / "there", shard=12, cache=None, engine=lambda *_: executor)
    written = sorted((tmp_path / "here").rglob("*.*"))
    assert len([path for path in written if path.suffix == ".npy"]) == 3
    for path in written:
        other = tmp_path / "there" / path.relative_to(tmp_path / "here")
        assert other.read_bytes() == path.read_bytes(), path.name
    assert executor.tasks == ["_encode"] * 3


def test_pixels_are_sent_of_the_images_of_a_task_only(tmp_path):
    """In any order, twice, or none at all; an image that was not decoded stays empty."""
    rng = np.random.default_rng(0)
    shapes = np.array([(3, 4), (0, 0), (5, 2), (3, 4)], np.int32)
    pictures = [rng.integers(0, 256, (*shape, 3), np.uint8) for shape in shapes]
    path = tmp_path / "pixels"
    path.write_bytes(b"".join(picture.tobytes() for picture in pictures))
    offset = np.cumsum([0, *(picture.size for picture in pictures)])
    slot = np.array([-1, 2, 0, -1, 1, 3])
    pixels = Pixels(path, slot, offset, shapes)
    asked = np.array([5, 4, 1, 5])
    sent, rows = pixels.only(asked)
    path.unlink()
    for row, original in zip(rows, asked, strict=True):
        expected = pictures[slot[original]]
        found = sent.image(int(row))
        assert np.array_equal(found, expected) if expected.size else not found.size
    assert sent.values.nbytes == pictures[3].nbytes + pictures[1].nbytes + pictures[2].nbytes
    nothing, rows = pixels.only(np.empty(0, np.int64))
    assert len(rows) == 0
    assert nothing.offset[-1] == 0


def test_tasks_do_not_grow_with_the_sets(natural, tmp_path):
    place = pickling_context(tmp_path)
    images = open_images(crops(natural, 30, 40))
    prints = fingerprint(images, load_encoder("builtin"), place)
    pixels = read_pixels(EncodedSet(images, prints), np.arange(30), bounded, 256, place)
    many = replace(pixels, slot=np.concatenate([pixels.slot, np.full(1_000_000, -1)]))
    handle, _ = SharedPixels({"images": many}, place).handle("images", np.array([3, 4]))
    assert handle.load().values.nbytes == 2 * 40 * 40 * 3
    assert len(handle.load().slot) == 2


def test_an_opener_proves_that_it_reads_the_same_data(natural, tmp_path):
    place = pickling_context(tmp_path)
    pictures = crops(natural, 5, 40)
    images = open_images(pictures, name="test")
    proven = opener_for(images, range(5), place)
    strange = cluster_working.Elsewhere(pictures, -1)
    with pytest.raises(VisleakError, match=r"does not see .* \(it is another image\); put the"):
        next(iter(replace(proven, opener=strange).read([1])))
    for found, expected in zip(proven.read([1, 3]), pictures[1::2], strict=True):
        assert np.array_equal(found, expected)
    home = replace(images, opener=cluster_working.Elsewhere(pictures, os.getpid()))
    assert np.array_equal(next(iter(opener_for(home, range(5), place).read([2]))), pictures[2])


def test_the_first_readable_image_is_the_proof(tmp_path):
    (tmp_path / "set").mkdir()
    for number in range(3):
        Image.new("RGB", (40, 40), (number, 0, 0)).save(tmp_path / "set" / f"{number}.png")
    images = open_images(tmp_path / "set")
    (tmp_path / "set" / "0.png").unlink()
    proven = opener_for(images, range(3), pickling_context(tmp_path))
    assert proven.locator.endswith("1.png")
    (tmp_path / "set").rename(tmp_path / "gone")
    with pytest.raises(VisleakError, match=r"does not see .*1\.png \(missing\); put the images"):
        proven.read([2])
    none = opener_for(images, range(3), pickling_context(tmp_path))
    assert [item.reason for item in none.read([0, 2])] == ["missing", "missing"]


class Known(Network):
    """A network that workers can load by its name."""

    running_options = {"precision": "fp32", "batch": 8}  # noqa: RUF012


def test_a_network_is_loaded_where_its_images_are(natural, alone, tmp_path, monkeypatch):
    """With its options; the vectors are those of one network for all."""
    asked = []

    def load(name, **options):
        asked.append((name, options))
        return Known()

    monkeypatch.setattr("visleak.pipeline.remote.load_encoder", load)
    monkeypatch.setattr("visleak.pipeline.remote.CHUNK", 10)
    _loaded.cache_clear()
    images = open_images([*crops(natural, 33, 40), np.zeros((23, 40, 3), np.uint8)])
    expected = fingerprint(images, Known(), alone)
    place = pickling_context(tmp_path, Cache(tmp_path / "cache"))
    for _ in range(2):
        found = fingerprint(images, Known(), place)
        for name in ("matrix", "rows", "flat"):
            assert np.array_equal(getattr(found, name), getattr(expected, name)), name
    assert asked == [("network", {"precision": "fp32", "batch": 8})]
    assert place.executor.networks == 8
    place.cache.close()


def test_other_weights_on_a_node_are_refused(natural, tmp_path, monkeypatch):
    other = Known(digest="network-2")
    monkeypatch.setattr("visleak.pipeline.remote.load_encoder", lambda name, **options: other)
    _loaded.cache_clear()
    said = "^encoder network on node .* has digest network-2, and this run is of network-1; install"
    with pytest.raises(VisleakError, match=said):
        fingerprint(open_images(crops(natural, 3, 40)), Known(), pickling_context(tmp_path))


def test_an_object_of_the_caller_is_not_sent(natural, alone, tmp_path):
    images = open_images(crops(natural, 9, 40))
    place = pickling_context(tmp_path)
    found, expected = (fingerprint(images, Network(), p) for p in (place, alone))
    assert np.array_equal(found.matrix, expected.matrix)
    assert place.executor.networks == 0
    assert place.executor.tasks


def partitions(folder: Path, count: int = 4) -> list[cluster_working.SlowPartition]:
    return [cluster_working.SlowPartition(f"p{n}", 300, n, str(folder)) for n in range(count)]


def test_stored_hits_are_of_one_search(tmp_path):
    """Another query, rule or partition is another question; damaged entries are no answer."""
    query = unit_rows(np.random.default_rng(0).standard_normal((20, 16))).matrix
    rule = Wanted(0.6, best=0)
    parts = partitions(tmp_path)
    with Cache(tmp_path / "cache") as cache:
        place = pickling_context(tmp_path, cache)
        first = streamed(query, parts, rule, place)
        assert len(first) > 20
        assert place.executor.tasks == ["_find"] * 4
        again = streamed(query, parts, rule, place)
        assert place.executor.tasks == ["_find"] * 4
        assert again.id == first.id
        assert np.array_equal(again.similarity, first.similarity)
        other = query.copy()
        other[0] = -other[0]
        for question in (
            (other, parts, rule),
            (query, parts, Wanted(0.61, best=0)),
            (query, parts, Wanted(0.6, best=1)),
            (query, [replace(part, stamp="2") for part in parts], rule),
        ):
            before = len(place.executor.tasks)
            streamed(*question, place)
            assert len(place.executor.tasks) == before + 4
        kept = CachedHits(cache, query, rule)
        assert kept.get(parts[0]) is not None
        cache._db.execute("UPDATE entries SET value = x'00'")
        assert kept.get(parts[0]) is None
        assert streamed(query, parts, rule, place).id == first.id
