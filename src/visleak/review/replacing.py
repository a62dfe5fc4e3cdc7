"""The page on which replacements are chosen (figure 5 of Barz & Denzler 2020)."""

from __future__ import annotations

from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from visleak.errors import UsageError
from visleak.replacements import Decision, NotEligible, Taken
from visleak.review.app import picture_of
from visleak.review.bench import Bench
from visleak.review.judging import sent
from visleak.review.pages import answer, page
from visleak.review.replacing_page import HOME, finished, link, open_place, page_of

#: The link to the pages.
NAV: Final = (HOME, "Replacements")


def routes(bench: Bench) -> list[Route]:
    """Return the routes of the pages."""

    def first(request: Request) -> Response:
        place = open_place(bench, -1, request.query_params.get("class"))
        if place is None:
            return page(request, "replaced.html.j2", **finished(bench, request))
        return RedirectResponse(link(place, request.query_params.get("class")), 303)

    def one(request: Request) -> Response:
        place = int(request.path_params["place"]) - 1
        if not 0 <= place < len(bench.selection.duplicates.images):
            raise HTTPException(404)
        return page(request, "replacing.html.j2", **page_of(bench, place, request))

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


def _decide(bench: Bench, told: dict[str, Any]) -> dict[str, Any]:
    """Do what a script asks for, and say where to go on.

    Raises:
        UsageError: there is no such duplicate, candidate or verb.
        NotEligible, Taken: as in :class:`visleak.replacements.Selection`.
    """
    selection, label = bench.selection, str(told.get("class") or "")
    verb, candidate = told.get("do"), str(told.get("candidate") or "")
    if verb == "undo":
        undone = selection.undo(bench.reviewer, bench.began)
        return _told(bench, undone) | {"next": _where(bench, undone, label)}
    place = told.get("place")
    if type(place) is not int or not 0 <= place < len(selection.duplicates.images):
        raise UsageError("there is no such duplicate; reload the page")
    if verb == "approve":
        decision: Decision | None = selection.approve(place, candidate, bench.reviewer)
        step = open_place(bench, place, label)
        return _told(bench, decision) | {"next": link(step, label) or HOME}
    if verb == "reject":
        decision = selection.reject(place, candidate, bench.reviewer)
        return _told(bench, decision) | {"next": link(place, label, candidate)}
    if verb == "withdraw":
        decision = selection.withdraw(place)
        return _told(bench, decision) | {"next": link(place, label)}
    raise UsageError("what is to be done is one of approve, reject, withdraw, undo")


def _told(bench: Bench, decision: Decision | None) -> dict[str, Any]:
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
            return link(place, label)
    return ""
