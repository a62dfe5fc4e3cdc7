"""Twins of the same difficulty separate "easier" from "memorized" (``impact --difficulty``).

usage: VISLEAK_DATA=FOLDER python benchmarks/impact_twins.py [--work FOLDER]

Simulated: 2,000 images, of which easy ones leak more often. One model is right with the probability
of the image's ease and memorizes nothing; another one also memorizes 30 % of the leaked images.
Difficulty is known exactly, or with noise.

Real: the models of ``impact_cifar10.py`` on the 5,000 test images of even index of CIFAR-10, which
people judged, with difficulty by the built-in probe. Ridge regression can hardly memorize single
images, 1-NN memorizes all. No audit is needed; about two minutes on two cores.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from impact_cifar10 import LISTS, answers, judged_lists, vectors
from record import Bar, data_folder, write

from visleak.groups import components
from visleak.impact.benchmark import Benchmark, Leak, Scores
from visleak.impact.difficulty import probe
from visleak.impact.effects import Sampling, effects_of
from visleak.impact.results import Comparison, MatchedComparison

#: Simulated test sets, and standard deviations of the noise; that of the difficulty is 0.29.
RUNS = 200
NOISE = (0.0, 0.1, 0.3)

IMAGES = 2000
REMEMBERED = 0.3
LEVEL = 0.05


def leak_of(name: str, leaked: npt.NDArray[np.bool_]) -> Leak:
    """Return images as a leak without known relations of labels."""
    return Leak(name, leaked, np.where(leaked, 2, -1).astype(np.int8))


def twinned(each: Comparison) -> MatchedComparison:
    """Return the comparison with twins, which exists in all cases here."""
    assert each.twinned is not None
    return each.twinned


def simulated(noise: float) -> dict[str, float]:
    """Return the rates of alarms of the tests and of intervals of twins that contain 0."""
    found = {"plain": 0, "twins": 0, "interval holds 0": 0, "power": 0}
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        hard = rng.random(IMAGES)
        leaked = rng.random(IMAGES) < 0.12 * (1 - hard)
        right = rng.random(IMAGES) > hard
        learnt = right | (leaked & (rng.random(IMAGES) < REMEMBERED))
        ids = pa.array([str(n) for n in range(IMAGES)])
        test = Benchmark(
            "test", ("train",), ids, None, (leak_of("leak", leaked),),
            difficulty=hard + noise * rng.standard_normal(IMAGES),
        )  # fmt: skip
        models = [
            Scores(n, {"accuracy": v.astype(float)}) for n, v in (("a", right), ("b", learnt))
        ]
        easier, memorized = (
            effect.comparisons[0] for effect in effects_of(test, models, Sampling(draws=2))
        )
        ends = twinned(easier).difference
        found["plain"] += easier.p < LEVEL
        found["twins"] += twinned(easier).p < LEVEL
        found["interval holds 0"] += ends.low <= 0 <= ends.high
        found["power"] += twinned(memorized).p < LEVEL
    return {name: count / RUNS for name, count in found.items()}


def real(data: Path, work: Path) -> tuple[dict[str, Any], dict[str, list[Comparison]]]:
    """Return the probe, and the comparisons of each model on CIFAR-10."""
    matrix, labels = vectors(data / "cifar10" / "test.parquet")
    rows = np.arange(len(labels))
    classes = np.unique(labels.astype(str), return_inverse=True)[1].astype(np.int64)
    with (data / "cifar10" / "duplicates_within_test_dev.csv").open() as lines:
        ties = [(int(row["TestID"]), int(row["TrainID"])) for row in csv.DictReader(lines)]
    first, second = (np.array(side, np.int64) for side in zip(*ties, strict=True))
    found = probe(matrix, rows, classes, components(len(rows), [(first, second)]))
    even = rows[rows % 2 == 0]
    leaks = []
    for name, file in judged_lists(data, work).items():
        listed = np.isin(even, [int(line) for line in file.read_text().split()])
        leaks.append(leak_of(name, listed))
    test = Benchmark(
        "test", ("train",), pa.array(even.astype(str)), pa.array(labels[even].astype(str)),
        tuple(leaks), difficulty=found.difficulty[even],
    )  # fmt: skip
    models = []
    for name, file in answers(data, work).items():
        table = pq.read_table(file, columns=["id", "prediction"]).to_pylist()
        said = {row["id"]: row["prediction"] for row in table}
        right = [float(said[str(row)] == str(labels[row])) for row in even]
        models.append(Scores(name, {"accuracy": np.array(right)}))
    effects = effects_of(test, models, Sampling(draws=2))
    about = {"ridge": found.ridge, "nearest": found.nearest, "largest class": found.largest}
    return about, {effect.model: list(effect.comparisons) for effect in effects}


def as_figures(each: Comparison) -> dict[str, Any]:
    """Return a comparison for the JSON file; scores are shares."""
    twins = twinned(each)
    return {
        "leaked": each.leaked,
        "leaked - others": _rounded(each.difference),
        "p": each.p,
        "with twins": twins.leaked,
        "twins": twins.leaked * twins.twins,
        "leaked - twins": _rounded(twins.difference),
        "p of twins": twins.p,
        "easier images: leaked, others, matched, twins": [round(x, 3) for x in twins.difficulty],
    }


def _rounded(estimate: Any) -> list[float]:
    return [round(end, 5) for end in (estimate.value, estimate.low, estimate.high)]


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, help="folder for the predictions")
    given = parser.parse_args()
    data = data_folder(
        "cifar10/train.parquet", "cifar10/verdicts_dev.csv", "models/resnet20-cifar10.th"
    )
    alarms = {noise: simulated(noise) for noise in NOISE}
    with tempfile.TemporaryDirectory() as scratch:
        work = given.work or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        about, compared = real(data, work)
    theirs = {model: each[LISTS.index(LISTS[2])] for model, each in compared.items()}
    figures = {
        "simulated, by noise": {str(noise): rates for noise, rates in alarms.items()},
        "probe on CIFAR-10": about,
        "CIFAR-10, even test images": {
            model: {name: as_figures(each) for name, each in zip(LISTS, every, strict=True)}
            for model, every in compared.items()
        },
    }
    ridge, nearest = (theirs[name] for name in ("ridge", "1-NN"))
    exact = alarms[0.0]
    bars = [
        Bar("simulated: false alarms", exact["twins"], 0.08),
        Bar("simulated: intervals that hold 0", exact["interval holds 0"], 0.93, most=False),
        Bar("ridge, duplicates: points over twins", 100 * twinned(ridge).difference.value, 5.0),
        Bar("ridge, duplicates: p of twins", twinned(ridge).p, 0.05, most=False),
        Bar("1-NN, duplicates: p of twins", twinned(nearest).p, 0.001),
    ]
    for model, every in compared.items():
        for name, each in zip(LISTS, every, strict=True):
            print(f"{model:<10} {name:<30} {as_figures(each)}")
    write(__file__, bars, figures)


if __name__ == "__main__":
    main()
