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
from visleak.review.desk import Desk
from visleak.review.pages import page
from visleak.review.pair_page import link, surroundings
from visleak.verdicts.plain import PLAIN


def routes(desk: Desk) -> list[Route]:
    """Return the route of the result."""

    def result(request: Request) -> Response:
        choice = Choice.of(request.query_params)
        return page(request, "result.html.j2", title="Result", **_result(desk, choice))

    return [Route("/result", result)]


def _result(desk: Desk, choice: Choice) -> dict[str, Any]:
    open_ = Choice.of(_given(choice) | {"state": "unjudged"})
    first = desk.first(open_)
    return surroundings(desk, choice) | {
        "grades": GRADES,
        "table": _crossed(desk),
        "agreement": desk.agreement(),
        "file": str(desk.folder / PLAIN),
        "folder": shlex.quote(str(desk.folder)),
        "go_on": None if first is None else link(desk, first, open_),
        "known": np.isfinite,
    }


def _given(choice: Choice) -> dict[str, str]:
    return {name: getattr(choice, name) for name in ("grade", "label", "sets", "coverage", "sort")}


def _crossed(desk: Desk) -> list[tuple[str, list[int]]]:
    """Return, by the machine's grade, how many pairs this reviewer judged to be what.

    Empty where they judged none.
    """
    listing, mine = desk.listing, desk.standing().mine
    rows = []
    for code, name in [*enumerate(GRADES), (-1, "no grade")]:
        own = mine[(listing.grade == code) & (mine >= 0)]
        rows.append((name, np.bincount(own, minlength=len(GRADES)).tolist()))
    judged = [row for row in rows if sum(row[1])]
    return [row for row in rows if sum(row[1]) or row[0] != "no grade"] if judged else []
