"""The audit folders that the tests of the page read."""

import cv2
import numpy as np
import pytest
from made_audit import make_audit


@pytest.fixture(scope="session")
def base(natural):
    """Images whose longer side is 200 pixels."""

    def small(pixels):
        factor = 200 / max(pixels.shape[:2])
        return np.asarray(cv2.resize(pixels, None, None, factor, factor, cv2.INTER_AREA))

    names = ("astronaut", "coffee", "camera", "chelsea", "rocket")
    return [small(natural[name]) for name in names]


@pytest.fixture(scope="session")
def made(base, tmp_path_factory):
    return make_audit(tmp_path_factory.mktemp("audit"), base)


@pytest.fixture
def own(base, tmp_path):
    """An audit that a test may change."""
    return make_audit(tmp_path / "audit", base)
