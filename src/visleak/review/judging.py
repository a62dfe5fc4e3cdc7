"""What scripts send: judgments, undo."""

from __future__ import annotations

import json
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from visleak.errors import UsageError
from visleak.records import GRADES
from visleak.review.choice import Choice
from visleak.review.pages import answer
from visleak.review.session import ReviewSession

#: Most pairs of one judgment: a sheet is smaller.
MOST: Final = 200


def routes(session: ReviewSession) -> list[Route]:
    """Return the routes that change verdicts."""

    async def judge(request: Request) -> Response:
        return answer(await run_in_threadpool(_judge, session, await sent(request)))

    async def undo(request: Request) -> Response:
        return answer(await run_in_threadpool(_undo, session, await sent(request)))

    return [
        Route("/api/judge", judge, methods=["POST"]),
        Route("/api/undo", undo, methods=["POST"]),
    ]


async def sent(request: Request) -> dict[str, Any]:
    """Return the JSON object that a script sent.

    Raises:
        UsageError: it is none.
    """
    try:
        value = json.loads(await request.body())
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise UsageError("a JSON object is wanted")
    return value


def _judge(session: ReviewSession, told: dict[str, Any]) -> dict[str, Any]:
    """Keep a judgment on some pairs; with ``open``, on those without one of this reviewer.

    Raises:
        UsageError: there is no such pair or judgment.
    """
    names, judgment = told.get("pairs"), told.get("judgment")
    if judgment not in GRADES:
        raise UsageError(f"judgment must be one of {', '.join(GRADES)}; got {judgment!r}")
    if not isinstance(names, list) or not 1 <= len(names) <= MOST:
        raise UsageError(f"pairs must be a list of 1 to {MOST} names of pairs")
    found = [session.listing.find(str(name)) for name in names]
    rows = [row for row in dict.fromkeys(found) if row is not None]
    if None in found:
        raise UsageError("a pair is not in this list; reload the page")
    choice = Choice.of(_texts(told.get("choice")))
    step = session.spot(rows[-1], choice).next
    if told.get("open"):
        # another window may have judged some of them since
        mine = session.standing().mine
        rows = [row for row in rows if mine[row] < 0]
    session.judge(rows, str(judgment))
    return {
        "judged": len(rows),
        "next": None if step is None else session.listing.name(step),
        **_now(session, choice, told),
    }


def _undo(session: ReviewSession, told: dict[str, Any]) -> dict[str, Any]:
    """Withdraw what was said last."""
    choice = Choice.of(_texts(told.get("choice")))
    verdicts = session.undo()
    listing = session.listing
    rows = listing.rows_of([verdict.key for verdict in verdicts])
    return {
        "undone": [listing.name(int(row)) for row in rows if row >= 0],
        "count": len(verdicts),
        **_now(session, choice, told),
    }


def _texts(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        return {}
    return {str(name): str(text) for name, text in value.items()}


def _now(session: ReviewSession, choice: Choice, told: dict[str, Any]) -> dict[str, Any]:
    """Return how far the reviewer is, and what they said of the pairs that a page shows."""
    progress, mine = session.progress(choice), session.standing().mine
    shown = told.get("shown")
    names = [str(name) for name in shown[:MOST]] if isinstance(shown, list) else []
    found = {name: session.listing.find(name) for name in names}
    return {
        "progress": {"judged": progress.judged, "total": progress.total, "run": progress.run},
        "marks": {
            name: None if row is None or mine[row] < 0 else GRADES[mine[row]]
            for name, row in found.items()
        },
    }
