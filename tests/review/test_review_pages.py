"""What the pages say, and what they keep to themselves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from reviewed import HOSTILE, HOSTILE_LABEL, OWN, Browser, Tags, row_of, words

from visleak.review.review_pages import MOST_OTHERS, SIZE
from visleak.review.session import ROW
from visleak.verdicts import Ledger, Verdict, read_verdicts


def test_a_pair_shows_all_that_is_known(browser: Browser) -> None:
    listing = browser.session.listing
    row = row_of(browser.session, "t01.png")
    pair = listing.row(row)
    page = browser.pair(row)
    text = words(page)
    assert f"Pair {row + 1} of {len(listing)}" in text
    assert f"similarity {pair['similarity']:.4f}" in text
    assert f"distance {listing.distance[row]:.4f}" in text
    assert pair["reason"] in text
    assert pair["grade"] in text
    assert "32 × 32" in text
    assert "<b>t01.png</b>" in text  # the caption, as text
    assert {pair["query"], pair["reference"]} <= set(text.split())
    assert {"test", "train", "dog"} <= set(text.split())
    pictures = Tags(page).all("img")
    assert len([each for each in pictures if each.get("src")]) >= 4
    query = next(each for each in pictures if each.get("id") == "query")
    # ten times the 32 pixels: a whole factor
    assert (query["width"], query["height"], query["class"]) == ("320", "320", "crisp")


def test_images_that_look_identical_have_a_badge_and_no_black_tile(browser: Browser) -> None:
    listing = browser.session.listing
    pairs = [listing.row(row) for row in range(len(listing))]
    same = next(row for row, each in enumerate(pairs) if each["reason"] == "identical bytes")
    other = next(row for row, each in enumerate(pairs) if each["grade"] == "different")
    for row, badge in ((same, True), (other, False)):
        page = browser.pair(row)
        assert ("identical" in words(page).replace("identical bytes", "").split()) == badge
        tiles = [each["alt"] for each in Tags(page).all("img") if "Difference" in each["alt"]]
        assert (tiles == []) == badge


def test_hostile_names_and_labels_are_text(browser: Browser) -> None:
    row = row_of(browser.session, HOSTILE)
    for address in (f"/pair/{browser.session.listing.name(row)}", "/sheet", "/pairs?grade=none"):
        page = browser.page(address)
        assert "<img src=x" not in page
        assert "<script>alert" not in page
        assert [each for each in Tags(page).all("img") if each.get("src") == "x"] == []
    page = browser.pair(row)
    assert HOSTILE in words(page)
    assert HOSTILE_LABEL in words(page)
    values = [each.get("value") for each in Tags(page).all("option")]
    assert HOSTILE_LABEL in values


def test_a_hostile_label_can_be_filtered_by(browser: Browser) -> None:
    answer = browser.client.get("/pairs", params={"label": HOSTILE_LABEL}, follow_redirects=True)
    assert answer.status_code == 200
    assert HOSTILE in words(answer.text)
    assert "<script>alert" not in answer.text


def test_judging_leads_to_the_next_pair_of_the_choice(browser: Browser) -> None:
    listing = browser.session.listing
    choice = {"state": "unjudged"}
    reply = browser.judge([0], "exact", choice=choice)
    assert reply["next"] == listing.name(1)
    assert reply["progress"] == {"judged": 1, "total": len(listing), "run": 0}
    reply = browser.judge([len(listing) - 1], "different", choice=choice)
    assert reply["next"] is None
    assert "Exact" in browser.pair(0)
    assert 'aria-pressed="true"' in browser.pair(0)


def test_reload_keeps_the_place_and_the_first_open_pair_comes_first(browser: Browser) -> None:
    name = browser.session.listing.name(7)
    assert browser.page(f"/pair/{name}?sort=grade") == browser.page(f"/pair/{name}?sort=grade")
    browser.judge([0, 1], "near")
    answer = browser.client.get("/pairs?sort=distance")
    address = f"/pair/{browser.session.listing.name(2)}?sort=distance"
    assert answer.headers["location"] == address


def test_verdicts_of_others_are_hidden_until_one_has_judged(browser: Browser) -> None:
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


def test_the_stop_rule_is_offered_by_distance_and_not_forced(browser: Browser) -> None:
    rows = list(range(1, ROW + 1))
    browser.judge([0], "near")
    browser.judge(rows[:-1], "different")
    assert "consecutive pairs are different: by the rule" not in browser.page("/result")
    assert 'class="banner"' not in browser.pair(ROW)
    browser.judge(rows[-1:], "different")
    page = browser.pair(ROW + 1)
    assert 'class="banner"' in page
    assert f"{ROW} consecutive pairs are different" in words(page)
    assert "Barz & Denzler (2020) stop here" in words(page)
    for query in ("stop=off", "sort=uncertain", "state=disputed", "state=unjudged"):
        offered = 'class="banner"' in browser.pair(ROW + 1, f"?{query}")
        assert offered == (query == "state=unjudged")
    assert "by the rule of Barz & Denzler (2020) this is enough" in words(browser.page("/result"))
    browser.judge([ROW + 5], "different")
    assert "4 closer pairs have no verdict yet" in words(browser.pair(ROW + 1))
    browser.judge([ROW + 6], "similar")
    assert 'class="banner"' not in browser.pair(ROW + 1)


def test_other_pairs_of_an_image_are_linked(browser: Browser) -> None:
    session = browser.session
    listing = session.listing
    row = next(
        r
        for r in range(len(listing))
        if listing.row(r)["query"] == "t00.png" and listing.row(r)["reference"].startswith("near0")
    )
    mine, _ = listing.others(row)
    browser.judge([int(mine[-1])], "near")
    links = [str(each["href"]) for each in Tags(browser.pair(row)).all("a")]
    # what the machine calls different is counted, what I call near is shown
    assert f"/pair/{listing.name(int(mine[-1]))}?sort=distance" in links
    others = [each for each in links if each.startswith("/pair/")]
    assert len(others) <= 2 * MOST_OTHERS
    text = words(browser.pair(row))
    assert "Other pairs of the query" in text
    assert re.search(r"\d+ other pairs of the \w+, not shown, are different", text)
    assert "1 more pair of images has these two contents" in text  # near0-again.png


def test_a_sheet_shows_its_share_and_leads_on(browser: Browser) -> None:
    listing = browser.session.listing
    page = browser.page("/sheet")
    names = re.findall(r'data-pair="([^"]+)"', page)
    assert names == [listing.name(row) for row in range(SIZE)]
    following = re.search(r'data-next="([^"]+)"', page)
    assert following is not None
    page = browser.page(following[1].replace("&amp;", "&"))
    assert re.findall(r'data-pair="([^"]+)"', page)[0] == listing.name(SIZE)
    back = re.search(r'data-previous="([^"]+)"', page)
    assert back is not None
    assert re.findall(r'data-pair="([^"]+)"', browser.page(back[1].replace("&amp;", "&"))) == names
    # judged pairs leave the list of those not judged, the sheet's place does not move
    browser.judge(list(range(SIZE)), "different")
    page = browser.page(f"/sheet?from={names[0]}&state=unjudged")
    assert re.findall(r'data-pair="([^"]+)"', page)[0] == listing.name(SIZE)


def test_the_rest_of_a_sheet_is_undone_as_one(browser: Browser) -> None:
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


def test_the_rest_leaves_alone_what_another_window_judged(browser: Browser) -> None:
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
        ({"judgment": "near", "pairs": []}, "pairs must be a list of 1 to 200 names of pairs"),
        ({"judgment": "near", "pairs": ["x"] * 201}, "pairs must be a list of 1 to 200"),
        ({"judgment": "near", "pairs": ["x"]}, "a pair is not in this list; reload the page"),
        ({"judgment": "near", "pairs": [{}]}, "a pair is not in this list; reload the page"),
        ({"judgment": ["near"], "pairs": ["x"]}, "judgment must be one of exact, near, similar"),
        ({"judgment": None, "pairs": ["x"]}, "got None"),
    ],
)
def test_wrong_requests_of_a_script(browser: Browser, sent: object, error: str) -> None:
    answer = browser.client.post("/api/judge", json=sent, headers=OWN)
    assert answer.status_code == 400
    assert error in answer.json()["error"]
    assert browser.session.ledger.standing() == ()


def test_a_wrong_pair_among_many_judges_none(browser: Browser) -> None:
    names = [browser.session.listing.name(0), "x-y"]
    sent = {"judgment": "near", "pairs": names}
    assert browser.client.post("/api/judge", json=sent, headers=OWN).status_code == 400
    # nor does an address that is none leave half of it
    sent = {"judgment": "near", "pairs": names[:1], "choice": {"grade": "nearly"}}
    assert browser.client.post("/api/judge", json=sent, headers=OWN).status_code == 400
    assert browser.session.ledger.standing() == ()


def test_a_pair_named_twice_is_judged_once(browser: Browser) -> None:
    one, other = browser.session.listing.key(3)
    reply = browser.send(
        "/api/judge", {"judgment": "near", "pairs": [f"{one}-{other}", f"{other}-{one}"]}
    )
    assert reply["judged"] == 1
    assert len(read_verdicts(browser.session.folder)) == 1


def test_pages_of_what_there_is_not(browser: Browser) -> None:
    for address, status, message in (
        ("/pair/x-y", 404, "There is no such pair in this list"),
        ("/pairs?grade=nearly", 400, "grade must be one of exact"),
        ("/pairs?label=zebra", 200, "No pair meets these conditions"),
        ("/sheet?label=zebra", 200, "No pair meets these conditions"),
    ):
        answer = browser.client.get(address)
        assert answer.status_code == status
        assert message in answer.text
    browser.session.judge(range(len(browser.session.listing)), "near")
    assert f"All {len(browser.session.listing)} pairs are judged" in browser.page(
        "/pairs?state=unjudged"
    )


def test_the_result_counts_and_says_where_verdicts_are(browser: Browser, folder: Path) -> None:
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


def test_a_picture_that_is_gone_leaves_its_reason(browser: Browser, finished: Path) -> None:
    row = row_of(browser.session, "p1.png")
    path = finished.parent / "train" / "p1.png"
    kept = path.read_bytes()
    try:
        path.unlink()
        page = browser.pair(row)
        assert "No image" in words(page)
        assert "missing" in words(page)
        assert "data-judge" in page  # it can be skipped, and judged
        small = browser.session.registry.small("train", "p1.png")
        answer = browser.client.get(small)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "image/svg+xml")
        assert answer.headers["cache-control"] == "no-store"
        path.write_bytes(kept[:200])
        assert "changed since the audit" in words(browser.pair(row))
    finally:
        path.write_bytes(kept)
    assert "No image" not in words(browser.pair(row))
