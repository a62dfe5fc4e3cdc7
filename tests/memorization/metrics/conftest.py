"""Small images for the tests of metrics."""

import numpy as np
import pytest


@pytest.fixture(scope="session")
def small_pictures():
    """Return eight images of 16 x 16 pixels, each of another colour and pattern."""
    rng = np.random.default_rng(7)
    flat = rng.integers(0, 256, (8, 1, 1, 3)) * 0.7
    return list((flat + rng.integers(0, 77, (8, 16, 16, 3))).astype(np.uint8))
