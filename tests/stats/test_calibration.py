"""Calibration figures on cases whose answer is known beforehand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit

from visleak.errors import UsageError
from visleak.stats import calibration

ROWS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]), st.booleans()), min_size=1, max_size=60
)


def drawn(slope: float, intercept: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return probabilities, and outcomes whose log-odds are a line of the said ones'."""
    rng = np.random.default_rng(5)
    said = rng.uniform(0.02, 0.98, count)
    truth = expit(slope * logit(said) + intercept)
    return said, rng.random(count) < truth


@pytest.mark.parametrize(("slope", "intercept"), [(1.0, 0.0), (0.6, 0.4), (1.5, -1.0)])
def test_recalibration_finds_the_planted_line(slope: float, intercept: float) -> None:
    """200,000 draws know the line to 0.03."""
    found = calibration.recalibration(*drawn(slope, intercept, 200_000))
    assert found == pytest.approx((slope, intercept), abs=0.03)


def test_recalibration_is_where_the_likelihood_is_flat() -> None:
    """The gradient by hand is zero there."""
    said, true = drawn(0.7, 0.2, 300)
    slope, intercept = calibration.recalibration(said, true)
    error = expit(slope * logit(said) + intercept) - true
    assert abs(error.sum()) < 1e-4
    assert abs((error * logit(said)).sum()) < 1e-4


def test_certain_probabilities_do_not_break_the_fit() -> None:
    """The logit of 0 and 1 is infinite."""
    slope, intercept = calibration.recalibration(
        [0.0, 1.0, 0.3, 0.6, 0.7], [False, True, True, False, True]
    )
    assert math.isfinite(slope)
    assert math.isfinite(intercept)
    assert all(map(math.isnan, calibration.recalibration([0.2, 0.4], [True, True])))


def test_expected_calibration_error_by_hand() -> None:
    """Two bins of two rows each: |0.15 - 0.5| and |0.85 - 1| in equal parts."""
    error = calibration.expected_calibration_error(
        [0.8, 0.1, 0.9, 0.2], [True, False, True, True], bins=2
    )
    assert error == pytest.approx((0.35 + 0.15) / 2)


def test_honest_probabilities_have_little_error() -> None:
    """And shifted ones have the shift as error."""
    said, true = drawn(1.0, 0.0, 100_000)
    assert calibration.expected_calibration_error(said, true) < 0.01
    shifted = np.clip(said + 0.2, 0, 1)
    assert calibration.expected_calibration_error(shifted, true) > 0.15


@given(ROWS, st.randoms(use_true_random=False))
def test_bins_hold_every_row_once_in_any_order(
    rows: list[tuple[float, bool]], random: object
) -> None:
    """Sizes differ by one; sums are those of the rows; ties are not at the mercy of the order."""
    said, true = (np.array(column) for column in zip(*rows, strict=True))
    bins = calibration.reliability_bins(said, true)
    assert max(b.count for b in bins) - min(b.count for b in bins) <= 1
    assert sum(b.count for b in bins) == len(rows)
    assert sum(b.count * b.predicted for b in bins) == pytest.approx(said.sum())
    assert sum(b.count * b.observed for b in bins) == pytest.approx(true.sum())
    assert all(a.predicted <= b.predicted + 1e-12 for a, b in itertools.pairwise(bins))
    shuffled = list(rows)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    again = calibration.reliability_bins(*(np.array(c) for c in zip(*shuffled, strict=True)))
    assert [b.observed for b in again] == pytest.approx([b.observed for b in bins])


def test_equal_probabilities_share_their_outcomes() -> None:
    """One constant answer: every bin of it sees about the same share."""
    true = np.arange(1000) < 300
    bins = calibration.reliability_bins(np.full(1000, 0.3), true)
    assert all(abs(b.observed - 0.3) <= 0.02 for b in bins)


@given(ROWS)
def test_brier_score_by_hand(rows: list[tuple[float, bool]]) -> None:
    """A loop over the rows."""
    expected = sum((p - (1.0 if t else 0.0)) ** 2 for p, t in rows) / len(rows)
    assert calibration.brier_score(*zip(*rows, strict=True)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("said", "true", "message"),
    [
        ([], [], "nothing to calibrate: probability has no rows"),
        ([1.5], [True], "probability must lie between 0 and 1 in every row"),
        ([math.nan], [True], "probability must lie between 0 and 1 in every row"),
        ([0.5], [True, True], "probability and true must be columns of one length"),
    ],
)
def test_what_is_no_probability_is_refused(said: object, true: object, message: str) -> None:
    """One line each."""
    with pytest.raises(UsageError, match=message):
        calibration.brier_score(said, true)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="bins must be 1 or more; got 0"):
        calibration.reliability_bins([0.5], [True], bins=0)
