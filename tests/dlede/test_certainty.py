"""Chances, intervals and further repetitions, against t tests, enumeration and closed forms."""

import math
from collections import Counter
from itertools import product

import numpy as np
import pytest
from scipy import stats

from visleak.dlede import judge as rules
from visleak.dlede.judge import PROBABLY, RULES, chance_above, chances, draws, excess, needed

# three chains, before and after leaking
BEFORE = np.array([0.50, 0.52, 0.47])
AFTER = np.array([0.53, 0.56, 0.52])


def enumerated(before, after, threshold):
    """Return the chance over all n^n resamples, the stretch integrated over chi-square."""
    n = len(before)
    values = excess(before, after, threshold)
    mean = values.mean()
    counted = Counter()
    for chosen in product(range(n), repeat=n):
        counted[round(float(values[list(chosen)].mean() - mean), 12)] += 1
    total = 0.0
    for distance, times in counted.items():
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
def test_chance_is_that_of_all_27_resamples_of_three_chains(threshold):
    weights = rules.draws(3, 200_000)
    found = rules.chance_above(BEFORE, AFTER, threshold, False, weights)
    assert found == pytest.approx(enumerated(BEFORE, AFTER, threshold), abs=0.004)


def test_chance_of_many_chains_is_that_of_a_one_sided_t_test():
    rng = np.random.default_rng(3)
    before = rng.normal(0.5, 0.02, 30)
    after = before * 1.05 + rng.normal(0.002, 0.01, 30)
    found = rules.chance_above(before, after, 0.05, False, rules.draws(30, 100_000))
    p = stats.ttest_1samp(after - 1.05 * before, 0.0, alternative="greater").pvalue
    assert found == pytest.approx(1.0 - p, abs=0.01)


@pytest.mark.parametrize(
    ("before", "after", "chance"),
    [
        # one chain, and a mean of nothing
        ([0.5], [0.5], math.nan),
        ([0.0, 0.0], [1.0, 1.0], math.nan),
        # chains that are all alike leave no doubt, and five percent is not above
        ([0.5] * 4, [0.525] * 4, 0.0),
        ([0.5] * 4, [0.526] * 4, 1.0),
    ],
)
def test_chances_without_a_spread(before, after, chance):
    weights = rules.draws(len(before), 100)
    found = rules.chance_above(np.array(before), np.array(after), 0.05, False, weights)
    assert found == pytest.approx(chance, abs=0, nan_ok=True)


def test_what_one_increase_must_say_had_as_many_chances_as_there_are_increases():
    assert rules.chances([0.98, 0.6], RULES["both-steps"])[1] == pytest.approx(0.98**2)
    assert rules.chances([0.04, 0.6, 0.5], RULES["any-step"])[0] == pytest.approx(0.96**3)
    assert rules.chances([0.3, 0.1], RULES["both-steps"])[1] == pytest.approx(0.09)


def test_mean_has_the_t_interval_of_scipy():
    found = rules.mean_interval(BEFORE)
    low, high = stats.t.interval(0.95, 2, loc=BEFORE.mean(), scale=stats.sem(BEFORE))
    assert (found.value, found.low, found.high) == pytest.approx((BEFORE.mean(), low, high))
    assert math.isnan(rules.mean_interval(BEFORE[:1]).low)
    assert math.isnan(rules.mean_interval(BEFORE[:0]).value)


def test_interval_of_an_increase_excludes_the_threshold_where_the_chance_does():
    weights = rules.draws(6, 20_000)
    rng = np.random.default_rng(2)
    rule = RULES["cumulative"]
    for truth in np.linspace(1.0, 1.2, 15):
        before = rng.normal(0.5, 0.01, 6)
        after = rng.normal(0.5 * truth, 0.01, 6)
        drawn = rules.drawn_increases(before, after, False, weights)[:, None]
        increases = np.array([after.mean() / before.mean() - 1.0])
        interval = rules.statistic_interval(increases, drawn, rule)
        assert interval.low < interval.value < interval.high
        for end, share in ((interval.low, 0.975), (interval.high, 0.025)):
            chance = rules.chance_above(before, after, end, False, weights)
            assert chance == pytest.approx(share, abs=0.002)


def test_pairing_holds_where_chains_differ_and_each_rises_by_ten_percent():
    base = np.array([0.2, 0.5, 0.8, 0.4])
    found = rules.drawn_increases(base, 1.1 * base, False, rules.draws(4, 10_000))
    assert np.quantile(found, [0.02, 0.98]) == pytest.approx([0.1, 0.1])


ONE = RULES["cumulative"]


def spread(mean, deviation, chains):
    """Return a column with exactly this mean and median-unbiased standard deviation."""
    values = np.arange(chains, dtype=float)
    squares = ((values - values.mean()) ** 2).sum()
    values = (values - values.mean()) / math.sqrt(squares / stats.chi2(chains - 1).median())
    return (mean + deviation * values)[:, None]


@pytest.mark.parametrize("mean", [0.01, -0.01])
@pytest.mark.parametrize("deviation", [0.01, 0.02, 0.04])
def test_power_of_the_t_test_is_enough_then_and_not_before(mean, deviation):
    more = needed(spread(mean, deviation, 4), ONE, 0.95)
    assert more is not None

    def power(chains):
        critical = stats.t.ppf(0.95, chains - 1)
        return float(stats.nct.sf(critical, chains - 1, abs(mean) / deviation * chains**0.5))

    assert power(4 + more) >= PROBABLY
    assert more == 1 or power(4 + more - 1) < PROBABLY


def test_one_of_two_increases_is_enough_to_be_clean_and_both_are_needed_to_leak():
    high, low = spread(0.02, 0.02, 4), spread(-0.005, 0.02, 4)
    alone = needed(high, ONE, 0.95)
    clean = needed(np.hstack([high, low]), RULES["both-steps"], 0.95)
    # a stricter level for the choice of the clearer one
    assert alone < clean < 2 * alone
    leaking = needed(np.hstack([-high, low]), RULES["both-steps"], 0.95)
    assert leaking == needed(low, ONE, 0.95) > 2 * alone
    assert needed(np.hstack([-high, -low]), RULES["any-step"], 0.95) == clean


TRAIN, TEST = 180, 90


@pytest.mark.parametrize("repetitions", [2, 3, 5])
@pytest.mark.parametrize(
    ("rule", "rises", "wrong"),
    [
        ("both-steps", (0.0501, 0.0), "leaking"),
        ("both-steps", (0.0499, 0.0499), "clean"),
        ("any-step", (0.0501, 0.0501), "leaking"),
        ("any-step", (0.0499, 0.12), "clean"),
        ("cumulative", (0.0249, 0.0246), "leaking"),
        ("cumulative", (0.0249, 0.0242), "clean"),
    ],
)
def test_a_truth_beside_the_threshold_is_called_wrong_about_as_often_as_allowed(
    rule, rises, wrong, repetitions
):
    rng = np.random.default_rng(repetitions)
    means = 0.5 * np.cumprod([1.0, 1.0 + rises[0], 1.0 + rises[1]])
    runs = 800
    values = means + rng.normal(0, 0.01, (runs, repetitions, 3))
    weights = draws(repetitions, 4000)
    pairs = RULES[rule].pairs(3)
    said = []
    for run in values:
        above = [chance_above(run[:, p], run[:, c], 0.05, False, weights) for p, c in pairs]
        said.append(chances(above, RULES[rule])[wrong == "clean"])
    # 5 %, and four standard errors; the plain bootstrap is wrong in 10 to 50 %
    assert np.mean(np.array(said) >= 0.95) < 0.05 + 4 * np.sqrt(0.05 * 0.95 / runs)
