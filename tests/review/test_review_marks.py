"""The review page marks where the content of a pair differs, when it is asked to."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from reviewed import HOSTILE, Browser, Tags, row_of

from invoices import OTHER, audited, covered, difference_box, invoice
from visleak.records import Unreadable
from visleak.review.session import ReviewSession


@pytest.fixture(scope="module")
def invoices(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return audited(tmp_path_factory.mktemp("marks"))


@pytest.fixture
def drawn(invoices: Path, tmp_path: Path) -> Iterator[Browser]:
    with ReviewSession(Path(shutil.copytree(invoices, tmp_path / "drawn")), "ada") as session:
        yield Browser.at(session)


def address(browser: Browser, row: int) -> str:
    return element(browser, row, "div", "pair")["data-marks"] or ""


def element(browser: Browser, row: int, tag: str, name: str) -> dict[str, str | None]:
    return next(each for each in Tags(browser.pair(row)).all(tag) if each.get("id") == name)


def test_the_changed_field_is_marked_in_both_images(drawn: Browser) -> None:
    row = row_of(drawn.session, "changed.png", "original-0.png")
    answer = drawn.client.get(address(drawn, row))
    assert answer.status_code == 200
    found = answer.json()
    truth = difference_box(invoice(line_8=OTHER), invoice())
    assert covered(truth, found["query"]) > 0.6
    assert covered(truth, found["reference"]) > 0.6
    assert found["more"] == 0


def test_marks_can_be_switched_off_where_there_may_be_some(
    browser: Browser, drawn: Browser
) -> None:
    row = row_of(drawn.session, "turned.png", "original-1.png")
    assert address(drawn, row)
    assert "disabled" not in element(drawn, row, "input", "marks")
    row = row_of(browser.session, "t06.png", HOSTILE)
    assert browser.session.listing.row(row)["reason"] == "identical bytes"
    assert not address(browser, row)
    assert "marks" not in [each.get("id") for each in Tags(browser.pair(row)).all("input")]


def test_an_image_that_changed_has_no_marks(
    drawn: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = address(drawn, row_of(drawn.session, "changed.png", "original-0.png"))
    lost = Unreadable("missing", "its content has changed since the audit")
    monkeypatch.setattr(drawn.session.registry, "image", lambda *name: lost)
    answer = drawn.client.get(where)
    assert answer.status_code == 404
    assert answer.headers["cache-control"] == "no-store"


def test_addresses_of_marks_and_pictures_are_not_mixed_up(drawn: Browser) -> None:
    row = row_of(drawn.session, "changed.png", "original-0.png")
    where = address(drawn, row)
    assert drawn.client.get(where.replace("/marks/", "/image/")).status_code == 404
    picture = next(each["src"] for each in Tags(drawn.pair(row)).all("img") if each.get("src"))
    assert picture is not None
    assert drawn.client.get(picture.replace("/image/", "/marks/")).status_code == 404
    assert drawn.client.get("/marks/..%2f..%2fetc%2fpasswd").status_code == 404
