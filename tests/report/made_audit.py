"""Makes small audit folders as the pipeline leaves them, from images that ship with tests."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from toy_audit import PROBABILITY, image_row, pair_row, write_audit
from visleak.records import Problem
from visleak.storage import AUDIT, read_table, write_json, write_tables

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

    def change(self, **changes):
        """Write ``audit.json`` with other values."""
        write_json(self.folder / AUDIT, self.summary | changes)

    def set_columns(self, table, **columns):
        """Write a table with other values in some columns; ``None`` for nulls."""
        found = read_table(self.folder, table)
        for name, values in columns.items():
            at = found.schema.get_field_index(name)
            empty = pa.nulls(len(found), found[name].type)
            found = found.set_column(
                at, found.schema.field(at), empty if values is None else values
            )
        write_tables(self.folder / table, found.schema, [found])

    def section(self, name, value):
        """Write a section as another step does; a text as it is."""
        path = self.folder / "sections" / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")

    def pictures(self, name, ids):
        self.asked.append((name, list(ids)))
        return {i: self.store[name, i] for i in ids if (name, i) in self.store}


def altered(pixels, kind):
    """Return a query made of a reference, its matrix (query to reference), transform, view."""
    height, width = pixels.shape[:2]
    if kind % 4 == 0:
        return pixels, [1, 0, 0, 0, 1, 0, 0, 0, 1], "identical", "original"
    if kind % 4 == 1:
        top, left = height // 10, width // 8
        matrix = [1 - left / width, 0, left / width, 0, 1 - top / height, top / height, 0, 0, 1]
        return pixels[top:, left:], matrix, "cropped to 79 %", "original"
    darker = np.clip(pixels.astype(float) * 0.7 + 10, 0, 255).astype(np.uint8)
    if kind % 4 == 2:
        return darker[:, ::-1].copy(), None, "mirrored, darker", "mirror"
    return darker, None, "darker", "original"


def make_audit(folder, base, count=36):
    """Make an audit of ``test`` and ``val`` against ``train`` and ``web``, ``count`` pairs."""
    rng = np.random.default_rng(7)
    store = {}
    pairs = []
    labels = ["cat", "dog", "lorry", HOSTILE_LABEL, "aeroplane"]
    images = {}

    def image(set_name, name, pixels, label, **more):
        if pixels is not None:
            store[set_name, name] = pixels
        about = {"label": label, "digest": f"{len(images):032x}", "width": 200, "height": 200}
        row = image_row(set_name, name, **about, **{"pairs_total": 0, **more})
        images[set_name, name] = row

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
        high = {"exact": 1.0, "near": 0.97, "similar": 0.93, "different": 0.9}[grade]
        similarity = float(min(1.0, high - 0.03 * rng.random() * (grade != "exact")))
        near = {"nearest_set": reference_set, "nearest": other, "nearest_similarity": similarity}
        image(query_set, name, None if number == 7 else query, label, pairs_total=1, **near)
        image(reference_set, other, original, other_label)
        inter = reference_set == "web"
        for repeat in range(3 if number == 1 else 1):
            reference = other if not repeat else f"copy_{repeat}_{other}"
            pairs.append(
                pair_row(
                    *(f"{query_set}/{name}", f"{reference_set}/{reference}", grade),
                    similarity=similarity - 0.001 * repeat,
                    background=0.4,
                    view=view,
                    degree="hard" if similarity >= HARD else "soft",
                    probability=PROBABILITY[grade] - 0.02 * rng.random() * (grade != "exact"),
                    reason=f"{grade}: 41 of 48 patches agree after alignment",
                    transform=transform,
                    matrix=matrix,
                    query_label=label,
                    reference_label=other_label,
                    label_relation="different" if conflict else "same",
                    modality="image-only" if inter else "full",
                    coverage="within" if within else "inter" if inter else "intra",
                )
            )
    for number in range(200):
        place = "test" if number % 3 else "val", f"other/{number}.png"
        similarity = float(np.clip(rng.normal(0.62, 0.09), 0, 0.89))
        image(*place, None, labels[number % len(labels)], nearest_similarity=similarity)
    image("test", "blank.png", None, "cat", flat=True, nearest_similarity=1.0)
    problems = [
        Problem("train", "broken.jpg", "train/broken.jpg", "truncated", "ends after 512 bytes"),
        Problem("test", HOSTILE_NAME + ".txt", "x", "not-an-image", "begins with <html>"),
        Problem("test", "gone.png", "test/gone.png", "missing"),
    ]
    summary = write_audit(
        folder,
        [images[key] for key in sorted(images)],
        pairs,
        [(query, other) for query in ("test", "val") for other in ("train", "web", query)],
        problems=problems,
        sets={"web": {"dataset": "crawl"}},
        comparisons={"web": {"coverage": "inter", "modality": "image-only"}},
        **{
            "headline": "some test images have a near-duplicate or exact copy in train or web",
            "command": "visleak audit --test test --train train --train web=crawl",
            "thresholds": {
                **{"hard": HARD, "soft": SOFT, "provisional": True},
                "provenance": "99.9th percentile of unrelated pairs",
            },
            "skipped": ["3 archives inside archives were not opened"],
        },
    )
    return Made(folder, store, summary)
