"""Small sets of natural crops, easy to tell apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from train_making import EACH, KINDS, crops


@pytest.fixture(scope="session")
def toy(natural: dict[str, np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of three classes with thirty crops each."""
    root = tmp_path_factory.mktemp("toy") / "toy"
    for seed, kind in enumerate(KINDS):
        (root / kind).mkdir(parents=True)
        for number, pixels in enumerate(crops(natural[kind], EACH, seed)):
            Image.fromarray(pixels).save(root / kind / f"{number:02}.png")
    return root
