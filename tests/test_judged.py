"""A guard, not a measurement: the shipped grader on judged pairs and changed photographs."""

import csv
import io
import os
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

import visleak
from visleak.robustness.conditions import CONDITIONS

DATA = os.environ.get("VISLEAK_DATA")

pytestmark = [
    pytest.mark.data,
    pytest.mark.slow,
    pytest.mark.skipif(not DATA, reason="VISLEAK_DATA is not set: no judged pairs to look at"),
]


def pictures(name, wanted):
    """Return CIFAR-10's images of some indices, in the order asked for."""
    table = pq.read_table(Path(DATA) / "cifar10" / f"{name}.parquet")
    stored = dict(zip(table["index"].to_pylist(), table["image"].to_pylist(), strict=True))
    return [np.asarray(Image.open(io.BytesIO(stored[i]["bytes"])).convert("RGB")) for i in wanted]


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """Return verdict, grade and probability of the judged pairs that an audit verified."""
    with (Path(DATA) / "cifar10" / "verdicts_dev.csv").open() as lines:
        rows = [row for row in csv.DictReader(lines) if row["Agreed"] == "1"]
    test = sorted({int(row["TestID"]) for row in rows})
    train = sorted({int(row["TrainID"]) for row in rows})
    found = visleak.audit(
        test=pictures("test", test),
        train=pictures("train", train),
        out=tmp_path_factory.mktemp("judged") / "a",
        settings=visleak.Settings(within=False),
        cache=None,
    )
    table = pq.read_table(found.folder / "pairs.parquet").to_pylist()
    verified = [pair for pair in table if pair["grade"] is not None]
    seen = {(test[int(p["query"])], train[int(p["reference"])]): p for p in verified}
    pairs = [(int(r["TestID"]), int(r["TrainID"]), int(r["Judgment"])) for r in rows]
    return [
        (v, seen[q, r]["grade"], seen[q, r]["probability"]) for q, r, v in pairs if (q, r) in seen
    ]


def test_grades_of_judged_pairs(judged):
    near = [grade in ("near", "exact") for verdict, grade, _ in judged if verdict <= 1]
    different = [grade in ("near", "exact") for verdict, grade, _ in judged if verdict == 3]
    assert len(near) >= 270
    assert len(different) >= 450
    assert np.mean(near) >= 0.9
    assert sum(different) <= 3


def test_probabilities_of_judged_pairs(judged):
    true = np.array([verdict <= 1 for verdict, _, _ in judged])
    probability = np.array([p for _, _, p in judged])
    # expected calibration error over ten bins of equal mass
    bins = np.array_split(np.argsort(probability, kind="stable"), 10)
    distances = [len(b) * abs(probability[b].mean() - true[b].mean()) for b in bins]
    assert sum(distances) / len(true) <= 0.05


def test_photographs_under_some_conditions(tmp_path):
    paths = [p for n, p in enumerate(sorted((Path(DATA) / "photos").glob("*.jpg"))) if n % 4 >= 2]
    originals = [np.asarray(Image.open(path).convert("RGB")) for path in paths[:80]]
    names = ("flip-h", "rot-45", "crop-50", "red", "invert", "noise", "rs-128", "jpeg-10", "text")
    queries, truth = [], []
    for number in range(0, 80, 4):
        for name in names:
            changed = CONDITIONS[name].of(originals[number], str(number))
            if changed is not None:
                queries.append(changed)
                truth.append(number)
    found = visleak.audit(
        test=queries,
        train=originals,
        out=tmp_path / "a",
        settings=visleak.Settings(within=False),
        cache=None,
    )
    table = pq.read_table(found.folder / "pairs.parquet").to_pylist()
    near = [p for p in table if p["grade"] in ("near", "exact")]
    right = [truth[int(p["query"])] == int(p["reference"]) for p in near]
    assert right.count(False) == 0
    assert right.count(True) >= 0.9 * len(queries)
