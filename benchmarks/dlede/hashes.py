"""Rates of computing and comparing perceptual hashes, and agreement with imagehash.

usage: VISLEAK_DATA=FOLDER python benchmarks/dlede/hashes.py

Hashing reads, decodes and hashes files, in one process with one thread, compared with a full decode
of the same files from memory by OpenCV. Rounds alternate, and the median of their ratios is
reported. Times are CPU times, so that other work on the machine has little influence.
"""

from __future__ import annotations

import io
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cv2
import imagehash
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from threadpoolctl import threadpool_limits

from visleak.dlede.hashes import Hashes, distances, hash_all, nearest_pairs
from visleak.formats import open_images
from visleak.pipeline import RunContext

sys.path.insert(0, str(Path(__file__).parents[1]))
from record import Bar, data_folder, write

ROUNDS = 5

#: KITTI in the split of Babu et al. (2025): training and test images, their size.
TRAIN, TEST = 5_231, 2_250
DRIVING = (1242, 375)

#: Numbers of small and of driving-sized images.
SMALL, WIDE = 2_000, 100

#: Numbers of most similar pairs.
ALIKE = 100


def hashed(source: Path) -> Hashes:
    """Return the hashes of a source, computed in this process."""
    with RunContext.at(None, 1, None) as place:
        return hash_all(open_images(source), place)


def taken(work: Callable[[], object]) -> float:
    """Return the CPU seconds of some work."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def beside_cv2(source: Path, files: Sequence[bytes]) -> dict[str, float]:
    """Return rates in images per second of CPU, and the median ratio of the rounds."""
    seen = [np.frombuffer(data, np.uint8) for data in files]
    hashed(source)
    rounds = [
        (
            taken(lambda: [cv2.imdecode(data, cv2.IMREAD_COLOR) for data in seen]),
            taken(lambda: hashed(source)),
        )
        for _ in range(ROUNDS)
    ]
    return {
        "images": len(files),
        "cv2_per_second": round(len(files) / statistics.median(r[0] for r in rounds), 1),
        "hashes_per_second": round(len(files) / statistics.median(r[1] for r in rounds), 1),
        "ratio": round(statistics.median(r[0] / r[1] for r in rounds), 4),
    }


def encoded(pixels: np.ndarray, kind: str) -> bytes:
    """Return an encoded image."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **({"quality": 90} if kind == "JPEG" else {}))
    return file.getvalue()


def small_pictures(data: Path) -> pa.Table:
    """Return the first test images of CIFAR-10, as they are stored: lossless WebP."""
    return pq.read_table(data / "cifar10" / "test.parquet").slice(0, SMALL)


def pixels_of(data: bytes) -> np.ndarray:
    """Return the pixels of a file."""
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def rates(data: Path, photos: Sequence[bytes], folder: Path) -> dict[str, dict[str, float]]:
    """Return the rates on photographs, on CIFAR-sized and on driving-sized images."""
    table = small_pictures(data)
    small = [image["bytes"] for image in table["image"].to_pylist()]
    tiny = [pixels_of(each) for each in small]
    wide = [cv2.resize(pixels_of(each), DRIVING) for each in photos[:WIDE]]
    cases = {"photos jpeg": photos, "32 px webp": small}
    for name, pictures in (("32 px", tiny), ("driving", wide)):
        for kind in ("PNG", "JPEG"):
            cases[f"{name} {kind.lower()}"] = [encoded(each, kind) for each in pictures]
    found = {}
    for name, files in cases.items():
        source = folder / name.replace(" ", "-")
        source.mkdir()
        for number, content in enumerate(files):
            (source / f"{number:05}.{name.split()[-1]}").write_bytes(content)
        found[name] = beside_cv2(source, files)
        print(name, found[name], flush=True)
    # as CIFAR-10 is stored: without a file per image
    pq.write_table(table, folder / "cifar10.parquet")
    found["32 px parquet"] = beside_cv2(folder / "cifar10.parquet", small)
    return found


def comparing() -> dict[str, float]:
    """Return the seconds of a KITTI-sized comparison: wall time, best of the rounds."""
    rng = np.random.default_rng(0)
    train, test = (rng.integers(0, 1 << 64, n, np.uint64) for n in (TRAIN, TEST))
    shared = TEST // 10
    test[:shared] = train[:shared]
    seconds, alike = [], []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        found = distances(test, train)
        seconds.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        nearest_pairs(test, train, found, ALIKE)
        alike.append(time.perf_counter() - begun)
    assert found.histogram.sum() == TRAIN * TEST
    assert found.histogram[0] >= shared
    return {"distances": min(seconds), "nearest_pairs": min(alike)}


def same_bits(data: Path) -> tuple[int, dict[str, Any]]:
    """Return the photographs with the bits of imagehash, and the hashes with 32 bits set."""
    folder = data / "photos"
    found = hashed(folder)
    same = sum(
        int(word) == int(str(imagehash.phash(Image.open(folder / name))), 16)
        for name, word in zip(found.ids.to_pylist(), found.words, strict=True)
    )
    return same, balance(found)


def balance(found: Hashes) -> dict[str, int]:
    """Return the number of hashes without exactly 32 bits set, and of all."""
    bits = np.bitwise_count(found.words)
    return {"hashes": len(found.words), "not_32_bits": int((bits != 32).sum())}


def main() -> None:
    """Measure, print and store."""
    data = data_folder("photos", "cifar10")
    photos = [path.read_bytes() for path in sorted((data / "photos").glob("*.jpg"))]
    cv2.setNumThreads(1)
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        speed = rates(data, photos, Path(folder))
        seconds = comparing()
        same, photographs = same_bits(data)
        cifar = balance(hashed(data / "cifar10" / "test.parquet"))
    # no limit for JPEG of 32 pixels, because Pillow takes three times as long to open it as OpenCV
    # to decode it; its ratio is reported
    bars = [
        Bar(f"{name}: hashes / cv2 full decodes", each["ratio"], 0.4, most=False)
        for name, each in speed.items()
        if name != "32 px jpeg"
    ]
    bars += [
        Bar(f"{TRAIN:,} x {TEST:,} distances and histogram, s", seconds["distances"], 0.5),
        Bar("photographs with the bits of imagehash.phash", same, len(photos), most=False),
    ]
    figures = {
        "rates": speed,
        "seconds_100_most_alike": round(seconds["nearest_pairs"], 4),
        "photographs": photographs,
        "cifar10_test": cifar,
    }
    write(__file__, bars, figures)


if __name__ == "__main__":
    main()
