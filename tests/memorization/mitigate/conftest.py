"""Mitigations are tried on tiny models, whose makers stand beside the adapters' tests."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Let no test depend on how many threads split a sum."""
    pytest.importorskip("diffusers")
    pytest.importorskip("torch").set_num_threads(1)
