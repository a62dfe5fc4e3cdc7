"""Pages from templates, answers to scripts, and the reviewers' instructions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from visleak.errors import UsageError, VisleakError
from visleak.rates import chance
from visleak.remedy.replacements.pool import class_of
from visleak.templates import environment, visible


def page(
    request: Request,
    template: str,
    values: Mapping[str, object],
    status: int = 200,
    *,
    outside: bool = False,
) -> HTMLResponse:
    """Return a page; one that is shown without access contains no information."""
    state = None if outside else request.app.state
    common = {"reviewer": getattr(state, "reviewer", ""), "nav": getattr(state, "nav", ())}
    text = _environment().get_template(template).render({**common, **values})
    # A lone surrogate, from a name that is not UTF-8, cannot be sent.
    return HTMLResponse(text.encode("utf-8", "backslashreplace"), status)


def error_page(
    request: Request, status: int, title: str, text: str, *, outside: bool = False
) -> HTMLResponse:
    """Return a page with an error and its solution."""
    values = {"title": title, "text": text}
    return page(request, "error.html.j2", values, status, outside=outside)


def answer(value: dict[str, object], status: int = 200) -> Response:
    """Return a value to a script."""
    text = json.dumps(value, allow_nan=False)  # ASCII, so that any name can be sent
    return Response(text, status, media_type="application/json")


def _environment() -> Environment:
    made = environment("visleak.review", visible)
    made.filters.setdefault("chance", chance)
    made.filters.setdefault("thousands", "{:,}".format)
    made.globals.setdefault("zip", zip)
    return made


#: Most bytes of a file of instructions.
MOST: Final = 1_000_000


@dataclass(frozen=True)
class Instructions:
    """Instructions by class."""

    general: str = ""  # for all classes; may be empty
    classes: Mapping[str, str] = field(default_factory=dict)

    def of(self, label: str | None) -> str:
        """Return the instructions for a class; empty without any."""
        return self.classes.get(class_of(label) or "", "")


def read_instructions(path: Path | None) -> Instructions:
    """Read a file of instructions; ``None`` is a file without any.

    Either a JSON object of class to text, or a text with a line ``## CLASS`` above the text of
    each class; the text before the first of them applies to all.
    """
    if path is None:
        return Instructions()
    if not path.is_file():
        raise UsageError(f"instructions {path} is not a file; give a JSON file or a text")
    if path.stat().st_size > MOST:
        raise VisleakError(f"{path} has more than {MOST:,} bytes, too many for instructions")
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise VisleakError(f"{path} is not UTF-8 text ({error.reason})") from error
    if path.suffix.lower() == ".json":
        return Instructions(classes=_of_json(path, text))
    general, *rest = re.split(r"^##[ \t]+(.+?)[ \t#]*$", text, flags=re.MULTILINE)
    names, texts = rest[::2], rest[1::2]
    return Instructions(general.strip(), _by_class(zip(names, texts, strict=True)))


def _of_json(path: Path, text: str) -> Mapping[str, str]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise VisleakError(f"{path} is not JSON ({error})") from error
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise VisleakError(f'{path} must be a JSON object of texts: {{"class": "instruction"}}')
    return _by_class(value.items())


def _by_class(items: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for name, text in items:
        found[class_of(name) or ""] = text.strip()
    return found
