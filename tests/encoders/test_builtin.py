"""The built-in fingerprint against an independent implementation, and its exact views."""

import math

import cv2
import numpy as np
import pytest

from visleak.encoders import builtin
from visleak.encoders.builtin import BuiltinEncoder, describe
from visleak.records import VIEWS, DecodedImage

EVERY_VIEW = range(len(VIEWS))
ENCODER = BuiltinEncoder()


def picture(pixels):
    return DecodedImage(pixels.astype(np.uint8), pixels.shape[1], pixels.shape[0])


def encode(*pictures):
    return ENCODER.encode([picture(np.ascontiguousarray(pixels)) for pixels in pictures])


def noise(seed, *shape):
    return np.random.default_rng(seed).integers(0, 256, (*shape, 3), np.uint8)


def squares(natural):
    small = [cv2.resize(p, (32, 32), interpolation=cv2.INTER_AREA) for p in natural.values()]
    stripes = np.zeros((32, 32, 3), np.uint8)
    stripes[:, 2::4] = stripes[:, 3::4] = 255
    checks = (np.indices((32, 32)).sum(0)[..., None] % 2 * 255).repeat(3, 2).astype(np.uint8)
    ramp = np.repeat(np.arange(0, 256, 8, dtype=np.uint8)[:, None], 32, 1)[..., None].repeat(3, 2)
    grey = np.full((32, 32, 3), 127, np.uint8)
    corner = np.zeros((32, 32, 3), np.uint8)
    corner[:9, :5] = (255, 3, 90)
    return np.stack([*small, *noise(0, 40, 32, 32), stripes, checks, ramp, grey, corner])


def seen(square, view):
    """Return the square in a view: mirrored left-right first, then turned clockwise."""
    name = VIEWS[view]
    if name == "inverted":
        return 255 - square
    if name.startswith("mirror"):
        square = square[:, ::-1]
    turns = int(name.rpartition("turn-")[2]) // 90 if "turn" in name else 0
    for _ in range(turns):
        square = square[::-1].swapaxes(0, 1)
    return square


def slow_vector(square):
    """Describe one square pixel by pixel, in exact integers, after the module's description."""
    grey = [[77 * int(r) + 150 * int(g) + 29 * int(b) for r, g, b in row] for row in square]
    votes, energy = {}, 0
    for y in range(32):
        for x in range(32):
            across = halved(grey[y][min(x + 1, 31)] - grey[y][max(x - 1, 0)])
            down = halved(grey[min(y + 1, 31)][x] - grey[max(y - 1, 0)][x])
            for bin_, vote in soft_bins(across, down):
                energy += vote
                for cy, wy in soft_cells(y):
                    for cx, wx in soft_cells(x):
                        key = (cy * 8 + cx) * 8 + bin_
                        votes[key] = votes.get(key, 0) + vote * wy * wx
    flat = energy / (32 * 32 * 32) < 0.6
    roots = [round(math.sqrt(votes.get(key, 0)) * 16) for key in range(512)]
    centred = [0 if flat else root * 512 - sum(roots) for root in roots]
    sums = square.reshape(4, 8, 4, 8, 3).astype(int).sum(axis=(1, 3)).ravel()
    colour = [2 * int(total) - 255 * 64 for total in sums]
    vector = [*unit(centred), *(0.4 * value for value in unit(colour))]
    return np.array(unit(vector)), flat


def halved(difference):
    return int(math.copysign((abs(difference) + 128) // 256, difference))


def soft_bins(across, down):
    """Return the two nearest of 8 unsigned directions with their rounded votes."""
    magnitude = round(math.hypot(across, down) * 32)
    place = math.degrees(math.atan2(down, across)) % 180 / 22.5
    low = math.floor(place)
    shares = ((low, 1 - (place - low)), (low + 1, place - low))
    return [(bin_ % 8, round(magnitude * share)) for bin_, share in shares if share > 0]


def soft_cells(pixel):
    centre = min(max((pixel + 0.5) / 4 - 0.5, 0), 7)
    low = math.floor(centre)
    shares = ((low, 1 - (centre - low)), (low + 1, centre - low))
    return [(cell, round(8 * share)) for cell, share in shares if share > 0]


def unit(values):
    length = math.sqrt(sum(value * value for value in values))
    return [value / length if length else 0.0 for value in values]


def test_vectors_equal_an_independent_implementation(natural):
    some = squares(natural)[[0, 1, 2, 9, -5, -4, -3, -2, -1]]
    vectors, flat = describe(some)
    for square, vector, blank in zip(some, vectors, flat, strict=True):
        expected, slow_blank = slow_vector(square)
        assert blank == slow_blank
        # votes at half an integer may round either way: a root may differ by one of thousands
        np.testing.assert_allclose(vector, expected, atol=2e-4)


@pytest.mark.parametrize("view", EVERY_VIEW, ids=VIEWS)
def test_views_of_vectors_are_vectors_of_views(natural, view):
    """Bit for bit: a mirrored copy must score exactly what an unmirrored one would."""
    some = squares(natural)
    vectors, flat = describe(some)
    turned, turned_flat = describe(np.stack([seen(square, view) for square in some]))
    np.testing.assert_array_equal(ENCODER.view(vectors, view), turned)
    np.testing.assert_array_equal(flat, turned_flat)


@pytest.mark.parametrize(
    "shape", [(1, 1), (1, 700), (700, 1), (100, 20000), (20000, 100), (31, 33), (32, 32), (2, 5000)]
)
def test_any_shape_is_encoded(shape):
    """Aspect ratio is given up, nothing else; a thin image is averaged, not sampled."""
    vectors, flat = encode(noise(3, *shape))
    assert np.isfinite(vectors).all()
    assert np.linalg.norm(vectors) == pytest.approx(1, abs=1e-6)
    assert flat[0] == (shape == (1, 1))


@pytest.mark.parametrize(
    "constant",
    [
        *("SIDE", "CELLS", "BINS", "COLOURS", "COLOUR_WEIGHT", "VOTE_SCALE", "ROOT_SCALE"),
        *("FLAT_BELOW", "LUMA"),
    ],
)
def test_the_digest_changes_with_every_constant(monkeypatch, constant):
    """Else an upgrade would read another recipe's vectors from the cache."""
    value = getattr(builtin, constant)
    assert BuiltinEncoder().digest == ENCODER.digest
    monkeypatch.setattr(builtin, constant, value[::-1] if constant == "LUMA" else value * 2)
    assert BuiltinEncoder().digest != ENCODER.digest


def test_the_digest_changes_with_the_cohort():
    one = np.eye(2, 560, dtype=np.float32)
    assert len({builtin._digest(None), builtin._digest(one), builtin._digest(one[::-1])}) == 3
