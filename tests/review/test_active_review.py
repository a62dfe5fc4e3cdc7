"""The order of what a verdict changes, the refitted grader, and what a sample says of the rest."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from reviewed import Browser, Tags
from scipy.optimize import minimize

from visleak.errors import UsageError
from visleak.records import GRADES
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
from visleak.verdicts import Ledger, Verdict


def test_the_fit_is_the_maximum_of_the_posterior() -> None:
    rng = np.random.default_rng(3)
    features, known = rng.normal(size=(40, 3)), rng.normal(size=40)
    truth, scale = (rng.random(40) < 0.3).astype(float), np.array([1.0, 0.3, 2.0])

    def loss(weights: np.ndarray) -> float:
        odds = known + features @ weights
        return float(
            np.logaddexp(0, odds).sum() - truth @ odds + 0.5 * ((weights / scale) ** 2).sum()
        )

    found = fit_shift(features, known, truth, scale)
    assert found.weights == pytest.approx(minimize(loss, np.zeros(3), tol=1e-10).x, abs=1e-4)
    none = fit_shift(features[:0], known[:0], truth[:0], scale)
    assert none.weights.tolist() == [0, 0, 0]
    assert none.covariance == pytest.approx(np.diag(scale**2))


def test_labels_decide_how_far_they_move_the_rest() -> None:
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

    ones, scale, factors = np.ones((30, 1)), np.array([0.5]), (1.0, 0.1, 10.0)
    shifts = [
        fit_best_shift(
            ones, np.full(30, odds), (np.arange(30) < near).astype(float), scale, factors
        )
        for odds, near in ((0.0, 15), (4.0, 15), (0.0, 0))
    ]
    # labels that agree with the known log-odds leave them; others move them by all that is needed
    assert abs(shifts[0].weights[0]) < 0.01
    assert shifts[0].covariance[0, 0] < 0.01
    assert shifts[1].weights[0] == pytest.approx(-4.0, abs=0.2)
    assert shifts[2].weights[0] < -2.5
    none = fit_best_shift(ones[:0], np.zeros(0), np.zeros(0), scale, factors)
    assert none.covariance[0, 0] == pytest.approx(0.25)


def deciding(images: list[int]) -> Deciding:
    """Return pairs that decide about one image each."""
    weight = np.ones(max(images, default=-1) + 1)
    return Deciding(np.arange(len(images)), np.array(images, np.int64), weight)


def made(chances: list[float], images: list[int], others: list[int] | None = None) -> Measured:
    """Pairs with some probabilities; others: the images that `purge` would remove."""
    return Measured(
        known=logit(np.array(chances), 1e-9),
        features=np.full((len(chances), 1), 1e-12),
        scale=np.ones(1),
        leaks=deciding(images),
        removals=deciding(others or []),
        images=max(images) + 1,
    )


def test_gain_is_the_variance_that_a_verdict_removes() -> None:
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


def test_a_pair_that_changes_no_rate_decides_about_the_plan() -> None:
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


def test_more_verdicts_narrow_the_rate_as_estimated() -> None:
    chances = [0.5, 0.6, 0.9, 0.97, 0.02]
    measured = made(chances, [0, 1, 2, 3, 4])
    truth = np.full(5, np.nan)
    before = measured.refit(truth)
    needed = before.verdicts_for(float(before.half_widths[2]))
    assert needed == 2
    for row in np.argsort(-before.gain)[:needed]:
        truth[row] = 1.0
    after = measured.refit(truth)
    assert after.half_widths[0] == pytest.approx(before.half_widths[2])
    assert before.half_widths[0] > 2 * after.half_widths[0]
    assert before.verdicts_for(0.0) is None or before.half_widths[-1] == 0.0


@pytest.mark.parametrize("count", [3, 400])
def test_interval_of_the_rate_holds_few_images(count: int) -> None:
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


def test_pairs_that_near_ones_connect_are_likely(session: ReviewSession) -> None:
    """Such pairs are not verified, so that they have no probability."""
    listing = session.listing
    left, right = listing.left.copy(), listing.right.copy()
    grade, probability = listing.grade.copy(), listing.probability.copy()
    contents = len(listing.digests)
    # 1 and 2 are near to 0, and the fourth pair has an image of its own
    left[:4], right[:4] = (0, 0, 1, 1), (1, 2, 2, contents)
    grade[:4], probability[:4] = (1, 0, -1, -1), (0.9, 0.9, np.nan, np.nan)
    digests = pa.concat_arrays([listing.digests, pa.array(["new"], listing.digests.type)])
    changed = replace(
        listing, left=left, right=right, grade=grade, probability=probability, digests=digests
    )
    assert automatic(changed)[2:4].tolist() == [CONNECTED, 0.0]
    tail = tail_order(changed, 0)
    assert 3 in tail
    assert 2 not in tail


def test_without_verdicts_the_probabilities_are_the_audits(session: ReviewSession) -> None:
    listing = session.listing
    known = np.clip(np.nan_to_num(listing.probability), 1e-5, 1 - 1e-5)
    assert session.outlook().probability == pytest.approx(known, abs=1e-9)
    assert session.first(Choice()) == int(np.argsort(-known, kind="stable")[0])


def test_verdicts_move_pairs_that_resemble_theirs(session: ReviewSession) -> None:
    likely = np.flatnonzero(np.nan_to_num(session.listing.probability) >= 0.5)
    before = session.outlook().probability[likely]
    session.judge(likely[:-2].tolist(), "different")
    after = session.outlook().probability[likely]
    assert (after[-2:] < before[-2:]).all()
    # the shipped grader and the tables stay as they are
    assert np.nan_to_num(session.listing.probability)[likely] == pytest.approx(before, abs=1e-5)


def test_order_changes_after_every_tenth_verdict_only(session: ReviewSession) -> None:
    choice = Choice(sort="active")
    rows = session.rows(choice)
    session.judge(rows[: REFIT - 1].tolist(), "different")
    assert (session.rows(choice) == rows).all()
    session.judge([int(rows[REFIT])], "different")
    fresh = session.rows(choice)
    assert set(fresh[-REFIT:].tolist()) == {*rows[: REFIT - 1].tolist(), int(rows[REFIT])}
    # what was skipped comes again
    browser = Browser.at(session)
    assert int(fresh[0]) == session.restart(choice, None)
    assert "likely left" in " ".join(Tags(browser.page("/pairs?sort=active")).texts)


@pytest.mark.parametrize("near", [0, 3, 60])
def test_interval_of_the_tail_holds_the_truth(near: int) -> None:
    rng = np.random.default_rng(near)
    truth = np.zeros(600)
    truth[:near] = 1.0
    held = 0
    for _ in range(200):
        order, judged = rng.permutation(600), np.full(600, np.nan)
        judged[order[:120]] = truth[order[:120]]
        low, high = tail_sample(order, judged).interval
        held += low <= near <= high
    assert held >= 0.95 * 200


def test_a_sample_ends_at_the_first_pair_without_a_verdict() -> None:
    truth = np.array([0.0, np.nan, 1.0, 0.0])
    assert tail_sample(np.array([3, 2, 1, 0]), truth) == TailSample(4, 2, 1)
    assert tail_sample(np.array([1, 2, 0, 3]), truth).interval == (0, 4)
    whole = tail_sample(np.array([0, 2, 3]), truth)
    assert whole.interval == (1, 1)


def test_the_sample_is_random_fixed_and_blind(session: ReviewSession, folder: Path) -> None:
    choice = Choice(sort="sample")
    rows = session.rows(choice)
    assert (np.nan_to_num(session.listing.probability)[rows] < 0.05).all()
    assert not (rows == np.sort(rows)).all()
    with ReviewSession(folder, "ben") as other:
        assert (other.rows(choice) == rows).all()
    assert set(tail_order(session.listing, 1)) == set(rows)
    browser = Browser.at(session)
    row = int(rows[0])
    hidden = browser.pair(row, "?sort=sample")
    assert "Hidden until you have judged this pair" in hidden
    reason = session.listing.row(row)["reason"] or "probability"
    assert reason not in hidden
    session.judge([row], "different")
    assert "Hidden until" not in browser.pair(row, "?sort=sample")
    assert session.tail_sample().judged == 1


def test_blind_review_shows_no_automatic_grade(folder: Path) -> None:
    with ReviewSession(folder, "ada", blind=True) as session:
        browser = Browser.at(session)
        sheet = browser.page("/sheet")
        assert set(re.findall(r'data-automatic="([^"]*)"', sheet)) == {""}
        chips = re.findall(r"Automatic grade: </span>(\w+)", sheet + browser.pair(0))
        assert chips == []
        browser.judge([0], "near")
        assert "Automatic grade: </span>" in browser.pair(0)


def test_reviewers_share_an_overlap_and_divide_the_rest(folder: Path) -> None:
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


def test_reviewers_at_work_at_the_same_time_judge_few_pairs_twice(folder: Path) -> None:
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


def test_stop_is_offered_at_the_stated_miss_rate(folder: Path) -> None:
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
        assert 'class="banner"' not in browser.pair(int(rows[-1]), "?sort=likely&stop=off")
        text = " ".join(Tags(browser.page("/result")).texts)
        assert "the review may stop at 20.00 %" in " ".join(text.split())


def test_a_group_shows_what_contradicts(session: ReviewSession) -> None:
    """Two copies of one image are near to it; a verdict says that they are not near each other."""
    listing = session.listing
    names = zip(*(listing.pairs[side].to_pylist() for side in ("query", "reference")), strict=True)
    row = next(n for n, (a, b) in enumerate(names) if a == "t00.png" and b.startswith("near0"))
    group = group_of(listing, session.near(), row)
    assert row in group.inside
    assert len(group.conflicts) == 0
    pair = next(r for r in group.inside.tolist() if r != row)
    others = [r for r in group.inside.tolist() if r not in (row, pair)]
    assert others, "the planted group has three contents in a circle"
    with Ledger(session.folder) as ledger:
        ledger.add(Verdict.of(*listing.key(pair), "different", "ben"))
    found = group_of(listing, session.near(), row)
    assert found.conflicts.tolist() == [pair]
    page = Browser.at(session).page(f"/group/{listing.name(row)}")
    assert "1 pair is not near or exact" in " ".join(Tags(page).texts)
    assert json.dumps(listing.name(pair))[1:-1] in page
