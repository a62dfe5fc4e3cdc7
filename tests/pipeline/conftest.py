"""Processes that tests of the pipeline start find their helpers, beside the package."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="module", autouse=True)
def _findable():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        yield
