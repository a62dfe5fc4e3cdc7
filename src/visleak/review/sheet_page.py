"""Many pairs on one page, for quick work."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from visleak.records import GRADES
from visleak.review.choice import Choice
from visleak.review.pages import page
from visleak.review.pair_page import TINY, link, surroundings
from visleak.review.session import ReviewSession

#: Pairs on one sheet.
SIZE: Final = 24


def routes(session: ReviewSession) -> list[Route]:
    """Return the routes of sheets."""

    def sheet(request: Request) -> Response:
        choice = Choice.of(request.query_params)
        start = request.query_params.get("from")
        row = session.first(choice) if start is None else session.listing.find(start)
        if row is None and start is not None:
            raise HTTPException(404)
        if row is None:
            return page(request, "none.html.j2", title="No pair", **surroundings(session, choice))
        return page(request, "sheet.html.j2", **_sheet(session, row, choice))

    return [Route("/sheet", sheet)]


def _sheet(session: ReviewSession, start: int, choice: Choice) -> dict[str, Any]:
    """Return the values of the sheet that begins at a pair, or at the next one that is shown."""
    spot = session.spot(start, choice)
    rows = session.rows(choice)
    shown = rows[spot.place : spot.place + SIZE]
    listing = session.listing
    after = rows[spot.place + SIZE : spot.place + 2 * SIZE]
    session.registry.ahead(
        (each["set"], each["id"])
        for row in [*shown, *after]
        for each in (listing.image(int(side[row])) for side in (listing.query, listing.reference))
    )
    before = max(0, spot.place - SIZE)
    return surroundings(session, choice) | {
        "title": f"Sheet, pairs {spot.place + 1:,} to {spot.place + len(shown):,}",
        "cards": [_card(session, int(row), choice) for row in shown],
        "spot": spot,
        "grades": GRADES,
        "previous": _at(session, int(rows[before]), choice) if spot.place else None,
        "next": _at(session, int(after[0]), choice) if len(after) else None,
    }


def _at(session: ReviewSession, row: int, choice: Choice) -> str:
    """Return the address of the sheet that begins at a pair."""
    query = choice.query
    return f"/sheet?from={session.listing.name(row)}{'&' if query else ''}{query}"


def _card(session: ReviewSession, row: int, choice: Choice) -> dict[str, Any]:
    listing, told, mine = session.listing, session.listing.row(row), session.standing().mine[row]
    distance = float(listing.distance[row])
    sides = []
    for name in ("query", "reference"):
        about = listing.image(int(getattr(listing, name)[row]))
        long = max(about["width"] or 0, about["height"] or 0)
        url = session.registry.small(about["set"], about["id"])
        sides.append(about | {"role": name, "url": url, "crisp": 0 < long <= TINY})
    return {
        "name": listing.name(row),
        "told": told,
        "sides": sides,
        "distance": None if np.isnan(distance) else distance,
        "machine": GRADES[listing.grade[row]] if listing.grade[row] >= 0 else None,
        "mine": GRADES[mine] if mine >= 0 else None,
        "href": link(session, row, choice),
    }
