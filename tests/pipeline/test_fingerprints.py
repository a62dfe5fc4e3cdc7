"""Fingerprinting: the same rows whatever the workers, the cache and the chunks; nothing skipped."""

import io
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import working
from networks import Network
from PIL import Image

from visleak.encoders.builtin import BuiltinEncoder
from visleak.images import content_digest
from visleak.pipeline import encoded_set
from visleak.pipeline import fingerprints as step
from visleak.pipeline.context import RunContext
from visleak.pipeline.fingerprints import fingerprint
from visleak.records import ImageSet, Unreadable
from visleak.storage.cache import Cache

ENCODER = BuiltinEncoder()
COUNT = 40


def saved(pixels, kind="PNG"):
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, kind)
    return out.getvalue()


def stored():
    """Return encoded images and arrays, some equal, some blank, some that cannot be read."""
    rng = np.random.default_rng(0)
    items = []
    for n in range(COUNT):
        pixels = rng.integers(0, 256, (20 + n, 30, 3), np.uint8)
        items.append(pixels if n % 3 == 0 else saved(pixels))
    items[5] = items[17] = items[4]
    items[7] = b"not a picture"
    items[8] = b""
    items[20] = items[10][:-40]
    items[30] = Unreadable("missing", "it is gone")
    items[11] = saved(np.full((9, 9, 3), 77, np.uint8))
    items[12] = saved(rng.integers(0, 256, (1000, 1600, 3), np.uint8), "JPEG")
    items[13] = items[20]
    return items


BAD = {7: "not-an-image", 8: "empty", 13: "truncated", 20: "truncated", 30: "missing"}
GOOD = [n for n in range(COUNT) if n not in BAD]


def image_set(items, **others):
    ids, locators = (
        pa.array([f"{word}-{n}" for n in range(len(items))], pa.string()) for word in ("id", "at")
    )
    return ImageSet("pets", ids, locators, working.Listed(items), **others)


@pytest.fixture
def images():
    return image_set(stored())


def run(images, tmp_path, workers=1, cache=None, encoder=ENCODER, rows=None):
    """Return plain copies of the fingerprints' columns, which outlive the scratch folder."""
    with RunContext.at(tmp_path, workers, cache) as place:
        prints = fingerprint(images, encoder, place, rows)
        return replace(prints, matrix=np.array(prints.matrix))


def assert_same(left, right):
    for name in ("rows", "matrix", "digests", "sizes", "flat"):
        one, other = getattr(left, name), getattr(right, name)
        assert one.dtype == other.dtype, name
        assert one.shape == other.shape, name
        assert one.tobytes() == other.tobytes(), name
    assert left.ids.equals(right.ids)
    assert left.problems == right.problems
    assert (left.set, left.encoder) == (right.set, right.encoder)


def test_rows_are_the_readable_images_in_order(images, tmp_path):
    prints = run(images, tmp_path)
    assert prints.rows.tolist() == GOOD
    assert prints.ids.to_pylist() == [f"id-{n}" for n in GOOD]
    items = stored()
    for row, digest, size in zip(prints.rows, prints.digests, prints.sizes, strict=True):
        assert digest.tobytes() == content_digest(items[row])
        # a JPEG is decoded at an eighth; its size is that of the file
        expected = {5: [30, 24], 17: [30, 24], 11: [9, 9], 12: [1600, 1000]}
        assert size.tolist() == expected.get(int(row), [30, 20 + int(row)])
    assert prints.rows[prints.flat].tolist() == [11]
    assert (prints.set, prints.encoder) == ("pets", ENCODER.digest)
    problems = [(p.set, p.id, p.locator, p.reason) for p in prints.problems]
    assert problems == [("pets", f"id-{n}", f"at-{n}", BAD[n]) for n in sorted(BAD)]
    assert prints.problems[-1].detail == "it is gone"


@pytest.mark.parametrize("chunk", [1, 7, 39, 40, 512])
@pytest.mark.parametrize("limit", ["PIXELS_WAITING", "BYTES_WAITING", None])
def test_chunks_and_memory_limits_change_nothing(images, tmp_path, monkeypatch, chunk, limit):
    """Chunks of only bad files among them."""
    expected = run(images, tmp_path)
    monkeypatch.setattr(step, "CHUNK", chunk)
    if limit:
        monkeypatch.setattr(encoded_set if limit == "BYTES_WAITING" else step, limit, 1)
    assert_same(run(images, tmp_path), expected)


def test_the_cache_changes_nothing_but_the_work(images, tmp_path, monkeypatch):
    """First run, second run, a half-filled cache: the same bytes; known contents stay encoded."""
    expected = run(images, tmp_path)
    encoded = []
    encode = BuiltinEncoder.encode

    def counting(self, pictures):
        encoded.extend(pictures)
        return encode(self, pictures)

    monkeypatch.setattr(BuiltinEncoder, "encode", counting)
    monkeypatch.setattr(step, "CHUNK", 16)
    some = np.arange(10)
    with Cache(tmp_path / "cache") as cache:
        found = run(images, tmp_path, cache=cache, rows=some)
        assert_same(found, run(images, tmp_path, rows=some))
        np.testing.assert_array_equal(found.matrix, expected.matrix[: len(found)])
        encoded.clear()
        assert_same(run(images, tmp_path, cache=cache), expected)
        assert 0 < len(encoded) < len(GOOD)
        encoded.clear()
        assert_same(run(images, tmp_path, cache=cache), expected)
        # what is cheaper to make than to keep
        assert all(max(picture.pixels.shape) <= 16 for picture in encoded)


def test_entries_of_other_pixels_or_encoders_are_not_used(images, tmp_path, monkeypatch):
    """Of a version that decoded images otherwise; the digest of an encoder may be any text."""

    class Halved(BuiltinEncoder):
        def encode(self, pictures):
            vectors, flat = super().encode(pictures)
            return vectors / 2, flat

    class Other(Halved):
        digest = property(lambda self: "halved \u00bd", lambda self, value: None)

    expected = run(images, tmp_path)
    with Cache(tmp_path / "cache") as cache:
        halved = run(images, tmp_path, 1, cache, Other())
        np.testing.assert_array_equal(halved.matrix, expected.matrix / 2)
        with monkeypatch.context() as patch:
            patch.setattr(encoded_set, "DECODING", 0)
            run(images, tmp_path, 1, cache, Halved())
        assert_same(run(images, tmp_path, cache=cache), expected)


@pytest.mark.parametrize("encoder", [ENCODER, Network()])
@pytest.mark.parametrize("items", [[], [Unreadable("missing")] * 600], ids=len)
def test_a_set_without_readable_images(tmp_path, items, encoder):
    """Empty, or all bad, over more than one chunk: no rows of the right shapes, all problems."""
    with Cache(tmp_path / "cache") as cache:
        prints = run(image_set(items), tmp_path, cache=cache, encoder=encoder)
    assert prints.matrix.shape == (0, encoder.width)
    assert prints.digests.shape == (0, 16)
    assert prints.ids.type == pa.string()
    assert len(prints.problems) == len(items)
