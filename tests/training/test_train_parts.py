"""Networks, losses, scores, rates and augmentations beside numbers worked out another way."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.neighbors import KNeighborsClassifier

from visleak.training.plan import CYCLES, Plan, usual_epochs
from visleak.training.run import agreement, by_neighbours, twin_rate

torch = pytest.importorskip("torch")

from visleak.training.networks import TEMPERATURE, built, instance_loss  # noqa: E402


def test_plain_11_is_the_papers() -> None:
    """3 x 3 convolutions, each followed by ReLU, then batch norm; three poolings; 512 numbers."""
    network, head = built("plain-11", 10, 0)
    names = [type(layer).__name__ for layer in network]
    words = " ".join(names).replace("Conv2d ReLU BatchNorm2d", "C").replace("AvgPool2d", "P")
    assert words == "C C P C C C P C C C P C Average"
    convolutions = [layer for layer in network if isinstance(layer, torch.nn.Conv2d)]
    widths = [layer.out_channels for layer in convolutions]
    assert widths == [64, 64, 128, 128, 128, 256, 256, 256, 512]
    assert {layer.kernel_size for layer in convolutions} == {(3, 3)}
    assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 512)
    assert [type(layer).__name__ for layer in head] == ["Linear", "ReLU", "BatchNorm1d", "Linear"]
    # nine convolutions, dense 512 and classes: eleven layers with weights
    assert len(convolutions) + 2 == 11


@pytest.mark.parametrize("side", [16, 96])
def test_the_residual_network_takes_any_side(side: int) -> None:
    network, head = built("resnet", 0, 0)
    vectors = network(torch.rand(2, 3, side, side))
    assert vectors.shape == (2, 512)
    assert head(vectors).shape == (2, 128)


def test_weights_depend_on_the_seed_alone() -> None:
    """And the caller's own random numbers go on as if nothing had been drawn."""
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, again, other = (built("plain-11", 3, seed)[0].state_dict() for seed in (0, 0, 1))
    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["0.weight"], other["0.weight"])


def test_the_loss_of_instances_is_the_papers_sum() -> None:
    """Equation 1 of Chen et al., written as its loops."""
    rows = np.random.default_rng(0).normal(size=(10, 6))
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    losses = []
    for i in range(10):
        twin = (i + 5) % 10
        alike = {k: np.exp(unit[i] @ unit[k] / TEMPERATURE) for k in range(10) if k != i}
        losses.append(-np.log(alike[twin] / sum(alike.values())))
    assert float(instance_loss(torch.from_numpy(rows))) == pytest.approx(np.mean(losses), rel=1e-5)


def test_neighbours_vote_as_scikit_learns() -> None:
    """Weighted by their cosine; with fewer references than voters all of them vote."""
    rng = np.random.default_rng(0)
    reference, query = (rng.normal(size=(n, 8)) + 1 for n in (60, 40))
    reference, query = (r / np.linalg.norm(r, axis=1, keepdims=True) for r in (reference, query))
    classes = rng.integers(0, 4, 60)
    for count in (5, 20, 100):
        known = KNeighborsClassifier(
            min(count, 60), weights=lambda distance: 1 - distance, metric="cosine"
        ).fit(reference, classes)
        found = by_neighbours(
            query.astype(np.float32), reference.astype(np.float32), classes, count
        )
        assert (found == known.predict(query)).all()


def test_twins_are_counted() -> None:
    """All rows find themselves; of rows in another order only those that stayed do."""
    rows = np.eye(6, dtype=np.float32)
    assert str(twin_rate(rows, rows)).startswith("6 of 6 ")
    assert twin_rate(rows, rows[[1, 0, 2, 3, 5, 4]]).count == 2
    assert agreement(np.array([1, 2, 2]), np.array([1, 2, 0])).count == 2


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
