"""Leaking recordings on the page: numbers, chart and table; old and odd files make a page too."""

import pytest
from made_audit import HOSTILE_NAME
from test_report_page import Page

from visleak.rates import Rate
from visleak.report import build

BLOCK = {
    "unit": "frames", "within": 10, "shared": 30, "leaking": 22, "queries": 90, "close": 41,
    "near_or_exact": 30,
    "distances": [
        {"up_to": last, "queries": count} for last, count in ((0, 1), (10, 40), (None, 49))
    ],
    "listed": [
        {"recording": HOSTILE_NAME, "queries": 9, "references": 1234, "close": 7,
         "near_or_exact": None, "least": 1, "median": 3, "near_up_to": 8},
    ],
}  # fmt: skip


def page_of(made, block):
    first = made.summary["comparisons"][0]
    first["recordings"] = block
    first["rates"]["recording"] = Rate.of(41, 200).as_dict()
    made.change()
    return Page(build(made.folder))


def test_the_section_says_what_time_found(own):
    page = page_of(own, BLOCK)
    for words in (
        "Leaking recordings",
        "22 of 30 recordings on both sides leak: 41 of 200 test images",
        "lie within 10 frames of a training frame",
        "By appearance the audit lists 30 of these 41 as near or exact; 11 are found by time only",
        f"{HOSTILE_NAME} 1,234 9 7 - 1 frame 3 frames 8 frames",
        "21 more recordings leak. All that are on both sides stand in recordings.csv.",
    ):
        assert words in page.words
    assert {"href": "#recordings"} in page.all("a")
    assert not any("onerror" in attributes for _, attributes in page.elements)


def test_without_a_leak_the_page_says_how_many_were_compared(own):
    alone = BLOCK | {"leaking": 0, "listed": []}
    page = page_of(own, alone | {"unit": "ms", "within": 1500})
    assert "None of the 90 test frames of the 30 recordings" in page.words
    assert "lies within 1.5 s of a training frame." in page.words
    # numbers that may be times are doubted where the next frame is thousands away
    words = page_of(own, alone | {"nearest": 50_000_000}).words
    assert "the nearest are 50,000,000 frames apart; if the numbers are times, give" in words


@pytest.mark.parametrize("block", [None, {}, {"shared": 0}])
def test_audits_without_recordings_have_no_section(own, block):
    page = page_of(own, block)
    assert not any(attributes.get("id") == "recordings" for attributes in page.all("section"))
