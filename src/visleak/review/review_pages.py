"""The pages of a review: one pair, a sheet of pairs, and the result so far; and judgments."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

import numpy as np
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from visleak.errors import UsageError
from visleak.rates import percent
from visleak.records import GRADES, ImageRow, Int64, PairRow, Unreadable, ends_of
from visleak.reporting.gallery import kind_of, look_identical, relation
from visleak.review.listing import COVERAGES, GRADE_CHOICES, SORTS, STATES, Choice, describe
from visleak.review.registry import DIFFERENCE, ImageView
from visleak.review.security import answer, page
from visleak.review.session import REFIT, ROW, Progress, ReviewSession, methods
from visleak.verdicts.ledger import PLAIN

ROLES: Final = ("query", "reference")

#: An image with no longer side is enlarged by a whole factor, pixel by pixel.
TINY: Final = 96
#: About how wide a tiny image is shown before a script has measured the window.
ABOUT: Final = 320
#: Other pairs of an image that are shown.
MOST_OTHERS: Final = 12
#: Classes of a menu; for more a field is used.
MOST_LABELS: Final = 300


def routes(session: ReviewSession) -> list[Route]:
    """Return the routes of all pages, and of judgments."""

    def pairs(request: Request) -> Response:
        choice = Choice.of(request.query_params)
        row = session.first(choice)
        if row is None:
            return _no_pair(request, session, choice)
        return RedirectResponse(link(session, row, choice), 303)

    def pair(request: Request) -> Response:
        choice = Choice.of(request.query_params)
        row = row_of(session, request.path_params["name"])
        return page(request, "pair.html.j2", _pair(session, row, choice))

    def sheet(request: Request) -> Response:
        choice = Choice.of(request.query_params)
        start = request.query_params.get("from")
        row = session.first(choice) if start is None else row_of(session, start)
        if row is None:
            return _no_pair(request, session, choice)
        return page(request, "sheet.html.j2", _sheet(session, row, choice))

    def result(request: Request) -> Response:
        choice = Choice.of(request.query_params)
        return page(request, "result.html.j2", _result(session, choice))

    async def judge(request: Request) -> Response:
        return answer(await run_in_threadpool(_judge, session, await sent(request)))

    async def undo(request: Request) -> Response:
        return answer(await run_in_threadpool(_undo, session, await sent(request)))

    return [
        Route("/api/judge", judge, methods=["POST"]),
        Route("/api/undo", undo, methods=["POST"]),
        Route("/pairs", pairs),
        Route("/pair/{name}", pair),
        Route("/sheet", sheet),
        Route("/result", result),
    ]


def row_of(session: ReviewSession, name: str) -> int:
    """Return the row of the list that a name in an address means."""
    row = session.listing.find(name)
    if row is None:
        raise HTTPException(404)
    return row


def _no_pair(request: Request, session: ReviewSession, choice: Choice) -> Response:
    return page(request, "none.html.j2", surroundings(session, choice) | {"title": "No pair"})


def graded(code: int) -> str | None:
    """Return the grade that a code means, ``None`` for none."""
    return GRADES[code] if code >= 0 else None


def thumbnail(session: ReviewSession, image: ImageRow) -> dict[str, object]:
    """Return what a page says of a small image."""
    long = max(image["width"] or 0, image["height"] or 0)
    url = session.registry.small(image["set"], image["id"])
    return {**image, "url": url, "crisp": 0 < long <= TINY}


def link(session: ReviewSession, row: int, choice: Choice) -> str:
    """Return the address of a pair."""
    query = choice.query
    return f"/pair/{session.listing.name(row)}{'?' if query else ''}{query}"


def surroundings(session: ReviewSession, choice: Choice) -> dict[str, object]:
    """Return what every page of a list shows: filters, progress, and which pairs it holds."""
    return {
        "choice": choice,
        "sort": session.sort_of(choice),
        "progress": session.progress(choice),
        "likely": session.refit().likely,
        "agreed": session.own_agreement(),
        "row_of": ROW,
        "cut": describe(session.listing, session.audit.summary),
        "menus": {
            "grade": GRADE_CHOICES,
            "coverage": COVERAGES if session.listing.within.any() else {},
            "state": STATES,
            "sort": SORTS,
        },
        "couples": session.couples if len(session.couples) > 1 else [],
        "labels": session.labels,
        "label_menu": len(session.labels) <= MOST_LABELS,
    }


def _pair(session: ReviewSession, row: int, choice: Choice) -> dict[str, object]:
    listing, standing = session.listing, session.standing()
    pair, spot = listing.row(row), session.spot(row, choice)
    progress = session.progress(choice)
    sides = [_side(session, *each) for each in zip(ROLES, listing.ends(row), strict=True)]
    verdicts = standing.by_key.get(listing.key(row), [])
    mine = graded(standing.mine[row])
    session.registry.ahead(_ends(session, spot.ahead))
    hidden = session.hides(choice, row)
    lost = any(each["lost"] for each in sides)
    return surroundings(session, choice) | {
        "title": f"Pair {spot.place + 1:,} of {spot.total:,}",
        "name": listing.name(row),
        "pair": pair,
        "hidden": hidden,
        "group": None if hidden else f"/group/{listing.name(row)}",
        "sides": sides,
        "sights": None if lost else _views(session, pair, hidden=hidden),
        "identical": not lost and _identical(session, listing.ends(row)),
        "distance": _known(listing.distance[row]),
        "machine": graded(listing.grade[row]),
        "within": bool(listing.within[row]),
        "repeats": int(listing.repeats[row]),
        "spot": spot,
        "previous": None if spot.previous is None else link(session, spot.previous, choice),
        "next": None if spot.next is None else link(session, spot.next, choice),
        "grades": GRADES,
        "mine": mine,
        # what others say is shown after one's own verdict, or it would not be one's own
        "others": [v for v in verdicts if v.reviewer != session.reviewer] if mine else [],
        "disputed": bool(standing.disputed[row]) and mine is not None,
        "elsewhere": _other_pairs(session, row, choice),
        "stopping": _stopping(session, progress, choice),
        "soon": _next_images(session, spot.next),
    }


def _ends(session: ReviewSession, rows: Iterable[int]) -> Iterator[tuple[str, str]]:
    for row in rows:
        yield from ends_of(session.listing.row(row))


def _side(session: ReviewSession, role: str, image: ImageRow) -> dict[str, object]:
    """Return what a page says of one image of a pair, and how large it is shown."""
    address = image["set"], image["id"]
    found = session.registry.image(*address)
    about = {**image, "role": role, "lost": None, "url": session.registry.url(*address)}
    if isinstance(found, Unreadable):
        return about | {"lost": found}
    height, width = found.pixels.shape[:2]
    factor = max(1, ABOUT // max(height, width)) if max(height, width) <= TINY else 1
    return about | {
        "crisp": max(height, width) <= TINY,
        "pixels": (width, height),
        "shown": (width * factor, height * factor),
        "width": found.width,
        "height": found.height,
    }


def _views(session: ReviewSession, pair: PairRow, *, hidden: bool = False) -> dict[str, str]:
    """Return the addresses of what is made of both: images, and marks where there may be some."""
    images, kind, found = ends_of(pair), kind_of(pair["reason"]), relation(pair)
    matrix = None if found is None else tuple(found)
    views = {"plain": ImageView("plain", images), "aligned": ImageView("aligned", images, matrix)}
    if kind is not None and matrix is not None and not hidden:
        views["marks"] = ImageView("marks", images, matrix, kind)
    views["laid"] = ImageView("laid", images, matrix)
    return {name: session.registry.address(view) for name, view in views.items()}


def _identical(session: ReviewSession, ends: tuple[ImageRow, ImageRow]) -> bool:
    """Whether the difference of a pair would be black, seen from its images, not from its grade."""
    query, reference = (session.registry.image(each["set"], each["id"]) for each in ends)
    if isinstance(query, Unreadable) or isinstance(reference, Unreadable):
        return False
    return look_identical(query.pixels, reference.pixels, DIFFERENCE)


def _next_images(session: ReviewSession, row: int | None) -> list[str]:
    if row is None:
        return []
    own = [session.registry.url(*end) for end in _ends(session, [row])]
    return [*own, *_views(session, session.listing.row(row)).values()]


def _other_pairs(session: ReviewSession, row: int, choice: Choice) -> list[dict[str, object]]:
    """Return the other pairs of the query's and of the reference's content, closest first.

    Those that are called different, by this reviewer or else by the machine, are counted only.
    """
    listing, mine, different = session.listing, session.standing().mine, GRADES.index("different")
    contents = int(listing.left[row]), int(listing.right[row])
    groups = []
    for name, content, rows in zip(ROLES, contents, listing.others(row), strict=True):
        called = np.where(mine[rows] >= 0, mine[rows], listing.grade[rows])
        similar = rows[called != different]
        groups.append(
            {
                "of": name,
                "total": len(similar),
                "different": len(rows) - len(similar),
                "pairs": [_other(session, int(r), content, choice) for r in similar[:MOST_OTHERS]],
            }
        )
    return [group for group in groups if group["total"] or group["different"]]


def _other(session: ReviewSession, row: int, content: int, choice: Choice) -> dict[str, object]:
    listing = session.listing
    far: Int64 = listing.reference if listing.left[row] == content else listing.query
    return thumbnail(session, listing.image(int(far[row]))) | {
        "distance": _known(listing.distance[row]),
        "grade": _automatic(session, row, choice),
        "mine": graded(session.standing().mine[row]),
        "href": link(session, row, choice),
    }


def _automatic(session: ReviewSession, row: int, choice: Choice) -> str | None:
    """Return the automatic grade of a pair, unless it has none or is hidden."""
    return None if session.hides(choice, row) else graded(session.listing.grade[row])


def _stopping(session: ReviewSession, progress: Progress, choice: Choice) -> str:
    """Return why to offer to stop, in one line, unless refused; empty for no reason."""
    if choice.stop == "off" or choice.state not in ("", "unjudged", "open"):
        return ""
    sort = session.sort_of(choice)
    if sort == "distance" and progress.may_stop:
        return f"{progress.run} consecutive pairs are different"
    fitted = session.refit()
    if sort in ("likely", "active") and progress.judged >= ROW and fitted.missed <= session.miss:
        return f"an estimated {percent(fitted.missed)} % of the near pairs have no verdict"
    return ""


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


#: Pairs on one sheet.
SIZE: Final = 24


def _sheet(session: ReviewSession, start: int, choice: Choice) -> dict[str, object]:
    """Return the values of the sheet that begins at a pair, or at the next one that is shown."""
    spot = session.spot(start, choice)
    rows = session.rows(choice)
    shown, after = np.split(rows[spot.place : spot.place + 2 * SIZE], [SIZE])
    session.registry.ahead(_ends(session, [*shown.tolist(), *after.tolist()]))
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
    query = choice.query
    return f"/sheet?from={session.listing.name(row)}{'&' if query else ''}{query}"


def _card(session: ReviewSession, row: int, choice: Choice) -> dict[str, object]:
    listing, pair = session.listing, session.listing.row(row)
    sides = zip(ROLES, listing.ends(row), strict=True)
    return {
        "name": listing.name(row),
        "pair": pair,
        "hidden": session.hides(choice, row),
        "mirrored": _turned(pair),
        "sides": [thumbnail(session, image) | {"role": role} for role, image in sides],
        "distance": _known(listing.distance[row]),
        "machine": _automatic(session, row, choice),
        "mine": graded(session.standing().mine[row]),
        "href": link(session, row, choice),
    }


def _turned(pair: PairRow) -> str:
    """Return in one word or two how the query is turned against the reference; mostly empty.

    It cannot be seen at once on a sheet, and "different" would be wrong.
    """
    view = pair["view"] or ""
    words = ["mirrored"] if view.startswith("mirror") else []
    words += [f"turned {view.rpartition('-')[2]}°"] if view[-1:].isdigit() else []
    words += ["inverted"] if view == "inverted" else []
    return ", ".join(words)


#: Half-widths of the rate that are offered as a goal, as shares.
STEPS: Final = (0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0005, 0.0002, 0.0001)


def _result(session: ReviewSession, choice: Choice) -> dict[str, object]:
    """Return what the verdicts so far say of the whole audit, and what more would."""
    state = "unjudged" if session.overlap == 1.0 else "open"
    open_ = replace(choice, state=state, stop="")
    first = session.first(open_)
    fitted = session.outlook()
    half = float(fitted.half_widths[0])
    low, high = fitted.interval
    goals = [(step, more) for step in STEPS if step < half and (more := fitted.verdicts_for(step))]
    # half as wide where that can be reached, in steps that a person would name
    target, more = next((goal for goal in goals if goal[0] <= half / 2), (goals or [(0.0, 0)])[-1])
    return surroundings(session, choice) | {
        "title": "Result",
        "grades": GRADES,
        "table": _crossed(session),
        "agreement": session.agreement(),
        "file": str(session.folder / PLAIN),
        "folder": shlex.quote(str(session.folder)),
        "go_on": None if first is None else link(session, first, open_),
        "known": np.isfinite,
        "outlook": {
            "rate": fitted.rate,
            "low": low,
            "high": high,
            "more": more,
            "target": target,
            "likely": fitted.likely,
            "missed": fitted.missed,
            "stated": session.miss,
            "automatic": int((session.listing.grade[~fitted.judged] <= GRADES.index("near")).sum()),
        },
        "likely": fitted.likely,
        "open": state,
        "settle": len(session.rows(Choice(state="settle"))),
        "methods": methods(session),
        "tail": session.tail_sample(),
        "percent": percent,
    }


def _crossed(session: ReviewSession) -> list[tuple[str, list[int]]]:
    """Return, by the machine's grade, how many pairs this reviewer judged to be what, if any."""
    listing, mine = session.listing, session.standing().mine
    rows = []
    for code, name in [*enumerate(GRADES), (-1, "no grade")]:
        own = mine[(listing.grade == code) & (mine >= 0)]
        rows.append((name, np.bincount(own, minlength=len(GRADES)).tolist()))
    judged = [row for row in rows if sum(row[1])]
    return [row for row in rows if sum(row[1]) or row[0] != "no grade"] if judged else []


# -- judgments -----------------------------------------------------------------------------------

#: Most pairs of one judgment: a sheet is smaller.
MOST: Final = 200


async def sent(request: Request) -> dict[str, object]:
    """Return the JSON object that a script sent."""
    try:
        value = json.loads(await request.body())
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise UsageError("a JSON object is required")
    return value


def _judge(session: ReviewSession, request: dict[str, object]) -> dict[str, object]:
    """Store a judgment on some pairs; with ``open``, on those without one of this reviewer."""
    names, judgment = request.get("pairs"), request.get("judgment")
    if judgment not in GRADES:
        raise UsageError(f"judgment must be one of {', '.join(GRADES)}; got {judgment!r}")
    if not isinstance(names, list) or not 1 <= len(names) <= MOST:
        raise UsageError(f"pairs must be a list of 1 to {MOST} names of pairs")
    found = [session.listing.find(str(name)) for name in names]
    rows = [row for row in dict.fromkeys(found) if row is not None]
    last = found[-1]
    if last is None or None in found:
        raise UsageError("a pair is not in this list; reload the page")
    choice = _choice(request)
    if request.get("open"):
        # another window may have judged some of them since
        mine = session.standing().mine
        rows = [row for row in rows if mine[row] < 0]
    before = len(session.standing().by_key)
    step = session.spot(last, choice).next
    session.judge(rows, str(judgment))
    if len(session.standing().by_key) // REFIT != before // REFIT:
        step = session.restart(choice, step)
    return {
        "judged": len(rows),
        "next": None if step is None else session.listing.name(step),
        **_reply(session, choice, request),
    }


def _undo(session: ReviewSession, request: dict[str, object]) -> dict[str, object]:
    choice, verdicts, listing = _choice(request), session.undo(), session.listing
    rows = listing.rows_of([verdict.key for verdict in verdicts])
    return {
        "undone": [listing.name(int(row)) for row in rows if row >= 0],
        "count": len(verdicts),
        **_reply(session, choice, request),
    }


def _choice(request: dict[str, object]) -> Choice:
    value = request.get("choice")
    texts = value.items() if isinstance(value, dict) else ()
    return Choice.of({str(name): str(text) for name, text in texts})


def _reply(session: ReviewSession, choice: Choice, request: dict[str, object]) -> dict[str, object]:
    """Return the progress of the reviewer, and their judgments of the pairs of a page."""
    progress, mine = session.progress(choice), session.standing().mine
    shown = request.get("shown")
    names = [str(name) for name in shown[:MOST]] if isinstance(shown, list) else []
    rows = {name: session.listing.find(name) for name in names}
    return {
        "progress": {"judged": progress.judged, "total": progress.total, "run": progress.run},
        "likely": session.refit().likely,
        "marks": {name: None if row is None else graded(mine[row]) for name, row in rows.items()},
    }
