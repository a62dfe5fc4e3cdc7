"""Access control: only a browser of this machine with the printed link.

The server listens on 127.0.0.1 alone. That does not keep out other users of the machine, nor the
pages of other sites, which can send requests to any address. So a random token is exchanged for a
cookie that no script can read and no other site can send; the Host header must be this server's,
or a name that is made to lead here (DNS rebinding) would count as this site; and what changes
anything must say that it comes from this page.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Final

from jinja2 import Environment
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from visleak.errors import UsageError, VisleakError
from visleak.rates import chance
from visleak.remedy.pool import class_of
from visleak.templates import environment, visible

Message = MutableMapping[str, object]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

#: Most bytes of the body of a request; the server reads no more than the request announces.
BODY: Final = 64 * 1024

#: A header that no form and no page of another site can send without being asked first.
HEADER: Final = "x-visleak"

#: Public files: the page of a refused request loads its style from here.
OPEN: Final = "/static/"

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


@dataclass
class Access:
    """The secrets of one run of the server."""

    port: int  # where it listens
    # exchanged for the cookie any number of times until the server ends. It is only printed, so
    # only readers of this terminal know it.
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    # another token, good for one exchange. A browser is started with it, and other users of the
    # machine may read the command lines of processes.
    once: str | None = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    # value of the cookie
    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)

    @property
    def cookie_name(self) -> str:
        """Name of the cookie; browsers do not tell the ports of one machine apart."""
        return f"visleak_review_{self.port}"

    @property
    def hosts(self) -> tuple[str, ...]:
        """What a Host header may say."""
        return (f"127.0.0.1:{self.port}", f"localhost:{self.port}")

    def url(self, token: str) -> str:
        """Return the address that gives a browser access."""
        return f"http://{self.hosts[0]}/?token={token}"

    def accepts(self, token: str) -> bool:
        """Whether a token may be exchanged; one that is good once is used up."""
        if _same(token, self.token):
            return True
        if self.once is not None and _same(token, self.once):
            self.once = None
            return True
        return False

    def has_cookie(self, request: Request) -> bool:
        """Whether a request brings the cookie."""
        return _same(request.cookies.get(self.cookie_name, ""), self.cookie)


def _same(given: str, wanted: str) -> bool:
    """Compare in a time that reveals nothing about the secret."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())


class Guard:
    """Middleware that asks :class:`Access` and adds its headers to all answers."""

    def __init__(self, app: App, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refused = self._refused(Request(scope))
        if refused is None:
            await self._app(scope, receive, guarded)
        else:
            await refused(scope, receive, guarded)

    def _refused(self, request: Request) -> Response | None:
        """Return the answer to what may not pass, or ``None``."""
        access, path = self._access, request.url.path
        hosts = Headers(scope=request.scope).getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in access.hosts:
            return _plain(421, f"This server is {' or '.join(access.hosts)} and nothing else.")
        if request.method not in ("GET", "HEAD", "POST"):
            return _plain(405, "Only GET and POST are understood here.")
        if request.method != "POST" and path.startswith(OPEN):
            return None
        token = request.query_params.get("token")
        if path == "/" and token is not None and request.method == "GET" and access.accepts(token):
            return self._set_cookie(request)
        if not access.has_cookie(request):
            return error_page(
                request,
                HTTPStatus.FORBIDDEN,
                "Access denied",
                "Open the whole link that visleak printed in the terminal. If you clicked on it in"
                " another web page, copy it into the address bar. A link opened by visleak itself"
                " works once; the one in the terminal works until the review ends.",
                outside=True,
            )
        return _foreign(request) if request.method == "POST" else None

    def _set_cookie(self, request: Request) -> Response:
        """Exchange the token for the cookie and redirect, so that no history keeps it."""
        answer = RedirectResponse("/", HTTPStatus.SEE_OTHER)
        name, value = self._access.cookie_name, self._access.cookie
        answer.set_cookie(name, value, path="/", httponly=True, samesite="strict")
        return answer


def _foreign(request: Request) -> Response | None:
    """Refuse a request to change something that does not come from a page of this server."""
    headers = request.headers
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    length = headers.get("content-length", "")
    own = f"http://{headers['host'].lower()}"
    trouble = {
        (403, "The request does not come from this page (Origin)."): headers.get("origin") != own,
        (403, "The request does not come from this page (Sec-Fetch-Site)."): headers.get(
            "sec-fetch-site", "same-origin"
        )
        != "same-origin",
        (403, f"The request does not come from this page ({HEADER})."): HEADER not in headers,
        (415, "Only application/json is taken."): kind != "application/json",
        (411, "The request must say how long it is."): not length.isdecimal(),
        (413, f"At most {BODY:,} bytes are taken."): length.isdecimal()
        and (len(length) > 9 or int(length) > BODY),
    }
    return next((_plain(*answer) for answer, found in trouble.items() if found), None)


def _plain(status: int, text: str) -> Response:
    return PlainTextResponse(f"{text}\n", status)


# -- pages from templates, responses to scripts, and the instructions for reviewers ---------------


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
    return Instructions(general.strip(), _by_class(zip(rest[::2], rest[1::2], strict=True)))


def _of_json(path: Path, text: str) -> Mapping[str, str]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise VisleakError(f"{path} is not JSON ({error})") from error
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise VisleakError(f'{path} must be a JSON object of texts: {{"class": "instruction"}}')
    return _by_class(value.items())


def _by_class(items: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    return {class_of(name) or "": text.strip() for name, text in items}
