"""The folder of generated images under damage and strange names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from visleak.errors import VisleakError
from visleak.memorization.extraction.images import ImageStore, Job

PICTURE = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)


def put(store: ImageStore, key: str = "k", prompt: str = "a", seed: int = 1) -> None:
    store.add([key], [Job(prompt, seed)], PICTURE[None], 2.0)


def test_a_damaged_picture_is_told(tmp_path: Path) -> None:
    with ImageStore(tmp_path) as store:
        put(store)
        (found,) = store.known(["k"]).values()
        path = tmp_path / found.path
        path.write_bytes(path.read_bytes()[:-20])
        with pytest.raises(VisleakError, match="is damaged: its content is not what its"):
            store.pixels(found.digest)
        path.unlink()
        with pytest.raises(VisleakError, match=r"cannot be read \(No such file or"):
            store.pixels(found.digest)


def test_similarities_come_back_as_they_were(tmp_path: Path) -> None:
    draw = np.random.default_rng(0).uniform(size=(5, 5)).astype(np.float32)
    matrix = (draw + draw.T) / 2
    np.fill_diagonal(matrix, 1.0)
    with ImageStore(tmp_path) as store:
        assert store.similarities("x", 5) is None
        store.keep_similarities("x", matrix)
        assert np.array_equal(store.similarities("x", 5), matrix)
        assert store.similarities("x", 6) is None  # another number of images
        store.keep_similarities("one", np.ones((1, 1), np.float32))
        assert np.array_equal(store.similarities("one", 1), np.ones((1, 1)))
