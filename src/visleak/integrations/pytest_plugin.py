"""A marker of pytest: ``@pytest.mark.no_leak("data/test", "data/train")``."""

from __future__ import annotations

import pytest

MARKER = (
    "no_leak(test, train=None, grade='near', **options): fail unless no test image is in the"
    " training images; arguments as of visleak.assert_no_leak"
)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", MARKER)


def pytest_runtest_call(item: pytest.Item) -> None:
    """Check the sides of the markers of a test before it runs."""
    __tracebackhide__ = True
    for marker in item.iter_markers("no_leak"):
        # imported on use: a session without the marker is not slowed down
        import visleak

        visleak.assert_no_leak(*marker.args, **marker.kwargs)
