"""What a detector is taught, and the metrics of what it finds, counted by hand."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visleak.dlede.trainers.detections import (
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

A: Row = (0, 0, 10, 10, 30, 30)
B: Row = (1, 0, 10, 10, 30, 30)
C: Row = (1, 1, 50, 50, 70, 80)


def test_nothing_found_is_zero():
    made = score_detections(truth_of([A, C], 3, 2), found_of([]))
    assert made.metrics == dict.fromkeys(ALL, 0.0)
    assert made.f1.tolist() == [0, 0, 1]
    shares = replace(truth_of([A], 1, 1), relative=True)
    for truth, said in ((shares, "in pixels"), (truth_of([A], 1, 1, (0,)), "no class has an obj")):
        with pytest.raises(ValueError, match=said):
            score_detections(truth, found_of([]))


def test_a_known_average_precision():
    """Right, wrong, right of two objects: of COCO's 101 recalls 51 have precision 1, 50 2/3."""
    found = found_of([(A, 0.9), (shifted(B, 200), 0.8), (B, 0.7)])
    made = score_detections(truth_of([A, B], 2, 1), found)
    average = (51 + 50 * 2 / 3) / 101
    # of the three confidences the last has the highest F1: 4 / 5
    wanted = dict(zip(ALL, (2 / 3, 1, 0.8, average, average), strict=True))
    assert made.metrics == pytest.approx(wanted)
    assert made.f1 == pytest.approx([1, 2 / 3])


def test_what_lies_in_a_crowd_is_neither_right_nor_wrong():
    nowhere = (0, -1, 100.0, 100.0, 200.0, 200.0)
    truth = truth_of([A, (0, 0, 50, 50, 90, 90), nowhere], 1, 2, crowd=(1, 2))
    inside = [(0, 0, 55, 55, 70, 70), (0, 0, 60, 55, 75, 75), (0, 1, 110, 110, 130, 130)]
    made = score_detections(truth, found_of([(A, 0.5), *((row, 0.9) for row in inside)]))
    assert made.metrics == pytest.approx(dict.fromkeys(ALL, 1.0))
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


def overlap(first, second):
    """Return the area of the intersection of two boxes by that of their union."""
    sides = np.minimum(first[2:], second[2:]) - np.maximum(first[:2], second[:2])
    inner = float(np.prod(np.maximum(sides, 0)))
    return inner / (np.prod(first[2:] - first[:2]) + np.prod(second[2:] - second[:2]) - inner)


def greedy(boxes, found, rows):
    """Return how many detections find an object: the surest first, each the best one left."""
    left = list(range(len(boxes)))
    right = 0
    for row in rows[np.argsort(-found.score[rows], kind="stable")]:
        rated = [overlap(found.corners[row], boxes[each]) for each in left]
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
            low = random.uniform(0, 60, 2)
            label = int(random.integers(0, 3))
            row = (image, label, *low, *(low + random.uniform(8, 40, 2)))
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


LENGTHS = st.floats(0.5, 60.0)


@given(LENGTHS, LENGTHS, st.floats(0.3, 0.9))
def test_corners_within_the_radius_overlap_enough(height, width, wanted):
    radius = radius_of(height, width, wanted)
    assert radius > 0
    box = np.array([0.0, 0.0, width, height])
    moved = (box + ends for ends in product((-radius, 0.0, radius), repeat=4))
    found = [overlap(box, each) for each in moved if each[2] > each[0] and each[3] > each[1]]
    assert min(found) == pytest.approx(wanted, abs=1e-9)  # and no smaller radius is needed


def picture(*objects, crowd=()):
    """Return objects given as (class, left, top, right, bottom); some rows are crowds."""
    rows = np.array(objects, np.float64).reshape(-1, 5)
    return Objects(rows[:, 0].astype(np.int64), rows[:, 1:], np.isin(np.arange(len(rows)), crowd))


def test_a_gaussian_is_that_of_the_paper():
    plane = np.zeros((7, 9), np.float32)
    draw(plane, 1, 4, 2.9)
    rows, columns = np.mgrid[-1:6, -4:5]
    expected = np.exp(-(rows**2 + columns**2) / (2 * (5 / 6) ** 2))
    near = (abs(rows) <= 2) & (abs(columns) <= 2)
    np.testing.assert_allclose(plane, np.where(near, expected, 0.0), atol=1e-6)


def test_of_two_objects_in_a_cell_the_smaller_is_taught():
    for order in (1, -1):
        shown = [(0, 0, 0, 80, 80), (1, 38, 38, 43, 42)][::order]
        made = targets_of([picture(*shown)], 2, (20, 20))
        assert made.places.tolist() == [[0, 10, 10]]
        assert (made.heat[0, :, 10, 10] == 1).all()
        assert made.boxes[0] == pytest.approx([0.125, 0.0, np.log(1.25), 0.0])


def test_crowds_do_not_count():
    shown = picture((0, 4, 4, 12, 12), (0, 0, 0, 16, 16), (-1, 21, 21, 30, 23), crowd=(1, 2))
    made = targets_of([shown, picture()], 2, (8, 8))
    expected = np.ones((2, 2, 8, 8), np.bool_)
    expected[0, 0, 0:4, 0:4] = False
    expected[0, 0, 2, 2] = True  # a true centre in the crowd
    expected[0, :, 5:6, 5:8] = False
    assert np.array_equal(made.counted, expected)
    assert made.places.tolist() == [[0, 2, 2]]
