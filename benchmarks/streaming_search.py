"""Rate and memory of the exact search in streamed embeddings.

usage: python benchmarks/streaming_search.py [--twenty-million | --gpu] [--folder DIR]

The vectors are generated: 512 coordinates in float16, in shards of ``.npy``; no images, no
download. Two distributions: *isotropic* (mean cosine 0.5, isotropic variance) and *decaying* (mean
cosine 0.5, variances k^-1 along random axes). Near copies of queries are planted at similarities
from 0.95 to 0.99, and just above and below the threshold of 0.95.

By default: 100 queries relative to reading the memory-mapped shards and converting them to float32,
and 10,000 queries relative to the plain product, which is timed on one shard and extrapolated to
all. Alternating rounds, medians.

``--twenty-million``: 20 shards of a million (20 GB of disk in DIR, which are deleted afterwards)
through one process, and 5 of them. ``--gpu``: the same pass on a GPU; skipped if torch finds none.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from memory import Watch
from record import Bar, write
from threadpoolctl import threadpool_limits

from visleak.formats.embeddings import open_embeddings
from visleak.formats.request import Request
from visleak.records import EmbeddingSet, Float32
from visleak.search.hits import StreamHits, Wanted
from visleak.search.streaming import stream
from visleak.search.streaming_screen import widen
from visleak.vectors import unit_rows

WIDTH = 512
SHARD = 100_000
FEW_SHARDS, MANY_SHARDS = 10, 4
MILLION = 1_000_000
TAU = 0.95
WANTED = Wanted(TAU, best=0)
ROUNDS = 5
FEW, MANY = 100, 10_000
BLOCK = 1024
CORES = os.cpu_count() or 1

#: Planted similarities: well above, and just above and below the threshold.
PLANTED = (0.95, 0.96, 0.97, 0.98, 0.99, TAU + 1e-3, TAU - 1e-3, TAU + 1e-4, TAU - 1e-4)

#: Dense fp16 matrix products per second as stated by the makers, by a word of the device's name.
STATED_TFLOPS = {"H200": 989.0, "H100": 989.0, "A100": 312.0, "L4": 121.0, "T4": 65.0}


class Recipe:
    """Generates unit vectors around a mean.

    Args:
        name: ``isotropic`` or ``decaying``.
    """

    def __init__(self, name: str) -> None:
        rng = np.random.default_rng(0)
        self.name = name
        mean = rng.normal(size=WIDTH)
        self._mean = mean / np.linalg.norm(mean)
        spectrum = np.ones(WIDTH) if name == "isotropic" else 1 / np.arange(1, WIDTH + 1)
        turn = np.linalg.qr(rng.normal(size=(WIDTH, WIDTH)))[0]
        # orthogonal to the mean, so that the mean cosine is one half
        self._axes = (np.sqrt(spectrum / spectrum.sum())[:, None] * turn).astype(np.float32)
        self._axes -= np.outer(self._axes @ self._mean, self._mean).astype(np.float32)

    def rows(self, count: int, seed: int) -> Float32:
        """Return unit rows (count, WIDTH)."""
        return self.around(self.spread(count, seed))

    def spread(self, count: int, seed: int) -> Float32:
        """Return deviations from the mean (count, WIDTH)."""
        rng = np.random.default_rng(seed)
        rows = rng.standard_normal((count, WIDTH), np.float32) @ self._axes
        if self.name == "isotropic":
            rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return np.asarray(rows, np.float32)

    def around(self, spread: Float32) -> Float32:
        """Return the mean plus deviations, at unit length."""
        rows = spread + self._mean.astype(np.float32)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return np.asarray(rows, np.float32)


def plant(shards: Sequence[Float32], query: Float32) -> None:
    """Put near copies of queries into the shards, evenly spread."""
    rng = np.random.default_rng(7)
    for number, similarity in enumerate(PLANTED * 40):
        vector = query[(number * 37) % len(query)].astype(np.float64)
        noise = rng.normal(size=WIDTH)
        noise -= (noise @ vector) * vector
        noise *= np.sqrt(1 - similarity**2) / np.linalg.norm(noise)
        shard = shards[number % len(shards)]
        shard[(number * 7919) % len(shard)] = similarity * vector + noise


def folder_of(recipe: Recipe, query: Float32, folder: Path, shards: int) -> EmbeddingSet:
    """Write shards of a recipe with near copies of the queries."""
    made = [recipe.rows(SHARD, 100 + number) for number in range(shards)]
    plant(made, query)
    folder.mkdir()
    for number, rows in enumerate(made):
        np.save(folder / f"img_emb_{number}.npy", rows.astype(np.float16))
    return opened(folder)


def opened(folder: Path) -> EmbeddingSet:
    """Return a folder of shards as the audit opens it."""
    return open_embeddings(
        Request(f"emb:{folder}", folder, str(folder), options={"encoder": "clip"}, name="train")
    )


def turns(functions: Sequence[Callable[[], Any]], rounds: int = ROUNDS) -> list[float]:
    """Return the median seconds of functions that are called alternately."""
    seconds: list[list[float]] = [[] for _ in functions]
    for _ in range(rounds):
        for number, function in enumerate(functions):
            begun = time.perf_counter()
            function()
            seconds[number].append(time.perf_counter() - begun)
    return [statistics.median(each) for each in seconds]


def each_block(
    reference: EmbeddingSet, workers: int, work: Callable[[npt.NDArray[Any]], object]
) -> None:
    """Map the files into memory, as a pass does, and process all blocks by threads."""
    matrices = [partition.matrix() for partition in reference.partitions]
    blocks = [(m, start) for m in matrices for start in range(0, len(m), BLOCK)]
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(workers) as pool:
        list(pool.map(lambda b: work(b[0][b[1] : b[1] + BLOCK]), blocks))


def missed(found: StreamHits, reference: EmbeddingSet, query: Float32) -> int:
    """Return the number of planted pairs that are missed, or found below the threshold.

    The similarity at the planted places is computed from the stored rows.
    """
    got = set(zip(found.query.tolist(), found.partition.tolist(), found.row.tolist(), strict=True))
    wanted = set()
    for number in range(len(PLANTED) * 40):
        left, part = (number * 37) % len(query), number % len(reference.partitions)
        stored = reference.partitions[part].matrix()
        row = (number * 7919) % len(stored)
        vector = unit_rows(stored[row : row + 1]).matrix[0].astype(np.float64)
        if np.float32(query[left].astype(np.float64) @ vector) >= np.float32(TAU):
            wanted.add((left, part, row))
    return len(got ^ wanted)


def against_reading(recipe: Recipe, folder: Path) -> tuple[list[Bar], dict[str, Any]]:
    """Few queries: the pass relative to reading and converting."""
    query = recipe.rows(FEW, 1)
    reference = folder_of(recipe, query, folder, FEW_SHARDS)
    rows = len(reference)

    def convert(block: npt.NDArray[Any]) -> object:
        return block.astype(np.float32)

    def own_conversion(block: npt.NDArray[Any]) -> object:
        out = np.empty(block.shape, np.float32)
        widen(block, out)
        return out

    one, many, own, ours = turns(
        [
            lambda: each_block(reference, 1, convert),
            lambda: each_block(reference, CORES, convert),
            lambda: each_block(reference, CORES, own_conversion),
            lambda: stream(query, reference.partitions, WANTED, workers=CORES),
        ]
    )
    wrong = missed(stream(query, reference.partitions, WANTED, workers=CORES), reference, query)
    bars = [
        Bar(f"{recipe.name}, {FEW}: rate / reading alone", min(one, many) / ours, 0.8, most=False),
        Bar(f"{recipe.name}, {FEW}: planted pairs that are wrong", wrong, 0),
    ]
    figures = {
        "reading and converting, one thread, rows/s": round(rows / one),
        f"reading and converting, {CORES} threads, rows/s": round(rows / many),
        "reading, converted as the pass does, rows/s": round(rows / own),
        "pass, rows/s": round(rows / ours),
    }
    return bars, figures


def against_product(recipe: Recipe, folder: Path) -> tuple[list[Bar], dict[str, Any]]:
    """Many queries: the pass relative to the plain product."""
    query = recipe.rows(MANY, 2)
    reference = folder_of(recipe, query, folder, MANY_SHARDS)
    shard = np.array(reference.partitions[0].matrix(), np.float32)

    def product(blas: int, workers: int) -> None:
        """Multiply one converted shard with all queries, without comparisons."""
        room = threading.local()

        def block(start: int) -> None:
            if not hasattr(room, "out"):
                room.out = np.empty((BLOCK, MANY), np.float32)
            rows = shard[start : start + BLOCK]
            np.matmul(rows, query.T, out=room.out[: len(rows)])

        with threadpool_limits(blas, user_api="blas"), ThreadPoolExecutor(workers) as pool:
            list(pool.map(block, range(0, len(shard), BLOCK)))

    answers: list[StreamHits] = []
    blas, threads, ours = turns(
        [
            lambda: product(CORES, 1),
            lambda: product(1, CORES),
            lambda: answers.append(stream(query, reference.partitions, WANTED, workers=CORES)),
        ],
        rounds=3,
    )
    plain = min(blas, threads) * len(reference) / len(shard)
    wrong = missed(answers[-1], reference, query)
    bars = [
        Bar(f"{recipe.name}, {MANY:,}: plain product / pass", plain / ours, 3, most=False),
        Bar(f"{recipe.name}, {MANY:,}: planted pairs that are wrong", wrong, 0),
    ]
    figures = {
        "plain product, extrapolated from one shard, s": round(plain, 2),
        "pass, s": round(ours, 2),
        "pairs found": len(answers[-1]),
    }
    return bars, figures


def plain_run(folder: Path) -> None:
    """Measure few and many queries on both recipes."""
    bars: list[Bar] = []
    figures: dict[str, Any] = {
        "width": WIDTH,
        f"vectors for {FEW} queries": SHARD * FEW_SHARDS,
        f"vectors for {MANY:,} queries": SHARD * MANY_SHARDS,
    }
    for name in ("isotropic", "decaying"):
        recipe = Recipe(name)
        for measure, word in ((against_reading, "few"), (against_product, "many")):
            some, found = measure(recipe, folder / f"{name}-{word}")
            shutil.rmtree(folder / f"{name}-{word}")
            bars += some
            figures[f"{name}, {FEW if word == 'few' else MANY:,} queries"] = found
            print(name, found, *some, sep="\n ", flush=True)
    write(__file__, bars, figures)


# -- twenty million --------------------------------------------------------------------------------


def million_rows(recipe: Recipe, shard: int) -> Iterator[npt.NDArray[np.float16]]:
    """Yield a million rows in blocks: a pool of deviations, transformed for each block."""
    pool = recipe.spread(MILLION // 16, 3)
    for piece in range(16):
        yield recipe.around(np.roll(pool, 16 * shard + piece, axis=1)).astype(np.float16)


def write_millions(folder: Path, shards: int, query: Float32) -> None:
    """Write shards of a million rows, each with the first query once."""
    recipe = Recipe("isotropic")
    for shard in range(shards):
        path = folder / f"img_emb_{shard}.npy"
        out = np.lib.format.open_memmap(path, "w+", np.float16, (MILLION, WIDTH))
        start = 0
        for rows in million_rows(recipe, shard):
            out[start : start + len(rows)] = rows
            start += len(rows)
        out[shard * 1000] = query[0]
        out.flush()
        del out
        # later reads come from the disk, not from memory
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)
        print(f"wrote {path.name}", flush=True)


def one_pass(folder: Path, shards: int) -> None:
    """Search some shards for the queries in this process; print the result."""
    query = Recipe("isotropic").rows(1000, 4)
    partitions = opened(folder).partitions[:shards]
    begun = time.perf_counter()
    found = stream(query, partitions, WANTED, workers=CORES)
    seconds = time.perf_counter() - begun
    print(json.dumps({"seconds": seconds, "rows": found.rows, "pairs": len(found)}))


def watched_pass(folder: Path, shards: int) -> dict[str, Any]:
    """Run a pass in a separate process and sample its memory."""
    command = [sys.executable, __file__, "--pass", str(shards), "--folder", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    watch = Watch(process.pid)
    watch.start()
    output, _ = process.communicate()
    watch.stop()
    if process.returncode:
        raise SystemExit(f"the pass ended with {process.returncode}")
    result = json.loads(output)
    size = result["rows"] * WIDTH * 2
    return {
        "shards": shards,
        "rows": result["rows"],
        "pairs": result["pairs"],
        "seconds": round(result["seconds"], 1),
        "mb_read_per_second": round(size / result["seconds"] / 1e6),
        "peak_mb_with_mapped_pages": round(watch.all_kb * 1024 / 1e6, 1),
        "peak_mb_of_no_file": round(watch.own_kb * 1024 / 1e6, 1),
    }


def twenty_million(folder: Path, shards: int) -> None:
    """Search all shards and a quarter of them; memory must not grow with their number."""
    needed = shards * MILLION * WIDTH * 2 + 2 * 2**30
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise SystemExit(f"{folder} has {free / 1e9:.0f} GB free, {needed / 1e9:.0f} are needed")
    write_millions(folder, shards, Recipe("isotropic").rows(1000, 4))
    fewer = watched_pass(folder, shards // 4)
    print(fewer, flush=True)
    every = watched_pass(folder, shards)
    print(every, flush=True)
    growth = every["peak_mb_of_no_file"] - fewer["peak_mb_of_no_file"]
    mapped = every["peak_mb_with_mapped_pages"] - fewer["peak_mb_with_mapped_pages"]
    bars = [
        Bar("growth of the peak with the shards, MB", growth, 20),
        Bar("growth with mapped pages, MB", mapped, 150),
        Bar("planted pairs not found", abs(every["pairs"] - shards), 0),
    ]
    figures = {"queries": 1000, "fewer shards": fewer, "all shards": every}
    write(__file__, bars, figures, "streaming_millions")


# -- GPU -------------------------------------------------------------------------------------------


def on_gpu(folder: Path) -> None:
    """Measure the pass on a GPU, and its share of the peak of the matrix units."""
    try:
        import torch
    except ImportError:
        print("skipped: no torch, so no GPU (1 benchmark)")
        return
    if not torch.cuda.is_available():
        print("skipped: no GPU (1 benchmark)")
        return
    from visleak.search.streaming_screen import DeviceScreen

    recipe = Recipe("isotropic")
    query = recipe.rows(MANY, 2)
    reference = folder_of(recipe, query, folder / "gpu", MANY_SHARDS)
    name = torch.cuda.get_device_name()
    side = 8192
    square = torch.randn(side, side, device="cuda", dtype=torch.float16)

    def timed(work: Callable[[], object]) -> float:
        work()
        torch.cuda.synchronize()
        (seconds,) = turns([lambda: (work(), torch.cuda.synchronize())])
        return seconds

    best = 2 * side**3 / timed(lambda: square @ square) / 1e12
    screen = DeviceScreen(query, "cuda")
    rows = torch.tensor(recipe.rows(screen.block, 3), device="cuda").to(torch.float16)
    floor = torch.full((MANY,), TAU, device="cuda")
    resident = timed(lambda: screen.reaching(rows, floor))
    whole = timed(lambda: stream(query, reference.partitions, WANTED, workers=CORES, device="cuda"))
    products = 2 * MANY * WIDTH / 1e12
    found = stream(query, reference.partitions, WANTED, workers=CORES, device="cuda")
    here = stream(query, reference.partitions, WANTED, workers=CORES)
    same = found.similarity.tobytes() == here.similarity.tobytes()
    stated = next((peak for word, peak in STATED_TFLOPS.items() if word in name), best)
    figures = {
        "device": name,
        "stated peak, TFLOP/s": stated,
        "a large square product, TFLOP/s": round(best, 1),
        "screen on the device, TFLOP/s": round(products * len(rows) / resident, 1),
        "screen / stated peak": round(products * len(rows) / resident / stated, 3),
        "whole pass from files, TFLOP/s": round(products * len(reference) / whole, 1),
        "whole pass / stated peak": round(products * len(reference) / whole / stated, 3),
        "whole pass, rows/s": round(len(reference) / whole),
    }
    wrong = missed(found, reference, query) + (not same)
    write(__file__, [Bar("pairs that differ from the processor's", wrong, 0)], figures,
          "streaming_gpu")  # fmt: skip


def main() -> None:
    """Measure, print and store."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--twenty-million", action="store_true")
    parser.add_argument("--shards", type=int, default=20, help="of a million, with the former")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--folder", type=Path, help="where there is disk to spare")
    parser.add_argument("--pass", type=int, default=0, dest="only", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.only:
        one_pass(chosen.folder, chosen.only)
        return
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        if chosen.twenty_million:
            twenty_million(Path(folder), chosen.shards)
        elif chosen.gpu:
            on_gpu(Path(folder))
        else:
            plain_run(Path(folder))


if __name__ == "__main__":
    main()
