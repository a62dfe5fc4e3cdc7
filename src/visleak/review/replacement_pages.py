"""The pages on which replacements are chosen (figure 5 of Barz & Denzler 2020)."""

from __future__ import annotations

import copy
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from visleak.errors import UsageError
from visleak.formats.remote import redacted
from visleak.progress import Progress
from visleak.records import ImageSet, Unreadable
from visleak.remedy.pool import PLAIN, AlreadyDecided, Decision, class_of
from visleak.remedy.selection import Candidate, NotEligible, Selection, open_selection
from visleak.remedy.settings import SelectionSettings
from visleak.review.app import image_of
from visleak.review.registry import ImageRegistry
from visleak.review.review_pages import TINY, sent
from visleak.review.security import Instructions, answer, page, read_instructions
from visleak.review.session import ReviewSession
from visleak.verdicts.ledger import now

#: Where the pages are.
HOME: Final = "/replacing"

#: The link to the pages.
NAV: Final = (HOME, "Replacements")

#: Candidates that were passed over and are named.
NAMED: Final = 12


def page_of(replacement: ReplacementSession, place: int, request: Request) -> dict[str, object]:
    """Return the values of the page of a duplicate."""
    selection, query = replacement.selection, request.query_params
    duplicate = selection.duplicates.images[place]
    offer = selection.offer(place, query.get("after"))
    chosen = query.get("class")
    places = places_of(replacement, chosen)
    total = len(selection.duplicates.images)
    leak = duplicate.leaks[0]
    role = "other test image" if leak.within else "training image"
    label = selection.label_of(leak.set, leak.id)
    return _surroundings(replacement, chosen) | {
        "title": f"Duplicate {place + 1:,} of {total:,}",
        "place": place,
        "total": total,
        "duplicate": duplicate,
        "label": duplicate.label,
        "images": [
            _image(replacement, "duplicate", selection.test_set, duplicate.id, duplicate.label),
            _image(replacement, role, leak.set, leak.id, label),
        ],
        "offer": offer,
        "candidate": None if offer.candidate is None else _candidate(replacement, offer.candidate),
        "passed": [(each.id, each.objection) for each in offer.passed[:NAMED]],
        "more_passed": max(0, len(offer.passed) - NAMED),
        "elsewhere": offer.approved is not None and offer.candidate is None,
        "previous": link(max((p for p in places if p < place), default=None), chosen),
        "next": link(min((p for p in places if p > place), default=None), chosen),
        "general": replacement.instructions.general,
        "instruction": replacement.instructions.of(duplicate.label),
    }


def finished(replacement: ReplacementSession, request: Request) -> dict[str, object]:
    """Return the values of the page that says that nothing is left to do."""
    return _surroundings(replacement, request.query_params.get("class")) | {
        "title": "Replacements",
        "total": len(replacement.selection.duplicates.images),
        "command": replacement.command,
    }


def _surroundings(replacement: ReplacementSession, chosen: str | None) -> dict[str, object]:
    """Return what both pages show: the counts of each class and the pool."""
    counts = replacement.selection.counts()
    return {
        "counts": counts,
        "chosen": chosen or "",
        "approved": sum(each.replaced for each in counts),
        "pool": replacement.selection.pool,
        "by_class": replacement.selection.by_class,
        "grade": replacement.selection.duplicates.grade,
        "blank": replacement.selection.duplicates.blank,
        "disputed": replacement.selection.duplicates.disputed,
    }


def _candidate(replacement: ReplacementSession, candidate: Candidate) -> dict[str, object]:
    pool = replacement.selection.pool.fingerprints.set
    shown = _image(replacement, "candidate", pool, candidate.id, candidate.label)
    near = [
        _image(replacement, f"neighbour {number}", each.set, each.id, each.label)
        | {
            "similarity": each.similarity,
            "distance": each.distance,
            "grade": each.grade,
            "approved": each.set == pool,
        }
        for number, each in enumerate(candidate.nearest, 1)
    ]
    return shown | {"digest": candidate.digest, "objection": candidate.objection, "near": near}


def _image(
    replacement: ReplacementSession, role: str, set_name: str, image: str, label: str | None
) -> dict[str, object]:
    found = replacement.registry.image(set_name, image)
    told = {"role": role, "set": set_name, "id": image, "label": label}
    if isinstance(found, Unreadable):
        return told | {"lost": found, "crisp": False}
    height, width = found.pixels.shape[:2]
    url = HOME + replacement.registry.url(set_name, image)
    crisp = max(height, width) <= TINY
    return told | {"lost": None, "url": url, "size": (width, height), "crisp": crisp}


# -- where one is --------------------------------------------------------------------------------


def places_of(replacement: ReplacementSession, label: str | None) -> Sequence[int]:
    """Return the duplicates of a class; of all where none is chosen."""
    images = replacement.selection.duplicates.images
    return [place for place, each in enumerate(images) if not label or each.label == label]


def open_place(replacement: ReplacementSession, after: int, label: str | None) -> int | None:
    """Return the next duplicate without a replacement, from the last one on to the first again.

    Those of classes that have candidates come before those that nothing is left for.
    """
    approved = replacement.selection.approvals()
    images = replacement.selection.duplicates.images
    waiting = [
        place
        for place in places_of(replacement, label)
        if (images[place].digest, images[place].copy) not in approved
    ]
    waiting.sort(key=lambda place: (place <= after, place))
    there: dict[str | None, bool] = {}
    for place in waiting:
        own = images[place].label
        if own not in there:
            there[own] = replacement.selection.offer(place).candidate is not None
        if there[own]:
            return place
    return next(iter(waiting), None)


def link(place: int | None, label: str | None, after: str | None = None) -> str:
    """Return the address of a duplicate; empty for none."""
    if place is None:
        return ""
    query = urlencode({k: v for k, v in (("class", label), ("after", after)) if v})
    return f"{HOME}/{place + 1}{'?' if query else ''}{query}"


#: Opens a display of progress for as long as something takes.
Bars = Callable[[], AbstractContextManager[Progress]]


@dataclass(frozen=True)
class ReplacementSession:
    """What the pages are made of."""

    selection: Selection
    instructions: Instructions
    registry: ImageRegistry
    reviewer: str
    command: str
    # decisions from before are not undone by a key
    began: str = field(default_factory=now)


@contextmanager
def open_replacement(
    folder: Path,
    pool: str | os.PathLike[str],
    settings: SelectionSettings,
    instructions: Path | None,
    session: ReviewSession,
    *,
    told: Callable[[str], None],
    bars: Bars,
) -> Iterator[ReplacementSession]:
    """Open the pool of an audit that is reviewed, and close it at the end."""
    words = read_instructions(instructions)
    with ExitStack() as stack:
        with bars() as progress:
            selection = stack.enter_context(
                open_selection(folder, pool, settings, progress=progress)
            )
            progress("searching for neighbours", 0, 0)
            selection.warm_up()
        for line in _notes(selection, words, folder):
            told(line)
        registry = ImageRegistry(_opener_of(selection), _digests_of(selection, session))
        source = redacted(os.fspath(pool))
        command = ["visleak", "replace", str(folder), "--pool", source, "-o", "fair"]
        try:
            yield ReplacementSession(
                selection, words, registry, session.reviewer, shlex.join([*command, "--apply"])
            )
        finally:
            registry.close()
            told(_standing(selection))


def _notes(selection: Selection, words: Instructions, folder: Path) -> Iterator[str]:
    yield f"{_standing(selection)}; decisions are kept in {folder / PLAIN}"
    known = {class_of(each.label) for each in selection.counts()}
    strange = sorted(set(words.classes) - known)
    if strange:
        yield f"instructions for classes that no duplicate is of: {', '.join(strange)}"


def _standing(selection: Selection) -> str:
    counts = selection.counts()
    needed, there = (sum(getattr(c, n) for c in counts) for n in ("duplicates", "replaced"))
    return f"{there:,} of {needed:,} duplicates have a replacement"


def _opener_of(selection: Selection) -> Callable[[str], ImageSet]:
    """Return sets with openers of the page's own: one that streams serves one reader only."""

    @lru_cache
    def opened(name: str) -> ImageSet:
        images = selection.material[name].images
        return replace(images, opener=copy.deepcopy(images.opener))

    return opened


def _digests_of(selection: Selection, session: ReviewSession) -> Callable[[str, str], str | None]:
    prints = selection.pool.fingerprints
    digests = (bytes(each).hex() for each in prints.digests)
    own, pool = dict(zip(prints.ids.to_pylist(), digests, strict=True)), prints.set
    return lambda name, image: own.get(image) if name == pool else session.digest_of(name, image)


# -- routes --------------------------------------------------------------------------------------


def routes(replacement: ReplacementSession) -> list[Route]:
    """Return the routes of the pages."""

    def first(request: Request) -> Response:
        place = open_place(replacement, -1, request.query_params.get("class"))
        if place is None:
            return page(request, "replaced.html.j2", finished(replacement, request))
        return RedirectResponse(link(place, request.query_params.get("class")), 303)

    def one(request: Request) -> Response:
        place = int(request.path_params["place"]) - 1
        if not 0 <= place < len(replacement.selection.duplicates.images):
            raise HTTPException(404)
        return page(request, "replacing.html.j2", page_of(replacement, place, request))

    async def decide(request: Request) -> Response:
        values = await sent(request)
        try:
            return answer(await run_in_threadpool(_decide, replacement, values))
        except (NotEligible, AlreadyDecided) as error:
            return answer({"error": str(error)}, 409)

    return [
        Route(HOME, first),
        Route(HOME + "/{place:int}", one),
        Route(HOME + "/image/{name}", image_of(replacement.registry)),
        Route("/api/replacing", decide, methods=["POST"]),
    ]


def _decide(replacement: ReplacementSession, request: dict[str, object]) -> dict[str, object]:
    selection, label = replacement.selection, str(request.get("class") or "")
    verb, candidate = request.get("do"), str(request.get("candidate") or "")
    if verb == "undo":
        undone = selection.undo(replacement.reviewer, replacement.began)
        return _state_after(replacement, undone, _where(replacement, undone, label))
    place = request.get("place")
    if type(place) is not int or not 0 <= place < len(selection.duplicates.images):
        raise UsageError("there is no such duplicate; reload the page")
    if verb == "approve":
        decision: Decision | None = selection.approve(place, candidate, replacement.reviewer)
        step = open_place(replacement, place, label)
        return _state_after(replacement, decision, link(step, label) or HOME)
    if verb == "reject":
        decision = selection.reject(place, candidate, replacement.reviewer)
        return _state_after(replacement, decision, link(place, label, candidate))
    if verb == "withdraw":
        return _state_after(replacement, selection.withdraw(place), link(place, label))
    raise UsageError("do must be one of approve, reject, withdraw, undo")


def _state_after(
    replacement: ReplacementSession, decision: Decision | None, step: str
) -> dict[str, object]:
    names, counts = ("decision", "test", "pool"), replacement.selection.counts()
    return {name: decision and getattr(decision, name) for name in names} | {
        "approved": sum(each.replaced for each in counts),
        "total": sum(each.duplicates for each in counts),
        "next": step,
    }


def _where(replacement: ReplacementSession, decision: Decision | None, label: str) -> str:
    images = replacement.selection.duplicates.images
    keys = [(each.digest, each.copy) for each in images]
    key = decision and (decision.test_digest, decision.copy)
    return link(keys.index(key), label) if key in keys else ""
