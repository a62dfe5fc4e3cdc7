"""Counts, time and memory for sets that are mostly one image.

usage: python benchmarks/floods.py [NAME[=SHARE]]...

Generates each set in a temporary folder and runs ``visleak audit`` on it with an empty cache:

- ``links``: 20,000 links to one image, within one set;
- ``sides``: 4,000 such links as test set, 16,000 as training set;
- ``copies``: 100,000 copies of one image of 32 pixels;
- ``scene``: 5,000 frames of a static scene, which differ by sensor noise;
- ``noise``: 200,000 different images of 8 x 8 random pixels.

Counts are compared with those of the construction; seconds and the peak memory of all processes
have limits. Under other load (``load``: processes that need a core, mean of five minutes) the
processor time is the better measure. ``scene=0.02`` generates a set of a fiftieth of the size; by
default all sets have full size. If sets are named, the results of the others stay. Time and memory
have limits at full size only, because they do not grow linearly.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from memory import Watch
from PIL import Image
from record import Bar, known_figures, visleak_command, write

SECONDS = 60
MB = 1_000
CACHE_BYTES = 1_000
BATCH = 5_000

#: Most pairs listed per image, as documented.
ROWS = 100

#: Most pairs verified per image; a query of two sides has 60.
VERIFIED = 60

#: Reasons of pairs that are graded without verification.
UNVERIFIED = ("identical bytes", "could not be aligned: edges agree at no shift of this view")


@dataclass(frozen=True, slots=True)
class Flood:
    """A set that is mostly one image.

    Attributes:
        images: number of images at full size.
        make: writes a number of images into a folder and returns the sides of the command line.
        repeating: share of the images of the first set that have a near or exact copy.
        pairs: number of true pairs of near or exact copies, from the number of images.
        seconds: limit of the time, or ``None``.
        tiny: the images are tiny, and so are their cache entries.
    """

    images: int
    make: Callable[[int, Path], list[str]]
    repeating: Callable[[int], int]
    pairs: Callable[[int], int]
    seconds: float | None = SECONDS
    tiny: bool = False


def png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Return an encoded image."""
    sink = io.BytesIO()
    Image.fromarray(pixels).save(sink, "PNG")
    return sink.getvalue()


def jpeg(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Return an encoded image."""
    sink = io.BytesIO()
    Image.fromarray(pixels).save(sink, "JPEG", quality=92)
    return sink.getvalue()


def scenery(side: int) -> npt.NDArray[np.uint8]:
    """Return an image with structure at all scales, like a photograph."""
    rng = np.random.default_rng(3)
    total = np.zeros((side, side, 3))
    for scale in (4, 8, 16, 32, 64, 128):
        if scale <= side:
            field = rng.integers(0, 256, (scale, scale, 3)).astype(np.uint8)
            total += np.asarray(Image.fromarray(field).resize((side, side), 3), float) / scale
    total -= total.min()
    return (total * 255 / total.max()).astype(np.uint8)


def table(path: Path, images: Iterator[bytes], count: int) -> Path:
    """Write encoded images as Parquet with ids."""
    schema = pa.schema({"id": pa.string(), "image": pa.binary()})
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, count, BATCH):
            ids = [f"{row:07d}" for row in range(start, min(count, start + BATCH))]
            writer.write_table(pa.table([ids, [next(images) for _ in ids]], schema=schema))
    return path


def linked(count: int, folder: Path, image: Path) -> Path:
    """Fill a folder with links to one image."""
    folder.mkdir()
    for row in range(count):
        os.symlink(image, folder / f"{row:06d}.png")
    return folder


def links(count: int, folder: Path) -> list[str]:
    """Make one set of links."""
    image = folder / "image.png"
    image.write_bytes(png(scenery(128)))
    return ["--set", f"links={linked(count, folder / 'links', image)}"]


def sides(count: int, folder: Path) -> list[str]:
    """Make two sets of links to the same image; a fifth are test images."""
    image = folder / "image.png"
    image.write_bytes(png(scenery(128)))
    test = linked(count // 5, folder / "test", image)
    train = linked(count - count // 5, folder / "train", image)
    return ["--test", f"test={test}", "--train", f"train={train}"]


def copies(count: int, folder: Path) -> list[str]:
    """Make one set of copies of one tiny image."""
    image = png(scenery(32))
    return ["--set", f"copies={table(folder / 'c.parquet', iter(lambda: image, b''), count)}"]


def scene(count: int, folder: Path) -> list[str]:
    """Make the frames of a static camera."""
    still, rng = scenery(192).astype(np.int16), np.random.default_rng(5)

    def frames() -> Iterator[bytes]:
        while True:
            noisy = still + rng.normal(0, 2, still.shape).round().astype(np.int16)
            yield jpeg(np.clip(noisy, 0, 255).astype(np.uint8))

    return ["--set", f"scene={table(folder / 's.parquet', frames(), count)}"]


def noise(count: int, folder: Path) -> list[str]:
    """Make images of random pixels."""
    rng = np.random.default_rng(7)

    def images() -> Iterator[bytes]:
        while True:
            yield png(rng.integers(0, 256, (8, 8, 3), np.uint8))

    return ["--set", f"noise={table(folder / 'n.parquet', images(), count)}"]


def inside(count: int) -> int:
    """Return the number of pairs of images within one set."""
    return count * (count - 1) // 2


FLOODS = {
    "links": Flood(20_000, links, lambda n: n, inside),
    "sides": Flood(20_000, sides, lambda n: n // 5, lambda n: (n // 5) * (n - n // 5)),
    "copies": Flood(100_000, copies, lambda n: n, inside, tiny=True),
    "scene": Flood(5_000, scene, lambda n: n, inside),
    "noise": Flood(200_000, noise, lambda n: 0, lambda n: 0, None, tiny=True),
}


def measure(name: str, part: float) -> dict[str, Any]:
    """Audit one set; return the results."""
    flood = FLOODS[name]
    count = int(flood.images * part)
    with tempfile.TemporaryDirectory(prefix="floods-") as temporary:
        folder = Path(temporary)
        command = [*visleak_command(), "audit", *flood.make(count, folder)]
        command += ["-o", str(folder / "out"), "--cache", str(folder / "cache")]
        begun, used = time.perf_counter(), used_seconds()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        watch = Watch(process.pid)
        watch.start()
        process.wait()
        watch.stop()
        seconds = time.perf_counter() - begun
        if process.returncode:
            raise SystemExit(f"{name}: the audit ended with {process.returncode}")
        summary = json.loads((folder / "out" / "audit.json").read_text())
        stored = sum(f.stat().st_size for f in (folder / "cache").rglob("*") if f.is_file())
        rows = pq.read_metadata(folder / "out" / "pairs.parquet").num_rows
        listed = pq.read_table(folder / "out" / "pairs.parquet", columns=["grade", "reason"])
        listed = listed.filter(pc.is_valid(listed["grade"]))
        checked = pc.invert(pc.is_in(listed["reason"], pa.array(UNVERIFIED)))
        verified = pc.sum(checked).as_py() or 0
        del listed, checked
        total = pq.read_table(folder / "out" / "images.parquet", columns=["pairs_total"])
        similar = int(np.nan_to_num(total["pairs_total"].to_numpy()).sum())
    own = summary["comparisons"][0]
    return {
        "images": count,
        "share_of_full_size": part,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(used_seconds() - used, 1),
        "load": round(os.getloadavg()[1], 1),
        "ms_per_image": round(1000 * seconds / count, 3),
        "peak_mb": round(watch.all_kb * 1024 / 1e6, 1),
        "cache_bytes_per_image": round(stored / count, 1),
        "rows": rows,
        # each pair within a set is listed for both of its images
        "similar_pairs": similar // 2 if "within" in own else similar,
        **counted(own),
        "verified_per_image": round(verified / count, 3),
        "repeating_true": flood.repeating(count),
        "pairs_true": flood.pairs(count),
        "timings": summary["timings"],
    }


def bars_of(name: str, found: dict[str, Any]) -> list[Bar]:
    """Return the results of a set with limits."""
    flood, count = FLOODS[name], found["images"]
    bars = [
        Bar(f"{name}: rows per image", found["rows"] / count, ROWS),
        Bar(f"{name}: pairs verified per image", found["verified_per_image"], VERIFIED),
        *exactly(f"{name}: images that repeat", found["repeating"], found["repeating_true"]),
        *exactly(f"{name}: pairs of copies", found["similar_pairs"], found["pairs_true"]),
    ]
    if flood.tiny:
        bars.append(
            Bar(f"{name}: cache per image (bytes)", found["cache_bytes_per_image"], CACHE_BYTES)
        )
    if name != "noise":
        bars += exactly(f"{name}: images of the largest group", found["largest_group"], count)
    if name not in ("sides", "scene"):
        # of a scene only the pairs that connect its frames are verified
        bars += exactly(f"{name}: near or exact pairs", found["pairs"], found["pairs_true"])
    if found["share_of_full_size"] == 1:
        bars.append(Bar(f"{name}: peak memory (MB)", found["peak_mb"], MB))
        if flood.seconds is not None:
            bars.append(Bar(f"{name}: seconds", found["seconds"], flood.seconds))
    return bars


def used_seconds() -> float:
    """Return the processor time of all finished child processes."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def exactly(name: str, figure: int, true: int) -> list[Bar]:
    """Return the limits of a known count."""
    return [Bar(name, figure, true), Bar(name, figure, true, most=False)]


def counted(comparison: dict[str, Any]) -> dict[str, Any]:
    """Return the number of images with duplicates, and of counted pairs."""
    found = comparison.get("within") or {}
    rate = comparison["rates"]["near_or_exact"]["count"]
    pairs = found.get("duplicate_pairs", {})
    return {
        "repeating": rate,
        "pairs": pairs.get("exact", 0) + pairs.get("near", 0),
        "largest_group": max(comparison["duplicate_groups"]["largest"], default=0),
    }


def main() -> None:
    """Audit the sets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", metavar="NAME[=SHARE]", help="all by default")
    given = parser.parse_args()
    figures = known_figures(__file__) if given.sets else {}
    for asked in given.sets or FLOODS:
        name, _, share = asked.partition("=")
        if name not in FLOODS:
            parser.error(f"a set is one of {', '.join(FLOODS)}; got {name!r}")
        figures[name] = measure(name, float(share or 1))
        print(name, json.dumps(figures[name]), flush=True)
        write(__file__, [bar for each in figures for bar in bars_of(each, figures[each])], figures)


if __name__ == "__main__":
    main()
