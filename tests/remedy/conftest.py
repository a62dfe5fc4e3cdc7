"""An audit with planted duplicates, a pool with planted traps, and writing without flushes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from planted_pool import audited, plant, traps
from visleak.remedy import writing
from visleak.remedy.selection import Selection, open_selection
from visleak.remedy.settings import SelectionSettings


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write without flushes, which a test of its own checks."""
    monkeypatch.setattr(writing, "_flush_all", lambda folder: None)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = plant(tmp_path_factory.mktemp("planted"))
    traps(root)
    audited(root)
    return root


@pytest.fixture
def folder(planted: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(planted / "audit", tmp_path / "audit"))


@pytest.fixture
def opened(planted: Path, folder: Path) -> Iterator[Callable[..., Selection]]:
    with ExitStack() as stack:

        def opened(
            pool: Path | None = None, trial: bool = False, at: Path | None = None, **asked: Any
        ) -> Selection:
            source, execution = pool or planted / "pool", {"workers": 1, "cache": planted / "cache"}
            settings = SelectionSettings(**asked)
            return stack.enter_context(
                open_selection(at or folder, source, settings, trial=trial, **execution)
            )

        yield opened
