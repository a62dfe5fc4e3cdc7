"""The server: one socket on this machine, from the first link to Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import socket
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from visleak.errors import MissingExtra, UsageError
from visleak.progress import silent

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.routing import BaseRoute

    from visleak.remedy.settings import SelectionSettings
    from visleak.review.replacement_pages import Bars
    from visleak.review.security import Access
    from visleak.verdicts import Agreement

HOST = "127.0.0.1"


def review(
    folder: str | os.PathLike[str],
    *,
    reviewer: str | None = None,
    candidates: str = "listed",
    grade: str | None = None,
    port: int = 0,
    browser: bool = True,
    pool: str | None = None,
    selection: SelectionSettings | None = None,
    instructions: Path | None = None,
    blind: bool = False,
    overlap: float | None = None,
    miss_rate: float = 0.05,
    told: Callable[[str], None] = print,
    bars: Bars = lambda: contextlib.nullcontext(silent),
) -> Agreement:
    """Let a person judge the pairs of an audit in a browser; returns when Ctrl-C ends it.

    Args:
        folder: a finished audit. Only its ledger of verdicts is written.
        reviewer: name of the reviewer; by default that of the system's user.
        candidates: ``listed`` or ``nearest``, as in :func:`visleak.review.listing.read_listing`.
        grade: begin with pairs of this automatic grade or stronger.
        port: to listen on; 0 takes one that is free.
        browser: open a browser.
        pool: source of replacements for duplicates; adds the page on which they are chosen.
        selection: for which duplicates, and in which order.
        instructions: file of labelling instructions by class, shown on that page.
        blind: hide what the audit says of a pair until it is judged.
        overlap: share of the pairs that every reviewer judges; the others are judged by
            one. By default every reviewer judges all.
        miss_rate: share of the near pairs that may be missed where the review offers to stop.
        told: called with the lines to print, the address last.
        bars: returns the progress display of the opening of the pool.

    Raises:
        MissingExtra: starlette or uvicorn is not installed.
        UsageError: no finished audit, a port in use, or an invalid argument.
        VisleakError: there are no images to review, or a file is damaged.
    """
    require_web("visleak review")
    from visleak.review.app import create_app
    from visleak.review.listing import Choice
    from visleak.review.session import ReviewSession

    if instructions is not None and pool is None:
        raise UsageError("instructions are for choosing replacements; name a pool with --pool")
    state = "" if overlap is None else "open"
    query = Choice(grade=_or_stronger(grade), state=state).query
    start = f"/pairs?{query}" if query else "/pairs"
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(contextlib.closing(bound(port)))
        session = stack.enter_context(
            ReviewSession(
                *(Path(folder), reviewer or user_name(), candidates),
                miss=miss_rate,
                overlap=1.0 if overlap is None else overlap,
                blind=blind,
            )
        )
        more: list[BaseRoute] = []
        nav: list[tuple[str, str]] = []
        if pool is not None:
            from visleak.remedy.settings import SelectionSettings
            from visleak.review import replacement_pages
            from visleak.review.replacement_pages import open_replacement

            chosen = selection or SelectionSettings()
            replacement = open_replacement(
                Path(folder), pool, chosen, instructions, session, told=told, bars=bars
            )
            more += replacement_pages.routes(stack.enter_context(replacement))
            nav, start = [replacement_pages.NAV], replacement_pages.NAV[0]
        told(
            f"{len(session.listing):,} pairs to review as {session.reviewer};"
            " Ctrl-C ends it and writes verdicts.csv"
        )
        serve(
            lambda access: create_app(session, access, more, nav, start),
            listening,
            browser=browser,
            told=told,
        )
        return session.agreement()


def _or_stronger(grade: str | None) -> str:
    from visleak.records import GRADES

    if grade is None or grade == GRADES[-1]:
        return ""
    if grade not in GRADES:
        raise UsageError(f"grade must be one of {', '.join(GRADES)}; got {grade!r}")
    return grade if grade == GRADES[0] else f"{grade}+"


def require_web(what: str) -> None:
    """Refuse to begin without the packages of the server."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise MissingExtra("web", what) from error


def user_name() -> str:
    """Return the name of the system's user."""
    try:
        return getpass.getuser()
    except (OSError, KeyError) as error:
        raise UsageError("the system has no user name; give one with --reviewer") from error


def bound(port: int) -> socket.socket:
    """Return a socket on this machine's own address, which no other machine reaches."""
    if not 0 <= port <= 65535:
        raise UsageError(f"port must be 0 (any that is free) to 65535; got {port}")
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if os.name == "posix":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((HOST, port))
        listening.listen(128)
    except OSError as error:
        listening.close()
        raise UsageError(
            f"port {port} of {HOST} cannot be used ({error.strerror}); choose another with --port,"
            " or leave it out"
        ) from error
    return listening


def serve(
    build: Callable[[Access], Starlette],
    listening: socket.socket,
    *,
    browser: bool,
    told: Callable[[str], None],
) -> None:
    """Serve an application until Ctrl-C."""
    import uvicorn

    from visleak.review.security import Access

    access = Access(listening.getsockname()[1])
    config = uvicorn.Config(
        build(access),
        log_level="error",
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        http=PatientProtocol,
        proxy_headers=False,
        timeout_graceful_shutdown=2,
    )
    try:
        told(access.url(access.token))
        if browser and access.once is not None:
            _open(access.url(access.once))
        uvicorn.Server(config).run(sockets=[listening])
    except KeyboardInterrupt as stop:
        # uvicorn ends in good order, and raises the signal again: Ctrl-C is how a review ends,
        # SIGTERM (a kind of its own on the command line) is for the caller
        if type(stop) is not KeyboardInterrupt:
            raise


def _open(url: str) -> None:
    """Open a browser once the server answers; without one the printed address is enough."""
    import threading

    def later() -> None:
        with contextlib.suppress(webbrowser.Error, OSError):
            webbrowser.open(url)

    # the socket takes connections before the server runs, so there is nothing to wait for
    threading.Thread(target=later, daemon=True).start()


#: Seconds for a whole request to come; the largest is a verdict of a few kilobytes.
PATIENCE: Final = 20.0


class PatientProtocol(H11Protocol):
    """HTTP of uvicorn, with an end to waiting for the rest of a request."""

    patience: float = PATIENCE
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(  # type: ignore[override]
        self, transport: asyncio.Transport
    ) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        super().connection_lost(exc)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        super().on_response_complete()
        self._watch()

    def _watch(self) -> None:
        """Set the deadline where a request is to come, and lift it once it is whole."""
        waiting = not self.transport.is_closing() and self.conn.their_state in (
            h11.IDLE,
            h11.SEND_BODY,
        )
        if waiting and self._deadline is None:
            self._deadline = self.loop.call_later(self.patience, self.transport.close)
        elif not waiting and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
