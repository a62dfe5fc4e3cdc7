"""Kernels bound similarities from above; the dihedral one is tight."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toy_vectors import ALL, GRID_WIDTH, grid_view, loose_view, units
from visleak.encoders.builtin import BuiltinEncoder
from visleak.search.exact import DihedralKernel, TruncatedKernel, dihedral_basis

ENCODER = BuiltinEncoder()


def truth(query, reference, views, make):
    """Return the largest float64 similarity over views."""
    each = [query if view == 0 else make(query, view) for view in views]
    return np.max([one.astype(float) @ reference.astype(float).T for one in each], axis=0)


def bounds(kernel, query, reference):
    left, right = kernel.prepare(query, query=True), kernel.prepare(reference, query=False)
    return kernel.bounds(left, right)


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, GRID_WIDTH),
    st.sampled_from([((0,), None), ((0, 4), grid_view), (ALL, grid_view), (ALL, loose_view)]),
    st.booleans(),
)
def test_truncated_bounds_are_never_too_low(seed, kept, views_maker, aligned):
    """A bound below the truth would lose pairs in silence; also where the rests are parallel."""
    rng = np.random.default_rng(seed)
    reference = units(rng, 30, GRID_WIDTH, repeats=0.3)
    query = reference[::-1].copy() if aligned else units(rng, 20, GRID_WIDTH)
    views, make = views_maker
    found = bounds(TruncatedKernel(reference, kept, views, make), query, reference)
    expected = truth(query, reference, views, make)
    assert (found >= expected - 1e-5).all()
    if kept == GRID_WIDTH:
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(("width", "make"), [(GRID_WIDTH, grid_view), (560, ENCODER.view)])
def test_dihedral_bounds_are_the_similarities(width, make):
    rng = np.random.default_rng(1)
    reference = units(rng, 70, width)
    query = np.concatenate([make(reference[:36], view)[view * 4 : view * 4 + 4] for view in ALL])
    query = np.concatenate([query, units(rng, 30, width)]).astype(np.float32)
    basis = dihedral_basis(width, make)
    got = bounds(DihedralKernel(basis), query, reference)
    np.testing.assert_allclose(got, truth(query, reference, ALL, make), atol=1e-6)
    np.testing.assert_allclose(basis.axes.T @ basis.axes, np.eye(width), atol=1e-5)
    assert (basis.edges[0], basis.edges[-1]) == (0, width)


def skewed(rows, view):
    """Views that multiply like the group but stretch vectors."""
    stretch = np.eye(rows.shape[1], dtype=np.float32)
    stretch[0, 1] = 0.5
    back = np.linalg.inv(stretch).astype(np.float32)
    return grid_view(rows @ back, view) @ stretch


def swapped(first, second):
    """Return grid views with two of them exchanged."""
    return lambda rows, view: grid_view(rows, {first: second, second: first}.get(view, view))


@pytest.mark.parametrize(
    "make",
    [
        *(swapped(a, b) for a, b in ((2, 3), (4, 1), (5, 7), (6, 7), (0, 2), (2, 7))),
        loose_view,
        skewed,
        # an inversion that is no change of signs
        lambda rows, view: rows[:, ::-1] if view == 8 else grid_view(rows, view),
        lambda rows, view: grid_view(rows, view) * np.float32(1 if view < 4 else 2),
        lambda rows, view: grid_view(rows, 5 if view == 7 else view),
    ],
)
def test_other_views_have_no_dihedral_basis(make):
    """The fast kernel would be wrong for them."""
    assert dihedral_basis(GRID_WIDTH, make) is None
