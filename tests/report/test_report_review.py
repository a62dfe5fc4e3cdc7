"""What the page shows after review; before it, not a byte of it."""

import re

import numpy as np
from judging import HOSTILE, judge, keys
from test_report_page import Page

from visleak.report import build, findings, model
from visleak.storage import PAIRS
from visleak.verdicts import Ledger, Verdict, judged_pairs, read_verdicts


def test_page_after_review_and_before(own):
    before = build(own.folder, own.pictures)
    for word in ("After review", 'id="review"', ".examples", "verdicts.csv", "says "):
        assert word not in before, word
    judge(own.folder)
    page = Page(build(own.folder, own.pictures))
    for part in (
        f"3 pairs were judged by {HOSTILE} (2), Ada (2)",
        "1 of the listed pairs has a grade other than the automatic one",
        "1 was found by reviewers only",
        "1 is disputed: the reviewers disagree on near or not",
        f"Without review: {own.summary['headline']}",
    ):
        assert part in page.words, part
    # nothing of a reviewer's name is an element
    assert not [a for a in page.all("img") if a.get("src") == "x"]
    assert not [a for _, a in page.elements if "onerror" in a]
    with Ledger(own.folder) as ledger:
        for who in ("Ada", HOSTILE):
            while ledger.undo(who):
                pass
    assert build(own.folder, own.pictures) == before


def test_badges_mark_verdicts_of_people(own):
    changed, disputed = judge(own.folder)
    page = build(own.folder, own.pictures)
    cards = re.findall(r'<li id="pair-.*?</article>', page, re.DOTALL)

    def of(row):
        return next(c for c in cards if f'data-query="{row["query"]}"' in c)

    card = of(changed)
    assert '<span class="chip similar">similar</span> <span class="chip human">judged' in card
    assert "&lt;img src=x onerror=alert(1)&gt;</bdi> says similar; automatic grade: near." in card
    assert "says different; the automatic grade near is used." in of(disputed)
    (found,) = (c for c in cards if "the audit had not listed the pair" in c)
    # nobody measured it: no number is shown, and it sorts last
    assert 'data-similarity="-2.000000"' in found
    assert "similarity <b>" not in found
    assert sum('class="chip human"' in c for c in cards) == 2


def test_rates_and_examples_count_verdicts(own):
    judge(own.folder)
    verdicts = read_verdicts(own.folder)
    plain, judged = model.read(own.folder), model.read(own.folder, verdicts)
    assert judged.headline.endswith("after review")
    rows = [row for row in judged_pairs(own.folder).to_pylist() if row["coverage"] != "within"]
    exact = {(row["query_set"], row["query"]) for row in rows if row["grade"] == "exact"}
    people = {(row["query_set"], row["query"]) for row in rows if row["judged"] == "human"}
    assert sum(s.rates["exact"].count for s in judged.totals) == len(exact)
    assert sum(s.rates["exact"].count for s in plain.totals) < len(exact)
    assert len(people) == 2
    shown = findings.read(own.folder, judged.query_sets, None, 300, verdicts)
    assert shown.pairs == findings.read(own.folder, judged.query_sets, None, 300).pairs + 1
    page = build(own.folder, own.pictures)
    section = page[page.index('<section id="review"') : page.index('<section id="charts"')]
    assert len(re.findall(r"data:image/\w+;base64", section)) >= 9
    private = build(own.folder, own.pictures, private=True)
    assert not re.search(r"data:image/(?!svg)", private)
    assert "After review" in private


def test_an_audit_without_verification_has_the_grades_of_people(own):
    """Degrees stand for the rest, as they did; a judged pair is what people say."""
    own.set_columns(PAIRS, grade=None, probability=None)
    own.change(grader=None)
    before = findings.read(own.folder, ("test", "val"), None, 300)
    row, first, second = keys(own.folder)[0]
    with Ledger(own.folder) as ledger:
        ledger.add(Verdict.of(first, second, "different", "Ada"))
    verdicts = read_verdicts(own.folder)
    after = findings.read(own.folder, ("test", "val"), None, 300, verdicts)
    name = row["query"]
    judged, rest = ([{c.kind for c in each.cards if (c.row["query"] == name) == mine} for each in
                  (before, after)] for mine in (True, False))  # fmt: skip
    assert judged[0] <= {"hard", "soft"}
    assert rest == [{"hard", "soft"}, {"hard", "soft"}]
    assert "No pixels were compared" not in Page(build(own.folder)).words
    assert np.isfinite([c.row["similarity"] for c in after.cards]).all()
