"""Images: the right pixels, checked by content, bounded, read in order and ahead."""

import io
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from reviewed import until

from visleak.errors import VisleakError
from visleak.images import content_digest
from visleak.records import ImageSet, Unreadable
from visleak.review.registry import ADDRESSES, LONG, SOON, ImageRegistry, ImageView, ShownImage

COUNT = 30


class Stored:
    """Images in memory; notes what was read."""

    def __init__(self, pictures, wait=0.0, each=0.0):
        self.pictures = pictures
        self.calls: list[list[int]] = []
        self.inside = 0
        self.wait = wait
        self.each = each

    def read(self, positions):
        self.calls.append(list(positions))
        self.inside += 1
        assert self.inside == 1, "two callers at once"
        time.sleep(self.wait)
        try:
            for position in positions:
                time.sleep(self.each)
                yield self.pictures[position]
        finally:
            self.inside -= 1


@pytest.fixture
def pictures():
    rng = np.random.default_rng(3)
    return [rng.integers(0, 256, (16, 20, 3), np.uint8) for _ in range(COUNT)]


def images(stored):
    ids = pa.array([f"i{n}" for n in range(len(stored.pictures))])
    return ImageSet(name="set", ids=ids, locators=ids, opener=stored)


@pytest.fixture
def stored(pictures):
    return Stored(pictures)


@contextmanager
def opened(stored, digest=None, **options):
    registry = ImageRegistry(lambda name: images(stored), lambda name, image: digest, **options)
    with closing(registry):
        yield registry


@pytest.fixture
def registry(stored):
    with opened(stored) as registry:
        yield registry


def test_large_pictures_are_bounded_and_sent_as_jpeg():
    y, x = np.mgrid[0:1200, 0:2400]
    large = np.stack([x // 10, y // 5, (x + y) // 15], axis=2).astype(np.uint8)
    with opened(Stored([large])) as registry:
        shown = registry.image("set", "i0")
        data, kind = registry.encoded(ImageView("whole", (("set", "i0"),)))
    assert isinstance(shown, ShownImage)
    assert shown.pixels.shape == (LONG // 2, LONG, 3)
    assert (shown.width, shown.height) == (2400, 1200)
    assert kind == "image/jpeg"
    back = np.asarray(Image.open(io.BytesIO(data))).astype(int)
    assert np.abs(back - shown.pixels).mean() < 1.0


def test_metadata_of_a_file_is_never_served():
    """Images are encoded anew from pixels: no EXIF, no trailing bytes."""
    out, exif = io.BytesIO(), Image.Exif()
    exif[0x010E] = "secret place"
    Image.new("RGB", (400, 300), "teal").save(out, "JPEG", exif=exif)
    stored = Stored([out.getvalue() + b"secret tail"])
    with opened(stored) as registry:
        data, _ = registry.encoded(ImageView("whole", (("set", "i0"),)))
    assert b"secret" not in data


def test_content_that_changed_is_not_shown(stored, pictures):
    good = content_digest(pictures[0]).hex()
    with opened(stored, good) as registry:
        assert isinstance(registry.image("set", "i0"), ShownImage)
        lost = registry.image("set", "i1")
        assert registry.image("set", "none") == Unreadable("missing", "it is no longer in the set")
    assert isinstance(lost, Unreadable)
    assert (lost.reason, "content has changed" in lost.detail) == ("missing", True)


def test_images_that_cannot_be_shown_have_reasons():
    def gone(name):
        raise VisleakError("</text><script>alert(1)</script>\udc80")

    with closing(ImageRegistry(gone, lambda name, image: None)) as broken:
        data, kind = broken.encoded(ImageView("small", (("set", "i0"),)))
    assert kind == "image/svg+xml"
    assert b"<script" not in data
    assert b"&lt;script&gt;" in data


def test_reading_ahead_waits_until_it_is_worth_a_pass(registry, stored):
    """On a stream a pass is dear: one new image a page must not cost one."""
    names = [("set", f"i{n}") for n in range(COUNT)]
    registry.ahead(names[:SOON])
    until(lambda: len(stored.calls) == 1 and not stored.inside)
    registry.ahead(names[:COUNT])
    time.sleep(0.1)
    assert len(stored.calls) == 1
    registry.ahead(names[1:COUNT])
    until(lambda: len(stored.calls) == 2)
    assert stored.calls[1] == list(range(SOON, COUNT))


def test_old_pictures_go_before_memory_does(stored, pictures):
    with opened(stored, budget=5 * pictures[0].nbytes) as registry:
        for number in range(COUNT):
            registry.image("set", f"i{number}")
        # the last five are at hand, others are read again
        for number in range(COUNT - 5, COUNT):
            registry.image("set", f"i{number}")
        assert len(stored.calls) == COUNT
        registry.image("set", f"i{COUNT - 6}")
        assert len(stored.calls) == COUNT + 1


def test_many_askers_read_a_picture_once(pictures):
    """Openers serve one caller at a time; the second finds what the first has read."""
    stored = Stored(pictures, wait=0.05)
    with opened(stored) as registry, ThreadPoolExecutor(8) as pool:
        list(pool.map(registry.image, ["set"] * 8, ["i1"] * 8))
    assert stored.calls == [[1]]


def test_addresses_are_bounded(registry, monkeypatch):
    monkeypatch.setattr("visleak.review.registry.ADDRESSES", 3)
    assert ADDRESSES > 3
    first = registry.url("set", "i0").rpartition("/")[2]
    for number in range(1, 4):
        registry.url("set", f"i{number}")
    assert registry.view(first) is None
    assert registry.url("set", "i0").endswith(first)


def test_views_are_made_of_the_pixels(registry, pictures):
    def seen(kind, *images, **more):
        data, form = registry.encoded(ImageView(kind, tuple(("set", i) for i in images), **more))
        assert form == "image/png"
        return np.asarray(Image.open(io.BytesIO(data)))

    assert (seen("whole", "i4") == pictures[4]).all()
    assert seen("plain", "i0", "i0").max() <= 4  # black: nothing is left
    mirror = (-1.0, 0, 1, 0, 1, 0, 0, 0, 1)
    assert (seen("laid", "i0", "i0", matrix=mirror) == pictures[0][:, ::-1]).all()
