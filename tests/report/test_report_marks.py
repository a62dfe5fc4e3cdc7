"""The gallery marks where the content of a pair differs."""

import re

import pytest

from invoices import OTHER, audited, covered, difference_box, invoice
from visleak.auditing import Audit
from visleak.report import build, reader_for_page

Boxes = list[tuple[float, float, float, float]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return audited(tmp_path_factory.mktemp("marks"))


@pytest.fixture(scope="module")
def html(folder):
    return build(folder, reader_for_page(Audit(folder)))


def card(html, query):
    """Return the markup of the card of a query."""
    cards = re.split(r"(?=<li id=\"pair-)", html)[1:]
    return next(each for each in cards if f'data-query="{query}"' in each)


def marked(card):
    found = {}
    for label, drawing in re.findall(
        r'<svg class="marks"[^>]*aria-label="([^"]*)">(.*?)</svg>', card, re.DOTALL
    ):
        numbers = re.findall(
            r'<rect class="over" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"',
            drawing,
        )
        name = "query" if "query" in label else "reference"
        found[name] = [tuple(map(float, box)) for box in numbers]  # type: ignore[misc]
    return found


def test_marks_of_a_turned_query_are_turned(html):
    found = marked(card(html, "turned.png"))
    left, top, right, bottom = difference_box(invoice(1, line_8=OTHER), invoice(1))
    assert covered((left, top, right, bottom), found["reference"]) > 0.6
    assert covered((1 - right, 1 - bottom, 1 - left, 1 - top), found["query"]) > 0.6


def test_without_images_there_are_no_marks(folder):
    reader = reader_for_page(Audit(folder))

    def lost(name, ids):
        return {id_: pixels for id_, pixels in reader(name, ids).items() if id_ != "changed.png"}

    html = build(folder, lost)
    assert marked(card(html, "changed.png")) == {}
    assert marked(card(html, "turned.png"))
    private = build(folder, private=True)
    assert '<svg class="marks"' not in private
    assert 'name="marks"' not in private
