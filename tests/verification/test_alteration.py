"""Altered content: seen where a field was changed, and nowhere else."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy as np
import pytest
from PIL import Image

from invoices import invoice
from visleak.verification.agreement import blurred_equally
from visleak.verification.alteration import MOST, altered


def saved(pixels, quality):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file).convert("RGB"))


def grey(pixels):
    return cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY).astype(np.float32)


def between(one, other):
    """Compare two images as the fine comparison does: equally sharp."""
    mask = np.ones(one.shape[:2], np.bool_)
    ours, theirs, _ = blurred_equally(grey(one), grey(other), mask)
    return altered(ours, theirs, mask)


def noisy(pixels, seed=0, sigma=5.0):
    noise = np.random.default_rng(seed).normal(0, sigma, pixels.shape)
    blurred = cv2.GaussianBlur(pixels, (0, 0), 0.7)
    return np.clip(np.rint(blurred + noise), 0, 255).astype(np.uint8)


PROCESSED = {
    "as it is": lambda pixels: pixels,
    "jpeg 60": lambda pixels: saved(pixels, 60),
    "scanned": noisy,
    "half": lambda pixels: cv2.resize(
        cv2.resize(pixels, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA),
        pixels.shape[1::-1],
        interpolation=cv2.INTER_CUBIC,
    ),
}


@pytest.mark.parametrize("name", PROCESSED)
def test_a_processed_copy_is_not_altered(name):
    found = between(PROCESSED[name](invoice()), invoice())
    assert found.strength < 1


@pytest.mark.parametrize("name", ["as it is", "jpeg 60", "scanned"])
@pytest.mark.parametrize(
    ("line", "text"),
    [
        (8, "Total              148.70 EUR"),
        (1, "Invoice 2024-148"),
        (9, "Payable within 82 days"),
        (2, "Market Road 64, Turku"),
    ],
)
def test_a_changed_field_is_seen_where_it_is(name, line, text):
    changed = PROCESSED[name](invoice(**{f"line_{line}": text}))
    for found in (between(changed, invoice()), between(invoice(), changed)):
        assert found.strength > 0
        _, top, _, height = found.boxes[0]
        assert 70 * line + 60 < top < top + height < 70 * line + 130


def test_the_rest_is_altered_where_something_far_away_is_too():
    total = {"line_8": "Total              148.70 EUR"}
    one, both = invoice(**total), invoice(**total, line_1="Invoice 2024-148")
    assert between(one, invoice()).rest < 0 < between(both, invoice()).rest
    assert between(invoice(), invoice()).rest < 0


def test_only_what_the_mask_holds_is_judged():
    changed = invoice(line_8="Total              763.95 EUR")
    mask = np.ones(changed.shape[:2], np.bool_)
    mask[600:] = False
    assert altered(grey(changed), grey(invoice()), mask).strength < 0


def test_blank_and_tiny_images_are_not_altered():
    blank = np.full((60, 80), 200, np.float32)
    assert altered(blank, blank, np.ones(blank.shape, np.bool_)).strength < 0
    assert altered(blank[:5, :5], blank[:5, :5], np.ones((5, 5), np.bool_)).strength == -MOST
    nothing = np.zeros(blank.shape, np.bool_)
    assert altered(blank, blank, nothing).strength == -MOST


def test_threads_do_not_disturb_each_other():
    """Every thread has a network of its own: images of many sizes at once, the same answers."""
    jobs = [(invoice(n)[: 400 + 40 * n], invoice(n + 1)[: 400 + 40 * n]) for n in range(8)]
    alone = [between(*job) for job in jobs]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda job: between(*job), jobs)) == alone
