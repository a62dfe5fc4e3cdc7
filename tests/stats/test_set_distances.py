"""Distances of sets against independent code: scipy's root, sklearn, torchmetrics, loops."""

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t
from sklearn.metrics.pairwise import polynomial_kernel

from visleak.stats.set_distances import frechet_distance, kernel_distance


def drawn(count, width, seed, shift=0.0):
    """Return correlated vectors."""
    rng = np.random.default_rng([count, width, seed])
    mixed = rng.standard_normal((count, width)) @ rng.standard_normal((width, width))
    return mixed + shift


def by_root(a, b):
    """Return the distance as published code computes it: by the root of a product of matrices."""
    one, other = np.cov(a, rowvar=False), np.cov(b, rowvar=False)
    # as in published code, because the root of a singular matrix is not unique
    small = 1e-10 * np.eye(len(one))
    root = scipy.linalg.sqrtm((one + small) @ (other + small)).real
    apart = a.mean(0) - b.mean(0)
    return float(apart @ apart + np.trace(one) + np.trace(other) - 2 * np.trace(root))


@pytest.mark.parametrize(
    ("rows", "others", "width"), [(40, 30, 4), (25, 60, 12), (5, 9, 8), (200, 3, 6)]
)
def test_frechet_is_that_of_the_matrix_root(rows, others, width):
    """With more vectors than dimensions on both sides, on one, and on none."""
    a, b = drawn(rows, width, 0), drawn(others, width, 1, shift=0.7)
    expected = by_root(a, b)
    assert expected > 1
    assert frechet_distance(a, b) == pytest.approx(expected, rel=2e-4)


def naive(a, b):
    """Return MMD^2 by loops over pairs, with sklearn's kernel."""
    own, other = (polynomial_kernel(x, degree=3, coef0=1) for x in (a, b))
    cross = polynomial_kernel(a, b, degree=3, coef0=1)
    pairs = [
        sum(k[i, j] for i in range(len(k)) for j in range(len(k)) if i != j)
        / (len(k) * (len(k) - 1))
        for k in (own, other)
    ]
    return float(pairs[0] + pairs[1] - 2 * cross.mean())


@given(st.integers(2, 7), st.integers(2, 7), st.integers(1, 4), st.integers(0, 9))
def test_kernel_distance_is_that_of_loops(n, m, width, seed):
    a, b = drawn(n, width, seed), drawn(m, width, seed + 100, shift=0.3)
    assert kernel_distance(a, b).value == pytest.approx(naive(a, b), rel=1e-9, abs=1e-9)


def test_the_interval_is_that_of_leaving_out_groups():
    """Each group of either set left out in turn; Satterthwaite's degrees of freedom."""
    a, b = drawn(14, 3, 0), drawn(12, 3, 1, shift=1.0)
    groups = np.array(list("aabbbbcdddefff"))
    others = np.arange(12) // 2
    found = kernel_distance(a, b, groups, others)
    left = [naive(a[groups != each], b) for each in np.unique(groups)]
    left_b = [naive(a, b[others != each]) for each in np.unique(others)]
    variances = [(len(each) - 1) * np.var(each) for each in (left, left_b)]
    assert found.error == pytest.approx(sum(variances) ** 0.5, rel=1e-9)
    # Kish's effective numbers of groups of 2, 4, 1, 3, 1, 3 images, and of 2 each
    freedom = 14**2 / (4 + 16 + 1 + 9 + 1 + 9) - 1, 6 - 1
    terms = [v**2 / d for v, d in zip(variances, freedom, strict=True)]
    reach = t.ppf(0.975, sum(variances) ** 2 / sum(terms)) * found.error
    assert (found.low, found.high) == pytest.approx((found.value - reach, found.value + reach))
    assert np.isnan(kernel_distance(a, b, np.arange(14) // 7).error)
