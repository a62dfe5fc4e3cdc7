"""Texture of tiny images: copies share it, images with the same outline do not."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from visleak.verification.texture import FORMS, TEXTURE, shared_texture

INNER = np.ones((32, 32), np.float32)


def shared(one, other, kind, inner=INNER):
    """Return the texture that one pair shares, in arrays of one value."""
    return shared_texture(np.stack([one, other]).astype(np.float32)[None], inner[None], *kind)


def article(seed):
    """Return a bright shape on black with texture of its own."""
    noise = np.random.default_rng(seed).normal(0, 1, (32, 32))
    inside = 160 + 40 * cv2.GaussianBlur(noise, (0, 0), 0.8)
    shape = np.zeros((32, 32))
    shape[4:28, 9:23] = 1
    return (shape * inside).astype(np.float32)


@pytest.mark.parametrize("kind", [TEXTURE, FORMS])
def test_a_noisy_copy_in_other_light_shares_its_texture(kind):
    first = article(1)
    noise = np.random.default_rng(9).normal(0, 3, first.shape).astype(np.float32)
    found = shared(0.8 * first + 10 + noise, first, kind)
    assert found.mean > 0.75
    assert found.typical > 0.75
    assert found.opposed < 0.05


@pytest.mark.parametrize("kind", [TEXTURE, FORMS])
def test_an_equal_outline_is_not_texture(kind):
    found = shared(article(1), article(2), kind)
    assert found.mean < 0.65
    assert found.amount < 2
    assert found.tiles > 4


def test_plain_images_and_images_without_overlap_share_none():
    plain = np.full((32, 32), 90, np.float32)
    assert shared(plain, plain, TEXTURE).tiles == 0
    found = shared(article(1), article(1), TEXTURE, np.zeros_like(INNER))
    assert (found.amount, found.tiles, found.opposed) == (0, 0, 0)
