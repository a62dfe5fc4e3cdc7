import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from visleak.errors import UsageError
from visleak.stats import Rate, percent, wilson


@given(st.data())
def test_wilson_agrees_with_scipy(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 200_000))
    k = data.draw(st.integers(0, n))
    confidence = data.draw(st.sampled_from([0.5, 0.9, 0.95, 0.99]))
    expected = binomtest(k, n).proportion_ci(confidence, method="wilson")
    assert wilson(k, n, confidence) == pytest.approx((expected.low, expected.high), abs=1e-12)


@given(st.data())
def test_wilson_holds_the_share_and_mirrors(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 10**9))
    k = data.draw(st.integers(0, n))
    low, high = wilson(k, n)
    assert 0.0 <= low <= k / n <= high <= 1.0
    assert wilson(n - k, n) == pytest.approx((1.0 - high, 1.0 - low), abs=1e-12)


def test_wilson_solves_the_score_equation() -> None:
    # By definition the ends p solve (share - p)^2 = z^2 p (1 - p) / n.
    k, n, z = 7, 60, 1.959963984540054
    for end in wilson(k, n):
        assert (k / n - end) ** 2 == pytest.approx(z * z * end * (1.0 - end) / n, rel=1e-9)


def test_wilson_of_no_leak_and_of_all() -> None:
    z2 = 1.959963984540054**2
    assert wilson(0, 50) == (0.0, pytest.approx(z2 / (50 + z2)))
    assert wilson(50, 50) == (pytest.approx(50 / (50 + z2)), 1.0)


def test_wilson_of_nothing_knows_nothing() -> None:
    assert all(math.isnan(end) for end in wilson(0, 0))


@pytest.mark.parametrize(("k", "n"), [(-1, 5), (6, 5), (1, 0)])
def test_wilson_refuses_impossible_counts(k: int, n: int) -> None:
    with pytest.raises(UsageError, match=f"k must lie between 0 and n = {n}; got {k}"):
        wilson(k, n)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0])
def test_wilson_refuses_impossible_confidence(confidence: float) -> None:
    with pytest.raises(UsageError, match="confidence must lie between 0 and 1; got"):
        wilson(1, 2, confidence)


def test_rate_reads_as_a_sentence() -> None:
    assert str(Rate.of(289, 10_000)) == "289 of 10,000 (2.89 %, 95 % CI 2.58-3.24)"
    assert "25.00 %, 90 % CI " in str(Rate.of(1, 4, 0.9))


def test_rate_goes_through_json() -> None:
    for rate in (Rate.of(3, 9), Rate.of(0, 9)):
        stored = json.loads(json.dumps(rate.as_dict(), allow_nan=False))
        assert Rate.from_dict(stored) == rate
    assert json.loads(json.dumps(Rate.of(0, 0).as_dict(), allow_nan=False))["low"] is None


def test_percent_never_rounds_something_to_nothing() -> None:
    assert percent(1e-9) == "<0.01"
    assert percent(1.0 - 1e-9) == ">99.99"
    assert (percent(0.0), percent(1.0), percent(math.nan)) == ("0.00", "100.00", "-")
