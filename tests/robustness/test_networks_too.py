"""The experiments with an encoder that takes batches: the same figures as image by image."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_encoder import TinyEncoder, TinyNetwork, blobs

from visleak.formats import open_images
from visleak.robustness import calibrate, robustness

CONDITIONS = ("original", "flip-h", "jpeg-10", "crop-50")


@pytest.fixture(scope="module")
def pictures():
    return blobs(24)


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_calibration_is_that_of_single_pictures(pictures, monkeypatch, workers):
    """Thresholds, counts and bounds; the network stays here, its preparation travels."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    found = [
        calibrate(
            open_images(pictures, name="blobs"), encoder, fpr=[0.01, 0.05], workers=workers,
            conditions=CONDITIONS, cache=None, verify=False,
        )
        for encoder in (TinyEncoder(), TinyNetwork())
    ]  # fmt: skip
    assert found[0].hard == found[1].hard
    assert found[0].soft == found[1].soft
    # a crop of half the side does not apply to images as small as these
    assert found[1].hard.pairs == 24 * 23 * 3


def test_robustness_is_that_of_single_pictures(pictures):
    """Both encoders in one experiment: one row of figures twice."""
    found = robustness(
        open_images(pictures, name="blobs"), [TinyEncoder(), TinyNetwork()], queries=6,
        conditions=CONDITIONS, cache=None, verify=False, workers=1,
    )  # fmt: skip
    plain, network = found.encoders
    assert [each.as_dict() for each in plain.direct] == [each.as_dict() for each in network.direct]
    assert plain.original.as_dict() == network.original.as_dict()
    assert plain.trans.as_dict() == network.trans.as_dict()
    assert len(plain.direct) == len(CONDITIONS)
