"""Perceptual hashes: the bits of the libraries they come from, similarities exactly 1 - d/n."""

import imagehash
import numpy as np
import pdqhash
import pytest
from PIL import Image
from skimage import data as photographs

from visleak.encoders import load_encoder
from visleak.encoders.hashes import pdq, phash
from visleak.records import DecodedImage


def decoded(pixels):
    return DecodedImage(pixels, pixels.shape[1], pixels.shape[0])


def images():
    rng = np.random.default_rng(0)
    shapes = [(32, 32), (8, 8), (1, 1), (3, 200), (200, 3), (31, 33), (500, 333)]
    noise = [rng.integers(0, 256, (*shape, 3), np.uint8) for shape in shapes]
    ramp = np.tile(np.arange(256, dtype=np.uint8)[:, None], (1, 90, 3))[..., :3].reshape(256, -1, 3)
    shots = [photographs.astronaut(), photographs.cat(), photographs.rocket()]
    return [*noise, np.ascontiguousarray(ramp), *shots, *(shot[::3, ::2].copy() for shot in shots)]


@pytest.mark.parametrize("pixels", images(), ids=lambda pixels: str(pixels.shape))
def test_hashes_are_those_of_their_libraries(pixels):
    """Bit for bit, so that published distances hold."""
    expected = imagehash.phash(Image.fromarray(pixels)).hash.ravel()
    np.testing.assert_array_equal(phash(pixels), expected)
    for shown in (pixels, pixels[:, ::-1]):
        expected, quality = pdqhash.compute(np.ascontiguousarray(shown))
        bits, reliable = pdq(shown)
        np.testing.assert_array_equal(bits, expected.astype(bool))
        assert reliable == (quality >= 50)


@pytest.mark.parametrize("name", ["phash", "pdq"])
def test_similarity_is_one_minus_distance_over_bits(name):
    encoder = load_encoder(name)
    shown = [decoded(pixels) for pixels in images()]
    vectors, _ = encoder.encode(shown)
    bits = vectors[:, : encoder.width // 2] > 0
    for matrix in (vectors, vectors.astype(np.float64)):
        similarity = matrix @ matrix.T
        for row, one in enumerate(bits):
            for column, other in enumerate(bits):
                distance = int((one != other).sum())
                assert similarity[row, column] == 1 - distance / len(one)


def test_pdq_of_low_quality_is_flat():
    ramp = np.linspace(100, 220, 128).astype(np.uint8)
    soft = np.ascontiguousarray(np.broadcast_to(ramp[None, :, None], (128, 128, 3)))
    assert pdqhash.compute(soft)[1] < 50
    flat = [load_encoder(name).encode([decoded(soft)])[1].tolist() for name in ("pdq", "phash")]
    assert flat == [[True], [False]]


def test_thresholds_are_published_ones_or_none():
    encoder = load_encoder("pdq")
    assert encoder.thresholds is not None
    for name in ("hard", "soft"):
        assert 1 - 31 / 256 >= np.float32(encoder.thresholds[name]) > 1 - 32 / 256
    assert "31 of 256" in encoder.thresholds["provenance"]
    assert load_encoder("phash").thresholds is None
