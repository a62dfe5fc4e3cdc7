"""Pages from templates, inside one layout, and answers to scripts."""

from __future__ import annotations

import json
from typing import Any

from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from visleak.stats import chance
from visleak.templates import environment, visible


def page(
    request: Request,
    template: str,
    *,
    title: str,
    status: int = 200,
    outside: bool = False,
    **values: Any,
) -> HTMLResponse:
    """Return a page.

    Args:
        request: that it answers.
        template: name of a file in ``templates``; it extends ``layout.html.j2``.
        title: of the window.
        status: of the answer.
        outside: it is seen by who is not let in, so it tells nothing.
        values: for the template; all of them are escaped.
    """
    state = None if outside else request.app.state
    text = (
        _environment()
        .get_template(template)
        .render(
            title=title,
            reviewer=getattr(state, "reviewer", ""),
            nav=getattr(state, "nav", ()),
            **values,
        )
    )
    # A lone surrogate, from a name that is no UTF-8, cannot be sent.
    return HTMLResponse(text.encode("utf-8", "backslashreplace"), status)


def error_page(
    request: Request, status: int, title: str, text: str, *, outside: bool = False
) -> HTMLResponse:
    """Return a page that says in plain words what is wrong and what to do."""
    return page(request, "error.html.j2", title=title, status=status, outside=outside, text=text)


def answer(value: dict[str, Any], status: int = 200) -> Response:
    """Return a value to a script."""
    text = json.dumps(value, allow_nan=False)  # ASCII: whatever a name holds can be sent
    return Response(text, status, media_type="application/json")


def _environment() -> Environment:
    made = environment("visleak.review", visible)
    made.filters.setdefault("chance", chance)
    made.filters.setdefault("thousands", "{:,}".format)
    made.globals.setdefault("zip", zip)
    return made
