"""Changed images are what is said of them."""

from __future__ import annotations

import numpy as np
import pytest

from visleak.training.plan import Plan

torch = pytest.importorskip("torch")

from visleak.training.networks import augmented, described, generator  # noqa: E402

SHIFTS = Plan("plain-11", 16, 3, 100, 1, 10, 0)
CROPS = Plan("resnet", 96, 3, 100, 1, 10, 0)
VIEWS = Plan("plain-11", 16, 0, 100, 1, 10, 0)


def made(plan: Plan, pictures: np.ndarray, *numbers: int) -> np.ndarray:
    found = augmented(torch.from_numpy(pictures), plan, plan.side, generator(*numbers))
    return found.permute(0, 2, 3, 1).numpy()


def test_a_small_picture_is_mirrored_or_shifted_and_nothing_else() -> None:
    """Each is one of all 2 x 25 that numpy makes, to the bit; and many of these occur."""
    rng = np.random.default_rng(0)
    picture = rng.integers(0, 256, (16, 16, 3), np.uint8)
    padded = np.pad(picture, ((2, 2), (2, 2), (0, 0)), mode="reflect")
    known = {}
    for y in range(5):
        for x in range(5):
            shifted = padded[y : y + 16, x : x + 16]
            known[shifted.tobytes()] = (y, x, False)
            known[shifted[:, ::-1].tobytes()] = (y, x, True)
    found = made(SHIFTS, np.repeat(picture[None], 200, axis=0), 7)
    seen = [known[each.astype(np.uint8).tobytes()] for each in found]
    assert len(set(seen)) > 40
    assert "shifts of up to 2 pixels" in described(SHIFTS)


def test_crops_keep_the_stated_share_of_the_area() -> None:
    """On ramps, the range of values tells how wide and high a crop is, and which way round."""
    across = np.broadcast_to(np.linspace(0, 240, 96), (96, 96))
    ramp = np.stack([across, across.T, np.zeros((96, 96))], axis=-1).astype(np.uint8)
    found = made(CROPS, np.repeat(ramp[None], 300, axis=0), 3)
    wide, tall = (
        np.abs(np.ptp(found[..., channel], axis=(1, 2))) / 240 * 96 / 95 for channel in (0, 1)
    )
    area = wide * tall
    assert 0.33 < area.min() < 0.45
    assert 0.85 < area.max() < 1.03
    mirrored = found[:, 48, 0, 0] > found[:, 48, -1, 0]
    assert 100 < mirrored.sum() < 200
    assert (found[:, 0, 48, 1] < found[:, -1, 48, 1]).all()
    assert "35-100 % of the area" in described(CROPS)


def test_views_for_instances_also_change_in_colour() -> None:
    """A fifth is grey; values stay values of pixels."""
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (300, 16, 16, 3), np.uint8)
    found = made(VIEWS, pictures, 1)
    assert found.min() >= 0
    assert found.max() <= 255
    grey = np.ptp(found, axis=3).max(axis=(1, 2)) < 1e-2
    assert 30 < grey.sum() < 90


def test_changes_depend_on_the_draw_alone() -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (20, 16, 16, 3), np.uint8)
    first, again, other = (made(VIEWS, pictures, 0, step) for step in (5, 5, 6))
    assert (first == again).all()
    assert (first != other).any()
