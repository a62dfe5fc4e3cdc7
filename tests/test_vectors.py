"""Stored vectors at unit length: row by row, whatever comes with them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visleak.vectors import NORM_TOLERANCE, unit_rows


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_rows_have_unit_length_and_keep_their_direction(kind: type) -> None:
    stored = np.random.default_rng(0).normal(size=(50, 64)).astype(kind)
    rows = unit_rows(stored)
    assert rows.matrix.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows.matrix, axis=1), 1, atol=1e-6)
    exact = stored.astype(np.longdouble)
    exact /= np.sqrt((exact**2).sum(axis=1, keepdims=True))
    np.testing.assert_array_equal(rows.matrix, exact.astype(np.float32))


def test_rows_without_a_direction_are_named_and_zero() -> None:
    stored = np.eye(5, dtype=np.float32)
    stored[1, 2], stored[3, 0], stored[4] = np.nan, np.inf, 0
    rows = unit_rows(stored)
    assert rows.broken.tolist() == [False, True, False, True, True]
    assert not rows.off.any()
    assert not rows.matrix[[1, 3, 4]].any()


def test_lengths_off_by_more_than_the_tolerance_are_counted() -> None:
    lengths = np.array([1.0, 1 + 0.9 * NORM_TOLERANCE, 1 + 1.1 * NORM_TOLERANCE, 0.5])
    rows = unit_rows(lengths[:, None] * np.eye(1, 8))
    assert rows.off.tolist() == [False, False, True, True]


@given(st.integers(1, 30), st.integers(0, 29))
def test_a_row_does_not_depend_on_its_neighbours(count: int, start: int) -> None:
    stored = np.random.default_rng(count).normal(size=(30, 17)).astype(np.float16)
    whole = unit_rows(stored).matrix
    part = unit_rows(stored[start : start + count]).matrix
    np.testing.assert_array_equal(part, whole[start : start + count])
