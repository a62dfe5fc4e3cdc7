"""An audit folder with the pairs that a test asks for, over sets that are there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from visleak.formats import open_images
from visleak.images import content_digest
from visleak.records import EmbeddingSet, Problem, Unreadable
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


def pair(query: str, reference: str, grade: str | None = "near", **more: Any) -> dict[str, Any]:
    """Return a pair of ``SET/ID``; coverage follows from the sets."""
    (one, first), (two, second) = (name.split("/", 1) for name in (query, reference))
    return {
        "query_set": one,
        "query": first,
        "reference_set": two,
        "reference": second,
        "similarity": 0.9,
        "degree": "hard",
        "grade": grade,
        "probability": 0.9,
        "coverage": "within" if one == two else "intra",
    } | more


def make_audit(
    folder: Path,
    tests: Mapping[str, str],
    trains: Mapping[str, str],
    pairs: Iterable[Mapping[str, Any]],
    *,
    flat: Iterable[str] = (),
    roles: Mapping[str, list[str]] | None = None,
    settings: Mapping[str, Any] | None = None,
    compared: Iterable[tuple[str, str, str]] = (),
    embeddings: Mapping[str, int] | None = None,
    thresholds: bool = True,
) -> Path:
    """Write ``audit.json`` and the tables of an audit; embeddings are sets without images."""
    folder.mkdir(parents=True)
    rows, problems, sets = [], [], []
    for side, sources in (("query", tests), ("reference", trains)):
        for name, source in sources.items():
            images = open_images(source, name=name)
            assert not isinstance(images, EmbeddingSet)
            data = images.opener.read(range(len(images)))
            for at, stored in enumerate(data):
                id_ = images.ids[at].as_py()
                if isinstance(stored, Unreadable):
                    problems.append(Problem(name, id_, "", stored.reason))
                    continue
                label = None if images.labels is None else images.labels[at].as_py()
                rows.append(
                    {
                        "set": name,
                        "id": id_,
                        "digest": content_digest(stored).hex(),
                        "label": label,
                        "locator": images.locators[at].as_py(),
                        "flat": f"{name}/{id_}" in set(flat),
                    }
                )
            sets.append(_about(name, side, source, len(images), images.options, roles))
    pairs = list(pairs)
    for name, count in (embeddings or {}).items():
        # of embeddings that pass by, the images in pairs are known
        listed = {row["reference"] for row in pairs if row["reference_set"] == name}
        rows += [{"set": name, "id": id_, "flat": False} for id_ in sorted(listed)]
        sets.append(_about(name, "reference", f"emb:{name}", count, {}, roles, pictures=False))
    references = [*trains, *(embeddings or {})]
    found = [*compared, *((t, r, "intra") for t in tests for r in references)]
    found += [(t, t, "within") for t in tests]
    summary = {
        "schema": 1,
        "visleak": "test",
        "key": "0" * 32,
        "opened_in": "/",
        "headline": "a test",
        "sets": sets,
        "settings": {"sample": 0, "candidates": "auto"} | dict(settings or {}),
        "thresholds": {"hard": 0.9, "soft": 0.8} if thresholds else {"hard": None, "soft": None},
        "grader": {},
        "comparisons": [
            {"query_set": q, "reference_set": r, "coverage": c, "modality": "full"}
            for q, r, c in found
        ],
        "totals": [{"query_set": name, "headline": "a test", "rates": {}} for name in tests],
        "skipped": [],
        "timings": {},
    }
    write_tables(folder / PAIRS, PAIRS_SCHEMA, [pa.Table.from_pylist(pairs, PAIRS_SCHEMA)])
    write_tables(folder / IMAGES, IMAGES_SCHEMA, [pa.Table.from_pylist(rows, IMAGES_SCHEMA)])
    write_problems(folder / UNREADABLE, problems)
    write_json(folder / AUDIT, summary)
    return folder


def _about(
    name: str,
    side: str,
    source: str,
    count: int,
    options: Mapping[str, str],
    roles: Mapping[str, list[str]] | None,
    pictures: bool = True,
) -> dict[str, Any]:
    usual = ["benchmark" if side == "query" else "training"]
    return {
        "name": name,
        "dataset": "",
        "roles": (roles or {}).get(name, usual),
        "side": side,
        "source": source,
        "options": dict(options),
        "pictures": pictures,
        "images": count,
        "readable": count,
        "unreadable": 0,
        "flat": 0,
    }
