"""The full check: what is exact, and what the measures say about planted changes."""

from __future__ import annotations

import io

import cv2
import numpy as np
import pytest
from PIL import Image

from visleak.records import VIEWS
from visleak.verification import (
    agreement,
    align,
    exact,
    features,
    frame,
    large,
    photometry,
    screen,
    tiny,
)
from visleak.verification import check as module
from visleak.verification.align import shift_matrix, view_matrix
from visleak.verification.check import bounded, check, digest
from visleak.verification.measures import CHECKS

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
    """Return images at the two sizes that are compared differently."""
    if request.param == "large":
        return {name: bounded(natural[name]) for name in NAMES}
    size = (32, 32)
    return {n: cv2.resize(natural[n], size, interpolation=cv2.INTER_AREA) for n in NAMES}


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
    assert measures.gradient > large.GOOD


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


OF_CHECK = ("VERSION", "TINY", "SMALL", "BOUND")


@pytest.mark.parametrize(
    "place",
    [module, agreement, align, exact, features, frame, large, photometry, screen, tiny],
    ids=lambda place: place.__name__,
)
def test_the_digest_changes_with_every_constant(monkeypatch, place):
    """Cached evidence is keyed by it: another recipe must not read this one's numbers."""
    before = digest()
    assert len(before) == 16
    names = [name for name in vars(place) if name.isupper() and name[0] != "_"]
    for name in OF_CHECK if place is module else names:
        with monkeypatch.context() as patch:
            patch.setattr(place, name, [getattr(place, name)])
            assert digest() != before, name
