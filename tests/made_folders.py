"""Audit folders made of plain rows, their rates counted one image at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

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

GRADES = ("exact", "near", "similar", "different")
STRONGER = {
    "exact": ("exact",),
    "near": ("near",),
    "similar": ("similar",),
    "near_or_exact": GRADES[:2],
    "similar_or_closer": GRADES[:3],
    "hard": ("hard",),
    "soft": ("soft",),
    "hard_or_soft": ("hard", "soft"),
}


def digest(number: int | None) -> str | None:
    return None if number is None else f"{number:032x}"


@dataclass
class World:
    """What an audit folder is made of.

    Attributes:
        images: set to its images: id, number of the content (``None``: only a vector is left) and
            whether it is blank.
        pairs: query set, query, reference set, reference, similarity, grade.
    """

    images: Mapping[str, Sequence[tuple[str, int | None, bool]]]
    pairs: Sequence[tuple[str, str, str, str, float, str | None]]
    comparisons: Sequence[tuple[str, str]]
    unreadable: Iterable[tuple[str, str]] = ()
    encoder: str = "builtin"
    hard: float | None = 0.9
    soft: float | None = 0.6
    sample: int = 0
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def graded(self) -> bool:
        return all(pair[5] is not None for pair in self.pairs)

    def degree(self, similarity: float) -> str | None:
        if self.hard is not None and similarity >= self.hard:
            return "hard"
        return "soft" if self.soft is not None and similarity >= self.soft else None


def make_folder(folder: Path, world: World) -> Path:
    """Write the folder of an audit that found these pairs."""
    rows = [_pair_row(world, pair) for pair in world.pairs]
    keys = ("query_set", "query", "similarity", "reference_set", "reference")
    rows.sort(key=lambda row: tuple(-row[k] if k == "similarity" else row[k] for k in keys))
    write_tables(folder / PAIRS, PAIRS_SCHEMA, [pa.Table.from_pylist(rows, PAIRS_SCHEMA)])
    images = [
        dict.fromkeys(IMAGES_SCHEMA.names)
        | {"set": name, "id": id_, "digest": digest(content), "flat": flat, "locator": id_}
        for name, own in world.images.items()
        for id_, content, flat in sorted(own)
    ]
    write_tables(folder / IMAGES, IMAGES_SCHEMA, [pa.Table.from_pylist(images, IMAGES_SCHEMA)])
    write_problems(
        folder / UNREADABLE, [Problem(name, id_, id_, "corrupt") for name, id_ in world.unreadable]
    )
    write_json(folder / AUDIT, _summary(world, rows) | dict(world.changes))
    return folder


def _pair_row(world: World, pair: tuple[str, str, str, str, float, str | None]) -> dict[str, Any]:
    query_set, query, reference_set, reference, similarity, grade = pair
    certain = {"exact": 1.0, "near": 0.9, "similar": 0.3, "different": 0.02}
    return dict.fromkeys(PAIRS_SCHEMA.names) | {
        "query_set": query_set,
        "query": query,
        "reference_set": reference_set,
        "reference": reference,
        "similarity": similarity,
        "degree": world.degree(similarity),
        "grade": grade,
        "probability": None if grade is None else certain[grade],
        "reason": "made",
        "coverage": "within" if query_set == reference_set else "intra",
        "label_relation": "unknown",
        "modality": "full",
    }


def queries(world: World) -> list[str]:
    return list(dict.fromkeys(query for query, _ in world.comparisons))


def leaking(world: World, rows: Iterable[Mapping[str, Any]], name: str, words: Any) -> set[str]:
    """Return the images of a query set that leak at one of the words."""
    own = [pair for pair in world.comparisons if pair[0] == name]
    alone = all(query == reference for query, reference in own)
    blank = {id_ for id_, _, flat in world.images[name] if flat}
    found: set[str] = set()
    for row in rows:
        counts = (row["coverage"] == "within") == alone and row["query_set"] == name
        if counts and row["query"] not in blank and words & {row["grade"], row["degree"]}:
            found |= {row["query"], row["reference"]} if alone else {row["query"]}
    return found


def rates(world: World, rows: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    """Return the cumulative rates; those of single grades are not needed here."""
    total = len(world.images[name])
    result: dict[str, Any] = {}
    for key, words in STRONGER.items():
        known = world.graded if words[0] in GRADES else world.soft is not None
        count = len(leaking(world, rows, name, set(words)))
        result[key] = Rate.of(count, total).as_dict() if known else None
    return result


def _summary(world: World, rows: list[dict[str, Any]]) -> dict[str, Any]:
    def about(name: str) -> dict[str, Any]:
        lost = sum(own == name for own, _ in world.unreadable)
        return {
            "name": name,
            "side": "query" if name in queries(world) else "reference",
            "source": name,
            "images": len(world.images[name]) + lost,
            "readable": len(world.images[name]),
            "unreadable": lost,
            "flat": sum(flat for _, _, flat in world.images[name]),
            "distinct": len({content for _, content, _ in world.images[name]}),
        }

    def rate_of(query: str, reference: str) -> dict[str, Any]:
        return rates(world, [r for r in rows if r["reference_set"] == reference], query)

    totals = [
        {"query_set": name, "headline": name, "rates": rates(world, rows, name)}
        for name in queries(world)
    ]
    return {
        "schema": 1,
        "visleak": "0.1.0",
        "headline": "made",
        "sets": [about(name) for name in world.images],
        "settings": {"encoder": world.encoder, "sample": world.sample, "verify": world.graded},
        "encoder": {"name": world.encoder, "digest": world.encoder * 2, "width": 8},
        "thresholds": {"hard": world.hard, "soft": world.soft, "provisional": False},
        "verifier": {"digest": "v"} if world.graded else None,
        "grader": {"digest": "g", "near_at": 0.5} if world.graded else None,
        "comparisons": [
            {
                "query_set": query,
                "reference_set": reference,
                "coverage": "within" if query == reference else "intra",
                "modality": "full",
                "queries": len(world.images[query]),
                "pairs": sum(
                    (row["query_set"], row["reference_set"]) == (query, reference) for row in rows
                ),
                "rates": rate_of(query, reference),
            }
            for query, reference in world.comparisons
        ],
        "totals": totals,
        "label_conflicts": 0,
        "skipped": [],
        "versions": {"numpy": "2"},
        "timings": {},
    }


@st.composite
def worlds(draw: st.DrawFn, *, vectors: bool = True) -> World:
    """Draw a small audit: copies, renames, blank and unreadable images, repeats, a second set."""
    names = ["test", "train", *draw(st.sampled_from([(), ("web",)]))]
    contents: Any = st.integers(0, 9)
    images: dict[str, list[tuple[str, int | None, bool]]] = {}
    for name in names:
        ids = draw(st.lists(st.sampled_from("abcdefgh"), unique=True, min_size=1, max_size=6))
        only_vectors = vectors and name == "train" and draw(st.integers(0, 9)) == 0
        images[name] = [
            (id_, None if only_vectors else draw(contents), draw(st.integers(0, 9)) == 0)
            for id_ in ids
        ]
    lost = [
        ("test", id_)
        for id_ in draw(st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=3))
        if id_ not in {own for own, _, _ in images["test"]}
    ]
    comparisons = [("test", name) for name in names[1:]]
    if draw(st.booleans()):
        comparisons.append(("test", "test"))
    pairs = []
    for query_set, reference_set in comparisons:
        for query, _, _ in images[query_set]:
            for reference, _, _ in images[reference_set]:
                inside = query_set == reference_set
                if (inside and query >= reference) or draw(st.booleans()):
                    continue
                similarity = draw(st.sampled_from([0.5, 0.55, 0.7, 0.8, 0.95]))
                grade = draw(st.sampled_from(GRADES))
                pairs.append((query_set, query, reference_set, reference, similarity, grade))
    return World(
        images,
        pairs,
        comparisons,
        lost,
        encoder=draw(st.sampled_from(["builtin", "phash"])),
        soft=draw(st.sampled_from([0.6, 0.75])),
        sample=draw(st.sampled_from([0, 0, 0, 5])),
    )
