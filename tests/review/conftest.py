"""The audit folder that the tests of the review app read."""

import shutil
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the review app needs the extra web")
pytest.importorskip("httpx2", reason="Starlette's TestClient needs it")

from reviewed import Browser, make_audit

from visleak.review.session import ReviewSession


@pytest.fixture(scope="session")
def finished(tmp_path_factory, natural):
    return make_audit(tmp_path_factory.mktemp("reviewed"), natural)


@pytest.fixture
def folder(finished, tmp_path):
    return Path(shutil.copytree(finished, tmp_path / "audit"))


@pytest.fixture
def session(folder):
    with ReviewSession(folder, "ada") as session:
        yield session


@pytest.fixture
def browser(session):
    return Browser.at(session)
