"""The application: pages, images and JSON responses, behind one access control."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from typing import Final

import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from visleak.errors import UsageError, VisleakError
from visleak.groups import components
from visleak.records import Bool, Int64
from visleak.review import review_pages
from visleak.review.listing import Choice, Listing
from visleak.review.registry import ImageRegistry
from visleak.review.review_pages import graded, link, row_of, thumbnail
from visleak.review.security import HEADERS, Access, Guard, answer, error_page, page
from visleak.review.session import ReviewSession

Endpoint = Callable[[Request], Response]

#: Media types of static files, by suffix.
_KINDS: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

#: Caching of images by the browser.
KEPT: Final = "private, max-age=3600, immutable"

#: Links of the head of every page.
NAV: Final = (("/pairs", "Pairs"), ("/sheet", "Sheet"), ("/result", "Result"))


def create_app(
    session: ReviewSession,
    access: Access,
    more: Sequence[BaseRoute] = (),
    nav: Sequence[tuple[str, str]] = (),
    start: str = "/pairs",
) -> Starlette:
    """Return the application."""

    routes = [
        Route("/", lambda request: RedirectResponse(start, 303)),
        *review_pages.routes(session),
        Route("/group/{name}", _group_of(session)),
        *more,
        Route("/image/{name}", image_of(session.registry)),
        Route("/marks/{name}", _marks_of(session.registry)),
        Route("/static/{name}", _asset()),
    ]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, access=access)],
        exception_handlers={
            HTTPException: _not_found,
            UsageError: _bad_request,
            VisleakError: _server_error,
            Exception: _internal_error,
        },
    )
    app.state.reviewer = session.reviewer
    app.state.nav = (*NAV, *nav)
    return app


def image_of(registry: ImageRegistry) -> Endpoint:
    """Return the endpoint of the images of a registry."""

    def image(request: Request) -> Response:
        view = registry.view(request.path_params["name"])
        if view is None or view.kind == "marks":
            raise HTTPException(404)
        data, kind = registry.encoded(view)
        # the content of an address is fixed while the server runs; a missing image may return
        keeping = "no-store" if kind == "image/svg+xml" else KEPT
        return Response(data, media_type=kind, headers={"Cache-Control": keeping})

    return image


def _marks_of(registry: ImageRegistry) -> Endpoint:
    def marks(request: Request) -> Response:
        view = registry.view(request.path_params["name"])
        found = registry.marks(view) if view is not None and view.kind == "marks" else None
        if found is None:
            raise HTTPException(404)
        response = answer(asdict(found))
        response.headers["Cache-Control"] = KEPT
        return response

    return marks


def _asset() -> Endpoint:
    # read once, so that no name from a client is looked up on a disk
    folder = resources.files("visleak.review") / "static"
    assets = {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}

    def asset(request: Request) -> Response:
        name: str = request.path_params["name"]
        kind = _KINDS.get("." + name.rpartition(".")[2])
        if name not in assets or kind is None:
            raise HTTPException(404)
        return Response(assets[name], media_type=kind, headers={"Cache-Control": "no-cache"})

    return asset


def _error_response(request: Request, status: int, title: str, text: str) -> Response:
    if request.method == "POST":
        return answer({"error": text}, status)
    return error_page(request, status, title, text)


def _not_found(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 404
    title, text = "Not allowed", str(error)
    if status == 404:
        title = "Not found"
        text = (
            "There is no such pair in this list. It may be in another audit, or in the other list"
            " (--candidates)."
        )
    return _error_response(request, status, title, text)


def _bad_request(request: Request, error: Exception) -> Response:
    return _error_response(request, 400, "Invalid request", str(error))


def _server_error(request: Request, error: Exception) -> Response:
    return _error_response(request, 500, "Internal error", str(error))


def _internal_error(request: Request, error: Exception) -> Response:
    text = f"Unexpected {type(error).__name__}; see the terminal for details. No verdict was lost."
    response = _error_response(request, 500, "Internal error", text)
    response.headers.update(HEADERS)  # this response does not pass the access control
    return response


# -- the page of a duplicate group ----------------------------------------------------------------


#: Most images of a group on its page.
MOST: Final = 200


@dataclass(frozen=True)
class Group:
    """A duplicate group of the list."""

    contents: Int64  # the contents that near or exact pairs connect
    inside: Int64  # rows of the list between two of them
    conflicts: Int64  # those of them that are not near, although other pairs connect their ends


def group_of(listing: Listing, near: Bool, row: int) -> Group:
    """Return the duplicate group of the query of a pair; ``near``: pairs that are near or exact."""
    ends = listing.left, listing.right
    labels = components(len(listing.digests), [(ends[0][near], ends[1][near])])
    own = labels[ends[0][row]]
    inside = np.flatnonzero((labels[ends[0]] == own) & (labels[ends[1]] == own))
    return Group(np.flatnonzero(labels == own), inside, inside[~near[inside]])


def _group_of(session: ReviewSession) -> Endpoint:
    def group(request: Request) -> Response:
        row = row_of(session, request.path_params["name"])
        return page(request, "group.html.j2", _group(session, row))

    return group


def _group(session: ReviewSession, row: int) -> dict[str, object]:
    listing = session.listing
    found = group_of(listing, session.near(), row)
    numbers = np.flatnonzero(np.isin(listing.contents, found.contents))
    agreeing = np.setdiff1d(found.inside, found.conflicts)
    return {
        "title": "Duplicate group",
        "total": len(numbers),
        "contents": len(found.contents),
        "images": [thumbnail(session, listing.image(n)) for n in numbers[:MOST].tolist()],
        "pairs": [_pair(session, each) for each in agreeing.tolist()],
        "conflicts": [_pair(session, each) for each in found.conflicts.tolist()],
        "back": link(session, row, Choice()),
    }


def _pair(session: ReviewSession, row: int) -> dict[str, object]:
    listing = session.listing
    return {
        "ends": listing.ends(row),
        "mine": graded(session.standing().mine[row]),
        "machine": graded(listing.grade[row]),
        "hidden": session.hides(Choice(), row),
        "href": link(session, row, Choice()),
    }
