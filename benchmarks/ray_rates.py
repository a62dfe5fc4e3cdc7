"""Rates per core through Ray, relative to a single process: embeddings and photographs.

usage: VISLEAK_DATA=FOLDER python benchmarks/ray_rates.py
       python benchmarks/ray_rates.py IMAGES [ENCODER]

The first writes ray_rates.json, from which the cost in docs/cluster.md is computed. The second
prints the rate of an encoder on given images with the processors and GPUs of this machine, and
writes nothing. Both sides do the same work on the same data. Rates are by processor time of this
process and all its descendants, including Ray, so that other work on the machine has little
influence. The best round is reported.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from record import Bar, data_folder, write
from threadpoolctl import threadpool_limits

from visleak.encoders import load_encoder
from visleak.formats import open_images
from visleak.pipeline.candidates import side
from visleak.pipeline.context import Processes, RunContext, use_one_thread
from visleak.pipeline.embeddings import NoImages
from visleak.pipeline.encoded_set import EncodedSet
from visleak.pipeline.fingerprints import fingerprint
from visleak.pipeline.ray_engine import RayEngine
from visleak.pipeline.streaming import streamed
from visleak.records import Fingerprints, ImageSet
from visleak.search.exact import ExactSearch
from visleak.search.hits import Sides, Wanted
from visleak.vectors import unit_rows

ROUNDS = 3

#: The embeddings: shards with the width and type of a file of LAION, and a tenth of its rows.
SHARDS, ROWS, WIDTH = 8, 100_000, 512
QUERIES, THRESHOLD = 1_000, 0.95

#: Repetitions of the photographs per round.
REPEATS = 4

#: References of the built-in fingerprint that are compared in all views.
REFERENCES = 20_000


def best(work: Callable[[], object], clock: Callable[[], float] | None = None) -> float:
    """Return the seconds of the fastest round, by processor time unless a clock is given."""
    clock = clock or processor_seconds
    seconds = []
    for _ in range(ROUNDS):
        begun = clock()
        work()
        seconds.append(clock() - begun)
    return min(seconds)


def processor_seconds() -> float:
    """Return the processor time of this process and all its descendants."""
    parents, ticks = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        number = int(path.parent.name)
        parents[number] = int(fields[1])
        ticks[number] = int(fields[11]) + int(fields[12])
    mine = {os.getpid()}
    while more := {n for n, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return sum(ticks.get(number, 0) for number in mine) / os.sysconf("SC_CLK_TCK")


def vectors(rng: np.random.Generator, count: int, width: int) -> np.ndarray:
    """Return unit rows whose mean cosine is 0.5, ``float32``."""
    rows = rng.standard_normal((count, width), np.float32)
    rows[:, 0] += np.sqrt(width)
    return unit_rows(rows).matrix


def shards(folder: Path) -> tuple[np.ndarray, Any]:
    """Write the shards; return queries, one in ten of them planted, and the set."""
    rng = np.random.default_rng(0)
    query = vectors(rng, QUERIES, WIDTH)
    for number in range(SHARDS):
        part = vectors(rng, ROWS, WIDTH).astype(np.float16)
        part[number] = query[10 * number]
        np.save(folder / f"img_emb_{number}.npy", part)
    return query, open_images(f"emb:{folder}?encoder=clip", name="train")


def embeddings(folder: Path, places: dict[str, RunContext]) -> dict[str, Any]:
    """Return vectors per second and core, of one process and through Ray."""
    query, train = shards(folder)
    wanted = Wanted(THRESHOLD, best=0)
    rates = {}
    for name, place in places.items():
        ask = partial(streamed, query, train.partitions, wanted, place)
        assert len(ask()) == SHARDS, "the planted neighbours"  # also warms workers and page cache
        rates[f"vectors_per_second_and_core_{name}"] = SHARDS * ROWS / best(ask)
    return {key: round(rate) for key, rate in rates.items()} | {"bytes_per_vector": 2 * WIDTH}


def repeated(images: ImageSet, times: int) -> ImageSet:
    """Return a set with every image several times."""
    ids = pa.array([f"{n} {id_}" for n in range(times) for id_ in images.ids.to_pylist()])
    return replace(
        images,
        ids=ids,
        locators=ids,
        opener=_Repeated(images.opener, len(images)),
        labels=None,
        captions=None,
        groups=None,
        frames=None,
    )


class _Repeated:
    """Reads the images of a set repeatedly."""

    def __init__(self, opener: Any, count: int) -> None:
        self._opener, self._count = opener, count

    def read(self, positions: Any) -> Any:
        for position in positions:
            yield from self._opener.read([position % self._count])


def encoding(
    images: ImageSet,
    encoder: Any,
    places: dict[str, RunContext],
    clock: Callable[[], float] | None = None,
) -> dict[str, float]:
    """Return images read, decoded and encoded per second (and core, unless a clock is given)."""
    rates = {}
    for name, place in places.items():
        work = partial(fingerprint, images, encoder, place)
        work()
        rates[f"images_per_second_and_core_{name}"] = round(len(images) / best(work, clock), 1)
    return rates


def comparing() -> float:
    """Return references compared with the queries in all views, per second and core."""
    encoder, rng = load_encoder("builtin"), np.random.default_rng(1)
    query, reference = (vectors(rng, n, encoder.width) for n in (QUERIES, REFERENCES))
    sides = Sides(
        query,
        reference,
        np.zeros(REFERENCES, np.float32),
        np.arange(REFERENCES),
        views=tuple(range(9)),
        make=encoder.view,
    )
    return REFERENCES / best(lambda: ExactSearch().find(sides, Wanted(0.64, best=20)))


def backgrounds() -> float:
    """Return images per second whose background a core of the main process computes."""
    encoder, rng = load_encoder("builtin"), np.random.default_rng(2)
    prints = Fingerprints(
        set="train",
        rows=np.arange(REFERENCES),
        ids=pa.array([str(number) for number in range(REFERENCES)]),
        matrix=vectors(rng, REFERENCES, encoder.width),
        digests=np.zeros((REFERENCES, 16), np.uint8),
        sizes=np.ones((REFERENCES, 2), np.int32),
        flat=np.zeros(REFERENCES, np.bool_),
        encoder=encoder.digest,
    )
    encoded = EncodedSet(ImageSet("train", prints.ids, prints.ids, NoImages()), prints)
    return REFERENCES / best(lambda: side(encoded, encoder, tuple(range(9)), ExactSearch(), 1))


def nothing(number: int) -> int:
    """Do nothing, to measure the overhead of a task."""
    return number


def full_run(folder: Path, scratch: Path) -> None:
    """Measure everything, print and store."""
    cores = len(os.sched_getaffinity(0))
    begun = time.perf_counter()
    with RunContext.at(scratch, cores, None, engine=RayEngine()) as ray:
        list(ray.each(nothing, range(cores)))
        start = time.perf_counter() - begun
        each = best(lambda: list(ray.each(nothing, range(1000))), time.perf_counter) / 1000
        with RunContext.at(scratch, 1, None, engine=Processes) as alone:
            places = {"local": alone, "ray": ray}
            figures = embeddings(folder, places)
            photos = repeated(open_images(data_folder("photos") / "photos"), REPEATS)
            figures |= encoding(photos, load_encoder("builtin"), places)
    paths = [path.stat().st_size for path in (data_folder() / "photos").iterdir()]
    figures |= {
        "queries": QUERIES,
        "bytes_per_image": round(sum(paths) / len(paths)),
        "comparisons_per_second_and_core": round(comparing()),
        "backgrounds_per_second_and_core": round(backgrounds()),
        "ray_starts_in_seconds": round(start, 2),
        "ray_task_in_milliseconds": round(1000 * each, 2),
        "cores": cores,
    }
    bars = [
        Bar(
            f"{what} a second and core, Ray / one process",
            figures[f"{what}_per_second_and_core_ray"]
            / figures[f"{what}_per_second_and_core_local"],
            0.85,
            most=False,
        )
        for what in ("vectors", "images")
    ]
    write(__file__, bars, figures)


def own_run(source: str, name: str, scratch: Path) -> None:
    """Print the rate of an encoder on given images."""
    images, encoder = open_images(source), load_encoder(name)
    cores = len(os.sched_getaffinity(0))
    with RunContext.at(scratch, cores, None, engine=RayEngine()) as ray:
        (rate,) = encoding(images, encoder, {"ray": ray}, time.perf_counter).values()
    print(f"{len(images):,} images, {encoder.name}: {rate:,.0f} a second on {cores} cores")


def main() -> None:
    """Run the measurement of the command line."""
    with tempfile.TemporaryDirectory() as name, threadpool_limits(1):
        use_one_thread()
        (Path(name) / "shards").mkdir()
        if len(sys.argv) > 1:
            own_run(sys.argv[1], *(sys.argv[2:] or ["builtin"]), Path(name))
        else:
            full_run(Path(name) / "shards", Path(name))


if __name__ == "__main__":
    main()
