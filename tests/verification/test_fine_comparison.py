"""The fine comparison: detail decides where coarse shapes agree under a wrong relation."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from visleak.verification.check import check
from visleak.verification.fine_comparison import add_fine_comparison
from visleak.verification.frame import Photo

MIRROR = np.array([[-1.0, 0, 1], [0, 1, 0], [0, 0, 1]])


def plate(seed: int) -> np.ndarray:
    """Return a smooth plate that is nearly symmetrical, with faint texture of its own."""
    rng = np.random.default_rng(seed)
    across = np.linspace(-1, 1, 224)
    smooth = 120 + 30 * np.cos(3 * across)[None, :] + 10 * np.cos(9 * across)[None, :]
    texture = cv2.GaussianBlur(rng.normal(0, 12, (224, 224)), (0, 0), 1.2)
    grey = np.clip(np.rint(smooth + texture), 0, 255).astype(np.uint8)
    return np.repeat(grey[..., None], 3, axis=2)


def barred(pixels: np.ndarray) -> np.ndarray:
    made = pixels.copy()
    made[:34] = 0
    cv2.putText(made, "Melina Rusto", (8, 26), cv2.FONT_HERSHEY_SIMPLEX, 0.8, (255, 255, 255), 2)
    return made


@pytest.mark.parametrize("wrong", [MIRROR, np.diag([0.97, 0.7, 1.0])])
def test_a_wrong_relation_of_a_true_copy_is_given_up(wrong):
    query, reference = barred(plate(0)), plate(0)
    measures, _ = check(query, reference, 0, (0.0, 0.0), same_size=True)
    found, relation = add_fine_comparison(measures, Photo.of(query), Photo.of(reference), wrong)
    assert np.array_equal(relation, np.eye(3))
    assert found.amount > 2
    same, _ = add_fine_comparison(measures, Photo.of(query), Photo.of(reference), np.eye(3))
    for name in ("amount", "matched", "opposed", "windows", "outlier", "altered", "hidden"):
        assert getattr(found, name) == getattr(same, name)


def test_two_plates_share_nothing_under_any_relation():
    query, reference = barred(plate(0)), plate(1)
    measures, _ = check(query, reference, 0, (0.0, 0.0), same_size=True)
    found, relation = add_fine_comparison(measures, Photo.of(query), Photo.of(reference), MIRROR)
    assert np.array_equal(relation, MIRROR)
    assert found.amount < 0.5


def test_a_true_relation_is_kept():
    query, reference = plate(0)[:, ::-1].copy(), plate(0)
    measures, _ = check(query, reference, 1, (0.0, 0.0), same_size=True)
    found, relation = add_fine_comparison(measures, Photo.of(query), Photo.of(reference), MIRROR)
    assert np.array_equal(relation, MIRROR)
    assert found.amount > 2


def test_frames_of_one_scene_share_all_and_nothing_is_altered():
    frames = [
        np.clip(plate(0) + np.random.default_rng(seed).normal(0, 2, (224, 224, 3)), 0, 255)
        .round().astype(np.uint8)
        for seed in (1, 2)
    ]  # fmt: skip
    measures, relation = check(*frames, 0, (0.0, 0.0), same_size=True)
    found, kept = add_fine_comparison(measures, *map(Photo.of, frames), relation)
    assert np.array_equal(kept, relation)
    assert found.amount > 2
    assert found.altered == found.laid_content == -6
    assert found.close_side == 224
    # the faint texture of another plate is more than noise
    measures, _ = check(frames[0], plate(1), 0, (0.0, 0.0), same_size=True)
    other, _ = add_fine_comparison(measures, *map(Photo.of, (frames[0], plate(1))), np.eye(3))
    assert other.amount < 0.5
