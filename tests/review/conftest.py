"""The audit folder that the tests of the review app read."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette", reason="the review app needs the extra web")
pytest.importorskip("httpx2", reason="Starlette's TestClient needs it")

from reviewed import Browser, make_audit

from visleak.review.session import ReviewSession


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, natural: dict[str, np.ndarray]) -> Path:
    return make_audit(tmp_path_factory.mktemp("reviewed"), natural)


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "audit"))


@pytest.fixture
def session(folder: Path) -> Iterator[ReviewSession]:
    with ReviewSession(folder, "ada") as session:
        yield session


@pytest.fixture
def browser(session: ReviewSession) -> Browser:
    return Browser.at(session)


NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next((found for found in map(shutil.which, NAMES) if found), None)
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is on the PATH")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()
