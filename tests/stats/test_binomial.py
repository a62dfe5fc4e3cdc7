"""Bounds against scipy, and against simulations in which the truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from visleak.errors import UsageError
from visleak.stats.intervals import clopper_pearson_upper, clustered_upper


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


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: clopper_pearson_upper(3, 2), "k must lie between 0 and n = 2; got 3"),
        (lambda: clopper_pearson_upper(0, 2, 1.0), "confidence must lie between 0 and 1; got 1"),
        (lambda: clustered_upper(1.5, 9), "rate must lie between 0 and 1; got 1.5"),
        (lambda: clustered_upper(0.5, 9, 0.0), "confidence must lie between 0 and 1; got 0"),
    ],
)
def test_nonsense_is_refused(call, said):
    with pytest.raises(UsageError, match=said):
        call()  # type: ignore[operator]
