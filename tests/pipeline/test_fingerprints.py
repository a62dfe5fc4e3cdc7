"""Fingerprinting: the same rows whatever the workers, the cache and the chunks; nothing skipped."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import working
from PIL import Image

from visleak.encoders.builtin import BuiltinEncoder
from visleak.formats import open_images
from visleak.images import content_digest
from visleak.pipeline import encoded_set
from visleak.pipeline import fingerprints as step
from visleak.pipeline.context import RunContext
from visleak.pipeline.fingerprints import fingerprint
from visleak.records import ImageSet, Unreadable
from visleak.storage.cache import Cache

ENCODER = BuiltinEncoder()
HERE = str(Path(__file__).parent)
COUNT = 40


def png(pixels) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def stored() -> list[bytes | np.ndarray | Unreadable]:
    """Return encoded images and arrays, some equal, some blank, some that cannot be read."""
    rng = np.random.default_rng(0)
    items: list[bytes | np.ndarray | Unreadable] = []
    for n in range(COUNT):
        pixels = rng.integers(0, 256, (20 + n, 30, 3), np.uint8)
        items.append(pixels if n % 3 == 0 else png(pixels))
    items[5] = items[17] = items[4]
    items[7] = b"not a picture"
    items[8] = b""
    items[20] = items[10][:-40]
    items[30] = Unreadable("missing", "it is gone")
    items[11] = png(np.full((9, 9, 3), 77, np.uint8))
    items[13] = items[20]
    return items


BAD = {7: "not-an-image", 8: "empty", 13: "truncated", 20: "truncated", 30: "missing"}
GOOD = [n for n in range(COUNT) if n not in BAD]


def image_set(items, notes: Path, **others) -> ImageSet:
    ids, locators = (
        pa.array([f"{word}-{n}" for n in range(len(items))], pa.string()) for word in ("id", "at")
    )
    notes.mkdir(exist_ok=True)
    return ImageSet("pets", ids, locators, working.Recorder(items, notes), **others)


@pytest.fixture
def images(tmp_path):
    return image_set(stored(), tmp_path / "notes")


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
        expected = {5: 24, 17: 24, 11: 9}.get(int(row), 20 + int(row))
        assert size.tolist() == [9 if row == 11 else 30, expected]
    assert prints.rows[prints.flat].tolist() == [11]
    assert (prints.set, prints.encoder) == ("pets", ENCODER.digest)
    problems = [(p.set, p.id, p.locator, p.reason) for p in prints.problems]
    assert problems == [("pets", f"id-{n}", f"at-{n}", BAD[n]) for n in sorted(BAD)]
    assert prints.problems[-1].detail == "it is gone"


def test_the_size_is_the_full_one_of_a_partly_decoded_image(tmp_path):
    """A JPEG is decoded at an eighth; its size is that of the file."""
    out = io.BytesIO()
    big = np.random.default_rng(1).integers(0, 256, (1000, 1600, 3), np.uint8)
    Image.fromarray(big).save(out, "JPEG")
    prints = run(image_set([out.getvalue()], tmp_path / "n"), tmp_path)
    assert prints.sizes.tolist() == [[1600, 1000]]


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
        encoded.clear()
        assert_same(run(images, tmp_path, cache=cache), expected)
        assert 0 < len(encoded) < len(GOOD)
        encoded.clear()
        assert_same(run(images, tmp_path, cache=cache), expected)
        # what is cheaper to make than to keep
        assert all(max(picture.pixels.shape) <= 16 for picture in encoded)


def test_encoders_do_not_share_entries(images, tmp_path):
    """Another digest, another fingerprint; a digest may be any text."""

    class Halved(BuiltinEncoder):
        digest = property(lambda self: "halved \u00bd", lambda self, value: None)

        def encode(self, pictures):
            vectors, flat = super().encode(pictures)
            return vectors / 2, flat

    expected = run(images, tmp_path)
    with Cache(tmp_path / "cache") as cache:
        for _ in range(2):
            halved = run(images, tmp_path, 1, cache, Halved())
            np.testing.assert_array_equal(halved.matrix, expected.matrix / 2)
            assert_same(run(images, tmp_path, cache=cache), expected)


def test_entries_of_other_pixels_are_not_used(images, tmp_path):
    """The cache of a version that decoded images otherwise."""
    expected = run(images, tmp_path)
    old = f"fingerprint {BuiltinEncoder().digest}".encode()
    wrong = np.ones(2, "<i4").tobytes() + b"\1" + np.zeros(BuiltinEncoder.width, "<f4").tobytes()
    with Cache(tmp_path / "cache") as cache:
        cache.put(old, [(digest.tobytes(), wrong) for digest in expected.digests])
        assert_same(run(images, tmp_path, cache=cache), expected)


def test_chosen_rows(images, tmp_path):
    rows = np.array([0, 3, 7, 11, 38], np.int64)
    whole = run(images, tmp_path)
    for note in (tmp_path / "notes").iterdir():
        note.unlink()
    prints = run(images, tmp_path, rows=rows)
    assert images.opener.noted() == rows.tolist()
    assert prints.rows.tolist() == [0, 3, 11, 38]
    there = np.flatnonzero(np.isin(whole.rows, prints.rows))
    np.testing.assert_array_equal(prints.matrix, whole.matrix[there])
    assert [p.id for p in prints.problems] == ["id-7"]


def test_a_set_in_memory(tmp_path):
    arrays = list(np.random.default_rng(2).integers(0, 256, (5, 16, 16, 3), np.uint8))
    sets = [open_images(arrays), open_images([Image.fromarray(one) for one in arrays])]
    first, second = (run(images, tmp_path) for images in sets)
    assert first.matrix.tobytes() == second.matrix.tobytes()
    assert first.digests.tobytes() == second.digests.tobytes()


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("items", [[], [b"words"] * 3, [Unreadable("missing")] * 600], ids=len)
def test_a_set_without_readable_images(tmp_path, items, cached):
    """Empty, or all bad, over more than one chunk: no rows of the right shapes, all problems."""
    images = image_set(items, tmp_path / "n")
    with Cache(tmp_path / "cache") as cache:
        prints = run(images, tmp_path, cache=cache if cached else None)
    assert len(prints) == 0
    assert prints.matrix.shape == (0, ENCODER.width)
    assert prints.digests.shape == (0, 16)
    assert prints.ids.type == pa.string()
    assert len(prints.problems) == len(items)
