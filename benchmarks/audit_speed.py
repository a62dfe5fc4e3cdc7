"""Time of an audit of CIFAR-10, relative to decoding and a flat search, and its results.

usage: VISLEAK_DATA=FOLDER python benchmarks/audit_speed.py

R is the time of the minimal work: one process decodes all images with Pillow, and faiss searches
the best 20 references of every query with a flat index of the fingerprint's width, on all cores. It
is measured before and after the audits, and the smaller time is used. The audits are run by the
command, with the report, first with an empty cache, then into another folder with that cache.
"""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import io
import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow.parquet as pq
from PIL import Image
from record import Bar, data_folder, visleak_command, write

from visleak.encoders import load_encoder

SETS = ("test", "train")


def stored(path: Path) -> list[bytes]:
    """Return the images of a Parquet file, encoded."""
    return [row["bytes"] for row in pq.read_table(path, columns=["image"])["image"].to_pylist()]


def decoded_in(pictures: list[bytes]) -> float:
    """Return the seconds of decoding by Pillow in one process."""
    begun = time.perf_counter()
    for picture in pictures:
        np.asarray(Image.open(io.BytesIO(picture)).convert("RGB"))
    return time.perf_counter() - begun


def searched_in(queries: int, references: int) -> float:
    """Return the seconds of a flat search of random vectors; its time does not depend on values."""
    rng = np.random.default_rng(0)
    width = load_encoder().width
    left, right = (rng.normal(size=(n, width)).astype(np.float32) for n in (queries, references))
    index = faiss.IndexFlatIP(width)
    index.add(right)
    begun = time.perf_counter()
    index.search(left, min(20, references))
    return time.perf_counter() - begun


def audited_in(data: Path, out: Path, cache: Path) -> float:
    """Return the seconds of ``visleak audit``, including the start of the interpreter."""
    sides = [part for name in SETS for part in (f"--{name}", str(data / f"{name}.parquet"))]
    command = [*visleak_command(), "audit", *sides, "-o", str(out), "--cache", str(cache)]
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def judged_pairs_found(out: Path, verdicts: Path) -> float:
    """Return the share of agreed near or exact pairs that are in ``pairs.parquet``."""
    table = pq.read_table(out / "pairs.parquet").to_pydict()
    found = {
        (query, reference)
        for query, reference, left, right in zip(
            table["query"],
            table["reference"],
            table["query_set"],
            table["reference_set"],
            strict=True,
        )
        if left != right
    }
    with verdicts.open() as lines:
        near = [
            (row["TestID"], row["TrainID"])
            for row in csv.DictReader(lines)
            if int(row["Judgment"]) <= 1 and row["Agreed"] == "1"
        ]
    return sum(pair in found for pair in near) / len(near)


def scored(out: Path, verdicts: Path, tool: Path) -> dict[str, Any]:
    """Return the result of the scorer in the data folder, nothing without one."""
    if not tool.is_file():
        return {}
    spec = importlib.util.spec_from_file_location("score_pairs", tool)
    if spec is None or spec.loader is None:
        return {}
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        module.main(str(out / "pairs.parquet"), str(verdicts))
    result: dict[str, Any] = json.loads(output.getvalue())
    return result


def main() -> None:
    """Measure, print and store."""
    root = data_folder("cifar10/test.parquet", "cifar10/train.parquet", "cifar10/verdicts_dev.csv")
    data = root / "cifar10"
    pictures = {name: stored(data / f"{name}.parquet") for name in SETS}
    everything = [picture for name in SETS for picture in pictures[name]]
    counts = [len(pictures[name]) for name in SETS]
    decoding, searching = [decoded_in(everything)], [searched_in(*counts)]
    with tempfile.TemporaryDirectory() as folder:
        outs, cache = [Path(folder) / name for name in ("cold", "warm")], Path(folder) / "cache"
        cold, warm = (audited_in(data, out, cache) for out in outs)
        decoding.append(decoded_in(everything))
        searching.append(searched_in(*counts))
        yardstick = min(decoding) + min(searching)
        summaries = [json.loads((out / "audit.json").read_text()) for out in outs]
        same = all(
            (outs[0] / name).read_bytes() == (outs[1] / name).read_bytes()
            for name in ("pairs.parquet", "images.parquet")
        )
        report = (outs[0] / "report.html").stat().st_size / 1e6
        found = judged_pairs_found(outs[0], data / "verdicts_dev.csv")
        tool = root.parent / "tools" / "score_pairs.py"
        scores = scored(outs[0], data / "verdicts_dev.csv", tool)
    bars = [
        Bar("cold / R", cold / yardstick, 8),
        Bar("cold, s", cold, 120),
        Bar("warm / R", warm / yardstick, 3),
        Bar("warm, s", warm, 30),
        Bar("judged near or exact pairs found, share", found, 0.97, most=False),
        Bar("report.html, MB", report, 15),
        Bar("tables with and without cache byte-equal", float(same), 1, most=False),
    ]
    figures = {
        "queries": counts[0],
        "references": counts[1],
        "pillow_s": [round(s, 2) for s in decoding],
        "faiss_s": [round(s, 2) for s in searching],
        "R_s": round(yardstick, 2),
        "headline": summaries[0]["headline"],
        "timings_cold": summaries[0]["timings"],
        "timings_warm": summaries[1]["timings"],
        "score": scores,
    }
    for name, summary in zip(("cold", "warm"), summaries, strict=True):
        print(f"{name}: {summary['timings']}")
    print(summaries[0]["headline"])
    print(f"R: Pillow {decoding} s, faiss {searching} s; score {scores}")
    write(__file__, bars, figures)


if __name__ == "__main__":
    main()
