"""Images for the studies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from study_making import SETS, write_pictures


@pytest.fixture
def place(tmp_path: Path, natural: dict[str, np.ndarray]) -> Path:
    """Return a folder with the images of the small sets."""
    write_pictures(tmp_path, natural, SETS)
    return tmp_path
