"""Stamps are of one image alone, and marks that moved are of both."""

from importlib import resources

import cv2
import numpy as np
import onnx
import pytest

from invoices import invoice
from visleak.verification import networks
from visleak.verification.alteration import MOST
from visleak.verification.laid_over import LaidOver, laid_over
from visleak.verification.tints import tints


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


def grey(pixels):
    return cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY).astype(np.float32)


def between(one, other, mask=None):
    mask = np.ones(one.shape[:2], np.bool_) if mask is None else mask
    colours = tints(one.astype(np.float32), other.astype(np.float32), mask).colours
    return laid_over(grey(one), grey(other), mask, colours)


@pytest.mark.parametrize(
    ("one", "other"), [(stamped(200, 400), invoice()), (invoice(), stamped(60, 90))]
)
def test_a_stamp_is_laid_over_one_image_and_changes_no_content(one, other):
    found = between(one, other)
    assert found.more > 2
    assert found.less < 0
    assert found.content < found.more
    assert not found.boxes


@pytest.mark.parametrize(
    ("one", "other"),
    [(selected(3), selected(6)), (stamped(60, 90), stamped(300, 500))],
)
def test_a_mark_that_moved_is_laid_over_both_and_both_places_are_named(one, other):
    found = between(one, other)
    assert found.less > 1
    assert len(found.boxes) >= 2
    assert between(one, one).more < 0


def test_other_content_is_content_before_anything_laid_over():
    found = between(invoice(line_8="Total              763.95 EUR"), invoice())
    assert found.content > max(0, found.more)
    assert not found.boxes


def test_only_what_the_mask_holds_is_judged():
    mask = np.ones(invoice().shape[:2], np.bool_)
    mask[300:] = False
    assert between(stamped(200, 400), invoice(), mask).more < 0


def test_blank_and_tiny_images_have_nothing_laid_over_them():
    tiny, blank = (np.full((side, side), 128, np.float32) for side in (6, 200))
    assert laid_over(tiny, tiny, np.ones(tiny.shape, np.bool_)) == LaidOver()
    assert laid_over(blank, blank, np.ones(blank.shape, np.bool_)).more < 0
    nothing = laid_over(blank, blank, np.zeros(blank.shape, np.bool_))
    assert nothing.content == nothing.more == nothing.less == -MOST


def test_the_network_states_sizes_that_opencv_4_can_begin_with():
    """OpenCV 4 takes a size that is not stated for 1, and then refuses the network."""
    stored = resources.files("visleak.verification").joinpath(networks.LAID_OVER).read_bytes()
    graph = onnx.load_from_string(stored).graph
    sizes = {
        each.name: [d.dim_value for d in each.type.tensor_type.shape.dim[2:]]
        for each in graph.input
    }
    assert min(sizes["looks"]) >= 8
    assert [2 * side for side in sizes["colours"]] == sizes["looks"]
