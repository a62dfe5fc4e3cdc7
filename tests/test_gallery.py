import base64
import io

import cv2
import numpy as np
import numpy.typing as npt
import pytest
import skimage.data
from PIL import Image

from visleak.errors import VisleakError
from visleak.reporting.contact_sheet import write_card
from visleak.reporting.gallery import (
    BUDGET,
    card,
    data_uri,
    difference,
    enlarge,
    shrink,
    thumb,
)

Pixels = npt.NDArray[np.uint8]
MIRROR = [-1.0, 0, 1, 0, 1, 0, 0, 0, 1]
#: A quarter turn clockwise: (x, y) goes to (1 - y, x).
TURN = [0.0, -1, 1, 1, 0, 0, 0, 0, 1]


@pytest.fixture(scope="module")
def photo():
    return np.asarray(skimage.data.astronaut())


def level(shown: Pixels) -> float:
    """Mean brightness of a difference image; magma grows brighter all the way."""
    return float(shown.astype(float).sum(axis=2).mean())


def striped(shown: Pixels) -> npt.NDArray[np.bool_]:
    """Where the image is grey, which magma only is at its black end."""
    return (shown.min(axis=2) == shown.max(axis=2)) & (shown[..., 0] > 100)


def decoded(data: bytes) -> Pixels:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


@pytest.mark.parametrize(
    ("query", "matrix"),
    [
        (lambda p: p[:, ::-1], MIRROR),
        (lambda p: np.rot90(p, 1), TURN),
        (lambda p: np.rot90(p, -1), [0.0, 1, 0, -1, 0, 1, 0, 0, 1]),
        (lambda p: p[::-1], [1.0, 0, 0, 0, -1, 1, 0, 0, 1]),
    ],
    ids=["mirrored", "turned back", "turned", "upside down"],
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
    outside = striped(shown)
    expected = np.ones((160, 160), dtype=bool)
    expected[40:120, 0:80] = False
    assert (outside == expected).all()
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
    "matrix", [None, [np.nan] * 9, [0.0] * 9, [1, 0, 0, 1, 0, 0, 0, 0, 1], [1e9] * 9]
)
def test_useless_matrix_lays_one_straight_over_the_other(photo, matrix):
    shown = difference(photo, photo, matrix)
    assert (shown == difference(photo, photo)).all()
    assert shown.shape == (160, 160, 3)
    assert shown.max() <= 4  # magma begins at (0, 0, 4)


@pytest.mark.parametrize(
    "matrix",
    [
        [1, 0, 5, 0, 1, 0, 0, 0, 1],  # beside
        [1, 0, 0, 0, 1, 0, 2, -1, 0.1],  # through infinity
        [1e-4, 0, 0.5, 0, 1e-4, 0.5, 0, 0, 1],  # a dot
        [900, 0, -450, 0, 900, -450, 0, 0, 1],  # one pixel of it
    ],
)
def test_odd_matrices_give_a_picture(photo, matrix):
    assert difference(photo, photo, matrix).shape == (160, 160, 3)


@pytest.mark.parametrize("shape", [(1, 1), (1, 300), (3000, 2), (2, 3), (63, 64)])
def test_any_shape_makes_a_card(photo, shape):
    odd = np.full((*shape, 3), 90, np.uint8)
    for pair in ((odd, photo), (photo, odd), (odd, odd)):
        made = card(*pair)
        for part in (made.query, made.reference, made.difference):
            assert 1 <= min(part.width, part.height) <= max(part.width, part.height) <= 160


def test_tiny_pictures_stay_crisp_and_whole(photo):
    tiny = cv2.resize(photo, (32, 24), interpolation=cv2.INTER_AREA)
    made = thumb(tiny)
    assert (made.width, made.height, made.crisp) == (160, 120, True)
    assert (decoded(made.data) == tiny).all()
    assert enlarge(tiny, 160).shape == (120, 160, 3)
    assert (enlarge(tiny, 160)[:5, :5] == tiny[0, 0]).all()


def test_large_pictures_are_bounded_and_light(photo):
    made = thumb(photo[:200])
    assert (made.width, made.height, made.crisp) == (160, 62, False)
    assert decoded(made.data).shape == (62, 160, 3)
    noise = np.random.default_rng(0).integers(0, 256, (400, 400, 3), dtype=np.uint8)
    assert len(thumb(photo).data) <= BUDGET
    assert len(thumb(noise).data) < 3 * BUDGET
    assert shrink(photo, 600) is photo


def test_a_card_costs_little_and_its_uri_holds_the_bytes(photo):
    made = card(cv2.GaussianBlur(photo, (7, 7), 2), photo)
    assert sum(len(t.data) for t in (made.query, made.reference, made.difference)) < 12_000
    head, _, body = made.query.uri.partition(",")
    assert head == f"data:{made.query.mime};base64"
    assert base64.b64decode(body) == made.query.data
    assert data_uri(made.query.data, made.query.mime) == made.query.uri


def test_write_card_makes_one_png(photo, tmp_path):
    path = write_card(
        tmp_path / "new" / "card.png",
        photo[:, ::-1],
        photo,
        MIRROR,
        title="a\u202eb \n" + "long " * 200,
        lines=["near, probability 0.98"],
    )
    with Image.open(path) as made:
        assert made.format == "PNG"
        assert made.width > 4 * 320
        pixels = np.asarray(made.convert("RGB"))
    assert (pixels[:10] == 255).all()
    assert [p.name for p in path.parent.iterdir()] == ["card.png"]
    first = path.read_bytes()
    write_card(path, photo[:60, :20], photo, None)
    assert path.read_bytes() != first
    write_card(path, photo, photo, None)
    with Image.open(path) as made:
        assert made.width < 3 * 320  # no differences, which would be black


def test_write_card_says_what_it_cannot_write(photo, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(VisleakError, match=r"card\.png cannot be written \(.+\); choose another"):
        write_card(tmp_path / "file" / "card.png", photo, photo)
