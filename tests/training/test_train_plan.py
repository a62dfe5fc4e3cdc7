"""Rates, sides and work of a training, beside formulas worked out again."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visleak.training.plan import CYCLES, Plan, usual_epochs

PLAN = Plan("plain-11", 32, 10, 1000, 6, 100, 0)


def test_the_short_schedule_rises_once_and_falls_to_nothing() -> None:
    """One cycle: the highest rate at a fifth of the steps, next to none at the end."""
    rates = np.array([PLAN.rate(step) for step in range(PLAN.steps)])
    top = int(rates.argmax())
    assert top == round(0.2 * PLAN.steps) - 1
    assert rates[top] == pytest.approx(0.1 * 100 / 128)
    assert (np.diff(rates[: top + 1]) > 0).all()
    assert (np.diff(rates[top + 1 :]) < 0).all()
    assert 0 < rates[-1] < 0.01 * rates[top]


def test_the_papers_schedule_restarts_where_its_cycles_end() -> None:
    """Cosines from 0.1 to nothing over 12, 24, 48, 96 and 192 epochs."""
    plan = replace(PLAN, epochs=372, schedule="paper")
    per = plan.steps_per_epoch
    told = np.array([plan.rate(step) for step in range(plan.steps)])
    own = np.concatenate(
        [0.05 * (1 + np.cos(np.pi * np.arange(n * per) / (n * per))) for n in CYCLES]
    )
    np.testing.assert_allclose(told, own, atol=1e-12)
    restarts = np.flatnonzero(np.diff(told) > 0.05) + 1
    assert (restarts / per).tolist() == [12, 36, 84, 180]
    with pytest.raises(ValueError, match="after the last cycle"):
        plan.rate(plan.steps)


def test_first_epochs_are_smaller_but_never_too_small() -> None:
    assert [PLAN.side_at(epoch) for epoch in range(6)] == [24, 24, 24, 32, 32, 32]
    assert replace(PLAN, side=16).side_at(0) == 16
    assert replace(PLAN, schedule="paper", epochs=372).side_at(0) == 32


@given(
    st.builds(
        Plan,
        st.just("plain-11"),
        st.integers(16, 128),
        st.integers(0, 5),
        st.integers(2, 5000),
        st.integers(1, 12),
        st.integers(2, 300),
        st.just(0),
    )
)
def test_work_grows_with_every_step_to_all_of_it(plan: Plan) -> None:
    """Otherwise a bar would stand still, run back, or end before the work does."""
    done = [plan.done(step) for step in range(plan.steps + 1)]
    assert done[0] == 0
    assert done[-1] == plan.work[-1]
    assert all(a < b for a, b in pairwise(done))


def test_whatever_decides_the_weights_is_in_the_key() -> None:
    """A checkpoint of another plan, or of other data, is never gone on from."""
    others = {
        **{"network": "resnet", "side": 28, "classes": 0, "images": 999, "epochs": 7},
        **{"batch": 99, "seed": 1, "precision": "bf16"},
    }
    plans = [PLAN, *(replace(PLAN, **{name: value}) for name, value in others.items())]
    plans.append(replace(PLAN, schedule="paper"))
    keys = {plan.key("data") for plan in plans} | {PLAN.key("other data")}
    assert len(keys) == len(plans) + 1
    assert PLAN.key("data") == replace(PLAN).key("data")


@pytest.mark.parametrize(("pictures", "epochs"), [(20, 100), (10_000, 30), (10**7, 3)])
def test_epochs_follow_from_the_size_of_the_set(pictures: int, epochs: int) -> None:
    assert usual_epochs(pictures) == epochs
