"""Shared detail: of copies, of unrelated images, along edges."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from image_changes import grey, jpeg
from visleak.verification.detail import plain_share, shared_detail


def shared(one, other):
    return shared_detail(one, other, np.ones(one.shape, np.bool_))


@pytest.mark.parametrize("quality", [20, 50, 90])
def test_compressed_copies_share_detail(natural, quality):
    found = shared(grey(jpeg(natural["astronaut"], quality)), grey(natural["astronaut"]))
    assert found.amount > 5
    assert found.matched > 0.8
    assert found.opposed < 0.1


def test_unrelated_images_share_none(natural):
    found = shared(*(grey(natural[name])[:400, :500] for name in ("astronaut", "rocket")))
    assert found.amount < 1
    assert found.opposed > 0.5


def test_a_straight_edge_is_not_detail():
    plates = []
    for seed in (1, 2):
        noise = np.random.default_rng(seed).normal(0, 12, (256, 256)).astype(np.float32)
        plates.append(120 + cv2.GaussianBlur(noise, (0, 0), 1.0))
        plates[-1][:, 140:] = 10
    assert shared(*plates).amount < 1
    assert shared(plates[0], plates[0]).amount > 3


def test_images_smaller_than_windows_share_none():
    tiny = np.zeros((10, 14), np.float32)
    assert shared(tiny, tiny).amount == 0


def test_paper_is_plain_and_photographs_are_not(natural):
    page = np.full((240, 240), 255, np.float32)
    page[:120] = np.random.default_rng(0).uniform(0, 255, (120, 240))
    assert plain_share(page) == pytest.approx(0.5, abs=0.06)
    assert plain_share(grey(natural["astronaut"])) < 0.1
    assert plain_share(np.zeros((4, 4), np.float32)) == 1
