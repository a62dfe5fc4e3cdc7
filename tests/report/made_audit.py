"""Makes small audit folders as the pipeline leaves them, from images that ship with tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import skimage.data

from visleak.records import Problem
from visleak.stats import Rate
from visleak.storage import (
    AUDIT,
    IMAGES,
    IMAGES_SCHEMA,
    PAIRS,
    PAIRS_SCHEMA,
    UNREADABLE,
    write_json,
    write_problems,
    write_tables,
)

Pixels = npt.NDArray[np.uint8]

HOSTILE_NAME = "<img src=x onerror=alert(1)>.png"
HOSTILE_LABEL = "</script><script>alert(1)</script>"
GRADE_CYCLE = ("exact", "near", "near", "similar", "near", "different", "exact", "near")
HARD, SOFT = 0.96, 0.9


@dataclass
class Made:
    """An audit folder and the images behind it."""

    folder: Path
    store: dict[tuple[str, str], Pixels]
    summary: dict[str, Any]
    asked: list[tuple[str, list[str]]] = field(default_factory=list)

    def pictures(self, name: str, ids: list[str]) -> dict[str, Pixels]:
        self.asked.append((name, list(ids)))
        return {i: self.store[name, i] for i in ids if (name, i) in self.store}


def base_pictures(side: int = 200) -> list[Pixels]:
    names = ("astronaut", "coffee", "camera", "chelsea", "rocket")
    pictures = []
    for name in names:
        pixels = getattr(skimage.data, name)()
        if pixels.ndim == 2:
            pixels = np.repeat(pixels[..., None], 3, axis=2)
        factor = side / max(pixels.shape[:2])
        size = (round(pixels.shape[1] * factor), round(pixels.shape[0] * factor))
        pictures.append(np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)))
    return pictures


def altered(pixels: Pixels, kind: int) -> tuple[Pixels, list[float] | None, str, str]:
    """Return a query made of a reference, its matrix (query to reference), transform, view."""
    height, width = pixels.shape[:2]
    if kind % 4 == 0:
        return pixels, [1, 0, 0, 0, 1, 0, 0, 0, 1], "identical", "original"
    if kind % 4 == 1:
        top, left = height // 10, width // 8
        cropped = pixels[top:, left:]
        matrix = [1 - left / width, 0, left / width, 0, 1 - top / height, top / height, 0, 0, 1]
        return cropped, matrix, "cropped to 79 %", "original"
    if kind % 4 == 2:
        darker = np.clip(pixels.astype(float) * 0.7 + 10, 0, 255).astype(np.uint8)
        return darker[:, ::-1].copy(), None, "mirrored, darker", "mirror"
    return cv2.GaussianBlur(pixels, (5, 5), 1.2), None, "blurred", "original"


def make_audit(folder: Path, base: list[Pixels], count: int = 36, **changes: Any) -> Made:
    """Make an audit of ``test`` and ``val`` against ``train`` and ``web``, ``count`` pairs."""
    rng = np.random.default_rng(7)
    store: dict[tuple[str, str], Pixels] = {}
    pairs: list[dict[str, Any]] = []
    labels = ["cat", "dog", "lorry", HOSTILE_LABEL, "aeroplane"]
    images: dict[tuple[str, str], dict[str, Any]] = {}

    def image(set_name: str, name: str, pixels: Pixels | None, label: str | None) -> None:
        if pixels is not None:
            store[set_name, name] = pixels
        images[set_name, name] = {
            **dict.fromkeys(IMAGES_SCHEMA.names),
            **{"set": set_name, "id": name, "label": label, "flat": False, "locator": name},
            **{"digest": f"{len(images):032x}", "width": 200, "height": 200, "pairs_total": 0},
        }

    for number in range(count):
        query_set = "test" if number % 3 else "val"
        reference_set = ("train", "web")[number % 5 == 0]
        within = number % 11 == 10
        reference_set = query_set if within else reference_set
        grade = GRADE_CYCLE[number % len(GRADE_CYCLE)]
        original = base[number % len(base)]
        stranger = base[(number + 1) % len(base)]
        query, matrix, transform, view = altered(original, number)
        if grade in ("similar", "different"):
            query, matrix, transform, view = stranger, None, "", "original"
        name = HOSTILE_NAME if number == 4 else f"cat/img_{number:04d}.png"
        other = f"dup_{number:04d}.png" if within else f"n0{number % 7}/photo-{number:05d}.jpg"
        label = labels[number % len(labels)]
        conflict = number % 6 == 1
        other_label = labels[(number + 1) % len(labels)] if conflict else label
        image(query_set, name, None if number == 7 else query, label)
        image(reference_set, other, original, other_label)
        high = {"exact": 1.0, "near": 0.97, "similar": 0.93, "different": 0.9}[grade]
        similarity = float(min(1.0, high - 0.03 * rng.random() * (grade != "exact")))
        certain = {"exact": 1.0, "near": 0.9, "similar": 0.3, "different": 0.02}[grade]
        for repeat in range(3 if number == 1 else 1):
            pairs.append(
                {
                    "query_set": query_set,
                    "query": name,
                    "reference_set": reference_set,
                    "reference": other if not repeat else f"copy_{repeat}_{other}",
                    "similarity": similarity - 0.001 * repeat,
                    "background": 0.4,
                    "view": view,
                    "degree": "hard" if similarity >= HARD else "soft",
                    "grade": grade,
                    "probability": certain - 0.02 * rng.random() * (grade != "exact"),
                    "reason": f"{grade}: 41 of 48 patches agree after alignment",
                    "transform": transform,
                    "matrix": matrix,
                    "query_label": label,
                    "reference_label": other_label,
                    "label_relation": "different" if conflict else "same",
                    "modality": "image-only" if reference_set == "web" else "full",
                    "coverage": "within"
                    if within
                    else "inter"
                    if reference_set == "web"
                    else "intra",
                }
            )
        images[query_set, name].update(
            nearest_set=reference_set, nearest=other, nearest_similarity=similarity, pairs_total=1
        )
    for number in range(200):
        query_set = "test" if number % 3 else "val"
        image(query_set, f"other/{number}.png", None, labels[number % len(labels)])
        images[query_set, f"other/{number}.png"]["nearest_similarity"] = float(
            np.clip(rng.normal(0.62, 0.09), 0, 0.89)
        )
    image("test", "blank.png", None, "cat")
    images["test", "blank.png"].update(flat=True, nearest_similarity=1.0)
    key = ("query_set", "query", "similarity", "reference_set", "reference")
    pairs.sort(key=lambda p: tuple(-p[k] if k == "similarity" else p[k] for k in key))
    write_tables(folder / PAIRS, PAIRS_SCHEMA, [pa.Table.from_pylist(pairs, PAIRS_SCHEMA)])
    rows = [images[k] for k in sorted(images)]
    write_tables(folder / IMAGES, IMAGES_SCHEMA, [pa.Table.from_pylist(rows, IMAGES_SCHEMA)])
    problems = [
        Problem("train", "broken.jpg", "train/broken.jpg", "truncated", "ends after 512 bytes"),
        Problem("test", HOSTILE_NAME + ".txt", "x", "not-an-image", "begins with <html>"),
        Problem("test", "gone.png", "test/gone.png", "missing"),
    ]
    write_problems(folder / UNREADABLE, problems)
    summary = {**_summary(pairs, rows), **changes}
    write_json(folder / AUDIT, summary)
    return Made(folder, store, summary)


def _rates(pairs: list[dict[str, Any]], total: int) -> dict[str, Any]:
    best: dict[str, dict[str, Any]] = {}
    order = ["exact", "near", "similar", "different"]
    for pair in pairs:
        old = best.get(pair["query"])
        if old is None or order.index(pair["grade"]) < order.index(old["grade"]):
            best[pair["query"]] = pair
    counts = {g: sum(p["grade"] == g for p in best.values()) for g in order[:3]}
    counts |= {d: sum(p["degree"] == d for p in best.values()) for d in ("hard", "soft")}
    counts["hard_or_soft"] = counts["hard"] + counts["soft"]
    counts["near_or_exact"] = counts["near"] + counts["exact"]
    counts["similar_or_closer"] = counts["near_or_exact"] + counts["similar"]
    return {name: Rate.of(count, total).as_dict() for name, count in counts.items()}


def _summary(pairs: list[dict[str, Any]], images: list[dict[str, Any]]) -> dict[str, Any]:
    sizes = {
        name: sum(i["set"] == name and not i["flat"] for i in images) for name in ("test", "val")
    }
    comparisons = []
    for query_set, size in sizes.items():
        for reference_set in ("train", "web", query_set):
            mine = [
                p
                for p in pairs
                if (p["query_set"], p["reference_set"]) == (query_set, reference_set)
            ]
            within = reference_set == query_set
            item = {
                "query_set": query_set,
                "reference_set": reference_set,
                "coverage": "within" if within else "inter" if reference_set == "web" else "intra",
                "modality": "image-only" if reference_set == "web" else "full",
                "queries": size,
                "pairs": len(mine),
            }
            if within:
                grades = [p["grade"] for p in mine]
                item["within"] = {
                    "duplicate_pairs": {g: grades.count(g) for g in sorted(set(grades))},
                    "distinct_images": {g: 2 * grades.count(g) for g in sorted(set(grades))},
                }
            else:
                item["rates"] = _rates(mine, size)
            comparisons.append(item)
    leaks = [p for p in pairs if p["coverage"] != "within"]
    totals = [
        {"query_set": n, "rates": _rates([p for p in leaks if p["query_set"] == n], s)}
        for n, s in sizes.items()
    ]
    found = sum(t["rates"]["near_or_exact"]["count"] for t in totals)
    rate = Rate.of(found, sum(sizes.values()))
    text = str(rate).replace(f"of {rate.total:,} (", f"of {rate.total:,} test images (")
    return {
        "schema": 1,
        "visleak": "0.1.0",
        "headline": f"{text} have a near-duplicate or exact copy in train or web",
        "sets": [
            {
                "name": name,
                "dataset": "crawl" if name == "web" else "animals",
                "roles": ["pretraining"] if name == "web" else ["benchmark"],
                "side": "query" if name in sizes else "reference",
                "source": f"folder of {name} & more",
                "images": sizes.get(name, 12_345) + 2,
                "readable": sizes.get(name, 12_345) + 1,
                "flat": 1,
                "unreadable": 1,
                "distinct": sizes.get(name, 12_345),
            }
            for name in ("test", "val", "train", "web")
        ],
        "settings": {"encoder": "builtin", "hard": None, "verify": True, "sample": 0},
        "encoder": {"name": "builtin", "digest": "b2:0123456789abcdef", "width": 512},
        "thresholds": {
            "hard": HARD,
            "soft": SOFT,
            "provenance": "99.9th percentile of unrelated pairs",
            "provisional": True,
        },
        "verifier": {"digest": "v1:fedcba"},
        "comparisons": comparisons,
        "totals": totals,
        "label_conflicts": sum(p["label_relation"] == "different" for p in pairs),
        "skipped": ["3 archives inside archives were not opened"],
        "timings": {"total": 12.3},
        "command": "visleak audit --test test --train train --train web=crawl",
        "versions": {"numpy": "2.0", "opencv": "4.10"},
    }
