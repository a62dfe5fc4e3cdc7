"""The fine comparison: shared detail decides where coarse shapes agree under a wrong relation."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from image_changes import in_colour, noisy
from visleak.verification.check import check
from visleak.verification.fine_comparison import add_fine_comparison
from visleak.verification.frame import Photo

MIRROR = np.array([[-1.0, 0, 1], [0, 1, 0], [0, 0, 1]])


def plate(seed: int) -> np.ndarray:
    """Return a smooth, nearly symmetric plate with faint texture of its own."""
    across = np.linspace(-1, 1, 224)
    smooth = 120 + 30 * np.cos(3 * across) + 10 * np.cos(9 * across)
    noise = np.random.default_rng(seed).normal(0, 12, (224, 224))
    return in_colour(smooth + cv2.GaussianBlur(noise, (0, 0), 1.2))


def barred(pixels: np.ndarray) -> np.ndarray:
    changed = pixels.copy()
    changed[:34] = 0
    cv2.putText(changed, "Melina Rusto", (8, 26), cv2.FONT_HERSHEY_SIMPLEX, 0.8, 3 * (255,), 2)
    return changed


def compared(query, reference, relation, view=0):
    measures, _ = check(query, reference, view, (0.0, 0.0), same_size=True)
    return add_fine_comparison(measures, Photo.of(query), Photo.of(reference), relation)


@pytest.mark.parametrize("wrong", [MIRROR, np.diag([0.97, 0.7, 1.0])])
def test_a_wrong_relation_of_a_copy_is_replaced(wrong):
    found, relation = compared(barred(plate(0)), plate(0), wrong)
    assert np.array_equal(relation, np.eye(3))
    assert found.amount > 2
    same, _ = compared(barred(plate(0)), plate(0), np.eye(3))
    for name in ("amount", "matched", "opposed", "windows", "outlier", "altered", "hidden"):
        assert getattr(found, name) == getattr(same, name)


def test_two_plates_share_no_detail_under_any_relation():
    found, relation = compared(barred(plate(0)), plate(1), MIRROR)
    assert np.array_equal(relation, MIRROR)
    assert found.amount < 0.5


def test_a_true_relation_is_kept():
    found, relation = compared(plate(0)[:, ::-1].copy(), plate(0), MIRROR, view=1)
    assert np.array_equal(relation, MIRROR)
    assert found.amount > 2


def test_frames_of_one_scene_are_not_altered():
    one, other = (noisy(plate(0), seed, 2.0) for seed in (1, 2))
    measures, relation = check(one, other, 0, (0.0, 0.0), same_size=True)
    found, kept = add_fine_comparison(measures, Photo.of(one), Photo.of(other), relation)
    assert np.array_equal(kept, relation)
    assert found.amount > 2
    assert found.altered == found.laid_content == -6
    assert found.close_side == 224
    # the faint texture of another plate is more than noise
    assert compared(one, plate(1), np.eye(3))[0].amount < 0.5
