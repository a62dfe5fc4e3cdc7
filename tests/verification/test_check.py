"""The check of two images: the measures of planted changes, and exact images."""

import itertools
from dataclasses import asdict, astuple
from types import ModuleType

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.ndimage import uniform_filter

from image_changes import in_colour, jpeg, noisy
from invoices import invoice
from visleak.records import VIEWS
from visleak.verification import check as module
from visleak.verification import networks, screen
from visleak.verification.align import view_matrix
from visleak.verification.check import bounded, check, digest
from visleak.verification.exact import differ_by_noise, is_exact
from visleak.verification.fine_comparison import add_fine_comparison
from visleak.verification.frame import Photo

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


@pytest.mark.parametrize("name", NAMES)
def test_equal_images(images, name):
    measures, matrix = changed(images[name], to=images[name])
    assert measures.exact == measures.identical == 1
    assert (measures.grey, measures.gradient) == pytest.approx((1, 1), abs=1e-4)
    assert (measures.covered, measures.used) == (1, 1)
    assert (measures.gain, measures.offset) == pytest.approx((1, 0), abs=0.2)
    np.testing.assert_array_equal(matrix, np.eye(3))


@pytest.mark.parametrize("name", NAMES)
def test_an_image_saved_again_is_exact(natural, name):
    measures, matrix = changed(bounded(natural[name]), to=bounded(jpeg(natural[name], 90)))
    assert (measures.exact, measures.identical) == (1, 0)
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


def test_tint_is_the_largest_difference_of_a_channel(images):
    query = np.clip(images["astronaut"], 0, 200)
    tinted = query + np.array([0, 0, 40], np.uint8)
    assert 20 < changed(query, to=tinted)[0].tint < 50
    assert changed(query, to=query)[0].tint < 1


def test_patch_is_the_largest_difference_of_a_tile(natural):
    query = bounded(natural["chelsea"])
    pasted = query.copy()
    pasted[40:90, 60:110] = 255 - pasted[40:90, 60:110]
    measures, _ = changed(query, to=pasted)
    assert measures.exact == 0
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


def is_exact_by_definition(query, reference):
    """Decide tile by tile, in double precision."""
    height, width = query.shape[:2]
    difference = np.abs(query.astype(float) - reference)
    if (difference.max(axis=2) <= 16).mean() < 0.95 or difference.mean() > 3:
        return False
    side = max(3, 2 * round(0.1 * max(height, width) / 2) + 1)
    contrasts = []
    for image in (query.astype(float), reference.astype(float)):
        channels = [uniform_filter(image[..., c], side, mode="mirror") for c in range(3)]
        contrasts.append(((image - np.stack(channels, axis=2)) ** 2).mean(axis=2))
    counts = [max(1, min(16, length // 4), length // 16) for length in (height, width)]
    edges = [
        np.linspace(0, length, count + 1).astype(int)
        for length, count in zip((height, width), counts, strict=True)
    ]
    parts = [np.s_[a:b, c:d] for a, b in zip(edges[0], edges[0][1:], strict=False)
             for c, d in zip(edges[1], edges[1][1:], strict=False)]  # fmt: skip
    whole = min(np.mean([contrast[part].mean() for part in parts]) for contrast in contrasts)
    for part in parts:
        lesser = min(contrast[part].mean() for contrast in contrasts)
        if (difference[part] ** 2).mean() > 0.8**2 + 0.4**2 * lesser + 0.15**2 * whole:
            return False
    return True


@given(
    st.integers(0, 10**6),
    st.integers(2, 90),
    st.integers(2, 90),
    st.sampled_from([0, 1, 2, 3, 4]),
    st.sampled_from([1, 8, 75]),
    st.lists(
        st.tuples(st.integers(0, 80), st.integers(0, 80), st.integers(1, 9), st.integers(1, 40))
    ),
)
def test_exact_equals_an_independent_implementation(seed, height, width, grain, contrast, spots):
    rng = np.random.default_rng(seed)
    query = rng.integers(125 - contrast, 126 + contrast, (height, width, 3), np.uint8)
    difference = rng.integers(-grain, grain + 1, query.shape)
    for y, x, side, levels in spots:
        difference[y : y + side, x : x + side] = levels
    reference = np.clip(query + difference, 0, 255).astype(np.uint8)
    assert is_exact(query, reference) == is_exact_by_definition(query, reference)


def plate(seed, grain=3.0):
    """Return a surface of low contrast: shading and grain around mid-grey."""
    texture = cv2.GaussianBlur(np.random.default_rng(seed).normal(0, 1, (200, 200)), (0, 0), 1.2)
    return in_colour(110 + np.linspace(-6, 6, 200) + grain * texture / texture.std())


def disc(size, x, y, radius):
    """Return the mask of a disc."""
    rows, columns = np.mgrid[:size, :size]
    return (columns - x) ** 2 + (rows - y) ** 2 <= radius**2


@pytest.mark.parametrize("grain", [1.5, 3.0, 6.0])
def test_two_plates_of_low_contrast_are_not_exact(grain):
    one, other = plate(1, grain), plate(2, grain)
    assert np.abs(one.astype(int) - other).mean() < 10
    assert not is_exact(one, other)
    assert not differ_by_noise(one, other)
    assert not differ_by_noise(noisy(one, 1, 3.0), noisy(other, 2, 3.0))


def test_a_hole_in_a_plate_is_not_exact():
    holed = plate(1)
    holed[disc(200, 90, 120, 6)] -= 14
    assert not is_exact(plate(1), holed)


def test_a_page_with_another_digit_is_not_exact_at_full_size():
    page, other = invoice(line_8="Total 763.95 EUR"), invoice(line_8="Total 763.96 EUR")
    assert is_exact(jpeg(page, 92), page)
    assert not is_exact(other, page)
    # reduction removes the difference
    measures, _ = check(bounded(other), bounded(page), 0, (0.0, 0.0), same_size=True)
    fine, _ = add_fine_comparison(measures, Photo.of(other), Photo.of(page), np.eye(3))
    assert fine.exact == 0


@pytest.mark.parametrize("sigma", [1.0, 2.0, 4.0])
def test_two_frames_of_one_scene_differ_by_noise(natural, sigma):
    for name in ("astronaut", "coffee", "chelsea"):
        # without extremes, at which noise is clipped on one side
        scene = bounded(natural[name]) // 2 + 64
        assert differ_by_noise(noisy(scene, 1, sigma), noisy(scene, 2, sigma))


def test_blank_images_may_differ_by_more_than_noise():
    """Their little content may be the noise."""
    blank = np.full((100, 100, 3), 128, np.uint8)
    assert not differ_by_noise(noisy(blank, 1, 3.0), noisy(blank, 2, 3.0))


def darker(pixels):
    return np.clip(pixels.astype(int) - 3, 0, 255).astype(np.uint8)


def shifted(pixels):
    across = np.float32([[1, 0, 2], [0, 1, 0]])
    return cv2.warpAffine(pixels, across, pixels.shape[1::-1], borderMode=cv2.BORDER_REPLICATE)


def warmer(pixels):
    return np.clip(pixels + np.array([4, 0, -4]), 0, 255).astype(np.uint8)


def spotted(pixels):
    changed = pixels.copy()
    changed[disc(len(pixels), 90, 120, 4)[:, : pixels.shape[1]]] += 14
    return changed


@pytest.mark.parametrize("change", [darker, shifted, warmer, spotted])
@pytest.mark.parametrize("sigma", [0.0, 2.0, 4.0])
def test_a_change_is_more_than_noise(natural, change, sigma):
    scene = np.ascontiguousarray(bounded(natural["chelsea"])[:160, :160]) // 2 + 64
    assert not differ_by_noise(noisy(scene, 1, sigma), noisy(change(scene), 2, sigma))


@pytest.mark.parametrize("sigma", [0.0, 2.0, 4.0])
def test_another_digit_is_more_than_noise(sigma):
    page, other = (invoice(line_8=f"Total 763.9{digit} EUR") // 2 + 64 for digit in (5, 6))
    assert not differ_by_noise(noisy(page, 1, sigma), noisy(other, 2, sigma))
    assert differ_by_noise(noisy(page, 1, sigma), noisy(page, 2, sigma))
