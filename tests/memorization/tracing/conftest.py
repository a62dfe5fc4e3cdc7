"""One traced world, for tests that only read it."""

import pytest

from generated_images import make_world
from visleak.memorization.tracing import trace


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory):
    """Keep the user's cache out of it, but one for all tests of the room."""
    patch = pytest.MonkeyPatch()
    patch.setenv("VISLEAK_CACHE", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


@pytest.fixture(scope="session")
def world(tmp_path_factory, natural):
    return make_world(tmp_path_factory.mktemp("world"), natural)


@pytest.fixture(scope="session")
def traced(world, tmp_path_factory):
    folder = tmp_path_factory.mktemp("traced") / "out"
    return trace(world.extraction, [str(world.train)], folder, workers=1)
