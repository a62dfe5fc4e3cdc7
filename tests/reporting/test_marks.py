"""Marks: on the places that differ, in both images, and nowhere else."""

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from invoices import HEIGHT, OTHER, WIDTH, covered, difference_box, invoice
from visleak.grading import verdict
from visleak.records import GRADES
from visleak.reporting.gallery import MOST_BOXES, kind_of, marks
from visleak.verification.align import unit_to_pixels, view_matrix

ORIGINAL, CHANGED = invoice(), invoice(line_8=OTHER)


def moved(pixels, matrix, size):
    """Return an image under a matrix of unit coordinates, on paper."""
    height, width = pixels.shape[:2]
    there = unit_to_pixels(*size) @ matrix @ np.linalg.inv(unit_to_pixels(width, height))
    return cv2.warpPerspective(
        pixels, there, size, flags=cv2.INTER_AREA, borderValue=(252, 250, 245)
    )


def moved_box(box, matrix):
    """Return the upright box around a box that was moved."""
    left, top, right, bottom = box
    points = matrix @ [[left, right, right, left], [top, top, bottom, bottom], [1, 1, 1, 1]]
    places = points[:2] / points[2]
    return (*places.min(axis=1).tolist(), *places.max(axis=1).tolist())


def test_one_changed_field_is_marked_in_both_images():
    found = marks(CHANGED, ORIGINAL, np.eye(3))
    truth = difference_box(CHANGED, ORIGINAL)
    assert covered(truth, found.query) > 0.6
    assert covered(truth, found.reference) > 0.6
    assert found.more == 0
    for left, top, width, height in found.reference:
        assert left + width > truth[0]
        assert top + height > truth[1]
        assert left < truth[2]
        assert top < truth[3]


@settings(max_examples=6)
@given(
    view=st.integers(0, 7),
    angle=st.floats(-4, 4),
    scale=st.floats(0.7, 1.3),
    perspective=st.floats(-0.02, 0.02),
)
def test_marks_follow_the_relation(view, angle, scale, perspective):
    """Mirrored, turned, scaled or cropped, with a little perspective."""
    radians = np.radians(angle)
    turn = np.array(
        [
            [scale * np.cos(radians), -scale * np.sin(radians) * HEIGHT / WIDTH, 0],
            [scale * np.sin(radians) * WIDTH / HEIGHT, scale * np.cos(radians), 0],
            [perspective, 0, 1],
        ]
    )
    turn[:2, 2] = 0.5 - (turn[:2, :2] @ [0.5, 0.6])
    undo = view_matrix(view) @ turn
    size = (HEIGHT, WIDTH) if view % 2 else (WIDTH, HEIGHT)
    query = moved(CHANGED, undo, size)
    found = marks(query, ORIGINAL, np.linalg.inv(undo))
    for left, top, width, height in (*found.query, *found.reference):
        assert min(left, top, width, height) >= 0
        assert max(left + width, top + height) <= 1 + 1e-9
    truth = difference_box(CHANGED, ORIGINAL)
    there = moved_box(truth, undo)
    if min(there) < 0.02 or max(there) > 0.98:
        return  # cropped away
    assert covered(truth, found.reference) > 0.5
    assert covered(there, found.query) > 0.5


@pytest.mark.parametrize("kind", ["places", "additions"])
def test_a_copy_has_no_marks(kind):
    _, stored = cv2.imencode(".jpg", ORIGINAL, [cv2.IMWRITE_JPEG_QUALITY, 80])
    copy = cv2.imdecode(stored, cv2.IMREAD_COLOR)
    assert not marks(copy, ORIGINAL, np.eye(3), kind)


def test_a_bar_over_a_photograph_is_an_addition_and_a_dot_is_none(natural):
    photograph = natural["astronaut"]
    barred = photograph.copy()
    barred[340:430] = 15
    cv2.putText(barred, "Breaking news", (60, 400), cv2.FONT_HERSHEY_SIMPLEX, 1.2, (255,) * 3, 2)
    found = marks(barred, photograph, np.eye(3), "additions")
    assert covered(difference_box(barred, photograph), found.reference) > 0.7
    dotted = ORIGINAL.copy()
    dotted[150:156, 300:306] = 0
    assert not marks(dotted, ORIGINAL, np.eye(3), "additions")


def test_many_places_are_joined_and_the_rest_is_counted():
    """Dots far apart, more than anybody wants to see marked."""
    dotted = ORIGINAL.copy()
    for row in range(7):
        for column in range(4):
            cv2.circle(dotted, (80 + 130 * column, 60 + 100 * row), 9, (20, 20, 20), -1)
    found = marks(dotted, ORIGINAL, np.eye(3))
    assert len(found.query) == len(found.reference) == MOST_BOXES
    assert found.more > 0


def test_what_cannot_be_compared_has_no_marks():
    blank = np.full((60, 80, 3), 200, np.uint8)
    assert not marks(blank, blank, np.eye(3))
    far = np.array([[1.0, 0, 5], [0, 1, 5], [0, 0, 1]])
    for matrix in (far, np.diag([1.0, 0, 1]), np.full((3, 3), np.nan)):
        assert not marks(CHANGED, ORIGINAL, matrix)


def test_the_reason_decides_what_is_marked():
    """Marks and reasons must not part."""
    names = ("close_side", "places", "altered_places", "opposed", "identical", "windows")
    check = dict(zip(names, (600.0, 3.0, 0.0, 0.1, 0.0, 9.0), strict=True))
    near, similar = GRADES.index("near"), GRADES.index("similar")
    assert kind_of(verdict.reason(similar, "", check, "unchanged")) == "places"
    assert kind_of(verdict.reason(near, "brighter", check | {"within": 0.9})) == "additions"
    assert kind_of(verdict.reason(similar, "", check, "shared")) is None
    assert kind_of(verdict.reason(0, "", check)) is None
    assert kind_of(None) is None
