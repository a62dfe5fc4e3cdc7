"""What has been judged so far, how far reviewers agree, and what to do with it."""

from __future__ import annotations

import shlex
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from visleak.records import GRADES
from visleak.review.choice import Choice
from visleak.review.pages import page
from visleak.review.pair_page import link, surroundings
from visleak.review.session import ReviewSession
from visleak.verdicts.ledger import PLAIN


def routes(session: ReviewSession) -> list[Route]:
    """Return the route of the result."""

    def result(request: Request) -> Response:
        choice = Choice.of(request.query_params)
        return page(request, "result.html.j2", title="Result", **_result(session, choice))

    return [Route("/result", result)]


def _result(session: ReviewSession, choice: Choice) -> dict[str, Any]:
    open_ = Choice.of(_given(choice) | {"state": "unjudged"})
    first = session.first(open_)
    return surroundings(session, choice) | {
        "grades": GRADES,
        "table": _crossed(session),
        "agreement": session.agreement(),
        "file": str(session.folder / PLAIN),
        "folder": shlex.quote(str(session.folder)),
        "go_on": None if first is None else link(session, first, open_),
        "known": np.isfinite,
    }


def _given(choice: Choice) -> dict[str, str]:
    return {name: getattr(choice, name) for name in ("grade", "label", "sets", "coverage", "sort")}


def _crossed(session: ReviewSession) -> list[tuple[str, list[int]]]:
    """Return, by the machine's grade, how many pairs this reviewer judged to be what.

    Empty where they judged none.
    """
    listing, mine = session.listing, session.standing().mine
    rows = []
    for code, name in [*enumerate(GRADES), (-1, "no grade")]:
        own = mine[(listing.grade == code) & (mine >= 0)]
        rows.append((name, np.bincount(own, minlength=len(GRADES)).tolist()))
    judged = [row for row in rows if sum(row[1])]
    return [row for row in rows if sum(row[1]) or row[0] != "no grade"] if judged else []
