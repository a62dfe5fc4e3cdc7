"""Recall and speed of voting by local features on changed photographs.

Run with ``VISLEAK_DATA=<folder> python benchmarks/local_features.py [--large 50000]``; the
photographs are ``$VISLEAK_DATA/photos/*.jpg``, sorted by name. Positions 0 and 1 modulo 4 were used
for tuning; all results are of queries at positions 2 and 3. References are all photographs. The
queries are changed at their own resolution. Writes ``local_features.json`` in the same folder.

``--large`` adds synthetic references: each feature is that of a random photograph with noise of up
to 28 levels on every nonzero coordinate, so that its distance from the original is about that of
the nearest patch of another photograph.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from visleak.encoders.local import SMALLEST, LocalFeatures, local_features, view_features
from visleak.records import VIEWS
from visleak.search.votes import LEAST_SCORE, FeatureRows, LocalIndex, Votes

Image = npt.NDArray[np.uint8]
#: Takes the image, three others, and a generator of random numbers; ``None``: does not apply.
Change = Callable[[Image, list[Image], np.random.Generator], Image | None]


def _cropped(pixels: int) -> Change:
    def change(image: Image, _others: list[Image], _rng: np.random.Generator) -> Image | None:
        height, width = image.shape[:2]
        if min(height, width) - 2 * pixels < 32:
            return None
        return image[pixels : height - pixels, pixels : width - pixels]

    return change


def _part(image: Image, _others: list[Image], rng: np.random.Generator) -> Image:
    """Keep a fifth of the area with the shape of the image, at a random place."""
    height, width = image.shape[:2]
    h, w = round(height * np.sqrt(0.2)), round(width * np.sqrt(0.2))
    y, x = rng.integers(height - h + 1), rng.integers(width - w + 1)
    return image[y : y + h, x : x + w]


def _turned(degrees: float) -> Change:
    """Rotate clockwise about the centre, canvas kept, corners black."""

    def change(image: Image, _others: list[Image], _rng: np.random.Generator) -> Image:
        height, width = image.shape[:2]
        matrix = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), -degrees, 1.0)
        return np.asarray(cv2.warpAffine(image, matrix, (width, height)), np.uint8)

    return change


def _noisy(image: Image, _others: list[Image], rng: np.random.Generator) -> Image:
    noise = rng.normal(0, 25, image.shape)
    return np.clip(np.rint(image + noise), 0, 255).astype(np.uint8)


def _grey(image: Image) -> Image:
    return np.asarray(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), np.uint8)


def _red(image: Image, _others: list[Image], _rng: np.random.Generator) -> Image:
    tinted = np.zeros_like(image)
    tinted[..., 0] = _grey(image)
    return tinted


def _jpeg(image: Image, _others: list[Image], _rng: np.random.Generator) -> Image:
    _, stored = cv2.imencode(".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 20])
    return np.asarray(cv2.imdecode(stored, cv2.IMREAD_COLOR), np.uint8)[..., ::-1].copy()


def _lettered(image: Image, _others: list[Image], _rng: np.random.Generator) -> Image:
    """Write three white lines with black rims, as wide as the image."""
    image = image.copy()
    height, width = image.shape[:2]
    for line, text in enumerate(("SAMPLE TEXT", "do not copy", "visleak 2024")):
        at = (round(0.05 * width), round(height * (0.25 + 0.3 * line)))
        for colour, thickness in (((0, 0, 0), 5), ((255, 255, 255), 2)):
            cv2.putText(image, text, at, cv2.FONT_HERSHEY_DUPLEX, width / 270, colour, thickness)
    return image


def _collage(image: Image, others: list[Image], rng: np.random.Generator) -> Image:
    """Tile a canvas of the image's size with the image and three others, at half size."""
    height, width = image.shape[0] // 2, image.shape[1] // 2
    parts = [cv2.resize(p, (width, height), interpolation=cv2.INTER_AREA) for p in (image, *others)]
    a, b, c, d = (parts[i] for i in rng.permutation(4))
    return np.vstack([np.hstack([a, b]), np.hstack([c, d])])


def _scaled(side: int) -> Change:
    def change(image: Image, _others: list[Image], _rng: np.random.Generator) -> Image:
        return np.asarray(cv2.resize(image, (side, side), interpolation=cv2.INTER_AREA), np.uint8)

    return change


CONDITIONS: Mapping[str, Change] = {
    "original": lambda image, _o, _r: image,
    "flip-h": lambda image, _o, _r: image[:, ::-1],
    "flip-v": lambda image, _o, _r: image[::-1],
    "crop-20": _cropped(20),
    "crop-50": _cropped(50),
    "crop-100": _cropped(100),
    "part-20%": _part,
    "rot-45": _turned(45),
    "rot-135": _turned(135),
    "noise": _noisy,
    "blur": lambda image, _o, _r: np.asarray(cv2.GaussianBlur(image, (0, 0), 3), np.uint8),
    "rs-128": _scaled(128),
    "rs-256": _scaled(256),
    "grey": lambda image, _o, _r: np.repeat(_grey(image)[..., None], 3, axis=2),
    "inverted": lambda image, _o, _r: 255 - image,
    "red": _red,
    "jpeg-20": _jpeg,
    "text": _lettered,
    "collage": _collage,
}

#: Conditions with images below ``SMALLEST``: also measured with features for all of them.
SMALL = ("crop-50", "crop-100", "part-20%")

BEST = 20
_LOW = 2.5  # lowest score of candidates in the distribution of wrong ones
_SEEN = tuple(VIEWS.index(name) for name in ("original", "mirror", "inverted"))


def read_photographs(folder: Path) -> list[Image]:
    """Return the photographs, RGB, sorted by name."""
    images = [cv2.imread(str(path), cv2.IMREAD_COLOR) for path in sorted(folder.glob("*.jpg"))]
    return [np.ascontiguousarray(image[..., ::-1]) for image in images if image is not None]


def changed(images: list[Image], name: str) -> tuple[list[int], list[Image], list[list[int]]]:
    """Return positions and changed images of the reported half, and the others in each."""
    tuning = [i for i in range(len(images)) if i % 4 in (0, 1)]
    reported = [i for i in range(len(images)) if i % 4 in (2, 3)]
    assert not set(tuning) & set(reported)
    assert len(tuning) + len(reported) == len(images)
    positions, pictures, company = [], [], []
    for at, position in enumerate(reported):
        rng = np.random.default_rng([position, *name.encode()])
        others = [tuning[(at + step) % len(tuning)] for step in (61, 123, 187)]
        picture = CONDITIONS[name](images[position], [images[i] for i in others], rng)
        if picture is not None:
            positions.append(position)
            pictures.append(np.ascontiguousarray(picture))
            company.append(others if name == "collage" else [])
    return positions, pictures, company


def rows_of(features: list[LocalFeatures]) -> tuple[FeatureRows, npt.NDArray[np.int32]]:
    """Return the features of many images as one table, and the width of each one's image."""
    counts = [len(f) for f in features]
    rows = FeatureRows(
        np.concatenate([f.descriptors for f in features]),
        np.concatenate([f.keypoints for f in features]),
        np.cumsum([0, *counts], dtype=np.int64),
    )
    return rows, np.repeat(np.array([f.width for f in features], np.int32), counts)


def views_of(features: list[LocalFeatures]) -> dict[int, FeatureRows]:
    """Return the three views of the queries."""
    rows, widths = rows_of(features)
    seen = {v: view_features(rows.descriptors, rows.keypoints, widths, v) for v in _SEEN}
    return {v: FeatureRows(*arrays, rows.starts) for v, arrays in seen.items()}


def judged(
    votes: Votes, positions: list[int], company: list[list[int]], counts: list[int]
) -> dict[str, Any]:
    """Return the results of one condition; ``counts``: number of features per query."""
    n = len(positions)
    true = votes.reference == np.array(positions)[votes.query]
    shown = [r in company[q] for q, r in zip(votes.query, votes.reference, strict=True)]
    wrong = ~true & ~np.array(shown, bool)
    rank = np.arange(len(votes)) - np.searchsorted(votes.query, votes.query)
    kept = (votes.score >= LEAST_SCORE) & (rank < BEST)
    score, best_wrong = np.zeros(n), np.zeros(n)
    score[votes.query[true]] = votes.score[true]
    np.maximum.at(best_wrong, votes.query[wrong], votes.score[wrong])
    return {
        "queries": n,
        "recall_at_1": round(float((true & kept & (rank == 0)).sum() / n), 4),
        "queries_with_features": int(np.count_nonzero(counts)),
        "recall_at_1_with_features": round(
            float((true & kept & (rank == 0)).sum() / max(np.count_nonzero(counts), 1)), 4
        ),
        "among_candidates": round(float((true & kept).sum() / n), 4),
        "wrong_per_query": round(float((wrong & kept).sum() / n), 4),
        "wrong_per_query_from_3": round(float((wrong & (votes.score >= 3)).sum() / n), 4),
        "true_score_p1_p5_p10_p50": np.percentile(score, [1, 5, 10, 50]).round(1).tolist(),
        "best_wrong_p50_p95_p99_max": np.percentile(best_wrong, [50, 95, 99, 100])
        .round(1)
        .tolist(),
    }


def measure_condition(index: LocalIndex, images: list[Image], name: str, smallest: int) -> Any:
    """Return the results of one condition and the times of its steps."""
    positions, pictures, company = changed(images, name)
    begun = time.perf_counter()
    features = [local_features(picture, smallest=smallest) for picture in pictures]
    extracted = time.perf_counter()
    votes = index.search(views_of(features), best=1000, least=_LOW)
    ended = time.perf_counter()
    result = judged(votes, positions, company, [len(f) for f in features])
    result["extract_ms_per_picture"] = round(1000 * (extracted - begun) / len(pictures), 2)
    result["search_ms_per_query"] = round(1000 * (ended - extracted) / len(pictures), 2)
    return result


def enlarged(real: FeatureRows, pictures: int, folder: Path) -> FeatureRows:
    """Return the real references, and synthetic ones up to the given number of images."""
    rng = np.random.default_rng(1)
    n, copies = len(real.descriptors), pictures // len(real)
    shape = (n * copies, 128)
    stored = np.lib.format.open_memmap(folder / "descriptors.npy", "w+", np.uint8, shape)
    stored[:n] = real.descriptors
    for copy in range(1, copies):
        drawn = real.descriptors[rng.permutation(n)].astype(np.int16)
        noise = rng.integers(-28, 29, drawn.shape, dtype=np.int16) * (drawn > 0)
        stored[copy * n : (copy + 1) * n] = np.clip(drawn + noise, 0, 255)
    stored.flush()
    starts = [real.starts[:1], *(real.starts[1:] + copy * n for copy in range(copies))]
    return FeatureRows(
        np.load(folder / "descriptors.npy", mmap_mode="r"),
        np.tile(real.keypoints, (copies, 1)),
        np.concatenate(starts),
    )


def measure_large(real: FeatureRows, images: list[Image], pictures: int) -> dict[str, Any]:
    """Return speed, memory and recall with many references."""
    with tempfile.TemporaryDirectory() as folder:
        references = enlarged(real, pictures, Path(folder))
        before = _resident_mb()
        begun = time.perf_counter()
        index = LocalIndex(references)
        built = time.perf_counter() - begun
        held = _resident_mb() - before
        result: dict[str, Any] = {
            "references": len(references),
            "features": len(references.descriptors),
            "build_s": round(built, 1),
            "index_bytes_per_feature": index.nbytes / len(references.descriptors),
            "index_resident_mb": round(held),
        }
        for name in ("original", "flip-h", "crop-100", "rs-128"):
            result[name] = measure_condition(index, images[:200], name, SMALLEST)
        queries = [local_features(image) for image in images[2:200:4]]
        views = views_of(queries)
        begun = time.perf_counter()
        index.search(views, workers=2)
        result["search_ms_per_query_two_threads"] = round(
            1000 * (time.perf_counter() - begun) / len(queries), 1
        )
        result["peak_mb_of_process_with_pages_of_the_mapped_file"] = round(_peak_mb())
    return result


def _resident_mb() -> float:
    """Return the memory of this process without pages of mapped files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1e3


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def _machine() -> dict[str, Any]:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return {"cpu": models[0] if models else platform.processor(), "cores": os.cpu_count()}


def main() -> None:
    """Run all conditions, print the results and store them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", type=int, default=0, help="number of references, e.g. 50000")
    large = parser.parse_args().large
    root = os.environ.get("VISLEAK_DATA")
    if not root or not (Path(root) / "photos").is_dir():
        print("skipped: VISLEAK_DATA names no folder with photos/")
        return
    cv2.setNumThreads(1)
    images = read_photographs(Path(root) / "photos")
    begun = time.perf_counter()
    rows, _ = rows_of([local_features(image) for image in images])
    extract = 1000 * (time.perf_counter() - begun) / len(images)
    index = LocalIndex(rows)
    conditions: dict[str, Any] = {}
    for name in CONDITIONS:
        for smallest in (SMALLEST, 32)[: 1 + (name in SMALL)]:
            label = name if smallest == SMALLEST else f"{name}, features from {smallest} px"
            result = conditions[label] = measure_condition(index, images, name, smallest)
            print(
                f"{label:30} n={result['queries']:3d} R@1 {result['recall_at_1']:.3f} "
                f"found {result['among_candidates']:.3f} wrong {result['wrong_per_query']:.3f} "
                f"true p5 {result['true_score_p1_p5_p10_p50'][1]:5.1f} "
                f"wrong p99 {result['best_wrong_p50_p95_p99_max'][2]:4.1f}",
                flush=True,
            )
    figures = {
        "machine": _machine(),
        "date": date.today().isoformat(),
        "versions": {
            "python": sys.version.split()[0],
            "numpy": np.__version__,
            "opencv": cv2.__version__,
        },
        "photographs": len(images),
        "queries": "positions 2 and 3 modulo 4, sorted by name; tuned on 0 and 1",
        "least_score": LEAST_SCORE,
        "reference_features_mean": round(len(rows.descriptors) / len(images), 1),
        "extract_ms_per_reference": round(extract, 2),
        "conditions": conditions,
    }
    if large:
        figures["large"] = measure_large(rows, images, large)
        print(json.dumps(figures["large"], indent=1))
    Path(__file__).with_suffix(".json").write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
