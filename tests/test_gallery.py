"""Pairs as images: differences, thumbnails, cards."""

import io

import cv2
import numpy as np
import pytest
import skimage.data
from PIL import Image

from visleak.reporting.contact_sheet import write_card
from visleak.reporting.gallery import BUDGET, card, difference, thumb

MIRROR = [-1.0, 0, 1, 0, 1, 0, 0, 0, 1]
#: A quarter turn clockwise: (x, y) goes to (1 - y, x).
TURN = [0.0, -1, 1, 1, 0, 0, 0, 0, 1]


@pytest.fixture(scope="module")
def photo():
    return np.asarray(skimage.data.astronaut())


def level(shown):
    """Mean brightness of a difference image; magma grows brighter all the way."""
    return float(shown.astype(float).sum(axis=2).mean())


def striped(shown):
    """Where the image is grey, which magma only is at its black end."""
    return (shown.min(axis=2) == shown.max(axis=2)) & (shown[..., 0] > 100)


@pytest.mark.parametrize(
    ("query", "matrix"),
    [(lambda p: p[:, ::-1], MIRROR), (lambda p: np.rot90(p, 1), TURN)],
    ids=["mirrored", "turned"],
)
def test_matrix_is_query_to_reference_in_unit_coordinates(photo, query, matrix):
    wide = photo[:300]
    changed = np.ascontiguousarray(query(wide))
    right = difference(changed, wide, matrix)
    assert right.shape[1] == 160
    assert not striped(right).any()
    assert level(right) < 8 < 60 < level(difference(changed, wide))


def test_crop_is_laid_where_it_was_cut(photo):
    crop = photo[128:384, 0:256]
    shown = difference(crop, photo, [0.5, 0, 0, 0, 0.5, 0.25, 0, 0, 1])
    expected = np.ones((160, 160), dtype=bool)
    expected[40:120, 0:80] = False
    assert (striped(shown) == expected).all()
    # The two were averaged to the same grid from different windows: edges differ a little.
    assert level(shown[40:120, 0:80]) < 30


def test_brightness_and_contrast_are_fitted(photo):
    changed = np.clip(photo * 0.5 + 60, 0, 255).astype(np.uint8)
    assert level(difference(changed, photo)) < 8
    assert level(difference(changed, photo, fit=False)) > 60
    assert level(difference(255 - photo, photo)) < 8
    # strangers do not fade into each other
    other = cv2.resize(skimage.data.coffee(), (512, 512))
    assert level(difference(other, photo)) > 100


@pytest.mark.parametrize(
    ("matrix", "useless"),
    [
        *((each, True) for each in (None, [np.nan] * 9, [0.0] * 9, [1e9] * 9)),
        ([1, 0, 0, 1, 0, 0, 0, 0, 1], True),
        ([1, 0, 5, 0, 1, 0, 0, 0, 1], False),  # beside
        ([1, 0, 0, 0, 1, 0, 2, -1, 0.1], False),  # through infinity
        ([1e-4, 0, 0.5, 0, 1e-4, 0.5, 0, 0, 1], False),  # a dot
        ([900, 0, -450, 0, 900, -450, 0, 0, 1], False),  # one pixel of it
    ],
)
def test_odd_matrices_give_an_image(photo, matrix, useless):
    """A useless one lays one image straight over the other."""
    shown = difference(photo, photo, matrix)
    assert shown.shape == (160, 160, 3)
    assert not useless or shown.max() <= 4  # magma begins at (0, 0, 4)


@pytest.mark.parametrize("shape", [(1, 1), (1, 300), (3000, 2), (63, 64)])
def test_any_shape_makes_a_card(photo, shape):
    odd = np.full((*shape, 3), 90, np.uint8)
    for pair in ((odd, photo), (photo, odd), (odd, odd)):
        made = card(*pair)
        for part in (made.query, made.reference, made.difference):
            assert 1 <= min(part.width, part.height) <= max(part.width, part.height) <= 160


def test_tiny_images_stay_crisp_and_large_ones_are_light(photo):
    tiny = cv2.resize(photo, (32, 24), interpolation=cv2.INTER_AREA)
    made = thumb(tiny)
    assert (made.width, made.height, made.crisp) == (160, 120, True)
    assert (np.asarray(Image.open(io.BytesIO(made.data)).convert("RGB")) == tiny).all()
    made = thumb(photo[:200])
    assert (made.width, made.height, made.crisp) == (160, 62, False)
    noise = np.random.default_rng(0).integers(0, 256, (400, 400, 3), dtype=np.uint8)
    assert len(thumb(photo).data) <= BUDGET
    assert len(thumb(noise).data) < 3 * BUDGET


def test_write_card_makes_one_png(photo, tmp_path):
    path, title = tmp_path / "new" / "card.png", "a\u202eb \n" + "long " * 200
    write_card(path, photo[:, ::-1], photo, MIRROR, title=title, lines=["near, probability 0.98"])
    with Image.open(path) as made:
        assert (made.format, made.width > 4 * 320) == ("PNG", True)
        assert (np.asarray(made.convert("RGB"))[:10] == 255).all()
    assert [p.name for p in path.parent.iterdir()] == ["card.png"]
    write_card(path, photo, photo, None)
    with Image.open(path) as made:
        assert made.width < 3 * 320  # no differences, which would be black
