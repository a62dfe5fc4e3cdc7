"""One traced world, for tests that only read it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from generated_images import World, make_world
from visleak.memorization.tracing import Trace, trace


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the user's cache out of it, but one for all tests of the room."""
    patch = pytest.MonkeyPatch()
    patch.setenv("VISLEAK_CACHE", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory, natural: dict[str, np.ndarray]) -> World:
    return make_world(tmp_path_factory.mktemp("world"), natural)


@pytest.fixture(scope="session")
def traced(world: World, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    folder: Path = tmp_path_factory.mktemp("traced") / "out"
    return trace(world.extraction, [str(world.train)], folder, workers=1)
