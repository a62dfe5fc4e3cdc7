"""The evidence of two sets' hashes, against all pairs counted one by one."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import replace

import imagehash
import numpy as np
import pytest
from PIL import Image

from visleak.dlede.draw import Split
from visleak.dlede.hashes import hash_evidence, pair_sheet
from visleak.dlede.results import HashPair
from visleak.errors import UsageError, VisleakError
from visleak.formats import open_images

RNG = np.random.default_rng(3)


def picture(seed: int) -> Image.Image:
    """Return a smooth image: a few waves of its own."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:60, 0:80] / 10
    waves = sum(np.sin(x * a + y * b + c) for a, b, c in rng.uniform(-3, 3, (4, 3)))
    return Image.fromarray(np.uint8(128 + 25 * waves))


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


@pytest.fixture(scope="module")
def split() -> Split:
    """Return a split with equal content, compressed copies and an image that cannot be read."""
    own = [encoded(picture(seed)) for seed in range(40)]
    copies = [encoded(picture(seed), "JPEG", quality=30) for seed in range(30, 36)]
    others = [encoded(picture(seed)) for seed in range(100, 115)]
    test = [own[3], *copies, b"words", *others, own[3], own[39]]
    return Split(open_images(own, name="train"), open_images(test, name="test"))


def every_pair(split: Split) -> list[tuple[int, str, str]]:
    """Return distance, test id and training id of all readable pairs, in order."""
    hashes = {}
    for images in (split.test, split.train):
        stored = zip(images.ids.to_pylist(), images.opener.read(range(len(images))), strict=True)
        hashes[images.name] = {
            name: imagehash.phash(Image.open(io.BytesIO(data)))
            for name, data in stored
            if data != b"words"
        }
    return sorted(
        (int(one - other), name, reference)
        for name, one in hashes["test"].items()
        for reference, other in hashes["train"].items()
    )


def test_evidence_is_what_imagehash_says_of_all_pairs(split: Split) -> None:
    """Ids are text: "10" comes before "9"."""
    found = hash_evidence(split, kept=50, workers=1)
    pairs = every_pair(split)
    assert (found.train, found.test, found.unreadable) == (40, 24, 1)
    assert found.histogram == tuple(Counter(d for d, _, _ in pairs)[d] for d in range(65))
    nearest = Counter({name: distance for distance, name, _ in reversed(pairs)}.values())
    assert found.nearest == tuple(nearest[d] for d in range(65))
    assert found.alike == tuple(HashPair(test, train, d) for d, test, train in pairs[:50])
    assert [(problem.id, problem.reason) for problem in found.problems] == [("7", "not-an-image")]
    assert set(found.seconds) == {"hashing", "comparing"}


def test_equal_content_is_a_pair_at_distance_0(split: Split) -> None:
    """Row 0 and the last but one of the test set are a training image each."""
    found = hash_evidence(split, workers=1)
    equal = {(pair.test, pair.train) for pair in found.alike if not pair.distance}
    assert {("0", "3"), ("23", "3"), ("24", "39")} <= equal


def test_nothing_readable_is_no_evidence_and_no_failure(split: Split) -> None:
    """D-LeDe does not rest on hashes: it must go on without them."""
    nothing = open_images([b"words", b""], name="train")
    found = hash_evidence(Split(nothing, split.test), workers=1)
    assert (found.train, found.test, found.unreadable) == (0, 24, 3)
    assert not any(found.histogram)
    assert not any(found.nearest)
    assert found.alike == ()
    assert hash_evidence(Split(split.train, nothing), workers=1).test == 0


def test_what_is_refused(split: Split) -> None:
    """In one line."""
    with pytest.raises(UsageError, match=r"^kept must be 0 or more pairs; got -1$"):
        hash_evidence(split, kept=-1)
    stored = Split(replace(split.train, has_pixels=False), split.test)
    with pytest.raises(VisleakError, match=r"^set 'train' holds vectors without images; "):
        hash_evidence(stored, workers=1)
    assert hash_evidence(split, kept=0, workers=1).alike == ()


def test_the_sheet_shows_each_test_image_once(split: Split) -> None:
    found = hash_evidence(split, workers=1)
    lost = Split(split.train, replace(split.test, opener=replaced(split)))
    for each in (split, lost):
        with Image.open(io.BytesIO(pair_sheet(each, found))) as sheet:
            assert sheet.format == "PNG"
            height = sheet.height
    many = (HashPair("0", str(row), 0) for row in range(40))
    one = pair_sheet(split, replace(found, alike=tuple(many)))
    with Image.open(io.BytesIO(one)) as sheet:
        assert sheet.height < height
    assert pair_sheet(split, replace(found, alike=())) == b""


def replaced(split: Split) -> object:
    """Return an opener of as many files that are no longer images."""
    return open_images([b"gone"] * len(split.test), name="test").opener
