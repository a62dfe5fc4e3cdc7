"""Reasons why a tolerance is missed, and none if it is kept."""

from __future__ import annotations

import numpy as np
import pytest

from visleak.remedy.balance import REASONS, Balance, Loads, counted, reasons
from visleak.remedy.partition import assign


def told(component, label, shares=(0.8, 0.2), tolerance=0.01):
    component, label, shares = np.array(component), np.array(label), np.array(shares)
    part = assign(component, label, shares)[component]
    classes = tuple("abcdefghij"[: label.max() + 1]) if label.max() else ("",)
    parts = ("train", "val", "test")[: len(shares)] if len(shares) > 2 else ("train", "test")
    counts = counted(part, len(shares), label, len(classes))
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
        balance = Balance(("train", "test"), shares, tuple("abc"), counted(part, 2, label, 3))
        said = reasons(balance, Loads.of(component, label), tolerance, str)
        assert bool(said) == bool(balance.misses(tolerance))
