"""Copies of the planted audit, and writing without flushes."""

import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest

from visleak.remedy import writing
from visleak.remedy.selection import open_selection
from visleak.remedy.settings import SelectionSettings


@pytest.fixture
def no_waiting(monkeypatch):
    """Write without flushes, which a test of its own checks."""
    monkeypatch.setattr(writing, "_flush_all", lambda folder: None)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def folder(planted, tmp_path):
    return Path(shutil.copytree(planted / "audit", tmp_path / "audit"))


@pytest.fixture
def opened(planted, folder):
    with ExitStack() as stack:

        def opened(pool=None, trial=False, at=None, **asked):
            source, execution = pool or planted / "pool", {"workers": 1, "cache": planted / "cache"}
            settings = SelectionSettings(**asked)
            return stack.enter_context(
                open_selection(at or folder, source, settings, trial=trial, **execution)
            )

        yield opened
