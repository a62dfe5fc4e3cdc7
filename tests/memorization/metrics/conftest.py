"""Small images for the tests of metrics."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture(scope="session", autouse=True)
def _one_torch_thread() -> None:
    """Both cores are busy with tests already: threads of torch would only wait for each other."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def small_pictures() -> list[np.ndarray]:
    """Return eight images of 16 x 16 pixels, each of another colour and pattern."""
    rng = np.random.default_rng(7)
    flat = rng.integers(0, 256, (8, 1, 1, 3)) * 0.7
    return list((flat + rng.integers(0, 77, (8, 16, 16, 3))).astype(np.uint8))
