"""The share of an image that another image shows: tiles of scenes at known positions."""

import cv2
import numpy as np
import pytest

from image_changes import in_colour, jpeg
from visleak.verification.align import shift_matrix
from visleak.verification.overlap import overlap_of
from visleak.verification.regions import area_of, region_of, share_of, union_of


def scene(seed, side=420):
    """Return a textured image: smooth noise of several scales."""
    rng = np.random.default_rng(seed)
    sums = np.zeros((side, side, 3), np.float32)
    for blur, gain in ((1.2, 30), (4, 120), (15, 500)):
        noise = rng.normal(0, 1, (side, side, 3)).astype(np.float32)
        sums += gain * np.asarray(cv2.GaussianBlur(noise, (0, 0), blur))
    return np.clip(sums + 128, 0, 255).astype(np.uint8)


@pytest.mark.parametrize(
    ("offset", "share"), [((160, 0), 0.2), ((0, 100), 0.5), ((60, 60), 0.49), ((0, 0), 1.0)]
)
def test_the_share_is_that_of_the_tiles(offset, share):
    whole, (x, y) = scene(1), offset
    query = whole[y : y + 200, x : x + 200]
    found = overlap_of(query, whole[:200, :200])
    assert share_of(found) == pytest.approx(share, abs=0.01)
    region = region_of(found)
    assert region.min(axis=0) == pytest.approx([0, 0], abs=0.01)
    assert region.max(axis=0) == pytest.approx([1 - x / 200, 1 - y / 200], abs=0.01)


def test_a_changed_tile_overlaps_as_much():
    whole = scene(2)
    bright = np.clip(whole[:200, 120:320] * 0.8 + 30, 0, 255).astype(np.uint8)
    larger = np.asarray(cv2.resize(bright, (260, 260), interpolation=cv2.INTER_CUBIC), np.uint8)
    found = overlap_of(larger[:, ::-1].copy(), whole[:200, :200])
    assert share_of(found) == pytest.approx(0.4, abs=0.01)


def test_other_images_do_not_overlap():
    for seed in range(3, 7):
        assert overlap_of(scene(seed)[:200, :200], scene(seed + 10)[:200, :200]) is None


@pytest.mark.parametrize("kind", ["plain", "stripes", "grid"])
def test_plain_and_periodic_images_do_not_overlap(kind):
    rng = np.random.default_rng(0)
    down, across = np.mgrid[:200, :320]
    planes = {
        "plain": np.zeros((200, 320)),
        "stripes": np.sin(across / 3),
        "grid": np.sin(across / 3) * np.sin(down / 3),
    }
    field = 128 + 50 * planes[kind]
    tiles = [in_colour(field[:, x : x + 200] + rng.normal(0, 3, (200, 200))) for x in (0, 100)]
    assert overlap_of(*tiles) is None


def form(number):
    """Return a scan of a printed form, in which every third line depends on the number."""
    rng = np.random.default_rng(number)
    page = np.full((600, 420), 246, np.uint8)
    for line in range(18):
        words = np.random.default_rng(line if line % 3 else 100 * number + line)
        text = " ".join(str(value) for value in words.integers(100, 99999, 6))
        cv2.putText(page, text, (12, 40 + 30 * line), 0, 0.6, (40,), 1, cv2.LINE_AA)
    move = np.array([[1.0, 0, rng.uniform(-1, 1)], [0, 1, rng.uniform(-1, 1)]])
    moved = cv2.warpAffine(page, move, (420, 600), borderMode=cv2.BORDER_REPLICATE)
    return in_colour(moved + rng.normal(0, 2, moved.shape))


def test_two_prints_of_one_form_do_not_overlap():
    one, other = form(1), form(2)
    assert overlap_of(one[:400], other[:400]) is None
    assert overlap_of(one[:400], other[150:550]) is None
    assert share_of(overlap_of(one[:400], one[150:550])) == pytest.approx(0.625, abs=0.01)


def faint(seed, deviation, blur):
    """Return a grey surface that varies by a few levels."""
    rng = np.random.default_rng(seed)
    noise = np.asarray(cv2.GaussianBlur(rng.normal(0, 1, (200, 260)), (0, 0), blur))
    return in_colour(np.floor(128 + deviation * noise / noise.std()))


@pytest.mark.parametrize("turn", [0, 0.4, np.pi / 4])
@pytest.mark.parametrize("period", [22, 31])
def test_faint_periodic_images_do_not_overlap(period, turn):
    """Noise makes one of the displacements that agree equally the best."""
    down, across = np.mgrid[:200, :300]
    u = across * np.cos(turn) + down * np.sin(turn)
    v = down * np.cos(turn) - across * np.sin(turn)
    board = np.sign(np.sin(2 * np.pi * u / period) * np.sin(2 * np.pi * v / period))
    for seed in range(3):
        rng = np.random.default_rng(seed)
        shots = [128 + 3 * board[:, x : x + 200] + rng.normal(0, 1.5, (200, 200)) for x in (0, 100)]
        assert overlap_of(*(jpeg(in_colour(np.floor(shot)), 75) for shot in shots)) is None


@pytest.mark.parametrize("seed", [1, 3])
@pytest.mark.parametrize(
    ("quality", "deviation", "blur"), [(95, 1, 1), (90, 1.5, 2.5), (75, 1.5, 1.5)]
)
def test_texture_below_the_usual_noise_is_found_if_little_differs(seed, quality, deviation, blur):
    whole, other = faint(seed, deviation, blur), faint(seed + 10, deviation, blur)
    reference = jpeg(whole[:, :148], quality)
    found = overlap_of(jpeg(whole[:, 100:220], quality), reference)
    assert share_of(found) == pytest.approx(0.4, abs=0.01)
    assert overlap_of(jpeg(other[:, 100:220], quality), reference) is None


def test_regions_of_several_references_are_united():
    half, corner = region_of(shift_matrix(0.5, 0)), region_of(shift_matrix(-0.5, -0.5))
    assert area_of(half) == pytest.approx(0.5)
    assert area_of(corner) == pytest.approx(0.25)
    assert union_of([half, corner]) == pytest.approx(0.75, abs=0.005)
    assert union_of([half, half]) == pytest.approx(0.5, abs=0.005)
    assert share_of(shift_matrix(1.5, 0)) == 0
    turned = np.array([[0.0, 1, 0], [-1, 0, 1], [0, 0, 1]])
    assert share_of(turned) == pytest.approx(1)
