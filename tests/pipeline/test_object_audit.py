"""An audit by a Python object with one method, from the call to the folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import visleak
from visleak.auditing import audit
from visleak.errors import UsageError
from visleak.storage.cache import Cache


class Thumbnails:
    """Means of a 4 x 4 grid of cells, around mid-grey."""

    def __init__(self) -> None:
        self.shown = 0

    def __reduce__(self):
        return Thumbnails, ()

    def encode(self, images):
        self.shown += len(images)
        small = [np.asarray(Image.fromarray(image).resize((4, 4))) for image in images]
        return np.stack(small).reshape(len(small), -1) / 127.5 - 1.0


class Nameless(Thumbnails):
    """Cannot be known again."""

    def __reduce__(self):
        raise TypeError("no")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return twelve test images, three of them in the training folder; one file is broken."""
    root = tmp_path_factory.mktemp("sets")
    rng = np.random.default_rng(0)
    for name, count in (("test", 12), ("train", 20)):
        (root / name).mkdir()
        for n in range(count):
            rough = Image.fromarray(rng.integers(0, 256, (6, 6, 3), np.uint8))
            rough.resize((32, 32), Image.Resampling.BICUBIC).save(root / name / f"{n:02}.png")
    for n in range(3):
        data = (root / "test" / f"{n:02}.png").read_bytes()
        (root / "train" / f"{n + 5:02}.png").write_bytes(data)
    (root / "test" / "99.png").write_bytes(b"words")
    return root / "test", root / "train"


@pytest.mark.parametrize("workers", [1, 2])
def test_it_finds_what_leaks(folders, tmp_path, workers) -> None:
    """Grades without thresholds; degrees where the caller gives them."""
    found = audit(*folders, encoder=Thumbnails(), out=tmp_path / "a", cache=None, workers=workers)
    assert found.rate("exact").count == 3
    summary = found.summary
    assert (summary.encoder.name, summary.encoder.width) == ("Thumbnails", 48)
    assert summary.totals[0].rates["hard_or_soft"] is None
    assert found.pairs()["degree"].null_count == len(found.pairs())
    assert [problem.id for problem in found.unreadable()] == ["99.png"]
    limits = visleak.Settings(hard=0.999, soft=0.99, verify=False)
    found = audit(*folders, encoder=Thumbnails(), settings=limits, cache=None)
    assert found.rate("hard").count == 3


def test_what_can_be_known_again_is_reused(folders, tmp_path) -> None:
    """The folder by the next run, the fingerprints by the next audit."""
    first, second, third = Thumbnails(), Thumbnails(), Thumbnails()
    options = {"cache": tmp_path / "cache", "workers": 1}
    audit(*folders, encoder=first, out=tmp_path / "a", **options)
    again = audit(*folders, encoder=second, out=tmp_path / "a", **options)
    audit(*folders, encoder=third, out=tmp_path / "b", **options)
    assert again.reused
    # one grey image tells the width; of three copies one is read after the other is known
    assert (first.shown, second.shown, third.shown) == (30, 1, 1)


def test_what_cannot_be_known_again_is_never_reused(folders, tmp_path) -> None:
    """Another object of the same class may be another network."""
    options = {"cache": tmp_path / "cache", "workers": 1}
    for _ in range(2):
        thing = Nameless()
        audit(*folders, encoder=thing, out=tmp_path / "a", force=True, **options)
        assert thing.shown == 33
    with pytest.raises(UsageError, match="holds another audit"):
        audit(*folders, encoder=Nameless(), out=tmp_path / "a", **options)
    with Cache(tmp_path / "cache") as cache:
        makers = {row[0] for row in cache._db.execute("SELECT DISTINCT maker FROM entries")}
    assert not any(b"this run only" in maker for maker in makers)
