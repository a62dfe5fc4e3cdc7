"""Scales and shifts tried at once: planted ones come out first."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from visleak.verify import align
from visleak.verify.screen import REACH, SIDE
from visleak.verify.starts import STEPS, starts


def scene(seed, side=96):
    """Return a grey picture with structure at several scales."""
    rng = np.random.default_rng(seed)
    layers = [cv2.GaussianBlur(rng.normal(size=(side, side)), (0, 0), s) for s in (2, 5, 12)]
    total = sum(layer / layer.std() for layer in layers)
    return np.clip(127 + 35 * total, 0, 255).astype(np.float32)


def square(picture):
    return cv2.resize(picture, (SIDE, SIDE), interpolation=cv2.INTER_AREA)


@pytest.mark.parametrize("scale", STEPS)
@pytest.mark.parametrize(("across", "down"), [(0, 0), (4, -3), (-6, 5)])
def test_a_planted_scale_and_shift_is_found(scale, across, down):
    """The first relation is the one the reference was made by, to a pixel."""
    large = scene(1, 192)
    planted = np.array(
        [
            [scale, 0, 0.5 - scale / 2 + across / SIDE],
            [0, scale, 0.5 - scale / 2 + down / SIDE],
            [0, 0, 1.0],
        ]
    )
    query = square(large)
    reference = square(align.warp(large, planted))
    found = starts(query, reference, 1)[0]
    corners = np.array([[0.25, 0.75, 0.25], [0.25, 0.25, 0.75], [1, 1, 1.0]])
    assert np.abs((found - planted) @ corners).max() * SIDE < 1.6


def test_a_stretch_is_found():
    """One side cropped, the other not: what makes a plain shift fail."""
    large = scene(2, 192)
    query, reference = square(large), square(large[:, 24:168])
    found = starts(query, reference, 1)[0]
    assert (found[0, 0], found[1, 1]) == (pytest.approx(1.4, abs=0.23), 1.0)


def test_relations_are_distinct_and_within_reach():
    """As many as asked for, one a combination of scales."""
    found = starts(square(scene(3)), square(scene(4)), 5)
    assert len(found) == 5
    assert len({(m[0, 0], m[1, 1]) for m in found}) == 5
    for matrix in found:
        centre = matrix @ np.array([0.5, 0.5, 1])
        assert np.abs(centre[:2] - 0.5).max() <= REACH / SIDE + 1e-9
