"""Mitigations are tried on tiny models, whose makers stand beside the adapters' tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "models"))


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Let no test depend on how many threads split a sum."""
    pytest.importorskip("diffusers")
    pytest.importorskip("torch").set_num_threads(1)
