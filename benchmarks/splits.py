"""Deviation and time of splits, compared with scikit-learn and the optimum.

usage: VISLEAK_DATA=FOLDER python benchmarks/splits.py

Parts of 80 and 20 %, stratified by class. The deviation is the largest of all sizes (relative) and
class shares (points). scikit-learn's StratifiedGroupKFold makes five folds of the same components;
its best fold counts. The graph of CIFAR-10 is real: the near-duplicates of an audit of its test
images with train and with themselves. The others are drawn with a fixed seed.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from record import Bar, data_folder, write
from sklearn.model_selection import StratifiedGroupKFold

import visleak
from visleak.groups import numbered
from visleak.records import ImageSet, Int64
from visleak.remedy.balance import Loads, count_by_part, max_points
from visleak.remedy.graph import Graph
from visleak.remedy.partition import assign

SHARES = np.array([0.8, 0.2])

#: Small instances, whose assignments are all enumerated.
SMALL = 60


def cifar(data: Path) -> tuple[Int64, Int64]:
    """Return component and class of the 60,000 images of CIFAR-10."""
    sets = [visleak.open_images(data / f"{name}.parquet", name=name) for name in ("test", "train")]
    found = visleak.audit(sets[:1], sets[1:])
    opened = [each for each in sets if isinstance(each, ImageSet)]
    graph = Graph.of(found.folder, opened)
    edges = graph.edges(found.folder, {"test": 0, "train": 1}, "near", None)
    return graph.components(edges), graph.label


def drawn(images: int, components: int, classes: int, pure: bool, seed: int) -> tuple[Int64, Int64]:
    """Return images in components of very different sizes, of one class or several."""
    rng = np.random.default_rng(seed)
    weights = rng.lognormal(0.0, 1.0, components)
    component = numbered(rng.choice(components, images, p=weights / weights.sum()))
    if pure:
        own = rng.integers(0, classes, components)
        return component, numbered(own[component])
    # every component prefers some classes
    taste = rng.dirichlet(np.full(classes, 0.5), components).cumsum(axis=1)
    label = (rng.random(images)[:, None] > taste[component]).sum(axis=1)
    return component, numbered(np.minimum(label, classes - 1))


def deviation(component: Int64, label: Int64, part: Int64) -> float:
    """Return the largest deviation of an assignment, image by image, in points."""
    return 100 * max_points(count_by_part(part[component], 2, label, int(label.max()) + 1), SHARES)


def ours(component: Int64, label: Int64) -> tuple[float, float]:
    """Return seconds and deviation of visleak."""
    begun = time.perf_counter()
    part = assign(component, label, SHARES)
    return time.perf_counter() - begun, deviation(component, label, part)


def theirs(component: Int64, label: Int64) -> tuple[float, float]:
    """Return seconds and the deviation of the best fold of scikit-learn."""
    begun = time.perf_counter()
    folds = StratifiedGroupKFold(5, shuffle=True, random_state=0)
    tests = [test for _, test in folds.split(label, label, component)]
    seconds = time.perf_counter() - begun
    found = []
    for test in tests:
        part = np.zeros(int(component.max()) + 1, np.int64)
        part[component[test]] = 1
        found.append(deviation(component, label, part))
    return seconds, min(found)


def gaps() -> Iterator[float]:
    """Yield the differences to the best of all assignments of small instances, in points."""
    rng = np.random.default_rng(0)
    for _ in range(SMALL):
        count = int(rng.integers(2, 12))
        component = np.repeat(np.arange(count), rng.integers(1, 13, count))
        label = numbered(rng.integers(0, 3, len(component)))
        loads = Loads.of(component, label)
        best = min(
            max_points(loads.counts_of(np.array(part), 2), SHARES)
            for part in itertools.product((0, 1), repeat=count)
        )
        yield deviation(component, label, assign(component, label, SHARES)) - 100 * best


def main() -> None:
    """Measure, print and store."""
    data = data_folder("cifar10/test.parquet", "cifar10/train.parquet") / "cifar10"
    cases = {
        "CIFAR-10, its near-duplicates": cifar(data),
        "60,000 images, 2,000 clips of one class": drawn(60_000, 2_000, 10, True, 1),
        "60,000 images, 300 clips of ten classes": drawn(60_000, 300, 10, False, 2),
        "1,000,000 images, 100,000 clips, 100 classes": drawn(1_000_000, 100_000, 100, False, 3),
    }
    figures: dict[str, Any] = {}
    bars = []
    for name, (component, label) in cases.items():
        our_seconds, our_points = ours(component, label)
        their_seconds, their_points = theirs(component, label)
        figures[name] = {
            "components": int(component.max()) + 1,
            "largest": int(np.bincount(component).max()),
            "ours_s": round(our_seconds, 2),
            "ours_points": round(our_points, 4),
            "sklearn_s": round(their_seconds, 2),
            "sklearn_points": round(their_points, 4),
        }
        print(name, figures[name], flush=True)
        bars.append(Bar(f"{name}: points above sklearn's", our_points - their_points, 0))
    bars.append(Bar("a million images, s", our_seconds, 15))
    found = list(gaps())
    figures["small"] = {
        "instances": SMALL,
        "optimal": int(sum(gap < 1e-6 for gap in found)),
        "mean_gap_points": round(float(np.mean(found)), 4),
        "largest_gap_points": round(max(found), 4),
    }
    print(figures["small"])
    bars.append(Bar("small instances: mean gap to the optimum, points", float(np.mean(found)), 0.2))
    write(__file__, bars, figures)


if __name__ == "__main__":
    main()
