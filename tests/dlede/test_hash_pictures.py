"""The sheet of the most alike pairs."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from visleak.dlede.hash_pictures import PAIRS, SIDE, alike_pictures, distinct
from visleak.dlede.lesson import Split
from visleak.dlede.results import AlikePair, HashEvidence
from visleak.errors import UsageError
from visleak.images import open_images

COLOURS = [(200, 30, 30), (30, 200, 30), (30, 30, 200), (200, 200, 30), (200, 30, 200)]


def evidence(*pairs: AlikePair) -> HashEvidence:
    return HashEvidence(5, 5, 0, (0,) * 65, (0,) * 65, pairs)


def pictures(shapes=((100, 300), (300, 100), (32, 32), (1, 900), (90, 90))) -> list[np.ndarray]:
    pairs = zip(shapes, COLOURS, strict=True)
    return [np.full((*shape, 3), colour, np.uint8) for shape, colour in pairs]


def sheet_of(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def shown(sheet: np.ndarray, colour: tuple[int, int, int]) -> np.ndarray:
    """Return the rows and columns of all pixels of a colour."""
    return np.argwhere((sheet == colour).all(axis=2))


def test_each_picture_lies_where_its_pair_is() -> None:
    """Test left of train; the first pair before the second; tiny pictures enlarged whole."""
    split = Split(open_images(pictures()[:3], name="tr"), open_images(pictures()[3:], name="te"))
    sheet = sheet_of(
        alike_pictures(split, evidence(AlikePair("1", "0", 0), AlikePair("0", "2", 4)))
    )
    places = [shown(sheet, COLOURS[number]) for number in (4, 0, 3, 2)]
    assert all(len(place) for place in places)
    left = [place[:, 1].min() for place in places]
    assert left == sorted(left)
    assert not len(shown(sheet, COLOURS[1]))  # no pair shows training image 1
    assert np.ptp(places[0], axis=0).tolist() == [179, 179]  # 90 pixels, twice
    assert np.ptp(places[1][:, 1]) == SIDE - 1


def test_a_test_image_is_shown_once() -> None:
    """Else one with many alike training images would fill the sheet."""
    pairs = [AlikePair("a", str(n), 0) for n in range(50)] + [AlikePair("b", "3", 2)]
    assert distinct(pairs, 8) == [pairs[0], pairs[50]]
    many = [AlikePair(str(n), "0", n) for n in range(30)]
    assert distinct(many, PAIRS) == many[:8]


def test_names_are_drawn_whatever_they_are() -> None:
    """Lines, markup, signs without a glyph, half a character, and more than fits."""
    names = ["a\nb\x1b[31m", "<b>&$x^{", "\u202egnp.exe", "漢字" * 40, "\ud800" + "x" * 20_000]
    safe = [name.encode("utf-8", "replace").decode() for name in names]
    made = open_images(pictures(), name="te")
    test = replace(made, ids=pa.array(safe))
    pairs = [AlikePair(name, "0", 0) for name in safe]
    split = Split(open_images(pictures(), name="tr"), test)
    sheet = sheet_of(alike_pictures(split, evidence(*pairs)))
    plain = sheet_of(
        alike_pictures(
            Split(split.train, made), evidence(*(AlikePair(str(n), "0", 0) for n in range(5)))
        )
    )
    assert sheet.shape == plain.shape
    for colour in COLOURS:  # no name is drawn over a picture, nor moves one
        np.testing.assert_array_equal(shown(sheet, colour), shown(plain, colour))


def test_what_can_no_longer_be_read_leaves_its_place_empty() -> None:
    """Files may be gone since they were hashed; ids may be, too."""
    test = open_images([b"words", *pictures()[:1]], name="te")
    split = Split(open_images(pictures(), name="tr"), test)
    pairs = [AlikePair("0", "4", 2), AlikePair("gone", "3", 4)]
    sheet = sheet_of(alike_pictures(split, evidence(*pairs)))
    assert len(shown(sheet, COLOURS[4]))
    both = evidence(AlikePair("gone", "gone", 0))
    assert sheet_of(alike_pictures(split, both)).shape[1] > 2 * SIDE


def test_no_pairs_is_said_in_words() -> None:
    """An empty picture would look like a failure."""
    split = Split(open_images(pictures(), name="tr"), open_images(pictures(), name="te"))
    sheet = sheet_of(alike_pictures(split, evidence()))
    assert (sheet < 200).any()


def test_the_same_pairs_give_the_same_bytes() -> None:
    """Files of a result are compared."""
    split = Split(open_images(pictures(), name="tr"), open_images(pictures(), name="te"))
    pair = evidence(AlikePair("0", "0", 0))
    assert alike_pictures(split, pair) == alike_pictures(split, pair)


@pytest.mark.parametrize("count", [0, 9])
def test_a_sheet_holds_one_to_eight(count: int) -> None:
    """In one line."""
    split = Split(open_images(pictures(), name="tr"), open_images(pictures(), name="te"))
    with pytest.raises(UsageError, match=f"^count must be 1 to 8 pairs; got {count}$"):
        alike_pictures(split, evidence(), count)
