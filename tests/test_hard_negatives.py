"""The look-alikes that the grader is fitted against: what they promise, and that they are hard."""

import cv2
import numpy as np
import pytest

from visleak.verification.check import bounded, check


@pytest.fixture(scope="module")
def module(script):
    return script("hard_negatives")


@pytest.fixture(scope="module")
def photographs(natural):
    return [bounded(natural[name]) for name in ("astronaut", "chelsea", "coffee", "rocket")]


@pytest.fixture(scope="module")
def pairs(module, photographs, natural):
    with pytest.MonkeyPatch.context() as patch:
        # the stereo pair is another download in some versions of scikit-image
        halves = (natural["astronaut"], np.roll(natural["astronaut"], 9, axis=1), None)
        patch.setattr("skimage.data.stereo_motorcycle", lambda: halves)
        return module.hard_negatives(photographs)


def test_every_kind_of_every_photograph(module, pairs, photographs):
    for kind in set(module.KINDS) - {"stereo"}:
        assert sorted(p.source for p in pairs if p.kind == kind) == list(range(len(photographs)))
    assert sum(pair.kind == "stereo" for pair in pairs) == module.STEREO_CROPS
    assert all(pair.query.dtype == pair.reference.dtype == np.uint8 for pair in pairs)


def test_equal_seeds_make_equal_pairs(module, photographs):
    make = [module.parallax, module.motion]
    for one in make:
        first, again, other = (
            one(photographs[0], np.random.default_rng(seed)) for seed in (1, 1, 2)
        )
        np.testing.assert_array_equal(first, again)
        assert (first != other).any()


@pytest.mark.parametrize("seed", range(10))
def test_crops_apart_share_a_strip_at_most(module, seed):
    numbers = np.arange(60 * 80).reshape(60, 80)
    picture = np.stack([numbers % 256, numbers // 256, np.zeros_like(numbers)], -1).astype(np.uint8)
    first, second = module.apart(picture, np.random.default_rng(seed))
    seen = [set(map(tuple, crop.reshape(-1, 3).tolist())) for crop in (first, second)]
    assert len(seen[0] & seen[1]) <= 0.08 * len(seen[0])
    assert first.shape == second.shape


def test_they_drift_or_disagree_where_a_copy_does_not(pairs, photographs):
    copies = [cv2.GaussianBlur(picture, (0, 0), 1.5)[8:-8, 8:-8] for picture in photographs]

    def drift(query, reference):
        same_size = query.shape == reference.shape
        return check(query, reference, 0, (0.0, 0.0), same_size=same_size)[0].drift

    worst_copy = max(drift(*pair) for pair in zip(copies, photographs, strict=True))
    made = [pair for pair in pairs if pair.kind != "stereo"]
    drifts = [drift(bounded(pair.query), bounded(pair.reference)) for pair in made]
    assert worst_copy < 0.2
    assert min(drifts) > worst_copy
    assert np.median(drifts) > 0.8
