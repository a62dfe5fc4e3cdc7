"""The audit folder that the tests of the review app read."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

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
