"""Time and recall of faiss's indices, relative to exact search.

usage: VISLEAK_DATA=FOLDER python benchmarks/search_engines.py [--quick]

Two inputs: fingerprints of CIFAR-10 (without views), and vectors of 512 coordinates around 500
centres, where each query has a planted neighbour. Every engine searches for the pairs from the
threshold on and the best twenty of the same queries. Seconds are also given relative to exact
search in the same run. Recall is over all queries, not over a sample as in an audit.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import numpy as np
from record import Bar, data_folder, write
from search_speed import fingerprints, sides_of
from threadpoolctl import threadpool_limits

from visleak.encoders import load_encoder
from visleak.records import Float32
from visleak.search.exact import ExactSearch
from visleak.search.faiss_search import (
    SAMPLE,
    Effort,
    Kind,
    Layout,
    account_of,
    build,
    recall,
    sampled,
    search_index,
    threads,
    tune,
)
from visleak.search.hits import Hits, Sides, Wanted

BEST = 20
KINDS: tuple[Kind, ...] = ("flat", "hnsw", "ivf", "ivfpq")
QUERIES = 2_000
REFERENCES = 100_000
WIDTH = 512
CENTRES = 500
CORES = os.cpu_count() or 1

#: Lower limit of the recall of planted neighbours and of pairs by threshold.
LEAST_PAIRS = 0.97


def clustered(queries: int, references: int) -> tuple[Float32, Float32]:
    """Return queries, each with a neighbour at a similarity from 0.9 to 1, and references."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(CENTRES, WIDTH)) / np.sqrt(WIDTH)
    rows = centres[rng.integers(CENTRES, size=references)]
    rows = rows + 0.7 * rng.normal(size=rows.shape) / np.sqrt(WIDTH)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    source = rows[rng.choice(references, queries, replace=False)]
    target = rng.uniform(0.9, 1, queries)[:, None]
    noise = rng.normal(size=source.shape)
    noise -= (noise * source).sum(axis=1, keepdims=True) * source
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    near = target * source + np.sqrt(1 - target**2) * noise
    return near.astype(np.float32), rows.astype(np.float32)


def measured(sides: Sides, wanted: Wanted) -> dict[str, Any]:
    """Return seconds and recall of every kind of index, and seconds of exact search."""
    begun = time.perf_counter()
    exact = ExactSearch().find(sides, wanted, workers=CORES)
    seconds = time.perf_counter() - begun
    print(f"exact {seconds:.1f} s, {len(exact.query):,} pairs", flush=True)
    rows: dict[str, Any] = {"exact_s": round(seconds, 2)}
    for kind in KINDS:
        rows[kind] = of_index(kind, sides, wanted, exact, seconds)
        print(f"{kind}: {rows[kind]}", flush=True)
    return rows


def of_index(
    kind: Kind, sides: Sides, wanted: Wanted, exact: Hits, seconds: float
) -> dict[str, Any]:
    """Return the time of an index, in seconds and relative to exact search, and its recall."""
    with threads(CORES), threadpool_limits(CORES, user_api="blas"):
        layout = Layout.of(kind, len(sides.order), sides.query[:1].shape[1], penalised=False)
        times = [time.perf_counter()]
        index = build(layout, sides.reference, sides.penalty, lambda done: None)
        times.append(time.perf_counter())
        tuned, _ = sampled(len(sides.query), SAMPLE)
        effort = Effort() if index.exact else tune(index, sides, wanted, tuned, CORES)
        times.append(time.perf_counter())
        hits = search_index(index, sides, wanted, np.arange(len(sides.query)), effort)
        times.append(time.perf_counter())
    seen = recall(hits, exact, sides, wanted)
    building, tuning, searching = np.diff(times)
    return {
        "index": layout.key,
        "parameters": account_of(index, effort, seen).parameters,
        "build_s": round(building, 2),
        "tune_s": round(tuning, 2),
        "search_s": round(searching, 2),
        "build_by_exact": round(building / seconds, 2),
        "search_by_exact": round(searching / seconds, 2),
        "pairs": seen.pairs.as_dict(),
        "best": seen.best.as_dict(),
    }


def main() -> None:
    """Measure, print and store."""
    quick = "--quick" in sys.argv[1:]
    share = 5 if quick else 1
    data = data_folder("cifar10/test.parquet", "cifar10/train.parquet") / "cifar10"
    query, reference = (fingerprints(data / f"{name}.parquet") for name in ("test", "train"))
    soft = float((load_encoder().thresholds or {})["soft"])
    cifar = sides_of(query[: QUERIES // share], reference[: len(reference) // share], (0,))
    figures: dict[str, Any] = {"soft_threshold_builtin": soft, "best": BEST}
    figures["cifar10"] = measured(cifar, Wanted(soft, best=BEST))
    vectors = sides_of(*clustered(QUERIES // share, REFERENCES // share), (0,))
    figures["clustered"] = measured(vectors, Wanted(0.95, best=BEST))
    bars = [
        Bar(f"{name}: pairs by threshold that {kind} finds", shown["pairs"]["share"], least, False)
        for name in ("cifar10", "clustered")
        for kind, least in ((k, 1.0 if k == "flat" else LEAST_PAIRS) for k in KINDS)
        for shown in [figures[name][kind]]
        if shown["pairs"]["share"] is not None
    ]
    figures["queries"] = QUERIES // share
    figures["references"] = {"cifar10": len(cifar.order), "clustered": len(vectors.order)}
    write(__file__, bars, figures)


if __name__ == "__main__":
    main()
