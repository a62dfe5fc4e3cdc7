"""Perceptual hashes and their distances, against imagehash and brute force."""

import io
import tracemalloc
from collections import Counter
from dataclasses import replace

import hypothesis.strategies as st
import imagehash
import numpy as np
import pytest
from hypothesis import given
from PIL import Image

from visleak.dlede import hashes
from visleak.dlede.draw import Split
from visleak.dlede.hashes import distances, hash_all, hash_evidence, nearest_pairs, pair_sheet
from visleak.dlede.results import HashPair
from visleak.errors import UsageError, VisleakError
from visleak.formats import open_images
from visleak.images.decoding import decode, grey
from visleak.pipeline import RunContext
from visleak.records import DecodedImage

RNG = np.random.default_rng(7)


def generated():
    """Return noise, few levels, ramps, narrow and tall images."""
    sizes = [(1, 1), (2, 300), (300, 2), (64, 65), (375, 1242), *((9, 8 + n) for n in range(150))]
    noise = [RNG.integers(0, 256, (*size, 3), np.uint8) for size in sizes]
    few = [RNG.integers(0, levels, (50, 40, 3), np.uint8) for levels in (1, 2, 3)]
    return [*noise, *few, np.tile(np.arange(200, dtype=np.uint8)[None, :, None], (70, 1, 3))]


def encoded(image, kind="PNG", **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def test_every_picture_has_the_bits_of_imagehash():
    pictures = generated()
    with RunContext.at(None, 1, None) as place:
        found = hash_all(open_images(pictures, name="made"), place)
    known = [imagehash.phash(Image.fromarray(pixels)) for pixels in pictures]
    assert found.words.tolist() == [int(str(each), 16) for each in known]


@pytest.mark.parametrize("mode", ["L", "LA", "P", "1", "RGBA", "CMYK", "I;16", "RGB"])
def test_grey_is_the_grey_of_what_decode_returns(mode):
    turned = Image.Exif()
    turned[0x0112] = 6
    colours = Image.fromarray(RNG.integers(0, 256, (20, 30, 3), np.uint8))
    if mode == "I;16":
        image = Image.fromarray(RNG.integers(0, 1 << 16, (20, 30), np.uint16))
    else:
        image = colours.convert(mode)
    if mode in ("LA", "RGBA"):
        image.putalpha(Image.fromarray(RNG.integers(0, 256, (20, 30), np.uint8)))
    kinds = {"CMYK": ["JPEG", "TIFF"], "RGB": ["PNG", "JPEG", "WEBP"], "L": ["PNG", "JPEG"]}
    for kind in kinds.get(mode, ["PNG"]):
        options = {"transparency": 3} if (mode, kind) == ("L", "PNG") else {"exif": turned}
        data = encoded(image, kind, **options)
        shown = decode(data)
        assert isinstance(shown, DecodedImage)
        wanted = Image.fromarray(shown.pixels).convert("L")
        assert grey(data).tobytes() == wanted.tobytes()


WORDS = st.integers(0, 2**64 - 1)
#: Hashes of which many are equal or nearly so.
CLOSE = st.integers(0, 15)


def by_hand(test, train):
    return [[(x ^ y).bit_count() for y in train] for x in test]


def words(values):
    return np.array(values, np.uint64)


SETS = st.lists(WORDS | CLOSE, max_size=12)


@given(SETS, SETS, st.integers(0, 150), st.integers(1, 40), st.sampled_from([1, 3, 7, 50]))
def test_distances_and_alike_pairs_are_those_counted_by_hand(test, train, count, looked_at, block):
    lines = by_hand(test, train)
    every = [each for line in lines for each in line]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashes, "BLOCK", (block, 5))
        patch.setattr(hashes, "SEARCHED", looked_at)
        found = distances(words(test), words(train))
        rows, columns, apart = nearest_pairs(words(test), words(train), found, count)
    ordered = sorted(
        (distance, row, column)
        for row, line in enumerate(lines)
        for column, distance in enumerate(line)
    )
    made = list(zip(apart.tolist(), rows.tolist(), columns.tolist(), strict=True))
    assert made == ordered[:count]
    assert found.histogram.tolist() == [every.count(d) for d in range(65)]
    assert found.nearest.tolist() == [min(line, default=65) for line in lines]


def test_many_equal_pairs_cost_no_more_memory():
    equal = np.zeros(30_000, np.uint64)
    found = hashes.Distances(np.bincount([0], minlength=65) * len(equal) ** 2, equal.astype("u1"))
    tracemalloc.start()
    rows, columns, apart = nearest_pairs(equal, equal, found, 70_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 150_000_000  # a byte a pair would be 900 MB
    assert not apart.any()
    np.testing.assert_array_equal(rows * 30_000 + columns, np.arange(70_000))


def picture(seed):
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:60, 0:80] / 10
    waves = sum(np.sin(x * a + y * b + c) for a, b, c in rng.uniform(-3, 3, (4, 3)))
    return Image.fromarray(np.uint8(128 + 25 * waves))


@pytest.fixture(scope="module")
def split():
    """Return a split with equal content, compressed copies and an image that cannot be read."""
    own, others = ([encoded(picture(seed)) for seed in range(*ends)] for ends in ((40,), (99, 114)))
    copies = [encoded(picture(seed), "JPEG", quality=30) for seed in range(30, 36)]
    test = [own[3], *copies, b"words", *others, own[3], own[39]]
    return Split(open_images(own, name="train"), open_images(test, name="test"))


def every_pair(split):
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


def test_evidence_is_what_imagehash_says_of_all_pairs(split):
    """Ids are text: "10" comes before "9"."""
    found = hash_evidence(split, kept=50, workers=1)
    pairs = every_pair(split)
    assert (found.train, found.test, found.unreadable) == (40, 24, 1)
    assert found.histogram == tuple(Counter(d for d, _, _ in pairs)[d] for d in range(65))
    nearest = Counter({name: distance for distance, name, _ in reversed(pairs)}.values())
    assert found.nearest == tuple(nearest[d] for d in range(65))
    assert found.most_similar == tuple(HashPair(test, train, d) for d, test, train in pairs[:50])
    assert [(problem.id, problem.reason) for problem in found.problems] == [("7", "not-an-image")]
    assert set(found.seconds) == {"hashing", "comparing"}


def test_nothing_readable_is_no_evidence_and_no_failure(split):
    nothing = open_images([b"words", b""], name="train")
    found = hash_evidence(Split(nothing, split.test), workers=1)
    assert (found.train, found.test, found.unreadable) == (0, 24, 3)
    assert not any((*found.histogram, *found.nearest, *found.most_similar))
    assert hash_evidence(Split(split.train, nothing), workers=1).test == 0


def test_what_is_refused(split):
    with pytest.raises(UsageError, match="kept must be 0 or more pairs; got -1"):
        hash_evidence(split, kept=-1)
    stored = Split(replace(split.train, has_pixels=False), split.test)
    with pytest.raises(VisleakError, match=r"^set 'train' holds vectors without images; "):
        hash_evidence(stored, workers=1)
    assert hash_evidence(split, kept=0, workers=1).most_similar == ()


def test_the_sheet_shows_each_test_image_once(split):
    found = hash_evidence(split, workers=1)
    gone = open_images([b"gone"] * len(split.test), name="test").opener
    lost = Split(split.train, replace(split.test, opener=gone))
    many = replace(found, most_similar=tuple(HashPair("0", str(row), 0) for row in range(40)))
    given = (split, found), (lost, found), (split, many)
    sheets = [Image.open(io.BytesIO(pair_sheet(*each))) for each in given]
    assert [sheet.format for sheet in sheets] == ["PNG"] * 3
    assert sheets[2].height < sheets[0].height == sheets[1].height
    assert pair_sheet(split, replace(found, most_similar=())) == b""
