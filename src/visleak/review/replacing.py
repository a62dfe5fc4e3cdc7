"""The page on which replacements are chosen (figure 5 of Barz & Denzler 2020)."""

from __future__ import annotations

import copy
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from visleak.errors import UsageError
from visleak.images.addresses import redacted
from visleak.pipeline.workplace import Progress
from visleak.records import ImageSet, Unreadable
from visleak.replacements import (
    Asked,
    Candidate,
    Decision,
    NotEligible,
    Selection,
    Taken,
    open_selection,
)
from visleak.replacements.decisions import PLAIN
from visleak.replacements.pool import class_of
from visleak.review.app import picture_of
from visleak.review.desk import Desk
from visleak.review.instructions import Instructions, read_instructions
from visleak.review.judging import sent
from visleak.review.pages import answer, page
from visleak.review.pair_page import TINY
from visleak.review.pictures import Shelf

#: Where the pages are, and what the link to them is called.
HOME: Final = "/replacing"
NAV: Final = (HOME, "Replacements")

#: Gives what is told how far something is, for as long as it lasts.
Bars = Callable[[], AbstractContextManager[Progress]]

#: Candidates that were passed over and are named.
NAMED: Final = 12


@dataclass(frozen=True)
class Bench:
    """What the pages are made of.

    Attributes:
        selection: duplicates, candidates, decisions.
        instructions: by class.
        shelf: pictures of the audit's sets and of the pool.
        reviewer: who decides.
        command: that writes the test set, to be shown.
    """

    selection: Selection
    instructions: Instructions
    shelf: Shelf
    reviewer: str
    command: str


@contextmanager
def bench(
    folder: Path,
    asked: Asked,
    instructions: Path | None,
    desk: Desk,
    *,
    told: Callable[[str], None],
    bars: Bars,
) -> Iterator[Bench]:
    """Open the pool of an audit that is reviewed; let go of it in the end.

    Args:
        folder: the audit folder.
        asked: pool, and what counts as a duplicate.
        instructions: file of the labelling instructions, or ``None``.
        desk: the review.
        told: is given the lines to print.
        bars: gives what is told how far the opening is.

    Raises:
        UsageError, VisleakError: as :func:`visleak.replacements.open_selection` and
            :func:`visleak.review.instructions.read_instructions`.
    """
    words = read_instructions(instructions)
    with ExitStack() as stack:
        with bars() as progress:
            selection = stack.enter_context(open_selection(folder, asked, progress=progress))
            progress("searching for neighbours", 0, 0)
            selection.warm_up()
        for line in _notes(selection, words, folder):
            told(line)
        shelf = Shelf(_opener_of(selection), _digests_of(selection, desk))
        pool = redacted(str(asked.pool))
        command = ["visleak", "replace", str(folder), "--pool", pool, "-o", "fair"]
        try:
            yield Bench(selection, words, shelf, desk.reviewer, shlex.join([*command, "--apply"]))
        finally:
            shelf.close()
            told(_standing(selection))


def _notes(selection: Selection, words: Instructions, folder: Path) -> Iterator[str]:
    """Yield what is to be known before the first page."""
    yield f"{_standing(selection)}; decisions are kept in {folder / PLAIN}"
    known = {class_of(each.label) for each in selection.counts()}
    strange = sorted(set(words.classes) - known)
    if strange:
        yield f"instructions for classes that no duplicate is of: {', '.join(strange)}"


def _standing(selection: Selection) -> str:
    """Say how many duplicates have a replacement."""
    counts = selection.counts()
    needed, there = (sum(getattr(c, n) for c in counts) for n in ("duplicates", "approved"))
    return f"{there:,} of {needed:,} duplicates have a replacement"


def _opener_of(selection: Selection) -> Callable[[str], ImageSet]:
    """Return sets with openers of the page's own: one that streams serves one reader only."""

    @lru_cache
    def opened(name: str) -> ImageSet:
        images = selection.material[name].images
        return replace(images, opener=copy.deepcopy(images.opener))

    return opened


def _digests_of(selection: Selection, desk: Desk) -> Callable[[str, str], str | None]:
    prints = selection.pool.prints
    own = dict(
        zip(prints.ids.to_pylist(), (bytes(each).hex() for each in prints.digests), strict=True)
    )
    pool = prints.set
    return lambda name, image: own.get(image) if name == pool else desk.digest_of(name, image)


def routes(bench: Bench) -> list[Route]:
    """Return the routes of the pages."""

    def first(request: Request) -> Response:
        place = _open_place(bench, -1, request.query_params.get("class"))
        if place is None:
            return page(request, "replaced.html.j2", **_finished(bench, request))
        return RedirectResponse(_link(place, request.query_params.get("class")), 303)

    def one(request: Request) -> Response:
        place = int(request.path_params["place"]) - 1
        if not 0 <= place < len(bench.selection.duplicates.images):
            raise HTTPException(404)
        return page(request, "replacing.html.j2", **_page(bench, place, request))

    async def decide(request: Request) -> Response:
        told = await sent(request)
        try:
            return answer(await run_in_threadpool(_decide, bench, told))
        except (NotEligible, Taken) as error:
            return answer({"error": str(error)}, 409)

    return [
        Route(HOME, first),
        Route(HOME + "/{place:int}", one),
        Route(HOME + "/image/{name}", picture_of(bench.shelf)),
        Route("/api/replacing", decide, methods=["POST"]),
    ]


# -- pages ---------------------------------------------------------------------------------------


def _page(bench: Bench, place: int, request: Request) -> dict[str, Any]:
    """Return the values of the page of a duplicate."""
    selection, asked = bench.selection, request.query_params
    duplicate = selection.duplicates.images[place]
    offer = selection.offer(place, asked.get("after"))
    chosen = asked.get("class")
    places = _places(bench, chosen)
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
        "previous": _link(max((p for p in places if p < place), default=None), chosen),
        "next": _link(min((p for p in places if p > place), default=None), chosen),
        "general": bench.instructions.general,
        "instruction": bench.instructions.of(duplicate.label),
        "seed": selection.pool.seed,
    }


def _finished(bench: Bench, request: Request) -> dict[str, Any]:
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
        "short": [each for each in counts if each.duplicates - each.approved > each.left],
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
    return _image(bench, role, leak.set, leak.id, label) | {"grade": leak.grade}


def _candidate(bench: Bench, candidate: Candidate) -> dict[str, Any]:
    pool = bench.selection.pool.prints.set
    shown = _image(bench, "candidate", pool, candidate.id, candidate.label)
    near = [
        _image(bench, f"neighbour {number}", each.set, each.id, each.label)
        | {
            "similarity": each.similarity,
            "distance": each.distance,
            "grade": each.look.grade,
            "reason": each.look.reason,
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


def _places(bench: Bench, label: str | None) -> Sequence[int]:
    """Return the duplicates of a class; of all where none is chosen."""
    images = bench.selection.duplicates.images
    return [place for place, each in enumerate(images) if not label or each.label == label]


def _open_place(bench: Bench, after: int, label: str | None) -> int | None:
    """Return the next duplicate without a replacement, from the last one on to the first again.

    Those of classes that have candidates come before those that nothing is left for.
    """
    approved = bench.selection.approvals()
    images = bench.selection.duplicates.images
    waiting = [
        place
        for place in _places(bench, label)
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


def _link(place: int | None, label: str | None, after: str | None = None) -> str:
    """Return the address of a duplicate; empty for none."""
    if place is None:
        return ""
    query = urlencode({k: v for k, v in (("class", label), ("after", after)) if v})
    return f"{HOME}/{place + 1}{'?' if query else ''}{query}"


# -- deciding ------------------------------------------------------------------------------------


def _decide(bench: Bench, told: dict[str, Any]) -> dict[str, Any]:
    """Do what a script asks for, and say where to go on.

    Raises:
        UsageError: there is no such duplicate, candidate or verb.
        NotEligible, Taken: as in :class:`visleak.replacements.Selection`.
    """
    selection, label = bench.selection, str(told.get("class") or "")
    verb, candidate = told.get("do"), str(told.get("candidate") or "")
    if verb == "undo":
        undone = selection.undo(bench.reviewer)
        return _told(bench, undone, label) | {"next": _where(bench, undone, label)}
    place = told.get("place")
    if type(place) is not int or not 0 <= place < len(selection.duplicates.images):
        raise UsageError("there is no such duplicate; reload the page")
    if verb == "approve":
        decision: Decision | None = selection.approve(place, candidate, bench.reviewer)
        step = _open_place(bench, place, label)
        return _told(bench, decision, label) | {"next": _link(step, label) or HOME}
    if verb == "reject":
        decision = selection.reject(place, candidate, bench.reviewer)
        return _told(bench, decision, label) | {"next": _link(place, label, candidate)}
    if verb == "withdraw":
        decision = selection.withdraw(place)
        return _told(bench, decision, label) | {"next": _link(place, label)}
    raise UsageError("what is to be done is one of approve, reject, withdraw, undo")


def _told(bench: Bench, decision: Decision | None, label: str) -> dict[str, Any]:
    counts = bench.selection.counts()
    return {
        "decision": None if decision is None else decision.decision,
        "test": None if decision is None else decision.test,
        "pool": None if decision is None else decision.pool,
        "approved": sum(each.approved for each in counts),
        "total": sum(each.duplicates for each in counts),
    }


def _where(bench: Bench, decision: Decision | None, label: str) -> str:
    """Return the page of the duplicate that a decision was about."""
    if decision is None:
        return ""
    key = decision.test_digest, decision.copy
    for place, each in enumerate(bench.selection.duplicates.images):
        if (each.digest, each.copy) == key:
            return _link(place, label)
    return ""
