"""The golden runs: what their comparison finds in small folders that are made up."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

PAIRS = {"query": ["a", "b"], "similarity": [0.9, 0.7], "probability": [0.5, 0.25]}
SUMMARY = {
    "headline": "one of two images has a copy",
    "sets": [{"name": "test", "images": 2}, {"name": "train", "images": 3}],
    "timings": {"verify": 0.5},
}


@pytest.fixture(scope="module")
def golden_values(script):
    return script("golden_values")


@pytest.fixture
def written(golden_values, tmp_path):
    """Return what writes a folder and returns its values."""

    def write(
        pairs=PAIRS, summary=SUMMARY, listed="id,share\nx.png,0.5\n", image=b"pixels", name="audit"
    ):
        root = tmp_path / str(len(list(tmp_path.iterdir())))
        folder = root / name
        folder.mkdir(parents=True)
        pq.write_table(pa.table(pairs), folder / "pairs.parquet")
        (folder / "audit.json").write_text(json.dumps(summary))
        (folder / "list.csv").write_text(listed)
        (folder / "x.png").write_bytes(image)
        (folder / "report.html").write_text(str(root))
        return json.loads(json.dumps(golden_values.values_of(root, [name])))

    return write


@pytest.mark.parametrize(
    ("change", "where", "values"),
    [
        ({"pairs": PAIRS | {"query": ["a", "c"]}}, "audit/pairs.parquet: query,", "'b' -> 'c'"),
        ({"pairs": PAIRS | {"similarity": [0.9, 0.7000001]}}, "similarity, row 1", "0.7000001"),
        ({"pairs": PAIRS | {"probability": [0.5, None]}}, "probability, row 1", "0.25 -> None"),
        ({"pairs": {k: v[:1] for k, v in PAIRS.items()}}, "query", "2 rows -> 1"),
        ({"summary": SUMMARY | {"sets": SUMMARY["sets"][:1]}}, "sets[1].images", "missing"),
        ({"listed": "id,share\nx.png,0.6\n"}, "audit/list.csv: share, row 0", "'0.5' -> '0.6'"),
        ({"image": b"others"}, "audit/x.png", "->"),
    ],
)
def test_a_changed_value_is_named_with_its_place(golden_values, written, change, where, values):
    found = golden_values.differences(written(), written(**change))
    assert any(where in line and values in line for line in found)


def test_missing_and_new_names_and_names_changed_on_purpose(golden_values, written):
    pairs = {"image" if key == "query" else key: value for key, value in PAIRS.items()}
    summary = {"called" if key == "headline" else key: value for key, value in SUMMARY.items()}
    before, after = written(), written(pairs, summary, name="result")
    del after["result/list.csv"]
    found = golden_values.differences(before, after, {"files": {"audit": "result"}, "keys": {}})
    assert set(found) == {
        "audit/list.csv: missing as result/list.csv",
        "audit/pairs.parquet: query: missing",
        "audit/pairs.parquet: image: new",
        "audit/audit.json: headline: missing",
        "audit/audit.json: called: new",
    }
    keys = {"audit/pairs.parquet:query": "image", "headline": "called"}
    found = golden_values.differences(before, after, {"files": {"audit": "result"}, "keys": keys})
    assert found == ["audit/list.csv: missing as result/list.csv"]


def test_equal_folders_tolerance_and_sentences(golden_values, written):
    before, later = written(), SUMMARY | {"timings": {"verify": 0.7}}
    assert golden_values.differences(before, written(summary=later)) == []
    nearly = PAIRS | {"probability": [0.5, 0.2500001]}
    after = written(nearly, SUMMARY | {"headline": "a copy has been found of one image"})
    (headline,) = golden_values.differences(before, after)
    assert "headline" in headline
    (probability,) = golden_values.differences(before, after, exact=True, sentences=False)
    assert "probability, row 1" in probability
    # one word for another is a value, not a sentence
    word = SUMMARY | {"headline": "none"}
    assert golden_values.differences(before, written(summary=word), sentences=False)
