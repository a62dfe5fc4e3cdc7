"""Intervals and tests of shares and means against independent implementations."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import binomtest

from visleak.rates import score_interval, wilson
from visleak.stats.intervals import (
    clopper_pearson_upper,
    clustered_upper,
    mcnemar_exact,
    newcombe,
    newcombe_paired,
    t_interval,
    t_test_power,
    weighted_wilson,
)

counts = st.integers(0, 300)


@given(counts, counts)
def test_mcnemar_is_the_two_sided_test_of_a_fair_coin(before, after):
    """scipy adds up all outcomes no likelier than the one seen: another way to the same."""
    expected = binomtest(before, before + after, 0.5).pvalue if before + after else 1.0
    assert mcnemar_exact(before, after) == pytest.approx(expected, rel=1e-9)
    assert mcnemar_exact(before, after) == mcnemar_exact(after, before)


@pytest.mark.parametrize(
    ("first", "second", "low", "high"),
    [
        ((56, 70), (48, 80), 0.0524, 0.3339),
        ((9, 10), (3, 10), 0.1705, 0.8090),
        ((6, 7), (2, 7), 0.0582, 0.8062),
        ((5, 56), (0, 29), -0.0381, 0.1926),
        ((0, 10), (0, 20), -0.1611, 0.2775),
        ((10, 10), (0, 20), 0.6791, 1.0),
    ],
)
def test_newcombe_gives_the_table_of_the_paper(first, second, low, high):
    """Table II of Newcombe 1998, method 10, first minus second, as printed."""
    assert newcombe(second, first) == pytest.approx((low, high), abs=6e-5)


def test_the_interval_covers_as_often_as_it_says():
    """Simulated samples with known shares: near 95 % of the intervals hold the difference."""
    rng = np.random.default_rng(5)
    for p, q, n, m in ((0.03, 0.001, 400, 380), (0.3, 0.5, 60, 90)):
        first, second = rng.binomial(n, p, 3000), rng.binomial(m, q, 3000)
        ends = [newcombe((int(a), n), (int(b), m)) for a, b in zip(first, second, strict=True)]
        held = np.mean([low <= q - p <= high for low, high in ends])
        assert 0.94 <= held <= 0.99


@given(st.integers(1, 500), st.integers(1, 500), st.data())
def test_the_interval_turns_round_with_its_samples(n, m, data):
    k, j = data.draw(st.integers(0, n)), data.draw(st.integers(0, m))
    low, high = newcombe((k, n), (j, m))
    assert low <= j / m - k / n <= high
    assert newcombe((j, m), (k, n)) == pytest.approx((-high, -low), abs=1e-12)


def test_nothing_is_known_of_nothing():
    assert all(math.isnan(end) for end in newcombe((0, 0), (1, 5)))


# -- the same images asked twice ------------------------------------------------------------------

#: Table III of Newcombe 1998b: yes both times, first only, second only, neither; the limits of
#: method 10 for the first share minus the second, as printed.
PAIRED = [
    ((36, 12, 2, 0), (0.0569, 0.3404)),
    ((20, 12, 2, 16), (0.0562, 0.3292)),
    ((18, 12, 2, 18), (0.0562, 0.3290)),
    ((36, 14, 0, 0), (0.1528, 0.4167)),
    ((35, 14, 0, 1), (0.1461, 0.4175)),
    ((18, 14, 0, 18), (0.1441, 0.3963)),
    ((2, 97, 1, 0), (0.8721, 0.9854)),
    ((1, 97, 1, 1), (0.8736, 0.9850)),
    ((0, 29, 1, 0), (0.6666, 0.9882)),
    ((2, 98, 0, 0), (0.9178, 0.9945)),
    ((1, 98, 0, 1), (0.9171, 0.9916)),
    ((0, 30, 0, 0), (0.8395, 1.0)),
    ((54, 0, 0, 0), (-0.0664, 0.0664)),
    ((53, 0, 0, 1), (-0.0729, 0.0729)),
    ((30, 0, 0, 24), (-0.0358, 0.0358)),
    ((29, 0, 0, 25), (-0.0354, 0.0354)),
    ((28, 0, 0, 26), (-0.0352, 0.0352)),
    ((27, 0, 0, 27), (-0.0351, 0.0351)),
]


@pytest.mark.parametrize(("cells", "ends"), PAIRED)
def test_newcombe_paired_gives_the_table_of_the_paper(cells, ends):
    """One printed limit, of (1, 97, 1, 1), is a digit off: it is 0.87367, as under method 8."""
    both, first, second, neither = cells
    assert newcombe_paired(both, second, first, neither) == pytest.approx(ends, abs=1.1e-4)
    if cells != (1, 97, 1, 1):
        assert newcombe_paired(both, second, first, neither) == pytest.approx(ends, abs=6e-5)


@given(counts, counts, counts, counts)
def test_the_paired_interval_turns_round_with_its_answers(a, b, c, d):
    """Which of the two times came first, and which answer is called yes, changes the sign only."""
    n = a + b + c + d
    if n:
        low, high = newcombe_paired(a, b, c, d)
        assert -1.0 <= low <= (c - b) / n <= high <= 1.0
        assert newcombe_paired(a, c, b, d) == pytest.approx((-high, -low), abs=1e-12)
        assert newcombe_paired(d, c, b, a) == pytest.approx((-high, -low), abs=1e-12)


@pytest.mark.parametrize("shares", [(0.9, 0.01, 0.05, 0.04), (0.4, 0.1, 0.2, 0.3)])
def test_the_paired_interval_covers_and_is_narrower(shares):
    """Simulated images that answer both times much alike, as under two versions of a test set."""
    rng = np.random.default_rng(3)
    drawn = rng.multinomial(500, shares, size=2000).tolist()
    ends = np.array([newcombe_paired(*cells) for cells in drawn])
    truth = shares[2] - shares[1]
    assert 0.94 <= np.mean((ends[:, 0] <= truth) & (truth <= ends[:, 1])) <= 0.975
    plain = np.array([newcombe((a + b, 500), (a + c, 500)) for a, b, c, _ in drawn])
    assert np.mean(ends[:, 1] - ends[:, 0]) < 0.8 * np.mean(plain[:, 1] - plain[:, 0])


def test_nothing_is_known_of_no_pairs():
    assert all(math.isnan(end) for end in newcombe_paired(0, 0, 0, 0))


@given(st.data())
def test_clopper_pearson_agrees_with_scipy(data):
    """scipy's interval is two-sided: its one-sided form is that of the test `less`."""
    n = data.draw(st.integers(1, 10_000_000))
    k = data.draw(st.integers(0, min(n, 200)))
    expected = binomtest(k, n, alternative="less").proportion_ci(0.95, method="exact").high
    assert clopper_pearson_upper(k, n) == pytest.approx(expected, rel=1e-9)


def test_knowing_nothing_bounds_nothing():
    assert clopper_pearson_upper(0, 0) == 1.0
    assert clopper_pearson_upper(5, 5) == 1.0
    assert clustered_upper(0.0, 1) == 1.0
    assert clustered_upper(1.0, 100) == 1.0


@given(st.integers(2, 3000), st.floats(0, 1))
def test_the_clustered_bound_is_above_the_exact_one(images, rate):
    """Chernoff's bound for n // 2 independent cases is never below Clopper and Pearson's."""
    cases = images // 2
    k = int(rate * cases)
    assert clustered_upper(k / cases, images) >= clopper_pearson_upper(k, cases) - 1e-9


def dependent_pairs(rng, images, hubs, rate):
    """Return the share of false pairs where some images are alike to everything."""
    hub = rng.random(images) < hubs
    base = rng.random((images, images)) < rate
    false = hub[:, None] | hub[None, :] | base
    return float(false[np.triu_indices(images, 1)].mean())


@pytest.mark.parametrize(("hubs", "rate"), [(0.0, 0.002), (0.01, 0.0), (0.03, 0.001), (0.2, 0.0)])
def test_the_clustered_bound_covers_where_the_plain_one_does_not(hubs, rate):
    """Planted dependence: 95 % of the bounds must lie above the truth."""
    rng = np.random.default_rng(11)
    images, runs = 60, 2000
    truth = 1 - (1 - hubs) ** 2 * (1 - rate)
    pairs = images * (images - 1) // 2
    shares = [dependent_pairs(rng, images, hubs, rate) for _ in range(runs)]
    clustered = np.mean([clustered_upper(share, images) >= truth for share in shares])
    plain = np.mean([clopper_pearson_upper(round(s * pairs), pairs) >= truth for s in shares])
    assert clustered >= 0.95
    if hubs:
        assert plain < 0.75  # the reason why it is not enough


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.999])
@pytest.mark.parametrize("n", [2, 3, 10, 400])
def test_interval_is_that_of_scipy(n, confidence):
    values = np.random.default_rng(n).normal(3, 2, n)
    want = stats.ttest_1samp(values, 0).confidence_interval(confidence)
    assert t_interval(values, confidence) == pytest.approx((want.low, want.high))


def test_what_is_not_known_is_left_out():
    assert t_interval([1.0, math.nan, 2.0]) == t_interval([1.0, 2.0])


def test_one_value_has_no_interval():
    assert all(map(math.isnan, t_interval([1.0, math.nan])))


@pytest.mark.parametrize("count", [2, 5, 20])
@pytest.mark.parametrize("effect", [-0.5, 0.0, 0.4, 1.5])
def test_power_is_that_of_simulated_t_tests(effect, count):
    rng = np.random.default_rng(count)
    drawn = rng.normal(effect, 1.0, (4000, count))
    found = stats.ttest_1samp(drawn, 0.0, axis=1, alternative="greater").pvalue < 0.05
    # 4 standard errors
    assert t_test_power(effect, 1.0, count) == pytest.approx(found.mean(), abs=0.033)


def test_power_without_spread_is_all_or_nothing():
    assert t_test_power([-1.0, 0.0, 1.0], 0.0, 5).tolist() == pytest.approx([0.0, 0.0, 1.0])
    assert t_test_power(1e300, [1e-300, 1.0], [2, 9]) == pytest.approx(1.0, abs=1e-5)


rows = st.lists(st.booleans(), min_size=1, max_size=80)


@given(rows, st.floats(1e-9, 1e9), st.sampled_from([0.5, 0.9, 0.95]))
def test_equal_weights_are_no_weights(values, weight, confidence):
    found = weighted_wilson(values, [weight] * len(values), confidence)
    assert found == pytest.approx(wilson(sum(values), len(values), confidence), abs=1e-12)


@given(rows, st.data())
def test_whole_weights_are_never_surer_than_so_many_rows(values, data):
    """A row of weight 3 says what three rows would say, but not as surely."""
    weights = data.draw(st.lists(st.integers(0, 4), min_size=len(values), max_size=len(values)))
    if sum(weights):
        k, n = int(np.dot(values, weights)), sum(weights)
        low, high = weighted_wilson(values, weights)
        plain = wilson(k, n)
        assert low <= plain[0] + 1e-12
        assert high >= plain[1] - 1e-12
        assert 0.0 <= low <= k / n + 1e-12
        assert k / n - 1e-12 <= high <= 1.0


def test_rows_of_no_weight_do_not_count():
    values, weights = [1, 0, 1, 1, 0], [2.0, 1.0, 1.0, 0.0, 0.0]
    assert weighted_wilson(values, weights) == weighted_wilson(values[:3], weights[:3])
    assert all(map(math.isnan, weighted_wilson([], [])))
    assert all(map(math.isnan, weighted_wilson([1, 0], [0, 0])))
    assert weighted_wilson([1, 1, 1], [0.1, 0.2, 0.3])[1] == 1.0
    assert weighted_wilson([0, 1], [1.0, 1e-200]) == pytest.approx(wilson(0, 1))


def test_the_effective_size_by_hand():
    """Half of the rows count three times: Kish's (4 + 12)^2 / (4 + 36) = 6.4 of 8 rows.

    As many 0 as 1 among both halves: what the rows show is the same.
    """
    values = np.tile([True, False], 4)
    weights = np.repeat([1, 3], 4)
    low, high = weighted_wilson(values, weights)
    z2 = 1.959963984540054**2
    # of a share of a half, Wilson's interval is 0.5 -+ 0.5 z / sqrt(n + z^2)
    assert high - low == pytest.approx(math.sqrt(z2 / (6.4 + z2)))


def test_where_the_heavy_rows_vary_fewer_are_known():
    """Light rows all right, heavy ones half: the share 0.625 by the definition of its variance."""
    values = np.array([1, 1, 1, 1, 1, 0, 1, 0])
    weights = np.repeat([1, 3], 4)
    shown = (4 * 0.375**2 + 2 * 9 * 0.375**2 + 2 * 9 * 0.625**2) / 16**2
    expected = score_interval(0.625, 0.625 * 0.375 / shown, 0.95)
    assert weighted_wilson(values, weights) == pytest.approx(expected)
    assert 0.625 * 0.375 / shown < 6.4
