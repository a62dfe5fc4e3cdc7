"""Peak memory of an audit by the number of images.

usage: VISLEAK_DATA=FOLDER python benchmarks/memory.py [--million [COUNT]]

The memory is the sum of the proportional set sizes of all processes of ``visleak audit``, in which
shared memory counts once, including pages of mapped files, sampled twenty times per second. Audits
5,000 CIFAR-10 images against 5,000, then against all others. With ``--million``, 1,000 against a
million generated ones, each a CIFAR-10 image with its own brightness, shift and noise; this needs
about 3 GB of disk and many minutes, and is stored in ``memory_million.json``.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from record import Bar, data_folder, visleak_command, write

QUERIES = 5_000
EVERY = 0.05
MILLION = 1_000_000
ROWS = 2_000
SIDE = 32


@dataclass(frozen=True, slots=True)
class Peak:
    """Peak memory and time of an audit, in MB and seconds.

    Attributes:
        all_mb: of all processes together.
        own_mb: of all processes, without pages of files.
        largest_mb: of one process, including shared memory.
        processes: largest number of processes.
        seconds: wall time.
    """

    all_mb: float
    own_mb: float
    largest_mb: float
    processes: int
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Return rounded figures."""
        return {
            "all_mb": round(self.all_mb, 1),
            "own_mb": round(self.own_mb, 1),
            "largest_process_mb": round(self.largest_mb, 1),
            "processes": self.processes,
            "seconds": round(self.seconds, 1),
        }


class Watch(threading.Thread):
    """Samples the memory of a process and its descendants until it is stopped."""

    def __init__(self, root: int) -> None:
        super().__init__(daemon=True)
        self._root = root
        self._over = threading.Event()
        self.all_kb = self.own_kb = self.largest_kb = self.processes = 0

    def run(self) -> None:
        """Sample for a tenth of the time at most: a process waits while its memory is read."""
        pause = EVERY
        while not self._over.wait(pause):
            begun = time.perf_counter()
            sizes = [size for pid in family(self._root) if (size := sizes_kb(pid))]
            self.all_kb = max(self.all_kb, sum(size[0] for size in sizes))
            self.own_kb = max(self.own_kb, sum(size[1] for size in sizes))
            self.largest_kb = max([self.largest_kb, *(size[2] for size in sizes)])
            self.processes = max(self.processes, len(sizes))
            pause = max(EVERY, 9 * (time.perf_counter() - begun))

    def stop(self) -> None:
        """Stop sampling."""
        self._over.set()
        self.join()


def family(root: int) -> list[int]:
    """Return a process and all its descendants."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # the name in brackets may contain any character
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(path.parent.name)] = int(fields[1])
    found = [root]
    for parent in found:
        found += [child for child, of in parents.items() if of == parent]
    return found


def sizes_kb(process: int) -> tuple[int, int, int] | None:
    """Return the proportional set size of a process, its part without files, and its peak RSS."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]
        lines += Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return None
    kept = [line.split() for line in lines if line.startswith(("Pss:", "Pss_Anon:", "VmHWM:"))]
    sizes = {words[0]: int(words[1]) for words in kept}
    return sizes.get("Pss:", 0), sizes.get("Pss_Anon:", 0), sizes.get("VmHWM:", 0)


def audited(test: Path, train: Path, folder: Path) -> Peak:
    """Return the peak of an audit with an empty cache."""
    command = [
        *visleak_command(), "audit", "--test", str(test), "--train", str(train),
        "-o", str(folder / "out"), "--cache", str(folder / "cache"),
    ]  # fmt: skip
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    watch = Watch(process.pid)
    watch.start()
    process.wait()
    watch.stop()
    if process.returncode:
        raise SystemExit(f"the audit ended with {process.returncode}")
    seconds = time.perf_counter() - begun
    sizes = (watch.all_kb, watch.own_kb, watch.largest_kb)
    return Peak(*(size * 1024 / 1e6 for size in sizes), watch.processes, seconds)


def grown(data: Path, folder: Path) -> tuple[list[Bar], dict[str, Any]]:
    """Audit few and many training images."""
    test, train = (
        pq.read_table(data / f"{name}.parquet", columns=["image", "label"])
        for name in ("test", "train")
    )
    queries = min(QUERIES, len(test) // 2)
    sets = {
        "queries": test.slice(0, queries),
        "few": train.slice(0, queries),
        "many": pa.concat_tables([train, test.slice(queries)]),
    }
    for name, table in sets.items():
        # ids are row numbers, because paths and indices of the two files may coincide
        encoded = pa.array([row["bytes"] for row in table["image"].to_pylist()])
        image = pa.StructArray.from_arrays([encoded], ["bytes"])
        made = pa.table({"image": image, "label": table["label"].combine_chunks()})
        pq.write_table(made, folder / f"{name}.parquet", row_group_size=ROWS)
    peaks = {}
    for name in ("few", "many"):
        (folder / name).mkdir()
        peak = audited(folder / "queries.parquet", folder / f"{name}.parquet", folder / name)
        peaks[name] = (queries + len(sets[name]), peak)
        print(f"{peaks[name][0]:,} pictures: {peak.as_dict()}", flush=True)
    (fewer, low), (more, high) = peaks["few"], peaks["many"]
    growth = high.all_mb - low.all_mb
    bars = [Bar("growth of the peak, MB", growth, (more - fewer) * 4e3 / 1e6)]
    figures = {
        "few_pictures": fewer,
        "many_pictures": more,
        "few": low.as_dict(),
        "many": high.as_dict(),
        "bytes_per_picture": round(growth * 1e6 / (more - fewer)),
    }
    return bars, figures


def changed(pictures: npt.NDArray[np.uint8], count: int) -> Iterator[list[bytes]]:
    """Yield encoded images: sources with their own brightness, shift and noise."""
    rng = np.random.default_rng(0)
    for start in range(0, count, ROWS):
        size = min(ROWS, count - start)
        made = pictures[rng.integers(0, len(pictures), size)].astype(np.int16)
        made += rng.integers(-40, 41, (size, 1, 1, 1), dtype=np.int16)
        made += rng.integers(-2, 3, made.shape, dtype=np.int16)
        done = np.clip(made, 0, 255).astype(np.uint8)
        shifts = rng.integers(-4, 5, (size, 2))
        yield [
            cv2.imencode(".png", np.roll(each, (int(a), int(b)), (0, 1)))[1].tobytes()
            for each, (a, b) in zip(done, shifts, strict=True)
        ]


def million(data: Path, folder: Path, count: int) -> tuple[list[Bar], dict[str, Any]]:
    """Audit 1,000 images against very many."""
    table = pq.read_table(data / "train.parquet", columns=["image"])
    sources = np.stack(
        [
            cv2.imdecode(np.frombuffer(row["bytes"], np.uint8), cv2.IMREAD_COLOR)
            for row in table["image"].to_pylist()
        ]
    )
    schema = pa.schema({"image": pa.struct({"bytes": pa.binary()})})
    with pq.ParquetWriter(folder / "train.parquet", schema, compression="none") as writer:
        for part in changed(sources, count):
            image = pa.StructArray.from_arrays([pa.array(part)], ["bytes"])
            writer.write_table(pa.table({"image": image}))
    del sources
    stored = (folder / "train.parquet").stat().st_size
    print(f"{count:,} pictures made, {stored / 1e9:.2f} GB", flush=True)
    test = pq.read_table(data / "test.parquet", columns=["image"]).slice(0, 1_000)
    pq.write_table(test, folder / "test.parquet")
    peak = audited(folder / "test.parquet", folder / "train.parquet", folder)
    bars = [Bar("peak of all processes, MB", peak.all_mb, 3 * 1024**3 / 1e6)]
    return bars, {"pictures": count, "stored_bytes": stored, "peak": peak.as_dict()}


def main() -> None:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--million", type=int, nargs="?", const=MILLION, metavar="COUNT")
    count = parser.parse_args().million
    data = data_folder("cifar10/test.parquet", "cifar10/train.parquet") / "cifar10"
    with tempfile.TemporaryDirectory() as folder:
        if count:
            write(__file__, *million(data, Path(folder), count), name="memory_million")
        else:
            write(__file__, *grown(data, Path(folder)))


if __name__ == "__main__":
    main()
