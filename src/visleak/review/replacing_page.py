"""What the page of a duplicate says: its pictures, a candidate, what is near, how far one is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlencode

from starlette.requests import Request

from visleak.records import Unreadable
from visleak.replacements import Candidate
from visleak.review.bench import Bench
from visleak.review.pair_page import TINY

#: Where the pages are.
HOME: Final = "/replacing"

#: Candidates that were passed over and are named.
NAMED: Final = 12


def page_of(bench: Bench, place: int, request: Request) -> dict[str, Any]:
    """Return the values of the page of a duplicate."""
    selection, asked = bench.selection, request.query_params
    duplicate = selection.duplicates.images[place]
    offer = selection.offer(place, asked.get("after"))
    chosen = asked.get("class")
    places = places_of(bench, chosen)
    total = len(selection.duplicates.images)
    return _surroundings(bench, chosen) | {
        "title": f"Duplicate {place + 1:,} of {total:,}",
        "place": place,
        "total": total,
        "duplicate": duplicate,
        "label": duplicate.label,
        "images": [
            _image(bench, "duplicate", selection.test_set, duplicate.id, duplicate.label),
            _reference(bench, place),
        ],
        "offer": offer,
        "candidate": None if offer.candidate is None else _candidate(bench, offer.candidate),
        "passed": [(each.id, each.objection) for each in offer.passed[:NAMED]],
        "more_passed": max(0, len(offer.passed) - NAMED),
        "elsewhere": offer.approved is not None and offer.candidate is None,
        "previous": link(max((p for p in places if p < place), default=None), chosen),
        "next": link(min((p for p in places if p > place), default=None), chosen),
        "general": bench.instructions.general,
        "instruction": bench.instructions.of(duplicate.label),
    }


def finished(bench: Bench, request: Request) -> dict[str, Any]:
    """Return the values of the page that says that nothing is left to do."""
    return _surroundings(bench, request.query_params.get("class")) | {
        "title": "Replacements",
        "total": len(bench.selection.duplicates.images),
        "command": bench.command,
    }


def _surroundings(bench: Bench, chosen: str | None) -> dict[str, Any]:
    """Return what both pages say: how far each class is, and of whom the pool consists."""
    counts = bench.selection.counts()
    return {
        "counts": counts,
        "chosen": chosen or "",
        "approved": sum(each.approved for each in counts),
        "pool": bench.selection.pool,
        "by_class": bench.selection.by_class,
        "grade": bench.selection.duplicates.grade,
        "blank": bench.selection.duplicates.blank,
        "disputed": bench.selection.duplicates.disputed,
    }


def _reference(bench: Bench, place: int) -> dict[str, Any]:
    """Return the closest image that a duplicate repeats."""
    leak = bench.selection.duplicates.images[place].leaks[0]
    role = "other test image" if leak.within else "training image"
    label = bench.selection.label_of(leak.set, leak.id)
    return _image(bench, role, leak.set, leak.id, label)


def _candidate(bench: Bench, candidate: Candidate) -> dict[str, Any]:
    pool = bench.selection.pool.prints.set
    shown = _image(bench, "candidate", pool, candidate.id, candidate.label)
    near = [
        _image(bench, f"neighbour {number}", each.set, each.id, each.label)
        | {
            "similarity": each.similarity,
            "distance": each.distance,
            "grade": each.look.grade,
            "approved": each.set == pool,
        }
        for number, each in enumerate(candidate.nearest, 1)
    ]
    return shown | {"digest": candidate.digest, "objection": candidate.objection, "near": near}


def _image(bench: Bench, role: str, set_name: str, image: str, label: str | None) -> dict[str, Any]:
    """Return what a page says of an image."""
    found = bench.shelf.picture(set_name, image)
    told = {"role": role, "set": set_name, "id": image, "label": label}
    if isinstance(found, Unreadable):
        return told | {"lost": found, "crisp": False}
    height, width = found.pixels.shape[:2]
    crisp = max(height, width) <= TINY
    return told | {
        "lost": None,
        "url": HOME + bench.shelf.url(set_name, image),
        "size": (width, height),
        "crisp": crisp,
    }


# -- where one is --------------------------------------------------------------------------------


def places_of(bench: Bench, label: str | None) -> Sequence[int]:
    """Return the duplicates of a class; of all where none is chosen."""
    images = bench.selection.duplicates.images
    return [place for place, each in enumerate(images) if not label or each.label == label]


def open_place(bench: Bench, after: int, label: str | None) -> int | None:
    """Return the next duplicate without a replacement, from the last one on to the first again.

    Those of classes that have candidates come before those that nothing is left for.
    """
    approved = bench.selection.approvals()
    images = bench.selection.duplicates.images
    waiting = [
        place
        for place in places_of(bench, label)
        if (images[place].digest, images[place].copy) not in approved
    ]
    waiting.sort(key=lambda place: (place <= after, place))
    there: dict[str | None, bool] = {}
    for place in waiting:
        own = images[place].label
        if own not in there:
            there[own] = bench.selection.offer(place).candidate is not None
        if there[own]:
            return place
    return next(iter(waiting), None)


def link(place: int | None, label: str | None, after: str | None = None) -> str:
    """Return the address of a duplicate; empty for none."""
    if place is None:
        return ""
    query = urlencode({k: v for k, v in (("class", label), ("after", after)) if v})
    return f"{HOME}/{place + 1}{'?' if query else ''}{query}"
