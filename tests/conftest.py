"""What the tests of several rooms need."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import hypothesis
import numpy as np
import pytest
from skimage import data
from threadpoolctl import threadpool_limits

hypothesis.settings.register_profile("visleak", deadline=None, derandomize=True, max_examples=50)
hypothesis.settings.load_profile("visleak")

# A shell has what it runs in the background ignore interrupts, and so do all processes begun there:
# tests that interrupt one of theirs would wait for nothing.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

#: Loaded as what they are, but not searched for doctests: several modules of one name collide.
collect_ignore_glob = ["conftest.py", "*/conftest.py"]

#: Natural pictures and textures that come with scikit-image, without a download.
NAMES = ("astronaut", "chelsea", "coffee", "rocket", "camera", "coins", "moon", "brick", "grass")


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Keep BLAS threads from fighting over the cores with other tests (100 times slower)."""
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="session")
def natural() -> dict[str, np.ndarray]:
    """Return unrelated RGB pictures by name, read-only."""
    found = {}
    for name in NAMES:
        picture = getattr(data, name)()
        found[name] = picture if picture.ndim == 3 else np.repeat(picture[..., None], 3, axis=2)
        found[name].setflags(write=False)
    return found
