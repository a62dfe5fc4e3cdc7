"""The parts of a set as tables: opened again they are what they were."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from toy_splits import split_of
from visleak.dlede.draw.recipes import split_by
from visleak.dlede.draw.split import write_split_tables
from visleak.errors import UsageError
from visleak.formats import open_images
from visleak.records import ImageSet


@pytest.fixture
def video(tmp_path: Path) -> ImageSet:
    for drive in ("=one", "two ä"):
        for frame in range(4):
            path = tmp_path / "video" / drive / f"{frame}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.full((8, 8, 3), 40 * frame, np.uint8)).save(path)
    return open_images(
        str(tmp_path / "video"), group="/^([^/]+)/", frame=r"/(\d+)\.png$/", dataset="film"
    )


def test_parts_open_from_their_tables_as_they_were(tmp_path: Path, video: ImageSet) -> None:
    before = split_by(video, "first-groups:1")
    after = write_split_tables(before, tmp_path / "out")
    for name in ("train", "test"):
        old, new = getattr(before, name), getattr(after, name)
        assert new.source == str(tmp_path / "out" / f"{name}.parquet")
        again = open_images(new.source, id="id")
        for column in ("ids", "labels", "groups", "frames", "locators"):
            assert getattr(new, column).equals(getattr(old, column)), column
            assert getattr(again, column).equals(getattr(old, column)), column
        assert (new.name, new.dataset, new.timed) == (name, "film", False)
        one, other = (list(part.opener.read(range(4))) for part in (old, new))
        assert one == other


def test_tables_of_another_split_are_not_written_over(tmp_path: Path, video: ImageSet) -> None:
    write_split_tables(split_by(video, "first:6"), tmp_path / "out")
    write_split_tables(split_by(video, "first:6"), tmp_path / "out")
    with pytest.raises(UsageError, match=r"train.parquet is of another split; choose another"):
        write_split_tables(split_by(video, "first:5"), tmp_path / "out")
    forced = write_split_tables(split_by(video, "first:5"), tmp_path / "out", force=True)
    assert len(forced.train) == 5


def test_times_stay_times(tmp_path: Path, video: ImageSet) -> None:
    from dataclasses import replace

    timed = replace(video, timed=True)
    test = write_split_tables(split_by(timed, "first:6"), tmp_path / "out").test
    assert test.timed
    assert test.frames is not None
    assert test.frames.to_pylist() == [2, 3]


def test_pictures_that_are_no_files_stay_where_they_are(tmp_path: Path) -> None:
    split = split_of(6, 4)
    assert write_split_tables(split, tmp_path / "out") is split
    assert not (tmp_path / "out").exists()
