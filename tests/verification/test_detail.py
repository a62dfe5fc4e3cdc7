"""Shared detail: between copies, between strangers, and along edges."""

from __future__ import annotations

import io

import cv2
import numpy as np
import pytest
from PIL import Image

from visleak.verification.detail import plain_share, shared_detail


def in_grey(pixels):
    return cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY).astype(np.float32)


def shared(one, other):
    return shared_detail(one, other, np.ones(one.shape, np.bool_))


def saved(pixels, quality):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file).convert("RGB"))


@pytest.mark.parametrize("quality", [20, 50, 90])
def test_compressed_copies_share_detail(natural, quality):
    """In amounts far beyond chance, and without contradiction."""
    found = shared(in_grey(saved(natural["astronaut"], quality)), in_grey(natural["astronaut"]))
    assert found.amount > 5
    assert found.matched > 0.8
    assert found.opposed < 0.1


def test_strangers_share_none(natural):
    """Two photographs, neither aligned nor related."""
    found = shared(
        in_grey(natural["astronaut"])[:400, :500], in_grey(natural["rocket"])[:400, :500]
    )
    assert found.amount < 1
    assert found.opposed > 0.5


def test_a_straight_edge_is_no_detail():
    """Two plates before a dark ground: the edge agrees, the texture does not."""
    plates = []
    for seed in (1, 2):
        rng = np.random.default_rng(seed)
        texture = cv2.GaussianBlur(rng.normal(0, 12, (256, 256)).astype(np.float32), (0, 0), 1.0)
        grey = 120 + texture
        grey[:, 140:] = 10
        plates.append(grey)
    found = shared(*plates)
    assert found.amount < 1
    alike = shared(plates[0], plates[0])
    assert alike.amount > 3


def test_images_too_small_for_windows_share_nothing():
    """Nothing is measured, and nothing fails."""
    tiny = np.zeros((10, 14), np.float32)
    assert shared(tiny, tiny).amount == 0


def test_plain_share_tells_paper_from_photographs(natural):
    """Half a page of paper, and a photograph."""
    page = np.full((240, 240), 255, np.float32)
    page[:120] = np.random.default_rng(0).uniform(0, 255, (120, 240))
    assert plain_share(page) == pytest.approx(0.5, abs=0.06)
    assert plain_share(in_grey(natural["astronaut"])) < 0.1
    assert plain_share(np.zeros((4, 4), np.float32)) == 1
