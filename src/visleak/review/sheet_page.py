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
from visleak.review.desk import Desk
from visleak.review.pages import page
from visleak.review.pair_page import TINY, link, surroundings

#: Pairs on one sheet.
SIZE: Final = 24


def routes(desk: Desk) -> list[Route]:
    """Return the routes of sheets."""

    def sheet(request: Request) -> Response:
        choice = Choice.of(request.query_params)
        start = request.query_params.get("from")
        row = desk.first(choice) if start is None else desk.listing.find(start)
        if row is None and start is not None:
            raise HTTPException(404)
        if row is None:
            return page(request, "none.html.j2", title="No pair", **surroundings(desk, choice))
        return page(request, "sheet.html.j2", **_sheet(desk, row, choice))

    return [Route("/sheet", sheet)]


def _sheet(desk: Desk, start: int, choice: Choice) -> dict[str, Any]:
    """Return the values of the sheet that begins at a pair, or at the next one that is shown."""
    spot = desk.spot(start, choice)
    rows = desk.rows(choice)
    shown = rows[spot.place : spot.place + SIZE]
    listing = desk.listing
    after = rows[spot.place + SIZE : spot.place + 2 * SIZE]
    desk.shelf.ahead(
        (each["set"], each["id"])
        for row in [*shown, *after]
        for each in (listing.image(int(side[row])) for side in (listing.query, listing.reference))
    )
    before = max(0, spot.place - SIZE)
    return surroundings(desk, choice) | {
        "title": f"Sheet, pairs {spot.place + 1:,} to {spot.place + len(shown):,}",
        "cards": [_card(desk, int(row), choice) for row in shown],
        "spot": spot,
        "grades": GRADES,
        "previous": _at(desk, int(rows[before]), choice) if spot.place else None,
        "next": _at(desk, int(after[0]), choice) if len(after) else None,
    }


def _at(desk: Desk, row: int, choice: Choice) -> str:
    """Return the address of the sheet that begins at a pair."""
    query = choice.query
    return f"/sheet?from={desk.listing.name(row)}{'&' if query else ''}{query}"


def _card(desk: Desk, row: int, choice: Choice) -> dict[str, Any]:
    listing, told, mine = desk.listing, desk.listing.row(row), desk.standing().mine[row]
    distance = float(listing.distance[row])
    sides = []
    for name in ("query", "reference"):
        about = listing.image(int(getattr(listing, name)[row]))
        long = max(about["width"] or 0, about["height"] or 0)
        url = desk.shelf.small(about["set"], about["id"])
        sides.append(about | {"role": name, "url": url, "crisp": 0 < long <= TINY})
    return {
        "name": listing.name(row),
        "told": told,
        "sides": sides,
        "distance": None if np.isnan(distance) else distance,
        "machine": GRADES[listing.grade[row]] if listing.grade[row] >= 0 else None,
        "mine": GRADES[mine] if mine >= 0 else None,
        "href": link(desk, row, choice),
    }
