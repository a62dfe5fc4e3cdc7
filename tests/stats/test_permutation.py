"""Permutation tests, draws and Holm's correction against all choices, scipy and statsmodels."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare, hypergeom
from statsmodels.stats.multitest import multipletests

from visleak.stats import permutation as arrangements
from visleak.stats.permutation import holm, hypergeometric_sum, permutation_test, stratified_draws


def enumerated(values, chosen, strata, mid):
    """Return the p-value over all choices, by differences of means of integers, exactly."""
    column, inside, group = np.array(values), np.array(chosen), np.array(strata)
    places = [np.flatnonzero(group == g) for g in np.unique(group)]
    choices = [itertools.combinations(p.tolist(), int(inside[p].sum())) for p in places]
    k, n = int(inside.sum()), len(column)

    def difference(rows):
        picked = int(column[list(rows)].sum())
        return picked * (n - k) - (int(column.sum()) - picked) * k

    found = np.array([difference(sum(each, ())) for each in itertools.product(*choices)])
    seen = difference(np.flatnonzero(inside).tolist())
    # exact: distances from the mean over all choices, times their number
    off = np.abs(found * len(found) - found.sum())
    own = abs(seen * len(found) - int(found.sum()))
    return float(np.mean(off > own) + (0.5 if mid else 1.0) * np.mean(off == own))


small = st.lists(
    st.tuples(st.integers(0, 1), st.booleans(), st.integers(0, 2)), min_size=2, max_size=11
)


@settings(max_examples=150)
@given(small, st.booleans(), st.booleans())
def test_right_and_wrong_are_counted_over_all_choices(rows, mid, stratified):
    values, chosen, strata = zip(*rows, strict=True)
    groups = strata if stratified else (0,) * len(rows)
    found = permutation_test(values, chosen, groups if stratified else None, mid=mid)
    told = any(
        0 < sum(c for c, g in zip(chosen, groups, strict=True) if g == s) < groups.count(s)
        for s in groups
    )
    if told:
        assert found == pytest.approx(enumerated(values, chosen, groups, mid), rel=1e-12)
    else:
        assert math.isnan(found)


@settings(max_examples=10)
@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.booleans(), st.integers(0, 1)), min_size=6, max_size=11
    ),
    st.booleans(),
)
def test_draws_agree_with_all_choices(rows, mid):
    """The standard error of 9,999 draws is 0.005."""
    values, chosen, strata = zip(*rows, strict=True)
    found = permutation_test(values, chosen, strata, mid=mid)
    if not math.isnan(found):
        assert found == pytest.approx(enumerated(values, chosen, strata, mid), abs=0.02)


def test_the_smallest_p_value_of_draws():
    """The observed choice is added to the draws, as half of a tie or all of it."""
    values, chosen = np.append(np.arange(200.0), 1e6 + np.arange(20.0)), np.arange(220) >= 200
    assert permutation_test(values, chosen) == 0.5 / 10_000
    assert permutation_test(values, chosen, mid=False) == 1 / 10_000
    assert permutation_test(values, chosen, resamples=1, mid=False) == 0.5


def drawn(sizes, taken, draws, seed=0):
    """Return all draws, (draws, rows)."""
    return np.concatenate(list(stratified_draws(np.array(sizes), np.array(taken), draws, seed)))


@pytest.fixture(params=["one by one", "all at once"], name="way")
def _way(request, monkeypatch):
    """Both ways to draw, whatever the sizes."""
    monkeypatch.setattr(arrangements, "CROWD", 0 if request.param == "one by one" else math.inf)
    monkeypatch.setattr(arrangements, "BLOCK", 40)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("sizes", "taken"), [([6], [3]), ([4, 3], [2, 2]), ([3, 1, 4], [2, 0, 1]), ([4], [4])]
)
def test_all_choices_are_equally_likely(sizes, taken):
    """Counts of all possible sets over 20,000 draws."""
    first = np.cumsum(sizes) - sizes
    choices = [
        itertools.combinations(range(begin, begin + size), few)
        for begin, size, few in zip(first, sizes, taken, strict=True)
    ]
    possible = sorted(tuple(sum(each, ())) for each in itertools.product(*choices))
    found = drawn(sizes, taken, 20_000)
    assert found.shape == (20_000, sum(taken))
    seen, counts = np.unique(np.sort(found, axis=1), axis=0, return_counts=True)
    assert [tuple(row) for row in seen.tolist()] == possible
    assert chisquare(counts).pvalue > 1e-3 if len(possible) > 1 else counts.tolist() == [20_000]


@pytest.mark.parametrize(("sizes", "taken"), [([2000, 30], [900, 4]), ([3] * 500, [1] * 500)])
def test_draws_are_seeded_and_without_replacement(sizes, taken):
    once, again = (drawn(sizes, taken, 300, seed=4) for _ in range(2))
    assert (once == again).all()
    assert (once != drawn(sizes, taken, 300, seed=5)).any()
    in_order = np.sort(once, axis=1)
    assert (np.diff(in_order, axis=1) > 0).all()
    stratum = np.repeat(np.arange(len(sizes)), sizes)
    assert (np.sort(stratum[once], axis=1) == np.repeat(np.arange(len(sizes)), taken)).all()


@given(st.data())
def test_one_stratum_is_scipys(data):
    """Relative errors are small in the tails too."""
    size = data.draw(st.integers(1, 50_000))
    marked, drawn = data.draw(st.integers(0, size)), data.draw(st.integers(0, size))
    least, probability = hypergeometric_sum([size], [marked], [drawn])
    counts = np.arange(least, least + len(probability))
    expected = hypergeom.logpmf(counts, size, marked, drawn)
    # scipy's own logarithms lose digits with the size of the factorials
    assert np.log(probability) == pytest.approx(expected, rel=1e-9, abs=1e-7)
    assert probability.sum() == pytest.approx(1.0, abs=1e-12)


NUMBERS = st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 6))


@given(st.lists(NUMBERS, min_size=1, max_size=3))
def test_a_sum_counts_all_choices(strata):
    tallies, strata = [], [(max(1, *each), *each[:2]) for each in strata]
    for size, marked, drawn in strata:
        choices = itertools.combinations(range(size), drawn)
        tallies.append([sum(i < marked for i in choice) for choice in choices])
    sums = [sum(each) for each in itertools.product(*tallies)]
    least, probability = hypergeometric_sum(*zip(*strata, strict=True))
    counts = np.bincount(sums)
    assert least == np.flatnonzero(counts)[0]
    assert probability == pytest.approx(counts[least:] / len(sums), rel=1e-12)


def test_ties_are_exact():
    """If half of each stratum is chosen, the tails mirror each other."""
    values, chosen, strata = [], [], []
    for stratum, (right, others_right, half) in enumerate([(3, 1, 7), (10, 9, 49)] * 3):
        for count, inside in ((right, True), (others_right, False)):
            values += [1] * count + [0] * (half - count)
            chosen += [inside] * half
            strata += [stratum] * half
    one_sided = permutation_test(values, chosen, strata, mid=False)
    assert one_sided == permutation_test(values, [not each for each in chosen], strata, mid=False)
    assert 0.5 * one_sided < permutation_test(values, chosen, strata) < one_sided


def test_rare_sums_keep_their_digits():
    """All 150 marked rows of 3,000 are drawn with a probability of 1e-254."""
    least, probability = hypergeometric_sum([1500, 1500], [75, 75], [75, 75])
    assert least + len(probability) == 151
    expected = 2 * hypergeom.logpmf(75, 1500, 75, 75)
    assert math.log(probability[-1]) == pytest.approx(expected, rel=1e-10)


probabilities = st.floats(0, 1) | st.sampled_from([0.0, 0.01, 0.02, 0.05, 1.0])


@settings(max_examples=15)  # statsmodels takes 50 ms
@given(st.lists(probabilities, min_size=1, max_size=40))
def test_holm_agrees_with_statsmodels(p):
    assert holm(p) == pytest.approx(multipletests(p, method="holm")[1], rel=1e-12, abs=1e-300)


@given(st.lists(probabilities | st.just(math.nan), max_size=20))
def test_nan_does_not_count(p):
    """NaN stays, and the others are corrected without it."""
    given_p = np.array(p)
    known = ~np.isnan(given_p)
    found = holm(p)
    assert (np.isnan(found) == ~known).all()
    assert found[known].tolist() == holm(given_p[known]).tolist()
    assert (found[known] >= given_p[known]).all()
