"""What a detector is taught, against brute force, and read back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visleak.dlede.trainers.heatmaps import (
    OVERLAP,
    STRIDE,
    Objects,
    draw,
    radius_of,
    targets_of,
)

LENGTHS = st.floats(0.5, 60.0)


def overlap(first: list[float], second: list[float]) -> float:
    """Return the IoU of two boxes, written out."""
    across = max(0.0, min(first[2], second[2]) - max(first[0], second[0]))
    down = max(0.0, min(first[3], second[3]) - max(first[1], second[1]))
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (first, second)]
    return across * down / (sum(areas) - across * down)


@given(LENGTHS, LENGTHS, st.floats(0.3, 0.9))
def test_corners_within_the_radius_overlap_enough(
    height: float, width: float, wanted: float
) -> None:
    """The three cases of CornerNet, and all other corners of the square about each corner."""
    radius = radius_of(height, width, wanted)
    assert radius > 0
    box = [0.0, 0.0, width, height]
    ends = (-radius, 0.0, radius)
    found = [
        overlap(box, [left, top, width + right, height + bottom])
        for left in ends
        for top in ends
        for right in ends
        for bottom in ends
        if width + right > left and height + bottom > top
    ]
    assert min(found) >= wanted - 1e-9
    assert min(found) == pytest.approx(wanted, abs=1e-9)  # and no smaller radius is needed


def picture(*objects: tuple[int, float, float, float, float], crowd: int = 0) -> Objects:
    """Return objects given as (class, left, top, right, bottom); the last ``crowd`` are crowds."""
    rows = np.array(objects, np.float64).reshape(-1, 5)
    crowds = np.arange(len(rows)) >= len(rows) - crowd
    return Objects(rows[:, 0].astype(np.int64), rows[:, 1:], crowds)


def test_a_gaussian_is_that_of_the_paper() -> None:
    """Every cell of the window, written out; nothing outside it; at an edge it is cut off."""
    plane = np.zeros((7, 9), np.float32)
    draw(plane, 1, 4, 2.9)
    deviation = 5 / 6
    for row in range(7):
        for column in range(9):
            near = abs(row - 1) <= 2 and abs(column - 4) <= 2
            square = (row - 1) ** 2 + (column - 4) ** 2
            expected = np.exp(-square / (2 * deviation**2)) if near else 0.0
            assert plane[row, column] == pytest.approx(expected, abs=1e-6)


def test_overlapping_gaussians_keep_the_higher_value() -> None:
    near, far = picture((0, 0, 0, 80, 80), (0, 8, 0, 88, 80)), (20, 24)
    both = targets_of([near], 1, far).heat[0, 0]
    each = [
        targets_of([picture((0, *near.corners[number]))], 1, far).heat[0, 0] for number in (0, 1)
    ]
    assert np.array_equal(both, np.maximum(*each))
    assert (both == 1).sum() == 2


def test_boxes_are_read_back_from_their_targets() -> None:
    """Also those at the last edge of the canvas."""
    drawn = np.random.default_rng(3)
    low = drawn.uniform(0, 60, (40, 2))
    corners = np.concatenate([low, low + drawn.uniform(1, 40, (40, 2))], axis=1)
    corners[0] = 99, 99, 100, 100
    objects = Objects(drawn.integers(0, 3, 40), corners, np.zeros(40, np.bool_))
    made = targets_of([objects], 3, (25, 25))
    across = (made.places[:, 2] + made.boxes[:, 0]) * STRIDE
    down = (made.places[:, 1] + made.boxes[:, 1]) * STRIDE
    wide, tall = (np.exp(made.boxes[:, 2:]) * STRIDE).T
    said = np.stack([across - wide / 2, down - tall / 2, across + wide / 2, down + tall / 2], 1)
    nearest = np.abs(said[:, None] - corners[None]).max(axis=2).min(axis=1)
    assert nearest.max() < 1e-3
    assert len(said) == len({tuple(place) for place in made.places.tolist()})
    assert len(said) >= 30


def test_of_two_objects_in_a_cell_the_smaller_is_taught() -> None:
    """Both are found in their heat maps."""
    for order in (1, -1):
        shown = [(0, 0, 0, 80, 80), (1, 38, 38, 43, 42)][::order]
        made = targets_of([picture(*shown)], 2, (20, 20))
        assert made.places.tolist() == [[0, 10, 10]]
        assert (made.heat[0, :, 10, 10] == 1).all()
        assert made.boxes[0] == pytest.approx([0.125, 0.0, np.log(1.25), 0.0])


def test_crowds_do_not_count() -> None:
    """Their cells leave their class's heat map; of no class: all heat maps. Centres stay."""
    shown = picture((0, 4, 4, 12, 12), (0, 0, 0, 16, 16), (-1, 21, 21, 30, 23), crowd=1)
    shown.crowd[1] = True
    made = targets_of([shown, picture()], 2, (8, 8))
    expected = np.ones((2, 2, 8, 8), np.bool_)
    expected[0, 0, 0:4, 0:4] = False
    expected[0, 0, 2, 2] = True  # a true centre in the crowd
    expected[0, :, 5:6, 5:8] = False
    assert np.array_equal(made.counted, expected)
    assert made.heat.sum() == 1
    assert made.places.tolist() == [[0, 2, 2]]


def test_the_overlap_is_the_papers() -> None:
    assert OVERLAP == 0.7
