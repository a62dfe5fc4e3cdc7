"""Growing columns: what was appended is what is mapped."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visleak.pipeline.context import GrowingColumn


@given(sizes=st.lists(st.integers(0, 7), max_size=6), width=st.sampled_from([(), (3,), (2, 2)]))
def test_rows_come_back(tmp_path_factory, sizes, width):
    """Whatever the pieces were, empty ones included."""
    rng = np.random.default_rng(sum(sizes))
    parts = [rng.normal(size=(size, *width)).astype(np.float32) for size in sizes]
    column = GrowingColumn(tmp_path_factory.mktemp("c") / "x", np.float32, width)
    for part in parts:
        column.append(part)
    got = column.mapped()
    expected = np.concatenate([np.empty((0, *width), np.float32), *parts])
    np.testing.assert_array_equal(got, expected)
    assert got.dtype == np.float32
    assert column.rows == sum(sizes)


def test_rows_of_another_shape_are_refused(tmp_path):
    """They would shift all that follow."""
    column = GrowingColumn(tmp_path / "x", np.float32, (3,))
    with column, pytest.raises(ValueError, match=r"^rows must have shape \(3,\), got \(2,\)$"):
        column.append(np.zeros((1, 2)))


def test_a_mapped_column_is_read_only(tmp_path):
    """Results never change in place."""
    column = GrowingColumn(tmp_path / "x", np.int64)
    column.append(np.arange(3))
    got = column.mapped()
    with pytest.raises(ValueError, match="read-only"):
        got[0] = 1
