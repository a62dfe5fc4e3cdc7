"""An audit folder written by hand: pairs, images and a summary, without any picture."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from visleak.stats import Rate
from visleak.storage import (
    AUDIT,
    IMAGES,
    IMAGES_SCHEMA,
    PAIRS,
    PAIRS_SCHEMA,
    write_json,
    write_tables,
)

RATES = ("hard", "soft", "exact", "near", "similar")
SUMS = ("hard_or_soft", "near_or_exact", "similar_or_closer")


@dataclass(frozen=True)
class Image:
    """An image: its id, label, and content where that is another's too."""

    id: str
    label: str | None = "thing"
    content: str = ""
    flat: bool = False


@dataclass(frozen=True)
class Pair:
    """A pair that the machine listed; ``within`` if both are of the test set."""

    query: str
    reference: str
    grade: str | None = "near"
    similarity: float = 0.9
    within: bool = False
    degree: str | None = "hard"
    label_relation: str = "unknown"


def digest_of(set_name: str, image: Image) -> str:
    content = image.content or f"{set_name}/{image.id}"
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def hand_audit(
    folder: Path,
    test: Sequence[Image],
    train: Sequence[Image],
    pairs: Sequence[Pair] = (),
    *,
    digests: Mapping[tuple[str, str], str | None] | None = None,
    within: bool = True,
    verified: bool = True,
) -> Path:
    """Write what verbs after the audit read: sets ``test`` and, if it has images, ``train``.

    Args:
        folder: to write to.
        test, train: the images.
        pairs: what the machine listed.
        digests: content digests by set and id, where they are not made of the image's content.
        within: the test set was compared with itself.
        verified: pairs have grades.
    """
    folder.mkdir(parents=True, exist_ok=True)
    known = {("test", i.id): i for i in test} | {("train", i.id): i for i in train}
    rows = [
        {
            **dict.fromkeys(IMAGES_SCHEMA.names),
            "set": name,
            "id": image.id,
            "label": image.label,
            "flat": image.flat,
            "locator": image.id,
            "digest": (digests or {}).get((name, image.id), digest_of(name, image)),
        }
        for (name, _), image in known.items()
    ]
    write_tables(folder / IMAGES, IMAGES_SCHEMA, [pa.Table.from_pylist(rows, IMAGES_SCHEMA)])
    listed = sorted(
        (_row(pair, known) for pair in pairs), key=lambda r: (r["query"], -r["similarity"])
    )
    write_tables(folder / PAIRS, PAIRS_SCHEMA, [pa.Table.from_pylist(listed, PAIRS_SCHEMA)])
    (folder / "unreadable.csv").write_text("set,id,locator,reason,detail\n")
    write_json(folder / AUDIT, _summary(test, train, listed, within, verified))
    return folder


def _row(pair: Pair, known: Mapping[tuple[str, str], Image]) -> dict[str, Any]:
    other = "test" if pair.within else "train"
    return {
        **dict.fromkeys(PAIRS_SCHEMA.names),
        "query_set": "test",
        "query": pair.query,
        "reference_set": other,
        "reference": pair.reference,
        "similarity": pair.similarity,
        "background": 0.1,
        "view": "original",
        "degree": pair.degree,
        "grade": pair.grade,
        "probability": None if pair.grade is None else float(pair.grade in ("exact", "near")),
        "reason": f"the machine saw {pair.grade}",
        "query_label": known["test", pair.query].label,
        "reference_label": known[other, pair.reference].label,
        "label_relation": pair.label_relation,
        "modality": "image-only",
        "coverage": "within" if pair.within else "intra",
    }


def _summary(
    test: Sequence[Image],
    train: Sequence[Image],
    rows: Sequence[dict[str, Any]],
    within: bool,
    verified: bool,
) -> dict[str, Any]:
    near = {r["query"] for r in rows if r["grade"] in ("exact", "near")}
    counts = dict.fromkeys((*RATES, *SUMS), 0) | {"near_or_exact": len(near)}
    rates = {
        name: Rate.of(count, len(test)).as_dict()
        if verified or name in ("hard", "soft", "hard_or_soft")
        else None
        for name, count in counts.items()
    }
    compared = [("train", "intra")] if train else []
    compared += [("test", "within")] if within else []
    comparisons = [
        {
            "query_set": "test",
            "reference_set": name,
            "coverage": coverage,
            "modality": "image-only",
            "queries": len(test),
            "pairs": sum(row["reference_set"] == name for row in rows),
            "rates": rates,
        }
        for name, coverage in compared
    ]
    headline = f"{len(near)} of {len(test)} test images leak, says the machine"
    sets = [("test", "query", test), *([("train", "reference", train)] if train else [])]
    return {
        "schema": 1,
        "headline": headline,
        "grader": {"digest": "g", "near_at": 0.5} if verified else None,
        "settings": {"verify": verified},
        "thresholds": {"hard": 0.8, "soft": 0.6, "provenance": "by hand", "provisional": False},
        "sets": [
            {
                "name": name,
                "dataset": "d",
                "roles": [],
                "side": side,
                "source": name,
                "images": len(images),
                "readable": len(images),
                "unreadable": 0,
                "flat": sum(image.flat for image in images),
                "distinct": len(images),
            }
            for name, side, images in sets
        ],
        "comparisons": comparisons,
        "totals": [{"query_set": "test", "headline": headline, "rates": rates}],
        "label_conflicts": 0,
        "skipped": [],
    }
