"""The golden runs: what their comparison finds in small folders that are made up."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"

PAIRS = {
    "query": ["a", "b"],
    "similarity": pa.array([0.9, 0.7], pa.float32()),
    "probability": pa.array([0.5, 0.25], pa.float32()),
}
SUMMARY = {
    "headline": "one of two images has a copy",
    "sets": [{"name": "test", "images": 2}, {"name": "train", "images": 3}],
    "timings": {"verify": 0.5},
}

Write = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def golden_values():
    before, modules = list(sys.path), set(sys.modules)
    sys.path.insert(0, str(BENCHMARKS))
    import golden_values

    yield golden_values
    sys.path[:] = before
    for name in {"golden_values", "golden_inputs", "demo"} - modules:
        sys.modules.pop(name, None)


@pytest.fixture
def written(golden_values, tmp_path):
    """Return what writes a folder and returns its values."""

    def write(
        pairs: Mapping[str, Any] = PAIRS,
        summary: Mapping[str, Any] = SUMMARY,
        listed: str = "id,share\nx.png,0.5\n",
        image: bytes = b"pixels",
        name: str = "audit",
    ) -> dict[str, Any]:
        root = tmp_path / str(len(list(tmp_path.iterdir())))
        folder = root / name
        folder.mkdir(parents=True)
        pq.write_table(pa.table(dict(pairs)), folder / "pairs.parquet")
        (folder / "audit.json").write_text(json.dumps(summary))
        (folder / "list.csv").write_text(listed)
        (folder / "x.png").write_bytes(image)
        (folder / "report.html").write_text(str(root))
        values: dict[str, Any] = golden_values.values_of(root, [name])
        return json.loads(json.dumps(values))

    return write


def test_equal_folders_have_no_difference(golden_values, written):
    later = SUMMARY | {"timings": {"verify": 0.7}}
    assert golden_values.differences(written(), written(summary=later)) == []


@pytest.mark.parametrize(
    ("change", "where", "values"),
    [
        ({"pairs": PAIRS | {"query": ["a", "c"]}}, "audit/pairs.parquet: query,", "'b' -> 'c'"),
        ({"pairs": PAIRS | {"similarity": [0.9, 0.7000001]}}, "similarity, row 1", "0.7000001"),
        ({"pairs": PAIRS | {"probability": [0.5, None]}}, "probability, row 1", "0.25 -> None"),
        ({"pairs": {k: v[:1] for k, v in PAIRS.items()}}, "query", "2 rows -> 1"),
        (
            {"summary": SUMMARY | {"sets": [{"name": "test", "images": 4}]}},
            "sets[0].images",
            "2 -> 4",
        ),
        ({"listed": "id,share\nx.png,0.6\n"}, "audit/list.csv: share, row 0", "'0.5' -> '0.6'"),
        ({"image": b"others"}, "audit/x.png", "->"),
    ],
)
def test_a_changed_value_is_named_with_its_place(golden_values, written, change, where, values):
    found = golden_values.differences(written(), written(**change))
    assert any(where in line and values in line for line in found)


def test_missing_and_new_columns_keys_and_files_are_named(golden_values, written):
    full = written()
    fewer = {key: value for key, value in PAIRS.items() if key != "similarity"}
    short = written(fewer, {key: SUMMARY[key] for key in ("sets", "timings")}, listed="id\nx.png\n")
    del short["audit/x.png"]
    places = {
        "audit/x.png",
        "audit/pairs.parquet: similarity",
        "audit/audit.json: headline",
        "audit/list.csv: share",
    }
    assert set(golden_values.differences(full, short)) == {f"{place}: missing" for place in places}
    assert set(golden_values.differences(short, full)) == {f"{place}: new" for place in places}


def test_names_changed_on_purpose_are_followed(golden_values, written):
    pairs = {"image" if key == "query" else key: value for key, value in PAIRS.items()}
    sets = [
        {"called" if key == "name" else key: v for key, v in s.items()} for s in SUMMARY["sets"]
    ]
    before, after = written(), written(pairs, SUMMARY | {"sets": sets}, name="result")
    files = {"audit": "result"}
    keys = {"audit/pairs.parquet:query": "image", "name": "called"}
    assert golden_values.differences(before, after, {"files": files, "keys": keys}) == []
    found = golden_values.differences(before, after, {"files": files, "keys": {"name": "called"}})
    assert found == ["audit/pairs.parquet: query: missing", "audit/pairs.parquet: image: new"]
    del after["result/list.csv"]
    found = golden_values.differences(before, after, {"files": files, "keys": keys})
    assert found == ["audit/list.csv: missing as result/list.csv"]


def test_fractions_have_a_tolerance_and_sentences_may_be_skipped(golden_values, written):
    nearly = PAIRS | {"probability": pa.array([0.5, 0.2500001], pa.float32())}
    other = SUMMARY | {"headline": "a copy has been found of one image"}
    before, after = written(), written(nearly, other)
    (headline,) = golden_values.differences(before, after)
    assert "headline" in headline
    (probability,) = golden_values.differences(before, after, exact=True, sentences=False)
    assert "probability, row 1" in probability
    assert golden_values.differences(before, after, sentences=False) == []
    # one word for another is a value, not a sentence
    word = SUMMARY | {"headline": "none"}
    assert golden_values.differences(before, written(summary=word), sentences=False)
