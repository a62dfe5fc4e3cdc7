"""Components into parts: against brute force, and properties."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visleak.remedy import partition
from visleak.remedy.balance import (
    REASONS,
    Balance,
    Loads,
    count_by_part,
    deviations,
    max_points,
    reasons,
)
from visleak.remedy.partition import assign


def made(rng, components, largest, classes):
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
        best = min(
            max_points(loads.counts_of(np.array(part), len(shares)), shares) for part in every
        )
        part = assign(component, stratum, shares)
        reached = largest_by_hand(counted(component, stratum, part, len(shares)), shares)
        assert reached >= best - 1e-12
        gaps.append(reached - best)
    assert np.mean(gaps) < 0.002
    assert max(gaps) < 0.02


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
    assert counts.tolist() == counted(component, stratum, part, len(shares)).tolist()


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=80),
    st.sampled_from([(0.8, 0.2), (0.5, 0.3, 0.2)]),
)
def test_single_images_miss_by_rounding_only(stratum, shares):
    """By one image in size, and fewer than two per class."""
    codes = np.unique(np.array(stratum), return_inverse=True)[1]
    shares = np.array(shares)
    part = assign(np.arange(len(codes)), codes, shares)
    counts = counted(np.arange(len(codes)), codes, part, len(shares))
    sizes, _ = deviations(counts, shares)
    assert np.abs(sizes).max() <= 1.0 + 1e-9
    assert np.abs(counts - shares[:, None] * counts.sum(axis=0)).max() < 2.0


def test_exchanges_among_many_components_are_sampled(monkeypatch):
    monkeypatch.setattr(partition, "WORK", 30)
    monkeypatch.setattr(partition, "COMPONENTS", 1)
    component, stratum = made(np.random.default_rng(0), 200, 12, 3)
    part = assign(component, stratum, np.array([0.8, 0.2]))
    counts = Loads.of(component, stratum).counts_of(part, 2)
    assert max_points(counts, np.array([0.8, 0.2])) < 0.01


def test_misses_of_a_balance():
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


def reasons_for(component, label, shares=(0.5, 0.5), tolerance=0.01):
    """Return the reasons why an assignment to two parts misses a tolerance, and the misses."""
    component, label, shares = np.array(component), np.array(label), np.array(shares)
    part = assign(component, label, shares)[component]
    classes = tuple("abcdefghij"[: label.max() + 1]) if label.max() else ("",)
    counts = count_by_part(part, 2, label, len(classes))
    balance = Balance(("train", "test"), shares, classes, counts)
    loads, misses = Loads.of(component, label), balance.misses(tolerance)
    return reasons(balance, loads, tolerance, lambda row: f"group g{row}"), misses


@pytest.mark.parametrize(
    ("component", "label", "said"),
    [
        ([0] * 90 + [*range(1, 11)], [0] * 100, "one component of 90 images (group g0) is larger"),
        ([0] * 20 + [*range(1, 81)], [0] * 20 + [1] * 80, "class a: its 20 images are in 1 comp"),
        ([0] * 30 + [*range(1, 71)], [0] * 32 + [1] * 68, "(group g0) holds 30 of its 32 images"),
        (np.repeat([0, 1, 2], 30), [0] * 90, "there are 3 components, the largest of 30 images"),
    ],
)
def test_a_miss_has_its_reason(component, label, said):
    assert any(said in line for line in reasons_for(component, label)[0])


def test_further_reasons_are_counted():
    found, _ = reasons_for(np.repeat(np.arange(10), 10), np.repeat(np.arange(10), 10))
    assert len(found) == REASONS + 1
    assert found[-1] == "and 15 more"


@pytest.mark.parametrize("tolerance", [0.0, 0.05, 0.5, 1.0])
def test_there_are_reasons_exactly_if_something_is_missed(tolerance):
    rng = np.random.default_rng(2)
    for _ in range(5):
        component = np.unique(np.sort(rng.integers(0, 6, 60)), return_inverse=True)[1]
        label = rng.integers(0, 3, 60)
        found, misses = reasons_for(component, label, (0.6, 0.4), tolerance)
        assert bool(found) == bool(misses)
