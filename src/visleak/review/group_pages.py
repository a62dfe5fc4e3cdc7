"""The page of a duplicate group: all its images, and the verdicts within it that contradict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from visleak.groups import components
from visleak.records import GRADES, Bool, ImageRow, Int64
from visleak.review.listing import Choice, Listing
from visleak.review.pages import page
from visleak.review.review_pages import link
from visleak.review.session import ReviewSession

#: Most images of a group on its page.
MOST: Final = 200
#: An image with no longer side is shown pixel by pixel.
TINY: Final = 96


@dataclass(frozen=True)
class Group:
    """A duplicate group of the list."""

    contents: Int64  # the contents that near or exact pairs connect
    inside: Int64  # rows of the list between two of them
    conflicts: Int64  # those of them that are not near, although other pairs connect their ends


def group_of(listing: Listing, near: Bool, row: int) -> Group:
    """Return the duplicate group of the query of a pair.

    Args:
        listing: the list.
        near: which pairs are near or exact, by verdicts or else by the automatic grade, (n,).
        row: the pair.
    """
    ends = listing.left, listing.right
    labels = components(len(listing.digests), [(ends[0][near], ends[1][near])])
    own = labels[ends[0][row]]
    inside = np.flatnonzero((labels[ends[0]] == own) & (labels[ends[1]] == own))
    return Group(np.flatnonzero(labels == own), inside, inside[~near[inside]])


def routes(session: ReviewSession) -> list[Route]:
    """Return the route of the page."""

    def group(request: Request) -> Response:
        row = session.listing.find(request.path_params["name"])
        if row is None:
            raise HTTPException(404)
        return page(request, "group.html.j2", _group(session, row))

    return [Route("/group/{name}", group)]


def _group(session: ReviewSession, row: int) -> dict[str, object]:
    listing = session.listing
    found = group_of(listing, session.near(), row)
    numbers = np.flatnonzero(np.isin(listing.contents, found.contents))
    agreeing = np.setdiff1d(found.inside, found.conflicts)
    choice = Choice()
    return {
        "title": "Duplicate group",
        "total": len(numbers),
        "contents": len(found.contents),
        "images": [_image(session, listing.image(int(n))) for n in numbers[:MOST]],
        "pairs": [_pair(session, int(r), choice) for r in agreeing],
        "conflicts": [_pair(session, int(r), choice) for r in found.conflicts],
        "back": link(session, row, choice),
    }


def _image(session: ReviewSession, about: ImageRow) -> dict[str, object]:
    long = max(about["width"] or 0, about["height"] or 0)
    url = session.registry.small(about["set"], about["id"])
    return {**about, "url": url, "crisp": 0 < long <= TINY}


def _pair(session: ReviewSession, row: int, choice: Choice) -> dict[str, object]:
    listing, mine = session.listing, session.standing().mine[row]
    return {
        "ends": listing.ends(row),
        "mine": GRADES[mine] if mine >= 0 else None,
        "machine": GRADES[listing.grade[row]] if listing.grade[row] >= 0 else None,
        "hidden": session.hides(choice, row),
        "href": link(session, row, choice),
    }
