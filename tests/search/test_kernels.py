"""Kernels bound similarities from above; the dihedral one is tight."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toy_vectors import ALL, GRID_WIDTH, grid_view, loose_view, units
from visleak.encoders.builtin import BuiltinEncoder
from visleak.search.exact import DihedralKernel, TruncatedKernel, dihedral_basis, orthogonal_basis

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
    kernel = TruncatedKernel(reference, kept, views, make)
    assert (bounds(kernel, query, reference) >= truth(query, reference, views, make) - 1e-5).all()


def test_truncated_bounds_are_of_use():
    rng = np.random.default_rng(0)
    reference = units(rng, 50, 20)
    query = units(rng, 30, 20)
    whole = bounds(TruncatedKernel(reference, 20), query, reference)
    np.testing.assert_allclose(whole, truth(query, reference, (0,), None), atol=1e-5)
    half = bounds(TruncatedKernel(reference, 10), query, reference)
    assert (half <= 1 + 1e-3).all()


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


def test_principal_axes_are_orthogonal_and_sorted():
    """Strongest first, so that the first coordinates matter most."""
    rows = units(np.random.default_rng(3), 400, 6) * np.array([1, 5, 2, 9, 3, 1], np.float32)
    axes = orthogonal_basis(rows)
    np.testing.assert_allclose(axes.T @ axes, np.eye(6), atol=1e-9)
    strength = ((rows @ axes) ** 2).sum(axis=0)
    assert (np.diff(strength) <= 1e-6).all()


def swapped(first, second):
    """Return grid views with two of them exchanged."""
    places = list(ALL)
    places[first], places[second] = second, first
    return lambda rows, view: grid_view(rows, places[view])


def skewed(rows, view):
    """Views that multiply like the group but stretch vectors."""
    stretch = np.eye(rows.shape[1], dtype=np.float32)
    stretch[0, 1] = 0.5
    back = np.linalg.inv(stretch).astype(np.float32)
    return grid_view(rows @ back, view) @ stretch


def blurred(rows, view):
    """An inversion that is no change of signs."""
    return rows[:, ::-1] if view == 8 else grid_view(rows, view)


def test_the_basis_is_computed_once_for_all_built_in_encoders():
    bases = [dihedral_basis(560, BuiltinEncoder().view) for _ in range(2)]
    assert bases[0] is bases[1]


@pytest.mark.parametrize(
    "make",
    [
        *(swapped(a, b) for a, b in ((2, 3), (4, 1), (5, 7), (6, 7), (0, 2), (2, 7))),
        loose_view,
        skewed,
        blurred,
        lambda rows, view: grid_view(rows, view) * np.float32(1 if view < 4 else 2),
        lambda rows, view: grid_view(rows, 5 if view == 7 else view),
        lambda rows, view: grid_view(rows, 3 if view == 0 else view),
    ],
)
def test_other_views_have_no_dihedral_basis(make):
    """The fast kernel would be wrong for them."""
    assert dihedral_basis(GRID_WIDTH, make) is None


def test_the_other_way_round_is_a_group_too():
    way = (0, 3, 2, 1, 4, 7, 6, 5, 8)

    def make(rows, view):
        return grid_view(rows, way[view])

    query = units(np.random.default_rng(4), 20, GRID_WIDTH)
    kernel = DihedralKernel(dihedral_basis(GRID_WIDTH, make))
    got = bounds(kernel, query, query)
    np.testing.assert_allclose(got, truth(query, query, ALL, make), atol=1e-6)
