"""The audit folders that the tests of the page read."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from made_audit import Made, Pixels, make_audit


@pytest.fixture(scope="session")
def base(natural: dict[str, Pixels]) -> list[Pixels]:
    """Images whose longer side is 200 pixels."""

    def small(pixels: Pixels) -> Pixels:
        factor = 200 / max(pixels.shape[:2])
        return np.asarray(cv2.resize(pixels, None, None, factor, factor, cv2.INTER_AREA))

    names = ("astronaut", "coffee", "camera", "chelsea", "rocket")
    return [small(natural[name]) for name in names]


@pytest.fixture(scope="session")
def made(base: list[Pixels], tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make_audit(tmp_path_factory.mktemp("audit"), base)


@pytest.fixture
def own(base: list[Pixels], tmp_path: Path) -> Made:
    """An audit that a test may change."""
    return make_audit(tmp_path / "audit", base)
