"""Alterations: detected where a field was changed, and nowhere else."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy as np
import pytest

from image_changes import grey, jpeg, noisy
from invoices import invoice
from visleak.verification.agreement import equally_blurred
from visleak.verification.alteration import MAX_LOG_ODDS, find_alterations


def between(one, other):
    mask = np.ones(one.shape[:2], np.bool_)
    ours, theirs, _ = equally_blurred(grey(one), grey(other), mask)
    return find_alterations(ours, theirs, mask)


PROCESSED = {
    "original": lambda pixels: pixels,
    "jpeg 60": lambda pixels: jpeg(pixels, 60),
    "scanned": lambda pixels: noisy(cv2.GaussianBlur(pixels, (0, 0), 0.7), 0, 5.0),
    "half": lambda pixels: cv2.resize(
        cv2.resize(pixels, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA),
        pixels.shape[1::-1],
        interpolation=cv2.INTER_CUBIC,
    ),
}


@pytest.mark.parametrize("name", PROCESSED)
def test_a_processed_copy_is_not_altered(name):
    assert between(PROCESSED[name](invoice()), invoice()).strength < 1


@pytest.mark.parametrize("name", ["original", "jpeg 60", "scanned"])
@pytest.mark.parametrize(
    ("line", "text"),
    [
        (8, "Total              148.70 EUR"),
        (1, "Invoice 2024-148"),
        (9, "Payable within 82 days"),
        (2, "Market Road 64, Turku"),
    ],
)
def test_a_changed_field_is_detected_in_its_place(name, line, text):
    changed = PROCESSED[name](invoice(**{f"line_{line}": text}))
    for found in (between(changed, invoice()), between(invoice(), changed)):
        assert found.strength > 0
        _, top, _, height = found.boxes[0]
        assert 70 * line + 60 < top < top + height < 70 * line + 130


def test_the_rest_is_altered_by_a_second_change_far_away():
    total = {"line_8": "Total              148.70 EUR"}
    one, both = invoice(**total), invoice(**total, line_1="Invoice 2024-148")
    assert between(one, invoice()).rest < 0 < between(both, invoice()).rest
    assert between(invoice(), invoice()).rest < 0


def test_alterations_outside_the_mask_are_ignored():
    changed = invoice(line_8="Total              763.95 EUR")
    mask = np.ones(changed.shape[:2], np.bool_)
    mask[600:] = False
    assert find_alterations(grey(changed), grey(invoice()), mask).strength < 0


def test_blank_tiny_and_masked_images_are_not_altered():
    blank = np.full((60, 80), 200, np.float32)
    mask = np.ones(blank.shape, np.bool_)
    assert find_alterations(blank, blank, mask).strength < 0
    tiny = find_alterations(blank[:5, :5], blank[:5, :5], mask[:5, :5])
    assert tiny.strength == find_alterations(blank, blank, ~mask).strength == -MAX_LOG_ODDS


def test_threads_do_not_share_a_network():
    jobs = [(invoice(n)[: 400 + 40 * n], invoice(n + 1)[: 400 + 40 * n]) for n in range(8)]
    alone = [between(*job) for job in jobs]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda job: between(*job), jobs)) == alone
