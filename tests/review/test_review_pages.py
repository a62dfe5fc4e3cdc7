"""What the pages say, and what they keep to themselves."""

import re
import shutil
from pathlib import Path
from urllib.parse import quote

import pytest
from reviewed import HOSTILE, HOSTILE_LABEL, OWN, Browser, Tags, row_of, words

from invoices import OTHER, audited, covered, difference_box, invoice
from visleak.records import Unreadable
from visleak.review.review_pages import MOST_OTHERS, SIZE
from visleak.review.session import ROW, ReviewSession
from visleak.verdicts import Ledger, Verdict


def test_a_pair_shows_all_that_is_known(browser):
    listing = browser.session.listing
    row = row_of(browser.session, "t01.png")
    pair = listing.row(row)
    page = browser.pair(row)
    text = words(page)
    numbers = f"similarity {pair['similarity']:.4f}", f"distance {listing.distance[row]:.4f}"
    # the caption is text
    for each in (*numbers, pair["reason"], pair["grade"], "32 × 32", "<b>t01.png</b>"):
        assert each in text
    assert {pair["query"], pair["reference"], "test", "train", "dog"} <= set(text.split())
    query = next(each for each in Tags(page).all("img") if each.get("id") == "query")
    # ten times the 32 pixels: a whole factor
    assert (query["width"], query["height"], query["class"]) == ("320", "320", "crisp")


def test_hostile_names_and_labels_are_text(browser):
    row = row_of(browser.session, HOSTILE)
    own, filtered = f"/pair/{browser.session.listing.name(row)}", quote(HOSTILE_LABEL)
    for address in (own, "/sheet", "/pairs?grade=none", f"/pairs?label={filtered}"):
        page = browser.page(address)
        assert "<img src=x" not in page
        assert "<script>alert" not in page
        assert [each for each in Tags(page).all("img") if each.get("src") == "x"] == []
    # that of the label, which can be filtered by
    assert HOSTILE in words(page)
    assert HOSTILE_LABEL in words(page)
    assert HOSTILE_LABEL in [each.get("value") for each in Tags(page).all("option")]


def test_judging_leads_to_the_next_pair_of_the_choice(browser):
    listing = browser.session.listing
    choice = {"state": "unjudged"}
    reply = browser.judge([0], "exact", choice=choice)
    assert reply["next"] == listing.name(1)
    assert reply["progress"] == {"judged": 1, "total": len(listing), "run": 0}
    reply = browser.judge([len(listing) - 1], "different", choice=choice)
    assert reply["next"] is None
    assert "Exact" in browser.pair(0)
    assert 'aria-pressed="true"' in browser.pair(0)


def test_verdicts_of_others_are_hidden_until_one_has_judged(browser):
    with Ledger(browser.session.folder) as other:
        other.add(Verdict.of(*browser.session.listing.key(0), "different", "ben"))
    shown = browser.pair(0)
    before = words(shown)
    assert "ben" not in before.split()
    assert "Verdicts of others are shown after your own" in before
    browser.judge([0], "near")
    after = browser.pair(0)
    assert "ben" in words(after).split()
    assert 'class="chip disputed"' in after
    assert 'class="chip disputed"' not in shown


def test_the_stop_rule_is_offered_by_distance_and_not_forced(browser):
    banner, enough = 'class="banner"', "by the rule of Barz & Denzler (2020) this is enough"
    browser.judge([0], "near")
    browser.judge(list(range(1, ROW)), "different")
    assert enough not in words(browser.page("/result"))
    assert banner not in browser.pair(ROW)
    browser.judge([ROW], "different")
    assert f"{ROW} consecutive pairs are different" in words(browser.pair(ROW + 1))
    for query in ("", "stop=off", "sort=uncertain", "state=disputed", "state=unjudged"):
        offered = banner in browser.pair(ROW + 1, f"?{query}")
        assert offered == (query in ("", "state=unjudged"))
    browser.judge([ROW + 5], "different")
    for page in (browser.pair(ROW + 1), browser.page("/result")):
        assert "4 closer pairs have no verdict yet" in words(page)
    assert enough in words(page)
    browser.judge([ROW + 6], "similar")
    assert banner not in browser.pair(ROW + 1)


def test_other_pairs_of_an_image_are_linked(browser):
    listing = browser.session.listing
    row = row_of(browser.session, "t00.png", "near0-again.png")
    mine, _ = listing.others(row)
    browser.judge([int(mine[-1])], "near")
    links = [str(each["href"]) for each in Tags(browser.pair(row)).all("a")]
    # what the machine calls different is counted, what I call near is shown
    assert f"/pair/{listing.name(int(mine[-1]))}?sort=distance" in links
    assert len([each for each in links if each.startswith("/pair/")]) <= 2 * MOST_OTHERS
    text = words(browser.pair(row))
    assert re.search(r"\d+ other pairs of the \w+, not shown, are different", text)
    assert "1 more pair of images has these two contents" in text


def test_a_sheet_shows_its_share_and_leads_on(browser):
    names = [browser.session.listing.name(row) for row in range(2 * SIZE)]

    def named(what, address):
        return re.findall(f'data-{what}="([^"]+)"', browser.page(address.replace("&amp;", "&")))

    assert named("pair", "/sheet") == names[:SIZE]
    (following,) = named("next", "/sheet")
    assert named("pair", following)[0] == names[SIZE]
    (back,) = named("previous", following)
    assert named("pair", back) == names[:SIZE]
    # judged pairs leave the list of those not judged, the sheet's place does not move
    browser.judge(list(range(SIZE)), "different")
    assert named("pair", f"/sheet?from={names[0]}&state=unjudged")[0] == names[SIZE]


def test_the_rest_of_a_sheet_is_undone_as_one(browser):
    listing = browser.session.listing
    shown = [listing.name(row) for row in range(5)]
    browser.judge([1], "near")
    reply = browser.judge([0, 2, 3, 4], "different", shown=shown)
    assert reply["judged"] == 4
    assert list(reply["marks"].values()) == ["different", "near", *["different"] * 3]
    reply = browser.send("/api/undo", {"shown": shown})
    assert reply["count"] == 4
    assert sorted(reply["undone"]) == sorted([shown[0], *shown[2:]])
    assert list(reply["marks"].values()) == [None, "near", None, None, None]
    assert browser.send("/api/undo", {})["count"] == 1
    reply = browser.send("/api/undo", {})
    assert (reply["undone"], reply["count"], reply["marks"]) == ([], 0, {})


def test_the_rest_leaves_alone_what_another_window_judged(browser):
    browser.judge([2], "near")
    reply = browser.judge([1, 2, 3], "different", open=True)
    assert reply["judged"] == 2
    assert browser.judge([1, 2, 3], "different", open=True)["judged"] == 0
    assert browser.session.standing().mine[:4].tolist() == [-1, 3, 1, 3]
    assert browser.send("/api/undo", {})["count"] == 2


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        ({"judgment": "near"}, "pairs must be a list of 1 to 200 names of pairs"),
        ({"judgment": "near", "pairs": ["x"] * 201}, "pairs must be a list of 1 to 200"),
        ({"judgment": "near", "pairs": [{}]}, "a pair is not in this list; reload the page"),
        ({"judgment": ["near"], "pairs": ["x"]}, "judgment must be one of exact, near, similar"),
    ],
)
def test_wrong_requests_of_a_script(browser, sent, error):
    answer = browser.client.post("/api/judge", json=sent, headers=OWN)
    assert answer.status_code == 400
    assert error in answer.json()["error"]
    assert browser.session.ledger.standing() == ()


def test_a_wrong_pair_among_many_judges_none(browser):
    names = [browser.session.listing.name(0), "x-y"]
    sent = {"judgment": "near", "pairs": names}
    assert browser.client.post("/api/judge", json=sent, headers=OWN).status_code == 400
    # nor does an address that is none leave half of it
    sent = {"judgment": "near", "pairs": names[:1], "choice": {"grade": "nearly"}}
    assert browser.client.post("/api/judge", json=sent, headers=OWN).status_code == 400
    assert browser.session.ledger.standing() == ()


def test_a_pair_named_twice_is_judged_once(browser):
    one, other = browser.session.listing.key(3)
    pairs = [f"{one}-{other}", f"{other}-{one}"]
    assert browser.send("/api/judge", {"judgment": "near", "pairs": pairs})["judged"] == 1
    assert len(browser.session.ledger.standing()) == 1


def test_pages_of_what_there_is_not(browser):
    for address, status, message in (
        ("/pair/x-y", 404, "There is no such pair in this list"),
        ("/pairs?grade=nearly", 400, "grade must be one of exact"),
        ("/pairs?label=zebra", 200, "No pair meets these conditions"),
        ("/sheet?label=zebra", 200, "No pair meets these conditions"),
    ):
        answer = browser.client.get(address)
        assert answer.status_code == status
        assert message in answer.text
    count = len(browser.session.listing)
    browser.session.judge(range(count), "near")
    assert f"All {count} pairs are judged" in browser.page("/pairs?state=unjudged")


def test_the_result_counts_and_says_where_verdicts_are(browser, folder):
    assert "No pair has been judged yet" in browser.page("/result")
    with Ledger(folder) as other:
        for row, judgment in enumerate(("near", "different", "near", "different")):
            other.add(Verdict.of(*browser.session.listing.key(row), judgment, "ben"))
    for row, judgment in enumerate(("near", "different", "different", "different")):
        browser.judge([row], judgment)
    text = words(browser.page("/result"))
    assert "ada and ben agree on near-or-not in 3 of 4 pairs, Cohen's kappa 0.50" in text
    assert "1 pair is disputed" in text
    assert str(folder / "verdicts.csv") in text
    assert "4 of" in text


def test_a_picture_that_is_gone_leaves_its_reason(browser, monkeypatch):
    registry = browser.session.registry
    whole = registry.image
    lost = Unreadable("missing", "its file is gone")
    monkeypatch.setattr(
        registry, "image", lambda *name: lost if name == ("train", "p1.png") else whole(*name)
    )
    page = browser.pair(row_of(browser.session, "p1.png"))
    assert "No image" in words(page)
    assert "its file is gone" in words(page)
    assert "data-judge" in page  # it can be skipped, and judged
    answer = browser.client.get(registry.small("train", "p1.png"))
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/svg+xml")
    assert answer.headers["cache-control"] == "no-store"


@pytest.fixture(scope="module")
def invoices(tmp_path_factory):
    return audited(tmp_path_factory.mktemp("marks"))


@pytest.fixture
def drawn(invoices, tmp_path):
    with ReviewSession(Path(shutil.copytree(invoices, tmp_path / "drawn")), "ada") as session:
        yield Browser.at(session)


def address(browser, row):
    return element(browser, row, "div", "pair")["data-marks"] or ""


def element(browser, row, tag, name):
    return next(each for each in Tags(browser.pair(row)).all(tag) if each.get("id") == name)


def test_the_changed_field_is_marked_in_both_images(drawn):
    row = row_of(drawn.session, "changed.png", "original-0.png")
    found = drawn.client.get(address(drawn, row)).json()
    truth = difference_box(invoice(line_8=OTHER), invoice())
    assert covered(truth, found["query"]) > 0.6
    assert covered(truth, found["reference"]) > 0.6
    assert found["more"] == 0


def test_marks_can_be_switched_off_where_there_may_be_some(browser, drawn):
    row = row_of(drawn.session, "turned.png", "original-1.png")
    assert address(drawn, row)
    assert "disabled" not in element(drawn, row, "input", "marks")
    row = row_of(browser.session, "t06.png", HOSTILE)
    assert browser.session.listing.row(row)["reason"] == "identical bytes"
    assert not address(browser, row)
    assert "marks" not in [each.get("id") for each in Tags(browser.pair(row)).all("input")]


def test_an_image_that_changed_has_no_marks(drawn, monkeypatch):
    where = address(drawn, row_of(drawn.session, "changed.png", "original-0.png"))
    assert drawn.client.get(where).status_code == 200
    lost = Unreadable("missing", "its content has changed since the audit")
    monkeypatch.setattr(drawn.session.registry, "image", lambda *name: lost)
    answer = drawn.client.get(where)
    assert (answer.status_code, answer.headers["cache-control"]) == (404, "no-store")


def test_addresses_of_marks_and_images_are_not_mixed_up(drawn):
    marks = address(drawn, row_of(drawn.session, "changed.png", "original-0.png"))
    image = drawn.session.registry.url("test", "changed.png")
    mixed = marks.replace("/marks/", "/image/"), image.replace("/image/", "/marks/")
    for path in (*mixed, "/marks/..%2f..%2fetc%2fpasswd"):
        assert drawn.client.get(path).status_code == 404
