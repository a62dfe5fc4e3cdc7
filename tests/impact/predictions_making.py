"""The same predictions in files of every format."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from visleak.impact.benchmark import Benchmark, Leak, Scores
from visleak.impact.predictions import read_scores
from visleak.storage import csv_cell, write_csv_rows

#: Twenty images of two classes.
IDS = [f"test/{number:03d}.png" for number in range(20)]
LABELS = ["cat", "dog"] * 10


def benchmark(ids=IDS, labels=LABELS):
    column = None if labels is None else pa.array(labels, pa.string())
    return Benchmark("test", ("train",), pa.array(ids, pa.string()), column, ())


def as_csv(path, columns):
    """Write a CSV as visleak writes its own."""
    with path.open("w", encoding="utf-8", newline="") as file:
        write_csv_rows(file, [tuple(columns)], "\t" if path.suffix == ".tsv" else ",")
        cells = (
            ["" if v is None else csv_cell(v) if isinstance(v, str) else v for v in row]
            for row in zip(*columns.values(), strict=True)
        )
        write_csv_rows(file, cells, "\t" if path.suffix == ".tsv" else ",")
    return path


def as_parquet(path, columns, classes=()):
    table = pa.table(dict(columns))
    if classes:
        table = table.replace_schema_metadata({"classes": json.dumps(list(classes))})
    pq.write_table(table, path, row_group_size=7)
    return path


def as_npz(path, columns):
    np.savez(path, **{name: np.asarray(values) for name, values in columns.items()})
    return path


def scores_of(path, about, **options):
    """Return the scores that a file gives, and the notes about it."""
    scores = read_scores(path, about, **options)
    return scores, scores.notes


def leaky(leaked, labels=None, relation=2, difficulty=None):
    """Return a test set of which some images leak."""
    mask = np.array(leaked, bool)
    kind = np.where(mask, relation, -1).astype(np.int8)
    ids = pa.array([str(n) for n in range(len(mask))], pa.string())
    named = None if labels is None else pa.array(labels, pa.string())
    leak = Leak("near or exact", mask, kind)
    return Benchmark("test", ("train",), ids, named, (leak,), difficulty=difficulty)


def scored(values, model="m", metric="accuracy", lower=False):
    named = frozenset({metric} if lower else ())
    return Scores(model, {metric: np.array(values, float)}, lower=named)
