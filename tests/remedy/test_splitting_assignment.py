"""Components into parts: against brute force, integer programming, and properties."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from visleak.remedy import balance as balances
from visleak.remedy.balance import REASONS, Balance, Loads, off, peak, reasons
from visleak.remedy.partition import assign


def made(rng: np.random.Generator, components: int, largest: int, classes: int):
    sizes = rng.integers(1, largest + 1, components)
    component = np.repeat(np.arange(components), sizes)
    return component, rng.integers(0, classes, len(component))


def counted(component, stratum, part, parts):
    """Return images by part and class, image by image."""
    counts = np.zeros((parts, int(stratum.max()) + 1), np.int64)
    for own, name in zip(component, stratum, strict=True):
        counts[part[own], name] += 1
    return counts


def largest_by_hand(counts, shares):
    """Return the largest deviation, written as a person would say it."""
    n = counts.sum()
    worst = 0.0
    for p, share in enumerate(shares):
        size = counts[p].sum()
        worst = max(worst, abs(size - share * n) / (share * n))
        for c in range(counts.shape[1]):
            own = counts[p, c] / size if size else 0.0
            worst = max(worst, abs(own - counts[:, c].sum() / n))
    return worst


@pytest.mark.parametrize("shares", [(0.7, 0.3), (0.8, 0.2), (0.5, 0.3, 0.2)])
def test_close_to_the_best_of_all_assignments(shares):
    """On what can be enumerated the mean gap to the optimum is under a fifth of a point."""
    rng = np.random.default_rng(1)
    shares = np.array(shares)
    gaps = []
    for _ in range(6):
        component, stratum = made(rng, int(rng.integers(2, 11 - 2 * (len(shares) > 2))), 12, 3)
        loads = Loads.of(component, stratum)
        every = itertools.product(range(len(shares)), repeat=len(loads.sizes))
        best = min(peak(loads.counts_of(np.array(part), len(shares)), shares) for part in every)
        part = assign(component, stratum, shares)
        reached = largest_by_hand(counted(component, stratum, part, len(shares)), shares)
        assert reached >= best - 1e-12
        gaps.append(reached - best)
    assert np.mean(gaps) < 0.002
    assert max(gaps) < 0.02


def solvable(loads: Loads, shares, points: float) -> bool:
    """Whether some assignment to two parts deviates by at most so many points (exactly, HiGHS)."""
    rows = loads.dense(np.arange(len(loads.sizes)))
    n, whole = rows.sum(), rows.sum(axis=0) / rows.sum()
    low, high, matrix = [], [], []
    for sign, share in ((1, shares[0]), (-1, shares[1])):
        # counts of the second part are those of all less those of the first
        start = np.zeros(len(whole)) if sign > 0 else rows.sum(axis=0)
        size = sign * rows.sum(axis=1)
        matrix.append(size)
        low.append(share * n * (1 - points) - start.sum())
        high.append(share * n * (1 + points) - start.sum())
        for c, portion in enumerate(whole):
            for limit in (1, -1):
                # limit * (n_pc - portion n_p) <= points n_p, linear once points are given
                matrix.append(limit * (sign * rows[:, c] - portion * size) - points * size)
                low.append(-np.inf)
                high.append(-limit * (start[c] - portion * start.sum()) + points * start.sum())
    constraint = LinearConstraint(np.array(matrix, float), low, high)
    found = milp(
        np.zeros(len(rows)), constraints=constraint, integrality=np.ones(len(rows)),
        bounds=Bounds(0, 1), options={"time_limit": 5},
    )  # fmt: skip
    return bool(found.success)


def test_close_to_integer_programming():
    """Thirty components of two classes: no assignment is better by half a point."""
    rng = np.random.default_rng(3)
    shares = np.array([0.8, 0.2])
    component, stratum = made(rng, 30, 25, 2)
    loads = Loads.of(component, stratum)
    reached = peak(loads.counts_of(assign(component, stratum, shares), 2), shares)
    assert solvable(loads, shares, reached + 1e-6)
    assert reached < 0.005 or not solvable(loads, shares, reached - 0.005)


@st.composite
def instances(draw):
    component = np.unique(draw(st.lists(st.integers(0, 12), min_size=1, max_size=60)))
    images = draw(st.lists(st.sampled_from(range(len(component))), min_size=1, max_size=60))
    own = np.unique(np.array(images), return_inverse=True)[1]
    stratum = draw(st.lists(st.integers(0, 3), min_size=len(own), max_size=len(own)))
    weights = np.array(draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)), float)
    return own, np.array(stratum), weights / weights.sum()


@given(instances(), st.integers(0, 3))
def test_every_component_has_one_part_and_the_seed_decides(instance, seed):
    component, stratum, shares = instance
    part = assign(component, stratum, shares, seed)
    assert part.shape == (component.max() + 1,)
    assert set(part.tolist()) <= set(range(len(shares)))
    assert part.tolist() == assign(component, stratum, shares, seed).tolist()
    counts = Loads.of(component, stratum).counts_of(part, len(shares))
    assert (
        counts.tolist()
        == np.pad(counted(component, stratum, part, len(shares)), ((0, 0), (0, 0))).tolist()
    )


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=80),
    st.sampled_from([(0.8, 0.2), (0.5, 0.3, 0.2)]),
)
def test_single_images_come_out_to_the_image(stratum, shares):
    """Where nothing is tied, only rounding is left: an image in size, fewer than two a class."""
    codes = np.unique(np.array(stratum), return_inverse=True)[1]
    shares = np.array(shares)
    part = assign(np.arange(len(codes)), codes, shares)
    counts = counted(np.arange(len(codes)), codes, part, len(shares))
    sizes, _ = off(counts, shares)
    assert np.abs(sizes).max() <= 1.0 + 1e-9
    assert np.abs(counts - shares[:, None] * counts.sum(axis=0)).max() < 2.0


def test_many_components_take_seconds():
    rng = np.random.default_rng(0)
    component = np.unique(rng.integers(0, 100_000, 1_000_000), return_inverse=True)[1]
    stratum = rng.integers(0, 100, len(component))
    begun = time.perf_counter()
    part = assign(component, stratum, np.array([0.8, 0.1, 0.1]))
    assert time.perf_counter() - begun < 20
    assert peak(Loads.of(component, stratum).counts_of(part, 3), np.array([0.8, 0.1, 0.1])) < 1e-4


def test_balance_says_what_is_off():
    balance = Balance(
        ("train", "test"), np.array([0.8, 0.2]), ("cat", "dog"), np.array([[60, 10], [10, 20]])
    )
    assert balance.largest().points == pytest.approx(30 / 20 - 1)
    first, second, *_ = map(str, balance.misses(0.05))
    assert first == "part test is off its size by 50.00 % (10 images too many)"
    assert second == ("class cat of part test is off its share by 36.67 points (11 images too few)")
    few = Balance(("a", "b"), np.array([0.5, 0.5]), ("",), np.array([[1], [2]]))
    assert few.largest().points == pytest.approx(1 / 3)
    assert few.misses(0.01) == ()


# -- reasons why a tolerance is missed -------------------------------------------------------------


def told(component, label, shares=(0.8, 0.2), tolerance=0.01):
    component, label, shares = np.array(component), np.array(label), np.array(shares)
    part = assign(component, label, shares)[component]
    classes = tuple("abcdefghij"[: label.max() + 1]) if label.max() else ("",)
    parts = ("train", "val", "test")[: len(shares)] if len(shares) > 2 else ("train", "test")
    counts = balances.counted(part, len(shares), label, len(classes))
    balance = Balance(parts, shares, classes, counts)
    return reasons(balance, Loads.of(component, label), tolerance, lambda row: f"group g{row}")


def test_nothing_is_said_where_nothing_is_missed():
    assert told(range(100), [0] * 100) == ()
    assert told(np.repeat(np.arange(50), 2), [0] * 100) == ()


def test_a_component_larger_than_any_part():
    found = told([0] * 90 + list(range(1, 11)), [0] * 100, (0.5, 0.5))
    assert found[0] == (
        "one component of 90 images (group g0) is larger than part train allows by 40"
    )


def test_a_class_in_fewer_components_than_parts():
    component = [0] * 20 + list(range(1, 81))
    found = told(component, [0] * 20 + [1] * 80)
    assert found[0] == (
        "class a: its 20 images are in 1 component (group g0), so 1 of 2 parts can have any"
    )


def test_a_component_that_holds_most_of_a_class():
    component = [0] * 30 + list(range(1, 71))
    found = told(component, [0] * 30 + [0] * 2 + [1] * 68, (0.5, 0.5))
    assert any(
        line.startswith("class a: one component (group g0) holds 30 of its 32 images, and part")
        for line in found
    )


def test_what_no_proof_is_known_for_is_said_to_be_the_best_found():
    found = told(np.repeat([0, 1, 2], 30), [0] * 90, (0.5, 0.5))
    assert len(found) == 1
    assert found[0].startswith("part t")
    assert found[0].endswith(
        "there are 3 components, the largest of 30 images (group g0), and no better assignment was"
        " found"
    )


def test_many_obstacles_are_counted():
    found = told(np.repeat(np.arange(10), 10), np.repeat(np.arange(10), 10), (0.5, 0.5))
    assert len(found) == REASONS + 1
    assert found[-1] == "and 15 more"


@pytest.mark.parametrize("tolerance", [0.0, 0.05, 0.5, 1.0])
def test_obstacles_are_told_exactly_where_something_is_missed(tolerance):
    rng = np.random.default_rng(2)
    for _ in range(5):
        component = np.sort(rng.integers(0, 6, 60))
        component = np.unique(component, return_inverse=True)[1]
        label = rng.integers(0, 3, 60)
        shares = np.array([0.6, 0.4])
        part = assign(component, label, shares)[component]
        balance = Balance(
            ("train", "test"), shares, tuple("abc"), balances.counted(part, 2, label, 3)
        )
        said = reasons(balance, Loads.of(component, label), tolerance, str)
        assert bool(said) == bool(balance.misses(tolerance))
