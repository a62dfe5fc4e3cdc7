"""Judging, undo, progress, neighbours, and the order of what a verdict changes."""

import itertools
import json
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reviewed import Browser, row_of, words
from scipy.optimize import minimize

from refusals import refusal
from visleak.errors import UsageError, VisleakError
from visleak.records import GRADES, Unreadable
from visleak.review.active import (
    CONNECTED,
    Deciding,
    Measured,
    TailSample,
    automatic,
    tail_order,
    tail_sample,
)
from visleak.review.app import group_of
from visleak.review.listing import Choice
from visleak.review.session import REFIT, ROW, ReviewSession, methods
from visleak.stats.separation import fit_best_shift, fit_shift, logit
from visleak.storage import PAIRS, PAIRS_SCHEMA, read_summary, write_tables
from visleak.verdicts import Ledger, Verdict, judged_pairs, pair_key, read_verdicts

ALL = Choice(sort="distance")


def test_a_verdict_is_on_disk_and_counts_downstream(session, folder):
    assert session.first(ALL) == 0
    session.judge([0], "different")
    (kept,) = read_verdicts(folder)
    assert (kept.judgment, kept.reviewer, kept.key) == ("different", "ada", session.listing.key(0))
    row = session.listing.row(0)
    assert (kept.query_set, kept.query) == (row["query_set"], row["query"])
    assert kept.similarity == pytest.approx(row["similarity"])
    table = judged_pairs(folder, ["query", "reference", "grade", "judged"]).to_pylist()
    human = [row for row in table if row["judged"] == "human"]
    assert [row["grade"] for row in human] == ["different"] * (1 + int(session.listing.repeats[0]))
    assert session.first(ALL) == 1


def test_no_verdict_on_an_image_that_cannot_be_shown(session, monkeypatch):
    lost = Unreadable("missing", "its content has changed")
    monkeypatch.setattr(session.registry, "image", lambda *name: lost)
    with pytest.raises(UsageError, match=r"cannot be shown \(its content has changed\), so no"):
        session.judge([0], "near")
    assert session.standing().verdicts == ()


def test_undo_keeps_earlier_verdicts(folder):
    """A list of hundreds that was imported under one's name is one batch of the ledger."""
    with ReviewSession(folder, "ada") as session:
        session.judge([0, 1, 2], "near")
    with ReviewSession(folder, "ada") as session:
        assert session.undo() == ()
        session.judge([3], "near")
        assert [v.key for v in session.undo()] == [session.listing.key(3)]
        assert session.undo() == ()
        assert int((session.standing().mine >= 0).sum()) == 3


def test_verdicts_of_another_process_are_seen(session, folder):
    session.judge([0], "near")
    assert not session.standing().disputed.any()
    with Ledger(folder) as other:
        other.add(Verdict.of(*session.listing.key(0), "different", "ben"))
        other.add(Verdict.of(*session.listing.key(5), "near", "ben"))
        assert session.standing().disputed[0]
        assert session.rows(Choice(state="disputed")).tolist() == [0]
        # which are judged is by one's own verdicts
        assert session.rows(Choice(state="judged")).tolist() == [0]
        assert 5 in session.rows(Choice(state="unjudged"))
        assert session.standing().mine[0] == GRADES.index("near")
        assert session.agreement().disputed == 1


def test_what_is_added_in_memory_is_what_the_file_says(session):
    """The verdicts are not read again after each judgment; they must not drift apart."""
    rng = np.random.default_rng(5)
    with Ledger(session.folder) as other:
        for row in range(6):
            judgment = GRADES[rng.integers(4)]
            other.add(Verdict.of(*session.listing.key(row), judgment, "ben"))
    session.standing()
    for _ in range(25):
        rows = rng.choice(9, size=rng.integers(1, 4), replace=False).tolist()
        session.judge(rows, GRADES[rng.integers(4)])
        quick = session.standing()
        assert session._standing is quick
        slow = session._read_standing()
        assert (quick.mine == slow.mine).all()
        assert (quick.disputed == slow.disputed).all()
        assert quick.by_key.keys() == slow.by_key.keys()
        for key, verdicts in slow.by_key.items():
            assert {v.reviewer for v in quick.by_key[key]} == {v.reviewer for v in verdicts}
            assert len(quick.by_key[key]) == len(verdicts)
    assert quick.disputed.any()
    fresh = session.agreement()
    session._standing = None
    assert session.agreement() == fresh


def test_neighbours_of_a_hidden_pair_are_those_that_are_shown(session):
    """A pair that was just judged leaves the list of those not judged, and one goes on from it."""
    choice = Choice(state="unjudged", sort="distance")
    session.judge([2], "near")
    spot = session.spot(2, choice)
    assert (spot.inside, spot.previous, spot.next) == (False, 1, 3)
    assert spot.total == len(session.listing) - 1
    assert session.spot(0, choice).previous is None
    assert session.spot(len(session.listing) - 1, choice).next is None
    assert session.first(Choice(label="no such class")) is None


JUDGED = st.lists(st.sampled_from([None, "different", "near"]), min_size=45, max_size=45)


class _Fixed(ReviewSession):
    """A session whose verdicts are given; only what progress looks at is there."""

    def __init__(self, grades):
        codes = [-1 if each is None else GRADES.index(each) for each in grades]
        self.mine = np.array(codes, np.int8)
        self.listing = SimpleNamespace(distance=np.arange(len(grades)) / 10)
        self._fixed = lambda choice: np.ones(len(grades), bool)

    def standing(self):
        return SimpleNamespace(mine=self.mine)


@given(JUDGED)
def test_the_run_is_that_of_the_slow_way(grades):
    """Different ones in a row up to the farthest judged pair; those passed over are counted."""
    progress = _Fixed(grades).progress(ALL)
    judged = [n for n, each in enumerate(grades) if each]
    run = 0
    for number in reversed(judged):
        if grades[number] != "different":
            break
        run += 1
    assert (progress.judged, progress.total, progress.run) == (len(judged), len(grades), run)
    assert progress.passed_over == (judged[-1] + 1 - len(judged) if judged else 0)
    assert progress.distance == (judged[-1] / 10 if judged else None)
    assert progress.may_stop == (run >= ROW)


def test_a_pair_that_only_people_named_is_in_the_list(folder):
    with ReviewSession(folder, "ada") as session:
        known = {session.listing.key(row) for row in range(len(session.listing))}
        sides = {"test": [], "train": []}
        for image in session.listing.images.to_pylist():
            sides[image["set"]].append(image["digest"])
        pair = next(p for p in itertools.product(*sides.values()) if pair_key(*p) not in known)
    with Ledger(folder) as ledger:
        ledger.add(Verdict.of(*pair, "near", "ben"))
    with ReviewSession(folder, "ada") as session:
        # without a similarity it comes last
        row = session.listing.find("-".join(pair))
        assert row == len(session.listing) - 1
        assert session.listing.grade[row] == -1
        assert np.isnan(session.listing.probability[row])


def test_a_missing_source_is_reported_at_once(folder, finished):
    summary = folder / "audit.json"
    summary.write_text(summary.read_text().replace("train.csv", "gone.csv"))
    assert "gone.csv" in refusal(VisleakError, ReviewSession, folder, "ada")
    summary.unlink()
    assert "holds no finished audit" in refusal(UsageError, ReviewSession, folder, "ada")


def test_sets_of_embeddings_are_left_out(folder):
    """They have digests of the bytes they were made of, and no images."""
    path = folder / "audit.json"
    summary = json.loads(path.read_text())
    pairs = pq.read_table(folder / PAIRS).to_pylist()
    summary["sets"][1]["has_pixels"] = False
    path.write_text(json.dumps(summary))
    with ReviewSession(folder, "ada") as session:
        assert session.listing.within.all()
        assert session.listing.left_out == sum(row["coverage"] != "within" for row in pairs)
    del summary["sets"][0]["has_pixels"]
    summary["sets"][0]["pictures"] = False  # as in files of schema 1
    path.write_text(json.dumps(summary))
    with pytest.raises(VisleakError, match="compares embeddings: there are no images to"):
        ReviewSession(folder, "ada")


def test_an_audit_without_a_pair_has_pages(folder):
    write_tables(folder / PAIRS, PAIRS_SCHEMA, [PAIRS_SCHEMA.empty_table()])
    replace(read_summary(folder), files=None).save(folder)
    with ReviewSession(folder, "ada") as session:
        browser = Browser.at(session)
        assert "There is no pair to review" in browser.page("/pairs")
        assert "There is no pair to review" in browser.page("/sheet")
        assert "0 of 0 pairs judged" in browser.page("/result")
    with ReviewSession(folder, "ada", "nearest") as session:
        assert len(session.listing) == 0


def test_the_fit_is_the_maximum_of_the_posterior():
    rng = np.random.default_rng(3)
    features, known = rng.normal(size=(40, 3)), rng.normal(size=40)
    truth, scale = (rng.random(40) < 0.3).astype(float), np.array([1.0, 0.3, 2.0])

    def loss(weights):
        odds = known + features @ weights
        return float(
            np.logaddexp(0, odds).sum() - truth @ odds + ((weights / scale) ** 2).sum() / 2
        )

    found = fit_shift(features, known, truth, scale)
    assert found.weights == pytest.approx(minimize(loss, np.zeros(3), tol=1e-10).x, abs=1e-4)


def test_labels_decide_how_far_they_move_the_rest():
    """The evidence is the probability of the labels, integrated over the weights."""
    rng = np.random.default_rng(4)
    features, known = rng.normal(size=(12, 1)), rng.normal(size=12)
    truth, grid = (rng.random(12) < 0.6).astype(float), np.linspace(-6, 6, 20_001)
    odds = known[:, None] + features * grid
    chances = np.exp(truth @ odds - np.logaddexp(0, odds).sum(axis=0))
    prior = np.exp(-0.5 * (grid / 0.7) ** 2) / (0.7 * np.sqrt(2 * np.pi))
    whole = float((chances * prior).sum() * (grid[1] - grid[0]))
    fit = fit_shift(features, known, truth, np.array([0.7]))
    assert fit.evidence == pytest.approx(np.log(whole), abs=0.05)

    def best(odds, near, count=30):
        known, truth = np.full(count, odds), (np.arange(count) < near).astype(float)
        scale, factors = np.array([0.5]), (1.0, 0.1, 10.0)
        shift = fit_best_shift(np.ones((count, 1)), known, truth, scale, factors)
        return float(shift.weights[0]), float(shift.covariance[0, 0])

    # labels that agree with the known log-odds leave them; others move them by all that is needed
    assert best(0.0, 15) == pytest.approx((0.0, 0.0), abs=0.01)
    assert best(4.0, 15)[0] == pytest.approx(-4.0, abs=0.2)
    assert best(0.0, 0)[0] < -2.5
    assert best(0.0, 0, count=0) == pytest.approx((0.0, 0.25))


def deciding(images):
    """Return pairs that decide about one image each."""
    weight = np.ones(max(images, default=-1) + 1)
    return Deciding(np.arange(len(images)), np.array(images, np.int64), weight)


def made(chances, images, others=None):
    """Pairs with some probabilities; others: the images that `purge` would remove."""
    return Measured(
        known=logit(np.array(chances), 1e-9),
        features=np.full((len(chances), 1), 1e-12),
        scale=np.ones(1),
        leaks=deciding(images),
        removals=deciding(others or []),
        images=max(images) + 1,
    )


def test_gain_is_the_variance_that_a_verdict_removes():
    """Counted over all outcomes; a pair beside a sure one of the same image changes nothing."""
    chances, images = [0.5, 0.9, 0.3, 0.999999, 0.5], [0, 1, 1, 2, 2]
    fitted = made(chances, images).refit(np.full(5, np.nan))
    outcomes = np.array(list(itertools.product([0, 1], repeat=5)))
    weight = np.prod(np.where(outcomes, chances, 1 - np.array(chances)), axis=1)
    leaks = np.array([[row[np.array(images) == i].max() for i in range(3)] for row in outcomes])
    for pair in range(5):
        gain = 0.0
        for image in range(3):
            on = outcomes[:, pair] == 1
            means = [np.average(leaks[side, image], weights=weight[side]) for side in (on, ~on)]
            gain += (means[0] - means[1]) ** 2 * chances[pair] * (1 - chances[pair])
        assert fitted.gain[pair] == pytest.approx(gain, abs=1e-6)
    assert int(fitted.gain.argmax()) == 0
    assert fitted.rate == pytest.approx(np.average(leaks.sum(axis=1), weights=weight) / 3)


def test_a_pair_that_changes_no_rate_decides_about_the_plan():
    """Two pairs of one image, one of them certain: the other one's reference is open."""
    nothing = np.full(3, np.nan)
    alone = made([0.999999, 0.5, 0.5], [0, 0, 1]).refit(nothing)
    assert alone.gain[1] == pytest.approx(0.0, abs=1e-5)
    planned = made([0.999999, 0.5, 0.5], [0, 0, 1], [0, 1, 2]).refit(nothing)
    assert planned.gain[1] == pytest.approx(0.25, abs=1e-5)
    assert planned.gain[2] == pytest.approx(0.5, abs=1e-5)
    assert planned.rate == alone.rate
    # the first verdict in this order narrows the rate as before
    assert planned.half_widths[1] == pytest.approx(alone.half_widths[1])


@pytest.mark.parametrize("count", [3, 400])
def test_interval_of_the_rate_holds_few_images(count):
    """Two certain images, and pairs of a set that each decide about two more."""
    chances = [1.0 - 1e-9, *[0.08] * count]
    rows = np.repeat(np.arange(count + 1), 2)
    ends = Deciding(rows, np.arange(2 * count + 2), np.ones(2 * count + 2))
    measured = replace(made(chances, [0]), leaks=ends, images=2 * count + 2)
    truth = np.full(count + 1, np.nan)
    truth[0] = 1.0
    low, high = (end * measured.images for end in measured.refit(truth).interval)
    drawn = 2 + 2 * np.random.default_rng(1).binomial(count, 0.08, 4_000)
    assert ((low <= drawn + 1e-6) & (drawn <= high + 1e-6)).mean() >= 0.95
    assert high - low < 2.5 * np.subtract(*np.quantile(drawn, [0.975, 0.025])) + 2
    assert low >= 2 - 1e-6


def test_pairs_that_near_ones_connect_are_likely(session):
    """Such pairs are not verified, so that they have no probability."""
    listing = session.listing
    names = "left", "right", "grade", "probability"
    columns = {name: getattr(listing, name).copy() for name in names}
    # 1 and 2 are near to 0, and the fourth pair has an image of its own
    pairs = (
        (0, 1, 1, 0.9),
        (0, 2, 0, 0.9),
        (1, 2, -1, np.nan),
        (1, len(listing.digests), -1, np.nan),
    )
    for column, values in zip(columns.values(), zip(*pairs, strict=True), strict=True):
        column[: len(pairs)] = values
    digests = pa.concat_arrays([listing.digests, pa.array(["new"], listing.digests.type)])
    changed = replace(listing, digests=digests, **columns)
    assert automatic(changed)[2:4].tolist() == [CONNECTED, 0.0]
    assert np.isin([2, 3], tail_order(changed, 0)).tolist() == [False, True]


def test_verdicts_move_pairs_that_resemble_theirs(session):
    """Without one, the probabilities are the audit's; its tables stay as they are."""
    known = np.nan_to_num(session.listing.probability)
    before = session.outlook().probability
    assert before == pytest.approx(np.clip(known, 1e-5, 1 - 1e-5), abs=1e-9)
    likely = np.flatnonzero(known >= 0.5)
    session.judge(likely[:-2].tolist(), "different")
    assert (session.outlook().probability[likely[-2:]] < before[likely[-2:]]).all()
    assert np.nan_to_num(session.listing.probability).tolist() == known.tolist()


def test_order_changes_after_every_tenth_verdict_only(session):
    choice = Choice(sort="active")
    rows = session.rows(choice)
    session.judge(rows[: REFIT - 1].tolist(), "different")
    assert (session.rows(choice) == rows).all()
    session.judge([int(rows[REFIT])], "different")
    fresh = session.rows(choice)
    assert set(fresh[-REFIT:].tolist()) == {*rows[: REFIT - 1].tolist(), int(rows[REFIT])}
    # what was skipped comes again
    assert int(fresh[0]) == session.restart(choice, None)


@pytest.mark.parametrize("near", [0, 3, 60])
def test_interval_of_the_tail_holds_the_truth(near):
    rng, held = np.random.default_rng(near), 0
    truth = (np.arange(600) < near).astype(float)
    for _ in range(200):
        order, judged = rng.permutation(600), np.full(600, np.nan)
        judged[order[:120]] = truth[order[:120]]
        low, high = tail_sample(order, judged).interval
        held += low <= near <= high
        assert high - low < 120
    assert held >= 0.95 * 200


def test_more_verdicts_narrow_the_rate_as_estimated():
    measured, truth = made([0.5, 0.6, 0.9, 0.97, 0.02], [0, 1, 2, 3, 4]), np.full(5, np.nan)
    before = measured.refit(truth)
    assert before.verdicts_for(float(before.half_widths[2])) == 2
    truth[np.argsort(-before.gain)[:2]] = 1.0
    after = measured.refit(truth)
    assert after.half_widths[0] == pytest.approx(before.half_widths[2])
    assert before.half_widths[0] > 2 * after.half_widths[0]


def test_a_sample_ends_at_the_first_pair_without_a_verdict():
    truth = np.array([0.0, np.nan, 1.0, 0.0])
    assert tail_sample(np.array([3, 2, 1, 0]), truth) == TailSample(4, 2, 1)
    assert tail_sample(np.array([1, 2, 0, 3]), truth).interval == (0, 4)
    whole = tail_sample(np.array([0, 2, 3]), truth)
    assert whole.interval == (1, 1)


def test_the_sample_is_random_fixed_and_blind(session, folder):
    choice = Choice(sort="sample")
    rows = session.rows(choice)
    assert (np.nan_to_num(session.listing.probability)[rows] < 0.05).all()
    assert not (rows == np.sort(rows)).all()
    with ReviewSession(folder, "ben") as other:
        assert (other.rows(choice) == rows).all()
    browser, row = Browser.at(session), int(rows[0])
    hidden = browser.pair(row, "?sort=sample")
    assert "Hidden until you have judged this pair" in hidden
    assert (session.listing.row(row)["reason"] or "probability") not in hidden
    session.judge([row], "different")
    assert "Hidden until" not in browser.pair(row, "?sort=sample")
    assert session.tail_sample().judged == 1


def test_blind_review_shows_no_automatic_grade(folder):
    with ReviewSession(folder, "ada", blind=True) as session:
        browser = Browser.at(session)
        sheet = browser.page("/sheet")
        assert set(re.findall(r'data-automatic="([^"]*)"', sheet)) == {""}
        assert "Automatic grade: </span>" not in sheet + browser.pair(0)
        browser.judge([0], "near")
        assert "Automatic grade: </span>" in browser.pair(0)


def test_reviewers_share_an_overlap_and_divide_the_rest(folder):
    choice = Choice(state="open", sort="distance")
    with ReviewSession(folder, "ada", overlap=0.3) as ada:
        everything = ada.rows(choice)
        assert len(everything) == len(ada.listing)
        ada.judge(everything[:60].tolist(), "different")
    with ReviewSession(folder, "ben", overlap=0.3) as ben:
        again = set(ben.rows(choice).tolist()) & set(everything[:60].tolist())
        assert 5 <= len(again) <= 35
        ben.judge([min(again)], "near")
        (kappa,) = ben.own_agreement()
        assert (kappa.pairs, kappa.agreed) == (1, 0)
        assert "1 pair is disputed" in methods(ben)
    with ReviewSession(folder, "cleo") as cleo:
        settle = Choice(state="settle")
        assert cleo.rows(settle).tolist() == [min(again)]
        cleo.judge([min(again)], "near")
        assert cleo.rows(settle).tolist() == []
        # the verdict of the third makes a majority
        assert cleo.agreement().disputed == 0
        assert "decided by a majority in 1 pair" in methods(cleo)
    with pytest.raises(UsageError, match="overlap"):
        ReviewSession(folder, "ada", overlap=2.0)


def test_reviewers_at_work_at_the_same_time_judge_few_pairs_twice(folder):
    """In step with each other: each judges what the page showed before the other's last verdict."""
    choice = Choice(state="open")
    with (
        ReviewSession(folder, "ada", overlap=0) as ada,
        ReviewSession(folder, "ben", overlap=0) as ben,
    ):
        pair = [ada.first(choice), ben.first(choice)]
        for _ in range(24):
            for number, session in enumerate((ada, ben)):
                session.judge([pair[number]], "different")
                pair[number] = session.first(choice)
        found = ada.agreement()
    assert found.reviewers == {"ada": 24, "ben": 24}
    assert 48 - found.judged <= 14  # without another order for each: 24


def test_stop_is_offered_at_the_stated_miss_rate(folder):
    with ReviewSession(folder, "ada", miss=0.2) as session:
        browser = Browser.at(session)
        rows = session.rows(Choice(sort="likely"))
        truth = [GRADES[max(0, int(session.listing.grade[row]))] for row in rows]
        assert 'class="banner"' not in browser.pair(int(rows[0]), "?sort=likely")
        for row, grade in zip(rows[: ROW + REFIT].tolist(), truth, strict=False):
            session.judge([row], grade)
        page = browser.pair(int(rows[-1]), "?sort=likely")
        assert session.refit().missed <= 0.2
        assert "of the near pairs have no verdict" in page
        assert "the review may stop at 20.00 %" in words(browser.page("/result"))


def test_a_group_shows_what_contradicts(session):
    """Two copies of one image are near to it; a verdict says that they are not near each other."""
    listing, row = session.listing, row_of(session, "t00.png", "near0-again.png")
    group = group_of(listing, session.near(), row)
    assert row in group.inside
    assert len(group.conflicts) == 0
    # three contents in a circle
    pair = next(r for r in group.inside.tolist() if r != row)
    assert len(group.inside) > 2
    with Ledger(session.folder) as ledger:
        ledger.add(Verdict.of(*listing.key(pair), "different", "ben"))
    found = group_of(listing, session.near(), row)
    assert found.conflicts.tolist() == [pair]
    page = Browser.at(session).page(f"/group/{listing.name(row)}")
    assert "1 pair is not near or exact" in words(page)
    assert listing.name(pair) in page
