"""The file of predictions: what is in it, what is refused, and that it is whole or not there."""

import csv
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from refusals import refusal
from visleak.errors import UsageError, VisleakError
from visleak.impact.evaluators import predictions
from visleak.impact.evaluators.predictions import check_target, write_predictions, write_unreadable
from visleak.records import Problem

COLUMNS = {
    "label": pa.array(["a", None, "=b"]),
    "rank": np.array([1, 2, 3]),
    "score": np.array([0.5, 1, 1.5], np.float32),
}


def test_many_rows_are_written_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(predictions, "_ROWS", 4)
    ids = [str(number) for number in range(11)]
    scores = np.random.default_rng(0).random((11, 3), np.float32)
    labels, lists = [None] * 5 + ["a"] * 6, [["x"], [], ["y", "z"]] * 3 + [[], []]
    columns = {"s": scores, "label": pa.array(labels), "l": pa.array(lists)}
    about = {"source": "a\udcff"}
    path = write_predictions(tmp_path / "p.parquet", ids, columns, about, classes=["u", "v", "w"])
    assert pq.ParquetFile(path).num_row_groups == 3
    table = pq.read_table(path)
    np.testing.assert_array_equal(np.array(table["s"].to_pylist(), np.float32), scores)
    for name, values in (("id", ids), ("label", labels), ("l", lists)):
        assert table[name].to_pylist() == values
    assert json.loads(table.schema.metadata[b"visleak"])["source"] == "a\udcff"
    assert json.loads(table.schema.metadata[b"classes"]) == ["u", "v", "w"]


def test_csv_is_flat_and_safe_for_spreadsheets(tmp_path):
    path = write_predictions(tmp_path / "p.csv", ["+1", "b\r\n", "c,d"], COLUMNS, {})
    with path.open(newline="") as lines:
        rows = list(csv.reader(lines))
    assert rows[0] == ["id", "label", "rank", "score"]
    assert rows[1:] == [
        ["'+1", "a", "1", "0.5"],
        ["b\r\n", "", "2", "1.0"],
        ["c,d", "'=b", "3", "1.5"],
    ]
    for target, words in ((path, "p.csv exists"), (tmp_path / "p.json", "as .parquet or .csv")):
        assert words in refusal(UsageError, write_predictions, target, [], {}, {})
    lists = {"s": np.ones((1, 2))}
    said = refusal(UsageError, write_predictions, path, ["1"], lists, {}, force=True)
    assert "p.csv: a CSV cannot hold lists (s)" in said
    said = refusal(VisleakError, write_predictions, path / "below.csv", ["1"], {}, {})
    assert "cannot be written" in said


def test_unreadable_images_stand_beside(tmp_path):
    target = tmp_path / "p.parquet"
    found = write_unreadable(target, [Problem("test", "=x", "x.png", "damaged", "a, b")])
    assert found == tmp_path / "p.unreadable.csv"
    assert found.read_text().splitlines() == [
        "set,id,locator,reason,detail",
        'test,\'=x,x.png,damaged,"a, b"',
    ]
    assert check_target(target) == target
    assert write_unreadable(target, []) is None
    assert not found.exists()
    found.write_text("mine")
    assert "is another file" in refusal(UsageError, check_target, target)
