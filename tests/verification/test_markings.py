"""Markings: a stamp is on one image, a mark that moved is on both."""

from importlib import resources

import cv2
import numpy as np
import onnx
import pytest

from image_changes import grey
from invoices import invoice
from visleak.verification import networks
from visleak.verification.alteration import MAX_LOG_ODDS
from visleak.verification.markings import Markings, find_markings
from visleak.verification.tints import find_tints


def stamped(left, top, colour=(190, 30, 40)):
    page = invoice().copy()
    cv2.rectangle(page, (left, top), (left + 150, top + 60), colour, 5)
    cv2.putText(page, "PAID", (left + 20, top + 45), cv2.FONT_HERSHEY_SIMPLEX, 1.4, colour, 4)
    return page


def selected(line):
    page, top = invoice().copy(), 70 * line + 70
    row = page[top : top + 60, 40:-40]
    page[top : top + 60, 40:-40] = np.uint8(0.55 * row + (20, 45, 90))
    return page


def between(one, other, mask=None):
    mask = np.ones(one.shape[:2], np.bool_) if mask is None else mask
    colours = find_tints(one.astype(np.float32), other.astype(np.float32), mask).colours
    return find_markings(grey(one), grey(other), mask, colours)


@pytest.mark.parametrize(
    ("one", "other"), [(stamped(200, 400), invoice()), (invoice(), stamped(60, 90))]
)
def test_a_stamp_is_on_one_image_and_does_not_change_content(one, other):
    found = between(one, other)
    assert found.more > 2
    assert found.less < 0
    assert found.content < found.more
    assert not found.boxes


@pytest.mark.parametrize(
    ("one", "other"),
    [(selected(3), selected(6)), (stamped(60, 90), stamped(300, 500))],
)
def test_a_mark_that_moved_is_on_both_and_has_two_boxes(one, other):
    found = between(one, other)
    assert found.less > 1
    assert len(found.boxes) >= 2
    assert between(one, one).more < 0


def test_other_content_is_not_a_marking():
    found = between(invoice(line_8="Total              763.95 EUR"), invoice())
    assert found.content > max(0, found.more)
    assert not found.boxes


def test_markings_outside_the_mask_are_ignored():
    mask = np.ones(invoice().shape[:2], np.bool_)
    mask[300:] = False
    assert between(stamped(200, 400), invoice(), mask).more < 0


def test_blank_tiny_and_masked_images_have_no_markings():
    tiny, blank = (np.full((side, side), 128, np.float32) for side in (6, 200))
    assert find_markings(tiny, tiny, np.ones(tiny.shape, np.bool_)) == Markings()
    assert find_markings(blank, blank, np.ones(blank.shape, np.bool_)).more < 0
    masked = find_markings(blank, blank, np.zeros(blank.shape, np.bool_))
    assert masked.content == masked.more == masked.less == -MAX_LOG_ODDS


def test_the_network_has_input_sizes_that_opencv_4_accepts():
    """OpenCV 4 replaces a missing size by 1, and then refuses the network."""
    stored = resources.files("visleak.verification").joinpath(networks.LAID_OVER).read_bytes()
    graph = onnx.load_from_string(stored).graph
    sizes = {
        each.name: [d.dim_value for d in each.type.tensor_type.shape.dim[2:]]
        for each in graph.input
    }
    assert min(sizes["looks"]) >= 8
    assert [2 * side for side in sizes["colours"]] == sizes["looks"]
