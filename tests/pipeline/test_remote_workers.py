"""Workers on other machines: the same bytes, from what travels alone."""

from dataclasses import replace

import numpy as np
import pytest
from networks import Network
from PIL import Image
from working import crops

from pickling_executor import PicklingExecutor, pickling_context
from toy_vectors import Shard
from visleak.auditing import audit
from visleak.embedding import encode
from visleak.encoders import load_encoder
from visleak.errors import VisleakError
from visleak.formats import open_images
from visleak.pipeline.context import RunContext
from visleak.pipeline.encoded_set import EncodedSet
from visleak.pipeline.fingerprints import fingerprint
from visleak.pipeline.pixels import SharedPixels, read_pixels
from visleak.pipeline.remote import _loaded, opener_for
from visleak.pipeline.streaming import streamed
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


def test_vectors_are_encoded_on_the_engine_into_the_same_files(natural, tmp_path):
    images, executor = open_images(crops(natural, 30, 40), name="test"), PicklingExecutor()
    for name, engine in (("here", {"workers": 1}), ("there", {"engine": lambda *_: executor})):
        encode(images, "builtin", tmp_path / name, shard=12, cache=None, **engine)
    here, there = (
        {path.name: path.read_bytes() for path in (tmp_path / name).rglob("*.*")}
        for name in ("here", "there")
    )
    assert len([name for name in here if name.endswith(".npy")]) == 3
    assert here == there
    assert executor.tasks == ["_encode"] * 3


def test_tasks_do_not_grow_with_the_sets(natural, tmp_path):
    """Only the pixels of the images of a task are sent."""
    place = pickling_context(tmp_path)
    images = open_images(crops(natural, 30, 40))
    prints = fingerprint(images, load_encoder("builtin"), place)
    pixels = read_pixels(EncodedSet(images, prints), np.arange(30), bounded, 256, place)
    many = replace(pixels, slot=np.concatenate([pixels.slot, np.full(1_000_000, -1)]))
    handle, rows = SharedPixels({"images": many}, place).handle("images", np.array([5, 3, 5]))
    sent = handle.load()
    assert sent.values.nbytes == 2 * 40 * 40 * 3
    for row, original in zip(rows, (5, 3, 5), strict=True):
        assert np.array_equal(sent.image(int(row)), many.image(original))


def test_an_opener_proves_that_it_reads_the_same_data(natural, tmp_path):
    place = pickling_context(tmp_path)
    pictures = crops(natural, 5, 40)
    for number, pixels in enumerate(pictures):
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    images = open_images(tmp_path)
    kept = (tmp_path / "0.png").rename(tmp_path / "kept")
    # the first readable image is the proof
    here, other, gone = (opener_for(images, range(5), place) for _ in range(3))
    assert list(here.read([2])) == [(tmp_path / "2.png").read_bytes()]
    kept.replace(tmp_path / "1.png")
    with pytest.raises(VisleakError, match=r"1\.png \(it is another image\); put the images"):
        other.read([2])
    (tmp_path / "1.png").unlink()
    with pytest.raises(VisleakError, match=r"does not see .*1\.png \(missing\); put the images"):
        gone.read([2])
    none = opener_for(images, range(2), place)
    assert [item.reason for item in none.read([0, 1])] == ["missing", "missing"]


def test_a_network_is_loaded_where_its_images_are(natural, tmp_path, monkeypatch):
    """With its options, if a worker can load it by its name; the vectors stay the same."""
    known = Network(running_options={"precision": "fp32", "batch": 8})
    place = pickling_context(tmp_path)
    there, asked = [known, Network(digest="network-2")], []

    def load(name, **options):
        asked.append((name, options))
        return there.pop(0)

    monkeypatch.setattr("visleak.pipeline.remote.load_encoder", load)
    monkeypatch.setattr("visleak.pipeline.remote.CHUNK", 10)
    _loaded.cache_clear()
    images = open_images([*crops(natural, 33, 40), np.zeros((23, 40, 3), np.uint8)])
    with RunContext.at(tmp_path, 1, None) as alone:
        expected = fingerprint(images, known, alone)
        for encoder, networks in ((known, 4), (known, 8), (Network(), 8)):
            found = fingerprint(images, encoder, place)
            for name in ("matrix", "rows", "flat"):
                assert np.array_equal(getattr(found, name), getattr(expected, name)), name
            assert place.executor.networks == networks
    assert asked == [("network", {"precision": "fp32", "batch": 8})]
    _loaded.cache_clear()
    said = "^encoder network on node .* has digest network-2, and this run is of network-1; install"
    with pytest.raises(VisleakError, match=said):
        fingerprint(images, known, place)


def test_stored_hits_are_of_one_search(tmp_path):
    """Another query, rule or partition is another question; damaged entries are no answer."""
    query = unit_rows(np.random.default_rng(0).standard_normal((20, 16))).matrix
    rule = Wanted(0.6, best=0)
    rows = np.random.default_rng(1).standard_normal((4, 300, 16)).astype(np.float32)
    ids = np.array([f"{n:03d}" for n in range(300)])
    parts = [Shard(part, ids, f"p{n}") for n, part in enumerate(rows)]
    with Cache(tmp_path / "cache") as cache:
        place = pickling_context(tmp_path, cache)
        first = streamed(query, parts, rule, place)
        assert len(first) > 20
        assert place.executor.tasks == ["_find"] * 4
        assert streamed(query, parts, rule, place).id == first.id
        assert place.executor.tasks == ["_find"] * 4
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
        cache._db.execute("UPDATE entries SET value = x'00'")
        assert streamed(query, parts, rule, place).id == first.id
