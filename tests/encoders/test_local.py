import cv2
import numpy as np
import pytest
from skimage import data

from visleak.encoders.local import local_features, view_features
from visleak.records import VIEWS

MIRROR, INVERTED = VIEWS.index("mirror"), VIEWS.index("inverted")


def photographs():
    grey = np.repeat(data.camera()[..., None], 3, axis=2)
    return [data.astronaut(), data.chelsea(), data.coffee(), data.rocket(), grey]


def same_places(first, second, width=2.0):
    place = np.hypot(*(first[:, None, :2] - second[None, :, :2]).transpose(2, 0, 1)) < width
    turn = np.abs((first[:, None, 3] - second[None, :, 3] + 180) % 360 - 180) < 10
    scale = np.abs(np.log2(first[:, None, 2] / second[None, :, 2])) < 0.3
    return np.nonzero(place & turn & scale)


def distances(first, second):
    return np.linalg.norm(first.astype(float) - second, axis=1)


def test_features_are_many_bounded_and_of_the_promised_layout():
    for picture in photographs():
        features = local_features(picture)
        assert 100 <= len(features) <= 250
        assert max(features.width, features.height) == 256
        assert (features.keypoints >= 0).all()
        assert (features.keypoints[:, [0, 1, 3]] < (features.width, features.height, 360)).all()
        assert (features.keypoints[:, 2] > 0).all()
        assert np.abs(np.linalg.norm(features.descriptors.astype(float), axis=1) - 512).max() < 40


def noise(*shape):
    return np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    "image", [noise(95, 300), noise(300, 95), noise(1, 1), np.full((200, 200, 3), 77, np.uint8)]
)
def test_small_and_blank_images_have_no_features(image):
    assert local_features(image).keypoints.shape == (0, 4)
    assert len(local_features(data.astronaut()[100:180, 180:260], smallest=32)) > 20


def test_turned_views_have_no_features():
    with pytest.raises(ValueError, match="original, mirror or inverted"):
        view_features(np.zeros((1, 128), np.uint8), np.zeros((1, 4)), 64, VIEWS.index("turn-90"))


def test_an_overlay_does_not_take_all_features():
    picture = data.chelsea().copy()
    for line in range(3):
        at = (5, 60 + 30 * line)
        cv2.putText(picture, "SAMPLE SAMPLE", at, cv2.FONT_HERSHEY_DUPLEX, 1.5, (255,) * 3, 2)
    features = local_features(picture)
    assert (features.keypoints[:, 1] > features.height / 2).sum() > 80


@pytest.mark.parametrize(
    ("view", "change"), [(MIRROR, lambda p: p[:, ::-1]), (INVERTED, lambda p: 255 - p)]
)
def test_a_view_has_the_features_of_the_changed_image(view, change):
    for picture in photographs():
        stored = local_features(picture)
        actual = local_features(np.ascontiguousarray(change(picture)))
        descriptors, keypoints = view_features(
            stored.descriptors, stored.keypoints, stored.width, view
        )
        mine, theirs = same_places(keypoints, actual.keypoints)
        assert len(set(mine)) >= 0.85 * len(stored)
        assert np.median(distances(descriptors[mine], actual.descriptors[theirs])) < 20
        # Unpermuted descriptors have nothing to do with those of the changed image.
        assert np.median(distances(stored.descriptors[mine], actual.descriptors[theirs])) > 250
