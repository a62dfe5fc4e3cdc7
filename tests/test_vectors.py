"""Stored vectors at unit length: row by row, whatever comes with them."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visleak.vectors import NORM_TOLERANCE, forget, gathered, unit_rows


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_rows_have_unit_length_and_keep_their_direction(kind):
    stored = np.random.default_rng(0).normal(size=(50, 64)).astype(kind)
    rows = unit_rows(stored)
    assert rows.matrix.dtype == np.float32
    exact = stored.astype(np.longdouble)
    exact /= np.sqrt((exact**2).sum(axis=1, keepdims=True))
    np.testing.assert_array_equal(rows.matrix, exact.astype(np.float32))


def test_rows_without_a_direction_and_lengths_that_are_off_are_named():
    lengths = [1.0, 1 + 0.9 * NORM_TOLERANCE, 1 + 1.1 * NORM_TOLERANCE, 0.5, np.nan, np.inf, 0]
    stored = np.zeros((7, 8))
    stored[:, 0] = lengths
    rows = unit_rows(stored)
    assert rows.off.tolist() == [False, False, True, True, False, False, False]
    assert rows.broken.tolist() == [False] * 4 + [True] * 3
    assert not rows.matrix[4:].any()


@given(st.integers(1, 30), st.integers(0, 29))
def test_a_row_does_not_depend_on_its_neighbours(count, start):
    stored = np.random.default_rng(count).normal(size=(30, 17)).astype(np.float16)
    whole = unit_rows(stored).matrix
    part = unit_rows(stored[start : start + count]).matrix
    np.testing.assert_array_equal(part, whole[start : start + count])


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="no clear_refs")
def test_gathered_rows_leave_the_file_on_disk(tmp_path):
    """The memory of a file of 80 MB is not taken, not even for a moment, to read a few rows."""
    stored = np.memmap(tmp_path / "rows", np.float32, "w+", shape=(40_000, 512))
    stored[:] = np.arange(40_000, dtype=np.float32)[:, None]
    rows = np.random.default_rng(0).permutation(40_000)[:2_000]
    forget(stored)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins at what is resident now
    before = peak_mb()
    found = gathered(stored, rows)
    assert np.array_equal(found[:, 7], rows)
    assert peak_mb() - before < 40


def peak_mb():
    (line,) = [x for x in Path("/proc/self/status").read_text().splitlines() if "VmHWM:" in x]
    return int(line.split()[1]) / 1000
