"""The full check: what is exact, and what the measures say about planted changes."""

from __future__ import annotations

import io
from fractions import Fraction

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from visleak.records import VIEWS
from visleak.verify import align, screen
from visleak.verify import check as module
from visleak.verify.align import shift_matrix, view_matrix
from visleak.verify.check import CHECKS, bounded, check, digest, exactly_alike

STILL = (0.0, 0.0)
NAMES = ("astronaut", "chelsea", "coffee", "rocket", "camera", "coins")


def jpeg(pixels, quality):
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", quality=quality)
    return np.asarray(Image.open(io.BytesIO(out.getvalue())))


def changed(pixels, view=0, shift=STILL, same_size=True, *, to):
    return check(pixels, np.ascontiguousarray(to), view, shift, same_size=same_size)


@pytest.fixture(params=["tiny", "large"], scope="module")
def pictures(request, natural):
    """Return pictures at the two sizes that are compared differently."""
    if request.param == "large":
        return {name: bounded(natural[name]) for name in NAMES}
    size = (32, 32)
    return {n: cv2.resize(natural[n], size, interpolation=cv2.INTER_AREA) for n in NAMES}


# -- exactly alike -------------------------------------------------------------------------------


def slowly_alike(query, reference):
    """Decide as the definition says, in whole numbers and fractions."""
    height, width = query.shape[:2]
    difference = np.abs(query.astype(int) - reference.astype(int))
    near = sum((pixel <= 16).all() for row in difference for pixel in row)
    if Fraction(int(near), height * width) < Fraction(95, 100):
        return False
    if Fraction(int(difference.sum()), difference.size) > 3:
        return False
    rows = [range(a * height // 8, (a + 1) * height // 8) for a in range(8)]
    columns = [range(a * width // 8, (a + 1) * width // 8) for a in range(8)]
    tiles = [difference[np.ix_(r, c)] for r in rows for c in columns if r and c]
    return all(Fraction(int(tile.sum()), tile.size) <= 24 for tile in tiles)


def with_differences(shape, spots):
    """Return a grey picture and a copy that differs by given levels in given slices."""
    query = np.full((*shape, 3), 100, np.uint8)
    reference = query.copy()
    for place, levels in spots:
        reference[place] = 100 + levels
    return query, reference


WHOLE = np.s_[:, :]

BOUNDARIES = {
    "same": ((40, 40), [], True),
    "mean 3": ((40, 40), [(WHOLE, 3)], True),
    "mean above 3": ((40, 40), [(WHOLE, 3), (np.s_[0, 0, 0], 4)], False),
    "mean above 3 everywhere": ((40, 40), [(WHOLE, 4)], False),
    "share 95": ((40, 40), [(np.s_[::20, :], 17)], True),
    "share below 95": ((40, 40), [(np.s_[::20, :], 17), (np.s_[1, 1], 17)], False),
    "one channel counts": ((40, 40), [(np.s_[::20, :, 1], 17), (np.s_[1, 1, 2], 17)], False),
    "16 levels are within": ((40, 40), [(np.s_[::10, :], 16)], True),
    "tile of 24": ((40, 40), [(np.s_[5:10, 10:15], 24)], True),
    "tile above 24": ((40, 40), [(np.s_[5:10, 10:15], 24), (np.s_[6, 11, 0], 25)], False),
    "25 across two tiles": ((40, 40), [(np.s_[3:8, 10:15], 30)], True),
    "tiles of uneven size": ((41, 43), [(np.s_[5:10, 5:10], 24)], True),
    "one row": ((1, 100), [(np.s_[:, :5], 17)], True),
    "one pixel": ((1, 1), [(WHOLE, 3)], True),
    "one pixel off": ((1, 1), [(WHOLE, 17)], False),
}


@pytest.mark.parametrize("name", BOUNDARIES)
def test_boundaries_of_exact(name):
    """95 % within 16 levels, mean 3, tile 24: each reached and just missed."""
    shape, spots, expected = BOUNDARIES[name]
    query, reference = with_differences(shape, spots)
    assert slowly_alike(query, reference) == expected
    assert exactly_alike(query, reference) == expected
    assert exactly_alike(reference, query) == expected


@given(
    st.integers(0, 10**6),
    st.integers(1, 41),
    st.integers(1, 41),
    st.sampled_from([0, 1, 2, 3, 4]),
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(1, 9), st.integers(14, 40))
    ),
)
def test_exact_equals_an_independent_implementation(seed, height, width, grain, spots):
    """Random grain and squares of larger differences, in pictures of any shape."""
    rng = np.random.default_rng(seed)
    query = rng.integers(50, 200, (height, width, 3), np.uint8)
    difference = rng.integers(-grain, grain + 1, query.shape)
    for y, x, side, levels in spots:
        difference[y : y + side, x : x + side] = levels
    reference = (query + difference).astype(np.uint8)
    assert exactly_alike(query, reference) == slowly_alike(query, reference)


def test_pictures_of_different_size_are_not_exact():
    """Whatever they show."""
    assert not exactly_alike(np.zeros((8, 9, 3), np.uint8), np.zeros((9, 8, 3), np.uint8))


def test_a_small_pasted_object_is_not_exact(natural):
    """2 % of the picture, but all of a tile: the dog that was added."""
    query = bounded(natural["astronaut"])
    reference = query.copy()
    reference[100:132, 64:96] = 255 - reference[100:132, 64:96]
    assert not exactly_alike(query, reference)


# -- the check -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_equal_pictures(pictures, name):
    """Everything agrees, nothing moved."""
    measures, matrix = changed(pictures[name], to=pictures[name])
    assert measures.exact == 1
    assert measures.grey == pytest.approx(1, abs=1e-4)
    assert measures.gradient == pytest.approx(1, abs=1e-4)
    assert (measures.covered, measures.used) == (1, 1)
    assert (measures.gain, measures.offset) == pytest.approx((1, 0), abs=0.2)
    np.testing.assert_array_equal(matrix, np.eye(3))


@pytest.mark.parametrize("name", NAMES)
def test_a_resave_is_exact(natural, name):
    """JPEG at quality 90, as files are saved: before they are bounded."""
    query, reference = bounded(natural[name]), bounded(jpeg(natural[name], 90))
    measures, matrix = changed(query, to=reference)
    assert measures.exact == 1
    np.testing.assert_array_equal(matrix, np.eye(3))


def test_a_resave_of_a_nearly_symmetric_picture_is_exact(natural):
    """Noise decides in which view it is most alike; the pixels are the same nevertheless."""
    half = bounded(natural["astronaut"])[:, :100]
    query = np.concatenate([half, half[:, ::-1]], axis=1)
    measures, matrix = changed(query, VIEWS.index("mirror"), to=jpeg(query, 95))
    assert measures.exact == 1
    np.testing.assert_array_equal(matrix, np.eye(3))


def test_a_resave_of_another_size_is_not_exact(natural):
    """Exact asks for equal size; near is for the rest."""
    query = bounded(natural["coffee"])
    assert changed(query, same_size=False, to=query)[0].exact == 0
    assert changed(query, to=query[:-1])[0].exact == 0


def test_different_pictures(pictures):
    """Never exact, little agreement."""
    for first in NAMES:
        for second in NAMES:
            if first != second:
                measures, _ = changed(pictures[first], to=pictures[second])
                assert measures.exact == 0
                assert measures.gradient < 0.6


@pytest.mark.parametrize("name", NAMES)
def test_light_is_fitted(pictures, name):
    """Gain and offset are found, the residual is small, and it is not exact."""
    query = pictures[name]
    bright = np.clip(query * 0.7 + 50, 0, 255).astype(np.uint8)
    measures, _ = changed(query, to=bright)
    assert (measures.gain, measures.offset) == pytest.approx((0.7, 50), rel=0.05, abs=2)
    assert measures.residual < 4
    assert measures.gradient > 0.95
    assert measures.exact == 0


@pytest.mark.parametrize("view", range(9), ids=VIEWS)
def test_views_are_followed(pictures, view):
    """The matrix is the view's, the agreement full."""
    query = pictures["astronaut"]
    planes = [screen.seen(query[..., c], view) for c in range(3)]
    measures, matrix = changed(query, view, to=np.stack(planes, axis=-1))
    assert measures.gradient > 0.98
    np.testing.assert_allclose(matrix, view_matrix(view), atol=0.01)
    assert measures.exact == (view == 0)


@pytest.mark.parametrize("name", ["astronaut", "chelsea", "coffee", "rocket", "coins"])
def test_a_shifted_crop_is_aligned(natural, name):
    """The overlap is compared and its shares are told."""
    whole = cv2.resize(natural[name], (280, 280), interpolation=cv2.INTER_AREA)
    query, reference = whole[:240, :240], whole[24:264, 24:264]
    measures, matrix = changed(query, shift=(-0.1, -0.1), to=reference)
    np.testing.assert_allclose(matrix, shift_matrix(-0.1, -0.1), atol=0.01)
    assert measures.gradient > 0.9
    assert measures.covered == pytest.approx(0.81, abs=0.03)
    assert measures.used == pytest.approx(0.81, abs=0.03)


def test_features_help_where_correlation_cannot(natural):
    """A quarter of the way round and cut: found, and said how."""
    query = bounded(natural["coffee"])
    height, width = query.shape[:2]
    turn = cv2.getRotationMatrix2D((width / 2, height / 2), 40, 1)
    measures, _ = changed(query, to=cv2.warpAffine(query, turn, (width, height)))
    assert measures.features == 1
    assert measures.gradient > module.GOOD


def test_a_tint_is_measured(pictures):
    """The largest difference of a channel's mean after the grey fit."""
    query = np.clip(pictures["astronaut"], 0, 200)
    tinted = query.copy()
    tinted[..., 2] += 40
    measures, _ = changed(query, to=tinted)
    assert 20 < measures.tint < 50
    assert changed(query, to=query)[0].tint < 1


def test_a_patch_is_measured(natural):
    """A pasted square shows in the worst tile while the rest agrees."""
    query = bounded(natural["chelsea"])
    pasted = query.copy()
    pasted[40:90, 60:110] = 255 - pasted[40:90, 60:110]
    measures, _ = changed(query, to=pasted)
    assert measures.patch > 40
    assert measures.within > 0.85


@pytest.mark.parametrize(
    ("first", "second"),
    [((1, 1), (1, 1)), ((1, 300), (300, 1)), ((2, 2), (256, 256)), ((48, 48), (49, 49))],
)
def test_odd_shapes_are_measured(first, second):
    """Every measure is a number, whatever the shapes."""
    rng = np.random.default_rng(3)
    one, other = (rng.integers(0, 256, (*shape, 3), np.uint8) for shape in (first, second))
    measures, matrix = changed(one, same_size=first == second, to=other)
    assert np.isfinite([getattr(measures, name) for name in CHECKS]).all()
    assert np.isfinite(matrix).all()


@pytest.mark.parametrize("level", [0, 255])
def test_blank_pictures_are_measured(natural, level):
    """No variance on one side or both: numbers, no warning, no agreement by chance."""
    query = bounded(natural["camera"])
    blank = np.full_like(query, level)
    for one, other in ((query, blank), (blank, query)):
        measures, _ = changed(one, to=other)
        assert np.isfinite([getattr(measures, name) for name in CHECKS]).all()
        assert abs(measures.gradient) < 0.2
        assert measures.exact == 0
    assert changed(blank, to=blank)[0].exact == 1


def test_checks_are_repeatable(natural):
    """The same pair, the same numbers, whatever was checked between."""
    query, reference = bounded(natural["coffee"]), jpeg(bounded(natural["coffee"])[20:, 30:], 50)
    first = changed(query, same_size=False, to=reference)
    changed(bounded(natural["rocket"]), to=bounded(natural["coins"]))
    again = changed(query, same_size=False, to=reference)
    assert first[0] == again[0]
    np.testing.assert_array_equal(first[1], again[1])


# -- bounding and the digest ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((256, 100), (256, 100)),
        ((512, 512), (256, 256)),
        ((1, 9000), (1, 256)),
        ((600, 400), (256, 171)),
    ],
)
def test_pictures_are_bounded(shape, expected):
    """The long side is at most 256, the ratio kept, no side lost."""
    assert bounded(np.zeros((*shape, 3), np.uint8)).shape == (*expected, 3)


COUNTED = [
    *((module, name) for name in ("VERSION", "TINY", "TINY_SIDE", "LARGE_SIDE", "BOUND", "GOOD")),
    *((module, f"EXACT_{name}") for name in ("LEVELS", "SHARE", "MEAN", "TILE")),
    *((align, name) for name in ("STEPS", "CHANGE", "SCALES", "STRETCH", "SHIFT")),
    *((align, name) for name in ("FEATURE_SIDE", "FEATURES", "RATIO", "INLIERS", "RANSAC_PIXELS")),
    *((screen, name) for name in ("SIDE", "REACH", "DAMPING")),
    (module, "TILES"),
]


@pytest.mark.parametrize(("place", "name"), COUNTED)
def test_the_digest_changes_with_every_constant(monkeypatch, place, name):
    """Cached evidence is keyed by it: another recipe must not read this one's numbers."""
    before = digest()
    monkeypatch.setattr(place, name, getattr(place, name) * 2)
    assert digest() != before


def test_the_digest_is_stable():
    """Sixteen bytes, the same each time."""
    assert digest() == digest()
    assert len(digest()) == 16
