"""The audit folders that the tests of the page read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from made_audit import Made, Pixels, base_pictures, make_audit


@pytest.fixture(scope="session")
def base() -> list[Pixels]:
    return base_pictures()


@pytest.fixture(scope="session")
def made(base: list[Pixels], tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make_audit(tmp_path_factory.mktemp("audit"), base)


@pytest.fixture
def fresh(base: list[Pixels], tmp_path: Path) -> Callable[..., Made]:
    """Makes audits that a test may change."""
    return lambda **changes: make_audit(tmp_path / "audit", base, **changes)


@pytest.fixture
def own(fresh: Callable[..., Made]) -> Made:
    """An audit that a test may change."""
    return fresh()
