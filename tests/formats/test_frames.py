"""Frame numbers and times: what counts as which, where they are read from, what is refused."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from webdataset_making import write_shard

from refusals import refused
from visleak.errors import UsageError, VisleakError
from visleak.formats import open_images, open_splits
from visleak.formats.frames import as_iso, read_frames

FIRST = datetime(2011, 9, 26, 13, 2, 25, 250_000)


@pytest.mark.parametrize(
    ("column", "values", "timed"),
    [
        (pa.array(["007", "-2", "", None, " 9 "]), [7, -2, None, None, 9], False),
        (pa.array([3.0, float("nan"), 5.0]), [3, None, 5], False),
        (pa.array(["12.0", "nan", "13.0"]), [12, None, 13], False),
        (pa.array([0.1, 2.0]), [100, 2000], True),
        (pa.array(["1970-01-01T00:00:01.25Z", "1970-01-01 01:00:00+01:00"]), [1250, 0], True),
        (pa.array([datetime(1970, 1, 2)], pa.timestamp("ns")), [86_400_000], True),
        (pa.array([datetime(1970, 1, 1, tzinfo=UTC)]), [0], True),
        (pa.chunked_array([["1"], ["2.5"]]), [1000, 2500], True),
        (pa.array(["4", "5"]).dictionary_encode(), [4, 5], False),
        (pa.nulls(2), [None, None], False),
    ],
)
def test_numbers_are_frames_and_all_else_is_time(column, values, timed):
    found = read_frames(column, "T")
    assert (found.values.to_pylist(), found.timed) == (values, timed)
    assert found.values.type == pa.int64()


@pytest.mark.parametrize(
    ("digits", "kind"),
    [(digits, kind) for digits in (13, 16, 19) for kind in (int, str, float)][:-1],
)
def test_whole_numbers_since_1970_are_times(digits, kind):
    instants = [FIRST.replace(tzinfo=UTC), datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC)]
    milliseconds = [round(instant.timestamp() * 1000) for instant in instants]
    numbers = [value * 10 ** (digits - 13) for value in milliseconds]
    column = pa.array([*map(kind, numbers), None])
    found = read_frames(column, "T")
    assert (found.values.to_pylist(), found.timed) == ([*milliseconds, None], True)
    assert found.stamps == {13: "milliseconds", 16: "microseconds", 19: "nanoseconds"}[digits]


@pytest.mark.parametrize(
    "values",
    [
        [202_401_311_200, 202_402_011_200],
        [20_240_131_120_000_123],
        [1_700_000_000],
        [-1_700_000_000_000],
        [5, 1_700_000_000_000],
        [1_700_000_000_000, 1_700_000_000_000_000],
    ],
)
def test_other_large_numbers_stay_numbers(values):
    found = read_frames(pa.array(values), "T")
    assert (found.values.to_pylist(), found.timed, found.stamps) == (values, False, "")


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array(["1", "x2"]), "T must hold whole numbers, seconds or ISO times; got 'x2'"),
        (pa.array(["1", "2020-01-01"]), "T must hold whole numbers, seconds or ISO times; got '1'"),
        (pa.array([True]), "T must hold whole numbers, .*; they are of type bool"),
        (pa.array([2**63], pa.uint64()), "T: a frame number is too large"),
        (pa.array(["99999999999999999999"]), r"T: 1e\+20 is too large"),
        (pa.array(["inf"]), "T: inf is too large"),
        (pa.array([6e10 + 0.5]), r"T: 6e\+10 is too large"),
        (pa.array([2**60], pa.timestamp("us")), "T: a time is thousands of years away"),
    ],
)
def test_what_is_neither_is_named(column, message):
    with pytest.raises(VisleakError, match=message):
        read_frames(column, "T")


@given(st.integers(-(10**13), 10**13))
def test_a_time_that_is_written_is_read_again(milliseconds):
    found = read_frames(pa.array([as_iso(milliseconds)]), "T")
    assert (found.values.to_pylist(), found.timed) == ([milliseconds], True)


@pytest.fixture
def folder(tmp_path, put):
    for name in ("train/drive_a_000003", "train/drive_a_000012", "test/drive_a_000005", "test/a"):
        put(f"{name}.png")
    return tmp_path


def test_a_pattern_finds_numbers_in_ids(folder):
    splits = open_splits(folder, group=r"/drive_(\w)/", frame=r"/_(\d+)\.png$/")
    assert splits["train"].frames.to_pylist() == [3, 12]
    assert splits["test"].frames.to_pylist() == [None, 5]
    assert not splits["test"].timed
    again = open_images(splits["test"].source, **splits["test"].options)
    assert again.frames.equals(splits["test"].frames)
    words = "frame 'time': .* has no columns; frame may be /regex/ on the id"
    refused(UsageError, words, folder / "train", frame="time")
    refused(UsageError, "is not a regular expression", folder / "train", frame="/(/")
    words = r"what frame '/\(drive\)/' finds in the ids must hold whole"
    refused(VisleakError, words, folder / "train", frame="/(drive)/")


def test_columns_of_tables_and_fields_of_webdataset(folder, picture, encode):
    paths = ["train/drive_a_000003.png", "train/drive_a_000012.png"]
    at = [FIRST, FIRST + timedelta(milliseconds=103)]
    table = pa.table({"path": paths, "frame": ["7", None], "at": at})
    path = folder / "t.parquet"
    pq.write_table(table, path)
    assert open_images(path).frames.to_pylist() == [7, None]
    timed = open_images(path, frame="at")
    assert timed.timed
    assert np.diff(timed.frames.to_numpy()).tolist() == [103]
    assert open_images(path, frame=r"/_(\d+)\.png/").frames.to_pylist() == [3, 12]
    times = (("a", 1.5), ("b", 3), ("c", None))
    samples = [(key, {"png": encode(picture()), "json": {"at": time}}) for key, time in times]
    shard = f"wds:{write_shard(folder / 'a.tar', samples)}"
    found = open_images(shard, frame="at")
    assert (found.frames.to_pylist(), found.timed) == ([1500, 3000, None], True)
    refused(UsageError, r"frame 'when': .* has no such column; it has path", path, frame="when")
    refused(UsageError, r"frame 'when': no sample has this in the", shard, frame="when")
