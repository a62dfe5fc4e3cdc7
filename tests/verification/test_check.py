"""The full check: exact images, and the measures of planted changes."""

from __future__ import annotations

import itertools
from dataclasses import asdict, astuple
from types import ModuleType

import cv2
import numpy as np
import pytest

from image_changes import jpeg
from visleak.records import VIEWS
from visleak.verification import check as module
from visleak.verification import networks, screen
from visleak.verification.align import shift_matrix, view_matrix
from visleak.verification.check import bounded, check, digest

STILL = (0.0, 0.0)
NAMES = ("astronaut", "chelsea", "coffee", "rocket", "camera", "coins")


def changed(pixels, view=0, shift=STILL, same_size=True, *, to):
    return check(pixels, np.ascontiguousarray(to), view, shift, same_size=same_size)


@pytest.fixture(params=["tiny", "large"], scope="module")
def images(request, natural):
    """Return images at the two sizes that are compared differently."""
    if request.param == "large":
        return {name: bounded(natural[name]) for name in NAMES}
    return {n: cv2.resize(natural[n], (32, 32), interpolation=cv2.INTER_AREA) for n in NAMES}


# -- the check -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_equal_images(images, name):
    measures, matrix = changed(images[name], to=images[name])
    assert measures.exact == 1
    assert (measures.grey, measures.gradient) == pytest.approx((1, 1), abs=1e-4)
    assert (measures.covered, measures.used) == (1, 1)
    assert (measures.gain, measures.offset) == pytest.approx((1, 0), abs=0.2)
    np.testing.assert_array_equal(matrix, np.eye(3))


@pytest.mark.parametrize("name", NAMES)
def test_an_image_saved_again_is_exact(natural, name):
    measures, matrix = changed(bounded(natural[name]), to=bounded(jpeg(natural[name], 90)))
    assert measures.exact == 1
    np.testing.assert_array_equal(matrix, np.eye(3))


def test_exact_images_are_compared_in_no_other_view(natural):
    """A nearly symmetric image may be most similar in its mirror view, by noise."""
    half = bounded(natural["astronaut"])[:, :100]
    query = np.concatenate([half, half[:, ::-1]], axis=1)
    measures, matrix = changed(query, VIEWS.index("mirror"), to=jpeg(query, 95))
    assert measures.exact == 1
    np.testing.assert_array_equal(matrix, np.eye(3))


def test_images_of_other_sizes_are_not_exact(natural):
    query = bounded(natural["coffee"])
    assert changed(query, same_size=False, to=query)[0].exact == 0
    assert changed(query, to=query[:-1])[0].exact == 0


def test_different_images_agree_little(images):
    for first, second in itertools.permutations(NAMES, 2):
        measures, _ = changed(images[first], to=images[second])
        assert measures.exact == 0
        assert measures.gradient < 0.6
        if measures.side > module.TINY:
            assert max(measures.structure, measures.agree) < 0.5
            assert measures.drift > 0.4


@pytest.mark.parametrize("name", NAMES)
def test_brightness_and_contrast_are_fitted(images, name):
    bright = np.clip(images[name] * 0.7 + 50, 0, 255).astype(np.uint8)
    measures, _ = changed(images[name], to=bright)
    assert (measures.gain, measures.offset) == pytest.approx((0.7, 50), rel=0.05, abs=2)
    assert measures.residual < 4
    assert measures.gradient > 0.95
    assert measures.exact == 0


@pytest.mark.parametrize("view", range(9), ids=VIEWS)
def test_images_are_compared_in_their_view(images, view):
    query = images["astronaut"]
    planes = [screen.apply_view(query[..., c], view) for c in range(3)]
    measures, matrix = changed(query, view, to=np.stack(planes, axis=-1))
    assert measures.gradient > 0.98
    np.testing.assert_allclose(matrix, view_matrix(view), atol=0.01)
    assert measures.exact == (view == 0)


@pytest.mark.parametrize("name", ["astronaut", "chelsea", "coffee", "rocket", "coins"])
def test_a_shifted_crop_is_aligned(natural, name):
    whole = cv2.resize(natural[name], (280, 280), interpolation=cv2.INTER_AREA)
    measures, matrix = changed(whole[:240, :240], shift=(-0.1, -0.1), to=whole[24:264, 24:264])
    np.testing.assert_allclose(matrix, shift_matrix(-0.1, -0.1), atol=0.01)
    assert measures.gradient > 0.9
    assert (measures.covered, measures.used) == pytest.approx((0.81, 0.81), abs=0.03)


def test_tint_is_the_largest_difference_of_a_channel(images):
    query = np.clip(images["astronaut"], 0, 200)
    tinted = query.copy()
    tinted[..., 2] += 40
    assert 20 < changed(query, to=tinted)[0].tint < 50
    assert changed(query, to=query)[0].tint < 1


def test_patch_is_the_largest_difference_of_a_tile(natural):
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
def test_images_of_any_shape_have_finite_measures(first, second):
    rng = np.random.default_rng(3)
    one, other = (rng.integers(0, 256, (*shape, 3), np.uint8) for shape in (first, second))
    measures, matrix = changed(one, same_size=first == second, to=other)
    assert np.isfinite(astuple(measures)).all()
    assert np.isfinite(matrix).all()


@pytest.mark.parametrize("level", [0, 255])
def test_blank_images_agree_only_with_blank_images(images, level):
    query = images["camera"]
    blank = np.full_like(query, level)
    for pair in ((query, blank), (blank, query), (blank, blank // 2 + 40)):
        measures = asdict(changed(pair[0], to=pair[1])[0])
        assert np.isfinite(list(measures.values())).all()
        for name in ("grey", "gradient", "core", "colour", "structure", "agreement", "detail"):
            assert abs(measures[name]) < 0.2, name
        assert measures["exact"] == 0
    assert changed(blank, to=blank)[0].exact == 1


# -- bounds and the digest -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((256, 100), (256, 100)),
        ((512, 512), (256, 256)),
        ((1, 9000), (1, 256)),
        ((600, 400), (256, 171)),
    ],
)
def test_images_are_bounded_in_proportion(shape, expected):
    assert bounded(np.zeros((*shape, 3), np.uint8)).shape == (*expected, 3)


def test_the_digest_changes_with_every_constant(monkeypatch):
    """It keys cached evidence."""
    before = digest()
    assert len(before) == 16
    modules = [part for part in vars(module).values() if isinstance(part, ModuleType)]
    parts = [part for part in modules if part.__name__.startswith("visleak.verification.")]
    assert len(parts) > 20
    constants = [
        (part, name)
        for part in (module, *parts)
        for name in vars(part)
        if name.isupper() and name[0] != "_" and part is not networks
    ]
    for part, name in constants:
        with monkeypatch.context() as patch:
            patch.setattr(part, name, [getattr(part, name)])
            assert digest() != before, (part, name)
