"""Candidates of tiny images by windows: crops and framed copies among many others."""

import cv2
import numpy as np
import pytest
from PIL import Image

import visleak
from visleak.encoders import load_encoder
from visleak.formats import open_images
from visleak.pipeline import RunContext
from visleak.pipeline.candidates import find_pairs, side, views_for
from visleak.pipeline.comparison import Comparison
from visleak.pipeline.encoded_set import EncodedSet
from visleak.pipeline.fingerprints import fingerprint
from visleak.pipeline.windows import WINDOWED, with_windows
from visleak.search.exact import ExactSearch
from visleak.search.hits import Wanted
from visleak.storage.audit_folder import Thresholds


def reduced(pixels, length=32):
    return cv2.resize(np.ascontiguousarray(pixels), (length, length), interpolation=cv2.INTER_AREA)


@pytest.fixture(scope="module")
def squares(natural):
    """Return images of 100 pixels cut from photographs, no two of which overlap."""
    found = [
        picture[top : top + 100, left : left + 100]
        for picture in natural.values()
        for top in range(0, picture.shape[0] - 99, 100)
        for left in range(0, picture.shape[1] - 99, 100)
    ]
    return [square for square in found if reduced(square).std() > 12]


@pytest.fixture(scope="module")
def tiles(squares):
    return [reduced(square) for square in squares]


def pairs_of(*sets):
    """Return pairs with one fingerprint candidate per query, without and with windows."""
    encoder, engine, sides = load_encoder(), ExactSearch(), []
    with RunContext.at(None, 1, None) as place:
        for name, images in zip("qr", sets, strict=False):
            opened = open_images(list(images), name=name)
            made = EncodedSet(opened, fingerprint(opened, encoder, place))
            sides.append(side(made, encoder, views_for(encoder, "all"), engine, 1))
    sides = sides[0], sides[-1]
    pairs = find_pairs(*sides, encoder, (0,), Wanted(None, best=1), engine)
    found = Comparison.of(*sides, pairs, Thresholds(), "auto")
    return pairs, [with_windows(found, encoder, workers).pairs for workers in (1, 3)]


def share(pairs, count):
    found = set(zip(pairs.query.tolist(), pairs.reference.tolist(), strict=True))
    return np.mean([(row, row) in found for row in range(count)])


def test_crops_become_candidates(tiles):
    rng = np.random.default_rng(0)
    crops = []
    for tile in tiles[:60]:
        y, x = rng.integers(0, 10, 2)
        crops.append(reduced(tile[y : y + 22, x : x + 22]))
    before, (after, again) = pairs_of(crops, tiles)
    assert share(after, len(crops)) > 0.85
    assert share(after, len(crops)) > share(before, len(crops))
    np.testing.assert_array_equal(after.query, again.query)
    np.testing.assert_array_equal(after.reference, again.reference)
    # and so do the originals of crops
    assert share(pairs_of(tiles[:60], crops)[1][0], 60) > 0.85


def test_pairs_keep_their_order_and_number(tiles):
    before, (after, _) = pairs_of(tiles[:40], tiles)
    added = np.bincount(after.query, minlength=40) - np.bincount(before.query, minlength=40)
    assert added.min() >= 0
    assert added.max() <= WINDOWED
    same_query = after.query[1:] == after.query[:-1]
    assert (after.similarity[1:] <= after.similarity[:-1])[same_query].all()


def test_within_a_set_each_pair_is_listed_once(tiles):
    _, (after, _) = pairs_of(tiles[:40])
    ends = zip(after.query.tolist(), after.reference.tolist(), strict=True)
    pairs = {frozenset(pair) for pair in ends}
    assert len(pairs) == len(after.query)
    assert {len(pair) for pair in pairs} == {2}


def test_larger_images_have_no_windows(natural):
    images = [cv2.resize(picture, (160, 130)) for picture in natural.values()]
    before, (after, _) = pairs_of(images, images)
    assert after is before


@pytest.mark.parametrize("length", [64, 96])
def test_crops_of_small_images_are_near(squares, length):
    """Too large for the comparison of tiny images, and too small for local features."""
    rng = np.random.default_rng(1)
    whole = [reduced(square, length) for square in squares]
    cut = round(0.72 * length)
    crops = []
    for picture in whole[:20]:
        y, x = rng.integers(0, length - cut, 2)
        crops.append(picture[y : y + cut, x : x + cut])
    sides = [[Image.fromarray(pixels) for pixels in side] for side in (crops, whole)]
    found = visleak.audit(*sides, settings=visleak.Settings(within=False), workers=1, cache=None)
    near = found.pairs(grade="near").to_pylist()
    assert all(row["query"] == row["reference"] for row in near)
    assert len(near) >= 14
