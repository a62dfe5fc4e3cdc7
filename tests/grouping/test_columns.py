"""Columns of a table that put images together, from the file to the remedy."""

from __future__ import annotations

import csv

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import visleak
from visleak.formats import open_image_set
from visleak.grouping.document import options


@pytest.fixture
def table(tmp_path):
    """Photographs of 20 patients in three shots each; names and dates state nothing."""
    rng = np.random.default_rng(5)
    rows = []
    for patient in range(20):
        base = rng.integers(0, 256, (6, 6, 3), dtype=np.uint8)
        base = np.asarray(Image.fromarray(base).resize((48, 48), Image.Resampling.BICUBIC))
        for _ in range(3):
            name = f"{rng.bytes(6).hex()}.png"
            noise = rng.normal(0, 9, base.shape)
            Image.fromarray(np.clip(base + noise, 0, 255).astype(np.uint8)).save(tmp_path / name)
            rows.append((name, f"P{patient:03}", str(rng.integers(30, 90)), f"note {len(rows)}"))
    with (tmp_path / "list.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("path", "patient_id", "age", "note"), *rows])
    return tmp_path / "list.csv"


def test_a_column_is_believed_where_its_images_agree(table, tmp_path):
    images = open_image_set(table)
    assert set(images.columns) == {"patient_id", "age"}
    audit = visleak.audit(table, out=tmp_path / "audit", verify=False, workers=1, cache=None)
    (known,) = audit.summary.grouping.believed
    assert (known.source, known.words, known.groups) == ("column", "column patient_id", 20)
    assert options(known) == "--group patient_id"


def test_columns_beside_the_images_of_a_parquet_file(table):
    with table.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    content = [(table.parent / row["path"]).read_bytes() for row in rows]
    columns = {
        "image": pa.array(content, pa.binary()),
        "patient_id": pa.array([int(row["patient_id"][1:]) for row in rows]),
        "score": pa.array([float(row["age"]) for row in rows]),
        "note": pa.array([row["note"] for row in rows]),
        "broken": pa.array([b"\xff", b"b"] * 30).view(pa.string()),
        "camera": pa.array(["a", "b", "c"] * 20).dictionary_encode(),
        "blob": pa.array([b"\xff", b"b"] * 30).dictionary_encode(),
    }
    path = table.with_suffix(".parquet")
    pq.write_table(pa.table(columns), path)
    images = open_image_set(path)
    assert {name: column[-1].as_py() for name, column in images.columns.items()} == {
        "patient_id": "19",
        "camera": "c",
    }
