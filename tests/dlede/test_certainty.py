"""Chances and intervals against t tests, enumeration and closed forms."""

from __future__ import annotations

import math
from collections import Counter
from itertools import product

import numpy as np
import pytest
from scipy import stats

from visleak.dlede.judge import certainty
from visleak.dlede.judge.rules import RULES, excess

# three chains, before and after leaking
BEFORE = np.array([0.50, 0.52, 0.47])
AFTER = np.array([0.53, 0.56, 0.52])


def enumerated(before: np.ndarray, after: np.ndarray, threshold: float) -> float:
    """Return the chance over all n^n resamples, the stretch integrated over chi-square."""
    n = len(before)
    values = excess(before, after, threshold)
    mean = values.mean()
    counted: Counter[float] = Counter()
    for chosen in product(range(n), repeat=n):
        counted[round(float(values[list(chosen)].mean() - mean), 12)] += 1
    total = 0.0
    for distance, times in counted.items():
        # mean + distance * sqrt(n / chi2) > 0
        chance = float(mean > 0)
        if distance * mean < 0.0:
            # the stretch decides: mean + distance * sqrt(n / chi-square) > 0
            least = n * (distance / mean) ** 2
            chance = float(stats.chi2(n - 1).cdf(least))
            if distance < 0.0:
                chance = 1.0 - chance
        total += times * chance
    return total / n**n


@pytest.mark.parametrize("threshold", [0.0, 0.03, 0.06, 0.09, 0.12, 0.2])
def test_chance_is_that_of_all_27_resamples_of_three_chains(threshold: float) -> None:
    weights = certainty.draws(3, 200_000)
    found = certainty.chance_above(BEFORE, AFTER, threshold, False, weights)
    assert found == pytest.approx(enumerated(BEFORE, AFTER, threshold), abs=0.004)


def test_drawn_chains_are_whole_and_as_many_as_there_are() -> None:
    weights = certainty.draws(3, 5_000)
    assert np.allclose(weights.sum(axis=1), 0.0)
    # without the stretch a row is one of the 10 multisets of three chains
    shapes = {tuple(np.round(row / (np.abs(row).max() or 1.0), 6)) for row in weights}
    ways = Counter(tuple(sorted(chosen)) for chosen in product(range(3), repeat=3))
    assert len(ways) == 10
    assert len(shapes) == 10
    assert np.mean(~weights.any(axis=1)) == pytest.approx(6 / 27, abs=0.02)


@pytest.mark.parametrize("chains", [3, 5, 10])
def test_spread_is_that_of_t(chains: int) -> None:
    # the second moment of the stretch is (n - 1) / (n - 3) above that of the mean; compare medians
    weights = certainty.draws(chains, 100_000, seed=1)
    rng = np.random.default_rng(0)
    values = rng.normal(size=chains)
    drawn = np.abs(weights @ values) / (values.std(ddof=1) / math.sqrt(chains))
    for share in (0.9, 0.95, 0.99):
        assert np.mean(drawn > stats.t.isf((1 - share) / 2, chains - 1)) == pytest.approx(
            1 - share, abs=0.02
        )


def test_chance_of_many_chains_is_that_of_a_one_sided_t_test() -> None:
    rng = np.random.default_rng(3)
    before = rng.normal(0.5, 0.02, 30)
    after = before * 1.05 + rng.normal(0.002, 0.01, 30)
    found = certainty.chance_above(before, after, 0.05, False, certainty.draws(30, 100_000))
    p = stats.ttest_1samp(after - 1.05 * before, 0.0, alternative="greater").pvalue
    assert found == pytest.approx(1.0 - p, abs=0.01)


def test_less_is_better_is_the_mirror_image() -> None:
    weights = certainty.draws(3, 10_000)
    falling = certainty.chance_above(AFTER, BEFORE, 0.05, True, weights)
    t = certainty.chance_above(AFTER, 2 * AFTER - BEFORE, 0.05, False, weights)
    assert falling == pytest.approx(t)


def test_of_one_chain_or_of_a_mean_of_nothing_there_is_no_chance() -> None:
    one = np.array([0.5])
    assert math.isnan(certainty.chance_above(one, one, 0.05, False, certainty.draws(1, 10)))
    nothing = np.zeros(2)
    weights = certainty.draws(2, 10)
    assert math.isnan(certainty.chance_above(nothing, nothing + 1, 0.05, False, weights))


def test_chains_that_are_all_alike_leave_no_doubt_and_five_percent_is_not_above() -> None:
    weights = certainty.draws(4, 100)
    before = np.full(4, 0.5)
    assert certainty.chance_above(before, np.full(4, 0.525), 0.05, False, weights) == 0.0
    assert certainty.chance_above(before, np.full(4, 0.526), 0.05, False, weights) == 1.0


def test_what_every_increase_must_say_is_as_certain_as_the_least_certain() -> None:
    assert certainty.chances([0.02, 0.4], RULES["both-steps"])[0] == pytest.approx(0.6)
    assert certainty.chances([0.98, 0.6], RULES["any-step"])[1] == pytest.approx(0.6)


def test_what_one_increase_must_say_had_as_many_chances_as_there_are_increases() -> None:
    assert certainty.chances([0.98, 0.6], RULES["both-steps"])[1] == pytest.approx(0.98**2)
    assert certainty.chances([0.04, 0.6, 0.5], RULES["any-step"])[0] == pytest.approx(0.96**3)
    assert certainty.chances([0.3, 0.1], RULES["both-steps"])[1] == pytest.approx(0.09)


def test_chances_of_one_increase_add_up_to_one() -> None:
    assert certainty.chances([0.7], RULES["cumulative"]) == pytest.approx((0.3, 0.7))


def test_chances_never_claim_both() -> None:
    rng = np.random.default_rng(0)
    for above in rng.random((500, 3)):
        for rule in RULES.values():
            leaking, clean = certainty.chances(list(above[: 1 if rule.whole else 3]), rule)
            assert leaking + clean <= 1.0 + 1e-12
            assert min(leaking, clean) >= 0.0


def test_mean_has_the_t_interval_of_scipy() -> None:
    found = certainty.mean_interval(BEFORE)
    low, high = stats.t.interval(0.95, 2, loc=BEFORE.mean(), scale=stats.sem(BEFORE))
    assert (found.value, found.low, found.high) == pytest.approx((BEFORE.mean(), low, high))
    assert math.isnan(certainty.mean_interval(BEFORE[:1]).low)
    assert math.isnan(certainty.mean_interval(BEFORE[:0]).value)


def test_interval_of_an_increase_excludes_the_threshold_where_the_chance_does() -> None:
    weights = certainty.draws(6, 20_000)
    rng = np.random.default_rng(2)
    rule = RULES["cumulative"]
    for truth in np.linspace(1.0, 1.2, 15):
        before = rng.normal(0.5, 0.01, 6)
        after = rng.normal(0.5 * truth, 0.01, 6)
        drawn = certainty.drawn_increases(before, after, False, weights)[:, None]
        increases = np.array([after.mean() / before.mean() - 1.0])
        interval = certainty.statistic_interval(increases, drawn, rule)
        assert interval.low < interval.value < interval.high
        for end, share in ((interval.low, 0.975), (interval.high, 0.025)):
            chance = certainty.chance_above(before, after, end, False, weights)
            assert chance == pytest.approx(share, abs=0.002)


def test_a_score_that_draws_take_to_nothing_has_a_wide_interval_but_a_finite_one() -> None:
    before, after = np.array([0.01, 0.9]), np.array([0.5, 0.6])
    drawn = certainty.drawn_increases(before, after, False, certainty.draws(2, 5_000))
    assert np.isfinite(drawn).all()
    assert drawn.max() > 5.0


def test_whole_chains_are_drawn_so_that_pairing_holds() -> None:
    # each chain rises by exactly 10 %, however much the chains differ
    base = np.array([0.2, 0.5, 0.8, 0.4])
    found = certainty.drawn_increases(base, 1.1 * base, False, certainty.draws(4, 10_000))
    assert found.shape == (10_000,)
    assert np.quantile(found, [0.02, 0.98]) == pytest.approx([0.1, 0.1])
