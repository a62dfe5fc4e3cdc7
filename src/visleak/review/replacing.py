"""The page on which replacements are chosen (figure 5 of Barz & Denzler 2020)."""

from __future__ import annotations

from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from visleak.errors import UsageError
from visleak.replacements import AlreadyDecided, Decision, NotEligible
from visleak.review.app import picture_of
from visleak.review.judging import sent
from visleak.review.pages import answer, page
from visleak.review.replacing_page import (
    HOME,
    ReplacementSession,
    finished,
    link,
    open_place,
    page_of,
)

#: The link to the pages.
NAV: Final = (HOME, "Replacements")


def routes(replacement: ReplacementSession) -> list[Route]:
    """Return the routes of the pages."""

    def first(request: Request) -> Response:
        place = open_place(replacement, -1, request.query_params.get("class"))
        if place is None:
            return page(request, "replaced.html.j2", **finished(replacement, request))
        return RedirectResponse(link(place, request.query_params.get("class")), 303)

    def one(request: Request) -> Response:
        place = int(request.path_params["place"]) - 1
        if not 0 <= place < len(replacement.selection.duplicates.images):
            raise HTTPException(404)
        return page(request, "replacing.html.j2", **page_of(replacement, place, request))

    async def decide(request: Request) -> Response:
        told = await sent(request)
        try:
            return answer(await run_in_threadpool(_decide, replacement, told))
        except (NotEligible, AlreadyDecided) as error:
            return answer({"error": str(error)}, 409)

    return [
        Route(HOME, first),
        Route(HOME + "/{place:int}", one),
        Route(HOME + "/image/{name}", picture_of(replacement.registry)),
        Route("/api/replacing", decide, methods=["POST"]),
    ]


def _decide(replacement: ReplacementSession, told: dict[str, Any]) -> dict[str, Any]:
    """Do what a script asks for, and say where to go on.

    Raises:
        UsageError: there is no such duplicate, candidate or verb.
        NotEligible, AlreadyDecided: as in :class:`visleak.replacements.Selection`.
    """
    selection, label = replacement.selection, str(told.get("class") or "")
    verb, candidate = told.get("do"), str(told.get("candidate") or "")
    if verb == "undo":
        undone = selection.undo(replacement.reviewer, replacement.began)
        return _told(replacement, undone) | {"next": _where(replacement, undone, label)}
    place = told.get("place")
    if type(place) is not int or not 0 <= place < len(selection.duplicates.images):
        raise UsageError("there is no such duplicate; reload the page")
    if verb == "approve":
        decision: Decision | None = selection.approve(place, candidate, replacement.reviewer)
        step = open_place(replacement, place, label)
        return _told(replacement, decision) | {"next": link(step, label) or HOME}
    if verb == "reject":
        decision = selection.reject(place, candidate, replacement.reviewer)
        return _told(replacement, decision) | {"next": link(place, label, candidate)}
    if verb == "withdraw":
        decision = selection.withdraw(place)
        return _told(replacement, decision) | {"next": link(place, label)}
    raise UsageError("what is to be done is one of approve, reject, withdraw, undo")


def _told(replacement: ReplacementSession, decision: Decision | None) -> dict[str, Any]:
    counts = replacement.selection.counts()
    return {
        "decision": None if decision is None else decision.decision,
        "test": None if decision is None else decision.test,
        "pool": None if decision is None else decision.pool,
        "approved": sum(each.approved for each in counts),
        "total": sum(each.duplicates for each in counts),
    }


def _where(replacement: ReplacementSession, decision: Decision | None, label: str) -> str:
    """Return the page of the duplicate that a decision was about."""
    if decision is None:
        return ""
    key = decision.test_digest, decision.copy
    for place, each in enumerate(replacement.selection.duplicates.images):
        if (each.digest, each.copy) == key:
            return link(place, label)
    return ""
