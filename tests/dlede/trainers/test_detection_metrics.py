"""What a detector is taught, and the metrics of what it finds, counted by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visleak.dlede.trainers.detections import (
    STRIDE,
    Detections,
    Objects,
    draw,
    radius_of,
    score_detections,
    targets_of,
)
from visleak.formats import Boxes

Row = tuple[int, int, float, float, float, float]


def truth_of(rows, images, classes, crowd=()):
    """Return objects given as (image, class, left, top, right, bottom)."""
    table = np.array(rows, np.float64).reshape(-1, 6)
    crowds = np.isin(np.arange(len(rows)), crowd)
    names = tuple(f"class {number}" for number in range(classes))
    label = table[:, 1].astype(np.int64)
    return Boxes(names, table[:, 0].astype(np.int64), label, table[:, 2:], crowds, images, False)


def found_of(rows):
    """Return detections given as an object and a confidence."""
    table = np.array([row for row, _ in rows], np.float64).reshape(-1, 6)
    score = np.array([score for _, score in rows], np.float64)
    label = table[:, 1].astype(np.int64)
    return Detections(table[:, 0].astype(np.int64), label, score, table[:, 2:])


def shifted(row, across):
    return (row[0], row[1], row[2] + across, row[3], row[4] + across, row[5])


ALL = ("precision", "recall", "f1", "map50", "map50_95")
ONES = pytest.approx(dict.fromkeys(ALL, 1.0))

A: Row = (0, 0, 10, 10, 30, 30)
B: Row = (1, 0, 10, 10, 30, 30)
C: Row = (1, 1, 50, 50, 70, 80)


def test_nothing_found_is_zero():
    made = score_detections(truth_of([A, C], 3, 2), found_of([]))
    assert made.metrics == dict.fromkeys(ALL, 0.0)
    assert made.confidence == np.inf
    assert made.f1.tolist() == [0, 0, 1]


def test_a_known_average_precision():
    """Right, wrong, right of two objects: precision 1 up to recall .5, 2/3 up to 1.

    COCO's 101 recalls: 51 of them (0 to .5) have 1, 50 have 2/3.
    """
    made = score_detections(
        truth_of([A, B], 2, 1), found_of([(A, 0.9), (shifted(B, 200), 0.8), (B, 0.7)])
    )
    assert made.metrics["map50"] == pytest.approx((51 + 50 * 2 / 3) / 101)
    assert made.metrics["map50_95"] == pytest.approx((51 + 50 * 2 / 3) / 101)
    # of the three confidences the last has the highest F1: 4 / 5
    assert made.metrics["precision"] == pytest.approx(2 / 3)
    assert made.metrics["recall"] == 1
    assert made.metrics["f1"] == pytest.approx(0.8)
    assert made.f1 == pytest.approx([1, 2 / 3])


def test_what_lies_in_a_crowd_is_neither_right_nor_wrong():
    nowhere = (0, -1, 100.0, 100.0, 200.0, 200.0)
    truth = truth_of([A, (0, 0, 50, 50, 90, 90), nowhere], 1, 2, crowd=(1, 2))
    inside = [(0, 0, 55, 55, 70, 70), (0, 0, 60, 55, 75, 75), (0, 1, 110, 110, 130, 130)]
    made = score_detections(truth, found_of([(A, 0.5), *((row, 0.9) for row in inside)]))
    assert made.metrics == ONES
    assert made.f1.tolist() == [1]
    outside = (0, 0, 110.0, 0.0, 130.0, 20.0)
    made = score_detections(truth, found_of([(A, 0.5), (outside, 0.9)]))
    assert made.metrics["precision"] == 0.5


def by_hand(truth, found):
    """Return what there is to say at IoU .5, counted for each confidence anew."""
    best = (-1.0, {}, [])
    for level in sorted(set(found.score.tolist()), reverse=True):
        counts = {label: [0, 0, 0] for label in range(len(truth.names))}  # right, said, objects
        images = [[0, 0] for _ in range(truth.images)]  # right, said and objects
        for image in range(truth.images):
            for label, count in counts.items():
                there = np.flatnonzero((truth.image == image) & (truth.label == label))
                mine = (found.image == image) & (found.label == label) & (found.score >= level)
                right = greedy(truth.corners[there], found, np.flatnonzero(mine))
                count[0] += right
                count[1] += int(mine.sum())
                count[2] += len(there)
                images[image][0] += 2 * right
                images[image][1] += int(mine.sum()) + len(there)
        rates = [
            (right / said if said else 0.0, right / objects, 2 * right / (said + objects))
            for right, said, objects in counts.values()
            if objects
        ]
        means = dict(zip(("precision", "recall", "f1"), np.mean(rates, axis=0), strict=True))
        if means["f1"] > best[0] + 1e-12:
            best = (means["f1"], means, [a / b if b else 1.0 for a, b in images])
    return best[1], best[2]


def greedy(boxes, found, rows):
    """Return how many detections find an object: the surest first, each the best one left."""
    left = list(range(len(boxes)))
    right = 0
    for row in rows[np.argsort(-found.score[rows], kind="stable")]:
        one = found.corners[row]
        rated = []
        for each in left:
            other = boxes[each]
            sides = np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2])
            inner = float(np.prod(np.maximum(sides, 0)))
            whole = np.prod(one[2:] - one[:2]) + np.prod(other[2:] - other[:2]) - inner
            rated.append(inner / whole)
        if rated and max(rated) >= 0.5:
            left.pop(int(np.argmax(rated)))
            right += 1
    return right


@pytest.mark.parametrize("seed", range(6))
def test_random_boxes_against_a_count_by_hand(seed):
    random = np.random.default_rng(seed)
    truth_rows = []
    said = []
    for image in range(12):
        for _ in range(random.integers(0, 5)):
            left, top = random.uniform(0, 60, 2)
            wide, tall = random.uniform(8, 40, 2)
            label = int(random.integers(0, 3))
            row = (image, label, left, top, left + wide, top + tall)
            truth_rows.append(row)
            for _ in range(random.integers(0, 3)):
                guess = shifted(row, random.normal(0, 6))
                label = label if random.random() < 0.8 else int(random.integers(0, 3))
                # in tenths: many confidences are the same
                said.append(((image, label, *guess[2:]), round(random.uniform(0.1, 1), 1)))
    truth, found = truth_of(truth_rows, 12, 3), found_of(said)
    made = score_detections(truth, found)
    rates, images = by_hand(truth, found)
    assert {name: made.metrics[name] for name in rates} == pytest.approx(rates)
    assert made.f1 == pytest.approx(images)


def test_shares_are_refused():
    with pytest.raises(ValueError, match="in pixels"):
        score_detections(replace(truth_of([A], 1, 1), relative=True), found_of([]))


def test_only_crowds_are_nothing_to_find():
    with pytest.raises(ValueError, match="no class has an object"):
        score_detections(truth_of([A], 1, 1, crowd=(0,)), found_of([]))


LENGTHS = st.floats(0.5, 60.0)


def overlap(first, second):
    across = max(0.0, min(first[2], second[2]) - max(first[0], second[0]))
    down = max(0.0, min(first[3], second[3]) - max(first[1], second[1]))
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (first, second)]
    return across * down / (sum(areas) - across * down)


@given(LENGTHS, LENGTHS, st.floats(0.3, 0.9))
def test_corners_within_the_radius_overlap_enough(height, width, wanted):
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


def picture(*objects, crowd=0):
    """Return objects given as (class, left, top, right, bottom); the last ``crowd`` are crowds."""
    rows = np.array(objects, np.float64).reshape(-1, 5)
    crowds = np.arange(len(rows)) >= len(rows) - crowd
    return Objects(rows[:, 0].astype(np.int64), rows[:, 1:], crowds)


def test_a_gaussian_is_that_of_the_paper():
    plane = np.zeros((7, 9), np.float32)
    draw(plane, 1, 4, 2.9)
    deviation = 5 / 6
    for row in range(7):
        for column in range(9):
            near = abs(row - 1) <= 2 and abs(column - 4) <= 2
            square = (row - 1) ** 2 + (column - 4) ** 2
            expected = np.exp(-square / (2 * deviation**2)) if near else 0.0
            assert plane[row, column] == pytest.approx(expected, abs=1e-6)


def test_boxes_are_read_back_from_their_targets():
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


def test_of_two_objects_in_a_cell_the_smaller_is_taught():
    for order in (1, -1):
        shown = [(0, 0, 0, 80, 80), (1, 38, 38, 43, 42)][::order]
        made = targets_of([picture(*shown)], 2, (20, 20))
        assert made.places.tolist() == [[0, 10, 10]]
        assert (made.heat[0, :, 10, 10] == 1).all()
        assert made.boxes[0] == pytest.approx([0.125, 0.0, np.log(1.25), 0.0])


def test_crowds_do_not_count():
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
