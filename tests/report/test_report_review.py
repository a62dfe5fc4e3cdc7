"""What the page shows after review; before it, not a byte of it."""

from __future__ import annotations

import re

import numpy as np
import pytest
from judging import HOSTILE, judge, keys
from made_audit import Made
from test_report_page import Page

from visleak.report import build, findings, model
from visleak.storage import PAIRS
from visleak.verdicts import Ledger, Verdict, judged_pairs, read_verdicts


@pytest.fixture
def made(own: Made) -> Made:
    return own


def test_nobody_judged_no_byte_of_it(made: Made) -> None:
    before = build(made.folder)
    for word in ("After review", 'id="review"', ".examples", "verdicts.csv", "says "):
        assert word not in before, word
    judge(made.folder)
    assert build(made.folder) != before
    with Ledger(made.folder) as ledger:
        for who in ("Ada", HOSTILE):
            while ledger.undo(who):
                pass
    assert build(made.folder) == before


def test_page_after_review(made: Made) -> None:
    machine = Page(build(made.folder, made.pictures)).words
    judge(made.folder)
    html = build(made.folder, made.pictures)
    page = Page(html)
    for part in (
        f"3 pairs were judged by {HOSTILE} (2), Ada (2)",
        "1 of the listed pairs has a grade other than the automatic one",
        "1 was found by reviewers only",
        "1 is disputed: the reviewers disagree on near or not",
        f"Without review: {made.summary['headline']}",
        "By type, before and after review",
        "Examples of each type",
        "1 disputed pair",
        "after review",
        "unreadable.csv and verdicts.csv",
    ):
        assert part in page.words, part
    assert made.summary["headline"] in machine
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert "#review" in [a["href"] for a in page.all("a")]
    assert all("scope" in a for a in page.all("th"))
    assert all(a.get("alt") for a in page.all("img"))
    # nothing of a reviewer's name is an element
    assert not [a for a in page.all("img") if a.get("src") == "x"]
    assert not [a for _, a in page.elements if "onerror" in a]


def test_badges_mark_verdicts_of_people(made: Made) -> None:
    changed, disputed = judge(made.folder)
    page = build(made.folder, made.pictures)
    cards = re.findall(r'<li id="pair-.*?</article>', page, re.DOTALL)

    def of(row: dict[str, object]) -> str:
        return next(c for c in cards if f'data-query="{row["query"]}"' in c)

    card = of(changed)
    assert '<span class="chip similar">similar</span> <span class="chip human">judged' in card
    assert "&lt;img src=x onerror=alert(1)&gt;</bdi> says similar; automatic grade: near." in card
    assert '<span class="chip disputed">disputed' in of(disputed)
    assert "says different; the automatic grade near is used." in of(disputed)
    found = [c for c in cards if "the audit had not listed the pair" in c]
    assert len(found) == 1
    # nobody measured it: no number is shown, and it sorts last
    assert 'data-similarity="-2.000000"' in found[0]
    assert "similarity <b>" not in found[0]
    assert sum('class="chip human"' in c for c in cards) == 2


def test_rates_and_examples_count_verdicts(made: Made) -> None:
    judge(made.folder)
    verdicts = read_verdicts(made.folder)
    plain, judged = model.read(made.folder), model.read(made.folder, verdicts)
    assert judged.headline.endswith("after review")
    rows = [row for row in judged_pairs(made.folder).to_pylist() if row["coverage"] != "within"]
    exact = {(row["query_set"], row["query"]) for row in rows if row["grade"] == "exact"}
    people = {(row["query_set"], row["query"]) for row in rows if row["judged"] == "human"}
    assert sum(s.rates["exact"].count for s in judged.totals) == len(exact)
    assert sum(s.rates["exact"].count for s in plain.totals) < len(exact)
    assert len(people) == 2
    shown = findings.read(made.folder, judged.query_sets, None, 300, verdicts)
    assert shown.pairs == findings.read(made.folder, judged.query_sets, None, 300).pairs + 1
    page = build(made.folder, made.pictures)
    section = page[page.index('<section id="review"') : page.index('<section id="charts"')]
    assert len(re.findall(r"data:image/\w+;base64", section)) >= 9
    private = build(made.folder, made.pictures, private=True)
    assert not re.search(r"data:image/(?!svg)", private)
    assert "After review" in private
    absent = build(made.folder)
    assert not re.search(r"data:image/(?!svg)", absent)


def test_an_audit_without_verification_has_the_grades_of_people(made: Made) -> None:
    """Degrees stand for the rest, as they did; a judged pair is what people say."""
    made.set_columns(PAIRS, grade=None, probability=None)
    made.change(grader=None)
    before = findings.read(made.folder, ("test", "val"), None, 300)
    row, first, second = keys(made.folder)[0]
    with Ledger(made.folder) as ledger:
        ledger.add(Verdict.of(first, second, "different", "Ada"))
    verdicts = read_verdicts(made.folder)
    after = findings.read(made.folder, ("test", "val"), None, 300, verdicts)
    name = row["query"]
    own, rest = ([{c.kind for c in each.cards if (c.row["query"] == name) == mine} for each in
                  (before, after)] for mine in (True, False))  # fmt: skip
    assert own[0] <= {"hard", "soft"}
    assert rest == [{"hard", "soft"}, {"hard", "soft"}]
    assert "No pixels were compared" not in Page(build(made.folder)).words
    assert np.isfinite([c.row["similarity"] for c in after.cards]).all()
