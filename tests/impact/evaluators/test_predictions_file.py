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


def test_parquet_with_lists_and_what_made_it(tmp_path):
    lists = pa.array([["x"], [], ["y", "z"]])
    scores = np.arange(6, dtype=np.float32).reshape(3, 2)
    path = write_predictions(
        tmp_path / "p.parquet",
        ["1", "2", "3"],
        COLUMNS | {"predictions": lists, "scores": scores},
        {"evaluator": "test", "source": "a\udcff"},
        classes=["u", "v"],
    )
    table = pq.read_table(path)
    assert table.column_names == ["id", "label", "rank", "score", "predictions", "scores"]
    assert table["predictions"].to_pylist() == [["x"], [], ["y", "z"]]
    assert table["scores"].to_pylist() == scores.tolist()
    about = json.loads(table.schema.metadata[b"visleak"])
    assert (about["kind"], about["schema"]) == ("visleak predictions", 1)
    assert (about["evaluator"], about["source"]) == ("test", "a\udcff")
    assert json.loads(table.schema.metadata[b"classes"]) == ["u", "v"]


def test_many_rows_are_written_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(predictions, "_ROWS", 4)
    ids = [str(number) for number in range(11)]
    scores = np.random.default_rng(0).random((11, 3), np.float32)
    labels = pa.array([None] * 5 + ["a"] * 6)
    path = write_predictions(tmp_path / "p.parquet", ids, {"s": scores, "label": labels}, {})
    assert pq.ParquetFile(path).num_row_groups == 3
    table = pq.read_table(path)
    np.testing.assert_array_equal(np.array(table["s"].to_pylist(), np.float32), scores)
    assert (table["id"].to_pylist(), table["label"].to_pylist()) == (ids, labels.to_pylist())


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
    assert "p.csv exists" in refusal(UsageError, write_predictions, path, [], {}, {})
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
