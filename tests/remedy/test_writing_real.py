"""Real sets: photographs, COCO128 in the layout of YOLO, CIFAR-10 as Parquet; and the time."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest
from layout_making import piece, state, written

from visleak.formats import open_images
from visleak.images import content_digest
from visleak.remedy import undo

DATA = os.environ.get("VISLEAK_DATA")

pytestmark = [
    pytest.mark.data,
    pytest.mark.slow,
    pytest.mark.skipif(not DATA, reason="VISLEAK_DATA is not set: no real sets to write"),
]


@pytest.mark.parametrize(
    ("folder", "source", "how"),
    [
        ("photos", "{}", "link"),
        ("photos", "{}", "copy"),
        ("photos", "{}", "manifest"),
        ("coco128", "yolo:{}/data.yaml#train", "copy"),
        ("coco128", "yolo:{}/data.yaml#train", "link"),
        ("cifar10", "{}/test.parquet", "copy"),
    ],
)
def test_real_sets(folder, source, how, tmp_path):
    root = Path(DATA) / folder
    before = state(root)
    images = open_images(source.format(root), name="real")
    keep = np.flatnonzero(np.random.default_rng(0).random(len(images)) < 0.7)
    start = time.perf_counter()
    result = written(tmp_path / "out", piece(images, keep), how=how, name="real")
    assert time.perf_counter() - start < 60
    again = open_images(result.sources["real"])
    want = map(content_digest, images.opener.read(keep.tolist()))
    got = map(content_digest, again.opener.read(range(len(again))))
    assert all(one == two for one, two in zip(want, got, strict=True))
    if images.labels is not None:
        assert again.labels.to_pylist() == images.labels.take(keep).to_pylist()
    assert undo(tmp_path / "out", apply=True).kept == ()
    assert not (tmp_path / "out").exists()
    assert state(root) == before
