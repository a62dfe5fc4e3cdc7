"""The full check of tiny images: planted crops, borders and bars, and all measures."""

import cv2
import numpy as np
import pytest
import scipy.ndimage
from hypothesis import given, settings
from hypothesis import strategies as st

from visleak.records import VIEWS
from visleak.verification import align
from visleak.verification import tiny as tiny_check
from visleak.verification.align import unit_to_pixels, view_matrix
from visleak.verification.image_pair import ImagePair
from visleak.verification.placements import matrix_of, place
from visleak.verification.screen import thumbnail
from visleak.verification.texture import FORMS, TEXTURE, shared_texture
from visleak.verification.tiny import SIDE
from visleak.verification.tiny_overlaps import DIRECTED, NOISE, TILES, TinyOverlaps

MIRROR = VIEWS.index("mirror")
STILL = (0.0, 0.0, 1.0, 1.0)


def tiny(image):
    return cv2.resize(np.ascontiguousarray(image), (SIDE, SIDE), interpolation=cv2.INTER_AREA)


@pytest.fixture(scope="module")
def photographs(natural):
    return [natural[name] for name in ("astronaut", "chelsea", "coffee", "rocket")]


def image_pair(query, reference, view=0, placement=STILL):
    return ImagePair(query, reference, view, placement[:2], same_size=False, enlarged=placement[2:])


def check_tiny(query, reference, view=0, placement=STILL):
    """Return measures and relation of one pair."""
    return tiny_check.check_tiny([image_pair(query, reference, view, placement)])[0]


def screened(query, reference):
    """Return measures and relation of one pair, from the placement of the screen."""
    sides = [thumbnail(np.ascontiguousarray(each))[None] for each in (query, reference)]
    _, placement = place(*sides, np.zeros(1, np.int8))
    return check_tiny(query, reference, placement=tuple(placement[0].tolist()))


@pytest.mark.parametrize("window", [(0.05, 0.1, 0.85, 0.9), (0, 0.15, 1, 0.85), (0.2, 0, 1, 0.75)])
def test_a_crop_is_found(photographs, window):
    left, top, right, bottom = window
    across, down = 1 / (right - left), 1 / (bottom - top)
    expected = np.array([[across, 0, -left * across], [0, down, -top * down], [0, 0, 1]])
    for image in photographs:
        height, width = image.shape[:2]
        rows = slice(round(top * height), round(bottom * height))
        columns = slice(round(left * width), round(right * width))
        part = image[rows, columns]
        measures, matrix = screened(tiny(image), tiny(part))
        corners = np.array([[0.1, 0.9, 0.1], [0.1, 0.1, 0.9], [1, 1, 1.0]])
        assert np.abs(matrix @ corners - expected @ corners).max() < 0.08
        assert measures.gradient > 0.85
        assert np.exp(measures.enlarged) == pytest.approx(np.sqrt(across * down), rel=0.1)


def test_a_bar_of_text_does_not_move_the_relation(photographs):
    for image in photographs:
        query = tiny(image)
        barred = query.copy()
        barred[-5:] = 255
        barred[-4:-1, 2:28:3] = 0
        measures, matrix = screened(barred, query)
        assert np.abs(matrix - np.eye(3)).max() < 0.04
        assert measures.core > 0.95
        assert measures.moved < 0.02


def test_the_freedom_of_a_relation_is_measured(photographs):
    query = tiny(photographs[0])
    reference = cv2.warpAffine(
        np.ascontiguousarray(query[:, ::-1]),
        np.array([[1.25, 0, -0.25 * 15.5], [0, 1, 0]]), (SIDE, SIDE), flags=cv2.INTER_LINEAR,
    )  # fmt: skip
    measures, _ = check_tiny(query, reference, MIRROR, (0.0, 0.0, 1.25, 1.0))
    assert measures.viewed == 1
    assert measures.stretched == pytest.approx(np.log(1.25), abs=0.03)
    assert measures.turned < 2


def cuts(image):
    """Return pairs of images of which one is a part of the other, and their relations."""
    image = tiny(image)
    part = np.ascontiguousarray(image[3:25, 8:30])
    framed = cv2.copyMakeBorder(image, 2, 3, 4, 1, cv2.BORDER_CONSTANT, value=(90, 0, 200))
    inside = matrix_of((19 / 32 - 0.5, 14 / 32 - 0.5, 22 / 32, 22 / 32))
    without = matrix_of((1.5 / 32 * -1, 0.5 / 32, 37 / 32, 37 / 32))
    return (part, image, inside), (image, part, np.linalg.inv(inside)), (framed, image, without)


@pytest.mark.parametrize("mirrored", [False, True])
def test_an_image_within_another_is_located_to_the_pixel(photographs, mirrored):
    """In its view, and if it is not mirrored also in a wrong view."""
    for image in photographs:
        for original, reference, expected in cuts(image):
            query = np.ascontiguousarray(original[:, ::-1]) if mirrored else original
            relation = expected @ view_matrix(MIRROR) if mirrored else expected
            for view in [MIRROR] if mirrored else [0, MIRROR]:
                measures, matrix = check_tiny(query, reference, view)
                np.testing.assert_allclose(matrix, relation, atol=1e-9)
                assert measures.residual < 3
                assert measures.viewed == mirrored
                assert measures.turned == pytest.approx(0, abs=1e-6)


def test_other_images_and_parts_of_them_do_not_agree(photographs):
    for number, image in enumerate(photographs):
        other, (part, _, _) = tiny(photographs[number - 1]), cuts(photographs[number - 1])[0]
        measures, _ = check_tiny(tiny(image), other)
        assert measures.directions < 0.64
        assert measures.agreement < 0.75
        assert measures.texture_mean < 0.4
        measures, _ = check_tiny(part, tiny(image))
        assert measures.residual > 10
        assert measures.texture_mean < 0.4


def test_no_pair_depends_on_the_others(photographs):
    squares = [tiny(image) for image in photographs]
    cropped = [image[2:28, 3:31].copy() for image in squares]
    pairs = [
        image_pair(query, reference, view, placement)
        for query in (*squares, *cropped)
        for reference in squares
        for view, placement in ((0, STILL), (MIRROR, STILL), (0, (0.1, 0.0, 1.0, 1.0)))
    ]
    together = tiny_check.check_tiny(pairs)
    for pair, (measures, matrix) in zip(pairs[::7], together[::7], strict=True):
        alone, relation = tiny_check.check_tiny([pair])[0]
        assert measures == alone
        assert (matrix == relation).all()


def test_a_blank_image_is_not_located(photographs):
    blank = np.full((20, 20, 3), 90, np.uint8)
    assert check_tiny(blank, tiny(photographs[0]))[0].gradient == 0


def square(seed):
    """Return a smooth random RGB square."""
    rng = np.random.default_rng(seed)
    noise = cv2.GaussianBlur(rng.normal(size=(SIDE, SIDE, 3)), (0, 0), 1.2)
    return np.clip(127 + 60 * noise / noise.std(), 0, 255).astype(np.float32)


def overlap(left, right, matrix):
    """Return the overlap of one pair."""
    return TinyOverlaps.of(left[None], right[None], matrix[None])


def measured(left, right, matrix):
    return overlap(left, right, matrix).measures()[0]


def moved(across, down, scale=1.0):
    return np.array([[scale, 0, across], [0, scale, down], [0, 0, 1.0]])


MATRICES = [np.eye(3), moved(0.1, -0.05), moved(-0.2, -0.2, 1.3), align.view_matrix(5)]


def central(values, axis):
    """Return differences of neighbours, edges replicated, by SciPy."""
    kernel = np.array([-1.0, 0, 1])
    return scipy.ndimage.correlate1d(values.astype(np.float64), kernel, axis=axis, mode="nearest")


def gradients(pair):
    """Return the gradients of both images inside the inner mask, (2, s, s, 2)."""
    return [
        np.stack([central(g, 1), central(g, 0)], axis=-1) * pair.inner[0][..., None]
        for g in pair.grey[0]
    ]


@pytest.mark.parametrize("matrix", MATRICES)
def test_gradient_and_agreement_are_correlations(matrix):
    pair = overlap(square(0), square(1), matrix)
    a, b = gradients(pair)

    def correlation(x, y):
        return (x * y).sum() / np.sqrt((x * x).sum() * (y * y).sum())

    def damped(x):
        return x / np.sqrt(np.linalg.norm(x, axis=-1, keepdims=True) + NOISE)

    assert pair.gradient == pytest.approx(correlation(a, b), abs=1e-4)
    both = (correlation(a, b) + correlation(damped(a), damped(b))) / 2
    assert pair.agreement == pytest.approx(both * pair.inner.mean() ** 0.25, abs=1e-4)


@pytest.mark.parametrize("matrix", MATRICES)
def test_directions_are_the_upper_quartile_of_the_tiles(matrix):
    pair = overlap(square(2), square(3), matrix)
    a, b = (x / (np.linalg.norm(x, axis=-1, keepdims=True) + NOISE) for x in gradients(pair))
    step = SIDE // TILES
    agreed = []
    for y in range(0, SIDE, step):
        for x in range(0, SIDE, step):
            p, q = a[y : y + step, x : x + step], b[y : y + step, x : x + step]
            scale = np.sqrt((p * p).sum() * (q * q).sum()) + DIRECTED * step * step
            agreed.append((p * q).sum() / scale)
    assert pair.directions == pytest.approx(np.quantile(agreed, 0.75), abs=1e-4)


def test_a_caption_over_two_tiles_does_not_change_the_core():
    left = square(4)
    right = left.copy()
    right[24:, :16] = 255
    right[26:30, 2:14:2] = 0
    pair = overlap(left, right, np.eye(3))
    assert pair.core > 0.95
    assert pair.gradient < 0.7


@pytest.mark.parametrize("matrix", MATRICES)
def test_detail_correlates_second_derivatives(matrix):
    pair = overlap(square(5), square(6), matrix)
    inside = pair.inner[0] > 0
    a, b = (
        scipy.ndimage.laplace(g.astype(np.float64), mode="mirror")[inside] for g in pair.grey[0]
    )
    expected = (a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum())
    assert pair.detail == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("matrix", MATRICES)
def test_palette_is_the_share_of_variance_explained(matrix):
    pair = overlap(square(7), square(8), matrix)
    inside = pair.mask[0] > 0
    ours = np.column_stack([pair.moved[0][inside], np.ones(inside.sum())])
    theirs = pair.reference[0][inside]
    fit, *_ = np.linalg.lstsq(ours, theirs, rcond=None)
    rest = ((theirs - ours @ fit) ** 2).sum()
    expected = 1 - rest / ((theirs - theirs.mean(axis=0)) ** 2).sum()
    assert pair.measures()[0].palette == pytest.approx(expected, abs=2e-3)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.floats(0.4, 1.6), st.floats(-40, 40), st.permutations(range(3)))
def test_light_and_order_of_channels_do_not_change_agreement(seed, gain, offset, channels):
    left = square(seed) * 0.5 + 60
    right = (left * gain + offset).astype(np.float32)
    same = overlap(left, right, np.eye(3))
    assert same.gradient == pytest.approx(1, abs=1e-3)
    assert same.agreement > 0.97
    assert measured(left, right[..., channels], np.eye(3)).palette > 0.97


def test_overlaps_below_a_sixteenth_are_not_measured():
    assert overlap(square(9), square(9), moved(0.9, 0.9)).firm == -np.inf
    assert overlap(square(9), square(9), moved(0.6, 0.6)).firm > -np.inf


INNER = np.ones((32, 32), np.float32)


def texture(one, other, kind, inner=INNER):
    """Return the texture that one pair shares, in arrays of one value."""
    return shared_texture(np.stack([one, other]).astype(np.float32)[None], inner[None], *kind)


def article(seed):
    """Return a bright shape on black with texture of its own."""
    noise = np.random.default_rng(seed).normal(0, 1, (32, 32))
    inside = 160 + 40 * cv2.GaussianBlur(noise, (0, 0), 0.8)
    shape = np.zeros((32, 32))
    shape[4:28, 9:23] = 1
    return (shape * inside).astype(np.float32)


@pytest.mark.parametrize("kind", [TEXTURE, FORMS])
def test_a_noisy_copy_shares_its_texture_and_an_equal_outline_is_none(kind):
    first = article(1)
    noise = np.random.default_rng(9).normal(0, 3, first.shape).astype(np.float32)
    found = texture(0.8 * first + 10 + noise, first, kind)
    assert min(found.mean, found.typical) > 0.75
    assert found.opposed < 0.05
    found = texture(article(1), article(2), kind)
    assert found.mean < 0.65
    assert found.amount < 2
    assert found.tiles > 4


def test_plain_images_and_images_without_overlap_share_none():
    plain = np.full((32, 32), 90, np.float32)
    assert texture(plain, plain, TEXTURE).tiles == 0
    found = texture(article(1), article(1), TEXTURE, np.zeros_like(INNER))
    assert (found.amount, found.tiles, found.opposed) == (0, 0, 0)


@pytest.fixture(scope="module")
def flag():
    """Three bands with a triangle and a disc."""
    image = np.repeat(np.array([[200, 30, 40], [250, 250, 240], [20, 60, 150]], np.uint8), 8, 0)
    image = np.repeat(image[:, None], 36, axis=1)
    cv2.fillPoly(image, [np.array([[0, 0], [14, 12], [0, 24]])], (0, 90, 60))
    return cv2.circle(image, (24, 12), 3, (230, 180, 30), -1)


@pytest.mark.parametrize("degrees", [-5.3, 5, 11])
@pytest.mark.parametrize("view", [0, MIRROR])
def test_a_turn_about_the_centre_is_found_to_a_fraction_of_a_pixel(flag, degrees, view):
    centre = (flag.shape[1] - 1) / 2, (flag.shape[0] - 1) / 2
    turn = np.vstack([cv2.getRotationMatrix2D(centre, degrees, 1.0), [0, 0, 1]])
    query = cv2.warpAffine(flag, turn[:2], flag.shape[1::-1])
    query = np.ascontiguousarray(query[:, ::-1]) if view == MIRROR else query
    measures, matrix = check_tiny(query, flag, view)
    units = unit_to_pixels(*flag.shape[1::-1])
    expected = np.linalg.inv(units) @ np.linalg.inv(turn) @ units @ view_matrix(view)
    assert np.abs(matrix - expected).max() * flag.shape[1] < 0.5
    assert measures.turned > 4
    assert measures.recoded_typical < 6
