"""How many more repetitions: that so many decide most such cases, and where none would."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from visleak.dlede.judge.certainty import MOST, PROBABLY, needed
from visleak.dlede.judge.judge import judge
from visleak.dlede.judge.rules import RULES
from visleak.dlede.judge.scores import Scores

ONE = RULES["cumulative"]


def spread(mean: float, deviation: float, chains: int) -> np.ndarray:
    """Return a column with exactly this mean and median-unbiased standard deviation."""
    values = np.arange(chains, dtype=float)
    squares = ((values - values.mean()) ** 2).sum()
    values = (values - values.mean()) / math.sqrt(squares / stats.chi2(chains - 1).median())
    return (mean + deviation * values)[:, None]


@pytest.mark.parametrize("mean", [0.01, -0.01])
@pytest.mark.parametrize("deviation", [0.01, 0.02, 0.04])
def test_power_of_the_t_test_is_enough_then_and_not_before(mean: float, deviation: float) -> None:
    more = needed(spread(mean, deviation, 4), ONE, 0.95)
    assert more is not None

    def power(chains: int) -> float:
        critical = stats.t.ppf(0.95, chains - 1)
        return float(stats.nct.sf(critical, chains - 1, abs(mean) / deviation * chains**0.5))

    assert power(4 + more) >= PROBABLY
    assert more == 1 or power(4 + more - 1) < PROBABLY


def test_what_lies_on_the_threshold_is_not_decided_by_more() -> None:
    assert needed(spread(0.0, 0.01, 4), ONE, 0.95) is None
    assert needed(spread(0.0005, 0.01, 4), ONE, 0.95) is None


def test_there_is_a_most() -> None:
    # of many chains the number is ((z of the level + z of the power) / ratio) squared
    ratio = (stats.norm.ppf(0.95) + stats.norm.ppf(PROBABLY)) / math.sqrt(MOST)
    found = needed(spread(ratio, 1.0, 4), ONE, 0.95)
    assert found is not None
    assert MOST - 10 < found <= MOST
    assert needed(spread(0.98 * ratio, 1.0, 4), ONE, 0.95) is None


def test_one_of_two_increases_is_enough_to_be_clean_both_are_needed_to_leak() -> None:
    high, low = spread(0.02, 0.02, 4), spread(-0.005, 0.02, 4)
    rule = RULES["both-steps"]
    alone = needed(high, ONE, 0.95)
    clean = needed(np.hstack([high, low]), rule, 0.95)
    assert alone is not None
    assert clean is not None
    # a stricter level for the choice of the clearer one
    assert alone < clean < 2 * alone
    leaking = needed(np.hstack([-high, low]), rule, 0.95)
    assert leaking == needed(low, ONE, 0.95)
    mirrored = needed(np.hstack([-high, -low]), RULES["any-step"], 0.95)
    assert mirrored == clean


def test_a_higher_certainty_needs_more() -> None:
    column = spread(0.01, 0.02, 4)
    found = [needed(column, ONE, certainty) for certainty in (0.8, 0.95, 0.99)]
    assert found == sorted(found)  # type: ignore[type-var]
    assert len(set(found)) == 3


def test_chains_without_spread_are_decided_by_one_more() -> None:
    assert needed(np.full((2, 1), 0.01), ONE, 0.95) == 1


def test_so_many_more_repetitions_decide_most_cases() -> None:
    rng = np.random.default_rng(0)
    decided = told = 0
    for rise in (0.0, 0.02, 0.08, 0.12):
        means = 0.5 * np.array([1.0, 1.0 + rise, (1.0 + rise) ** 2])
        for _ in range(40):
            values = means + rng.normal(0, 0.015, (1, 3 + MOST, 3))
            first = judge(scores(values[:, :3]), resamples=500)
            if first.more is not None:
                told += 1
                decided += (
                    judge(scores(values[:, : 3 + first.more]), resamples=500).verdict != "undecided"
                )
    assert told > 60
    assert decided / told > 0.65


def scores(values: np.ndarray) -> Scores:
    return Scores(("map50",), (0, 10, 20), tuple(range(1, values.shape[1] + 1)), values)
