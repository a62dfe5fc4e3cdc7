"""The area that a trade-off curve covers, against areas by counting cells."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visleak.errors import UsageError
from visleak.stats.group_intervals import hypervolume, share_of_ideal

#: Points on a grid of eighths, whose union of rectangles is a number of cells.
EIGHTHS = st.integers(-2, 10)
POINTS = st.lists(st.tuples(EIGHTHS, EIGHTHS), max_size=7)


def counted(points: list[tuple[int, int]], corner: tuple[int, int]) -> int:
    """Return how many cells lie between some point and the corner."""
    cells = set()
    for x, y in points:
        cells |= {(a, b) for a in range(x, corner[0]) for b in range(corner[1], y)}
    return len(cells)


@given(POINTS, EIGHTHS, EIGHTHS)
def test_it_is_the_number_of_covered_cells(
    points: list[tuple[int, int]], right: int, floor: int
) -> None:
    table = np.array(points, np.float64).reshape(-1, 2) / 8
    found = hypervolume(table[:, 0], table[:, 1], (right / 8, floor / 8))
    assert found == counted(points, (right, floor)) / 64


@given(POINTS, st.randoms(use_true_random=False))
def test_order_and_what_is_beaten_change_nothing(
    points: list[tuple[int, int]], draw: object
) -> None:
    table = np.array([(1, 4), *points], np.float64) / 8
    whole = hypervolume(table[:, 0], table[:, 1], (1.0, 0.0))
    beaten = np.vstack([table, table[:1] + np.array([0.01, -0.01])])
    mixed = np.random.default_rng(len(points)).permutation(beaten)
    assert hypervolume(mixed[:, 0], mixed[:, 1], (1.0, 0.0)) == pytest.approx(whole, abs=1e-15)


def test_the_ideal_method_has_all_of_it_and_the_base_nothing() -> None:
    assert share_of_ideal([0.0], [0.3], (0.6, 0.3)) == pytest.approx(1.0)
    assert share_of_ideal([0.6], [0.3], (0.6, 0.3)) == 0.0
    assert share_of_ideal([], [], (0.6, 0.3)) == 0.0
    assert share_of_ideal([0.3], [0.4], (0.6, 0.2)) == pytest.approx(1.0)  # alignment rose


def test_without_a_base_to_speak_of_there_is_none() -> None:
    assert math.isnan(share_of_ideal([0.1], [0.3], (0.0, 0.3)))
    assert math.isnan(share_of_ideal([0.1], [0.3], (0.5, -0.1)))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="columns of one length"):
        hypervolume([0.1, 0.2], [0.3], (1.0, 0.0))
    with pytest.raises(UsageError, match="leave out settings without one"):
        hypervolume([math.nan], [0.3], (1.0, 0.0))
