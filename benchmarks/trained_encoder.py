"""An encoder trained on the training set of CIFAR-10, compared with the built-in one.

usage: VISLEAK_DATA=FOLDER python benchmarks/trained_encoder.py [--epochs N] [--out FOLDER]

``visleak train-encoder`` is run by the command, with the test set for its accuracy. Then the model
and the built-in fingerprint (with and without its views) search for judged duplicates:

- R@1: of the even test images that have a near-duplicate in train, the share whose nearest training
  image is one of those.
- Average precision of images: all even test images, ranked by the similarity of their nearest
  training image; true are those with a near-duplicate in train.
- Average precision of pairs: the judged pairs only. Detectors proposed them, including the built-in
  one, so the pairs that people judged different are similar by its fingerprint.

Near and exact count as duplicates; very similar and disputed pairs are ignored. A finished model in
``--out`` is evaluated without training. About twenty minutes.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from measures import average_precision
from record import Bar, data_folder, visleak_command, write
from samples import LEFT_OUT, judgements

from visleak.encoders import load_encoder
from visleak.formats import open_images
from visleak.pipeline import RunContext
from visleak.pipeline.fingerprints import fingerprint
from visleak.records import Encoder
from visleak.stats.bootstrap import cluster_bootstrap
from visleak.training.encoder import working_folder

Float32 = npt.NDArray[np.float32]

TEST = 10_000
WORKERS = 2
#: Queries compared at a time.
BLOCK = 500

#: Limit of the training time on two cores.
ACCURACY, SECONDS = 0.75, 1800.0


def trained(data: Path, folder: Path, epochs: int | None) -> tuple[Path, dict[str, Any]]:
    """Return a trained model and its training time; train it if there is none."""
    model, notes = folder / "cifar10.onnx", folder / "cifar10.took.json"
    if not (model.exists() and notes.exists()):
        sets = [str(data / "cifar10" / f"{name}.parquet") for name in ("train", "test")]
        wish = [] if epochs is None else ["--epochs", str(epochs)]
        # a resumed run would appear fast
        shutil.rmtree(working_folder(model), ignore_errors=True)
        command = [*visleak_command(), "train-encoder", sets[0], "--test", sets[1], *wish]
        begun, used = time.perf_counter(), cpu_seconds()
        subprocess.run([*command, "-o", str(model), "--force"], check=True)
        took = {"seconds": time.perf_counter() - begun, "cpu_seconds": cpu_seconds() - used}
        notes.write_text(json.dumps(took))
    about = json.loads((folder / "cifar10.onnx.json").read_text())["about"]
    return model, {**json.loads(notes.read_text()), "record": about}


def cpu_seconds() -> float:
    """Return the processor time of all finished child processes."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def vectors(data: Path, encoder: Encoder) -> tuple[Float32, Float32]:
    """Return the vectors of all test and training images, in the order of their index."""
    made = []
    for name in ("test", "train"):
        images = open_images(data / "cifar10" / f"{name}.parquet", name=name)
        with RunContext.at(None, WORKERS, None) as place:
            prints = fingerprint(images, encoder, place)
            rows = np.empty(prints.matrix.shape, np.float32)
            rows[prints.ids.to_numpy(zero_copy_only=False).astype(np.int64)] = prints.matrix
            made.append(rows)
    return made[0], made[1]


def similarities(encoder: Encoder, query: Float32, reference: Float32, views: int) -> Float32:
    """Return the similarity (n, m) of queries and references, the highest over the views."""
    best = query @ reference.T
    for view in range(1, views):
        np.maximum(best, encoder.view(query, view) @ reference.T, out=best)
    return best


def measured(
    encoder: Encoder, sides: tuple[Float32, Float32], views: int, judged: Mapping[Any, int]
) -> dict[str, Any]:
    """Return the results of an encoder on the judged duplicates; see the module."""
    test, train = sides
    near: dict[int, set[int]] = {}
    for (query, reference), verdict in judged.items():
        if verdict in (0, 1):
            near.setdefault(int(query), set()).add(int(reference))
    even = np.arange(0, TEST, 2)
    score, nearest = np.empty(len(even)), np.empty(len(even), np.int64)
    for start in range(0, len(even), BLOCK):
        part = slice(start, start + BLOCK)
        alike = similarities(encoder, test[even[part]], train, views)
        score[part], nearest[part] = alike.max(axis=1), alike.argmax(axis=1)
    found = np.array([int(nearest[q // 2]) in references for q, references in near.items()])
    best = best_verdicts(judged)
    counted = np.array([best.get(int(q), 3) not in (2, LEFT_OUT) for q in even])
    true = np.array([int(q) in near for q in even])
    return {
        "recall_at_1": with_interval(np.mean, found.astype(float)),
        "queries": len(near),
        "average_precision_images": ranked(score[counted], true[counted]),
        "images": int(counted.sum()),
        "average_precision_pairs": pairs_ranked(encoder, sides, views, judged),
    }


def best_verdicts(judged: Mapping[Any, int]) -> dict[int, int]:
    """Return the strongest verdict of each test image; ``LEFT_OUT`` if it is disputed."""
    best: dict[int, int] = {}
    for (query, _), verdict in judged.items():
        before = best.get(int(query), 9)
        worth = 2.5 if verdict == LEFT_OUT else verdict
        if worth < (2.5 if before == LEFT_OUT else before):
            best[int(query)] = verdict
    return best


def pairs_ranked(
    encoder: Encoder, sides: tuple[Float32, Float32], views: int, judged: Mapping[Any, int]
) -> dict[str, float]:
    """Return the average precision over the judged pairs except very similar ones."""
    rows = [(int(q), int(r), verdict) for (q, r), verdict in judged.items() if verdict in (0, 1, 3)]
    query, reference, verdict = (np.array(column) for column in zip(*rows, strict=True))
    score = np.full(len(rows), -1.0)
    for view in range(views):
        shown = sides[0][query] if view == 0 else encoder.view(sides[0][query], view)
        score = np.maximum(score, np.einsum("ij,ij->i", shown, sides[1][reference]))
    result = ranked(score, verdict <= 1)
    return {**result, "pairs": len(rows), "near": int((verdict <= 1).sum())}


def ranked(score: npt.NDArray[Any], true: npt.NDArray[np.bool_]) -> dict[str, float]:
    """Return average precision with a 95 % bootstrap interval."""
    rows = np.arange(len(score))
    low, high = cluster_bootstrap(lambda r: float(average_precision(true[r], score[r])), rows)
    return {"value": float(average_precision(true, score)), "low": low, "high": high}


def with_interval(statistic: Any, values: npt.NDArray[Any]) -> dict[str, float]:
    """Return a statistic of a column with a 95 % bootstrap interval."""
    rows = np.arange(len(values))
    low, high = cluster_bootstrap(lambda r: float(statistic(values[r])), rows)
    return {"value": float(statistic(values)), "low": low, "high": high}


def verdict(figures: Mapping[str, Any]) -> str:
    """Return one line about the encoder that finds more."""
    ours, builtin = figures["trained"], figures["builtin, views"]
    lines = []
    for name in ("recall_at_1", "average_precision_images", "average_precision_pairs"):
        mine, theirs = ours[name]["value"], builtin[name]["value"]
        word = "better" if mine > theirs else "worse"
        lines.append(f"{name} {word} ({mine:.3f} against {theirs:.3f})")
    return "trained beside built-in with views: " + ", ".join(lines)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, help="epochs; by default the verb's own")
    parser.add_argument("--out", type=Path, help="folder in which the model is kept and looked for")
    given = parser.parse_args()
    data = data_folder("cifar10/train.parquet", "cifar10/verdicts_dev.csv")
    judged = judgements(data)
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.out or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        model, training = trained(data, folder, given.epochs)
        figures: dict[str, Any] = {"training": training}
        for text, views in (
            (f"onnx:{model}", (("trained", 1),)),
            ("builtin", (("builtin", 1), ("builtin, views", 9))),
        ):
            encoder = load_encoder(text)
            sides = vectors(data, encoder)
            for shown, count in views:
                figures[shown] = measured(encoder, sides, count, judged)
                print(f"{shown}: {json.dumps(figures[shown])}", flush=True)
    figures["verdict"] = verdict(figures)
    accuracy = training["record"]["scores"]["accuracy"]["share"]
    bars = [
        Bar("accuracy on CIFAR-10's test set", accuracy, ACCURACY, most=False),
        Bar("seconds of training on this machine", training["seconds"], SECONDS),
    ]
    write(__file__, bars, figures)


if __name__ == "__main__":
    main()
