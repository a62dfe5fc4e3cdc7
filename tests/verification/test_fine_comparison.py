"""The fine comparison: shared detail decides where coarse shapes agree under a wrong relation."""

import cv2
import numpy as np
import pytest

from image_changes import grey, in_colour, jpeg, noisy
from visleak.verification.check import check
from visleak.verification.clipping import equally_clipped
from visleak.verification.detail import plain_share, shared_detail
from visleak.verification.fine_comparison import add_fine_comparison
from visleak.verification.frame import Photo

MIRROR = np.array([[-1.0, 0, 1], [0, 1, 0], [0, 0, 1]])


def plate(seed):
    """Return a smooth, nearly symmetric plate with faint texture of its own."""
    across = np.linspace(-1, 1, 224)
    smooth = 120 + 30 * np.cos(3 * across) + 10 * np.cos(9 * across)
    noise = np.random.default_rng(seed).normal(0, 12, (224, 224))
    return in_colour(smooth + cv2.GaussianBlur(noise, (0, 0), 1.2))


def barred(pixels):
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
    assert found.altered == found.laid_content == 6  # all of what they show is other content


def test_plates_without_texture_have_nothing_that_is_altered():
    smooth = [in_colour(cv2.GaussianBlur(grey(plate(seed)), (0, 0), 9)) for seed in (0, 1)]
    found, _ = compared(*smooth, np.eye(3))
    assert (found.altered, found.laid_content, found.windows < 5) == (-6, -6, True)


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


def shared(one, other):
    return shared_detail(one, other, np.ones(one.shape, np.bool_))


@pytest.mark.parametrize("quality", [20, 50, 90])
def test_compressed_copies_share_detail(natural, quality):
    found = shared(grey(jpeg(natural["astronaut"], quality)), grey(natural["astronaut"]))
    assert found.amount > 5
    assert found.matched > 0.8
    assert found.opposed < 0.1


def test_unrelated_images_share_no_detail(natural):
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


def test_paper_is_plain_and_photographs_are_not(natural):
    page = np.full((240, 240), 255, np.float32)
    page[:120] = np.random.default_rng(0).uniform(0, 255, (120, 240))
    assert plain_share(page) == pytest.approx(0.5, abs=0.06)
    assert plain_share(grey(natural["astronaut"])) < 0.1
    assert plain_share(np.zeros((4, 4), np.float32)) == 1


def patchwork(*colours):
    """Return patches of colours with a disc on each."""
    drawn = np.random.default_rng(0).integers(0, len(colours), (6, 8))
    pixels = np.array(colours, np.uint8)[drawn].repeat(40, axis=0).repeat(40, axis=1)
    for place in range(48):
        y, x = divmod(place, 8)
        cv2.circle(pixels, (40 * x + 20, 40 * y + 22), 8 + place % 5, (150, 200 - place, 90), -1)
    return pixels


def relit(pixels, gain, offset):
    return np.clip(np.rint(gain * pixels.astype(float) + offset), 0, 255).astype(np.uint8)


COLOURS = ((250, 235, 90), (40, 60, 90), (200, 245, 250))


@pytest.mark.parametrize(("gain", "offset"), [(1.3, -18), (1.0, 40), (1.6, -77)])
def test_clipped_levels_are_no_difference(gain, offset):
    image = patchwork(*COLOURS)
    copy = relit(image, gain, offset)
    for pair, factor in (((image, copy), gain), ((copy, image), 1 / gain)):
        found = equally_clipped((Photo.of(pair[0]), Photo.of(pair[1])), np.eye(3))
        ours, theirs = (photo.pixels.astype(int) for photo in found.photos)
        assert np.abs(ours - theirs).max() <= 4
        assert found.gain == pytest.approx(factor, rel=0.02)
        measures, _ = compared(*pair, np.eye(3))
        assert measures.altered < -3
        assert measures.gain == pytest.approx(factor, rel=0.02)


def test_other_colours_are_not_clipped_levels():
    image = patchwork(*COLOURS)
    others = (
        image,
        patchwork((255, 255, 255), (90, 60, 40), (200, 245, 250)),
        relit(image, 0.7, 20),
        relit(image, -1.3, 255),
        np.full_like(image, 255),
    )
    for other in others:
        photos = Photo.of(image), Photo.of(other)
        assert equally_clipped(photos, np.eye(3)) is None
        assert equally_clipped(photos[::-1], np.eye(3)) is None
