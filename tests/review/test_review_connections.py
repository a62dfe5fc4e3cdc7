"""Clients that never send the rest of a request do not keep their connections."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

pytest.importorskip("uvicorn", reason="the review app needs the extra web")

from reviewed import served
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from visleak.review.serving import HOST, PatientProtocol, bound

#: Seconds that these servers wait.
PATIENCE = 0.4


class Hasty(PatientProtocol):
    patience = PATIENCE


async def echo(request: Request) -> PlainTextResponse:
    return PlainTextResponse(await request.body())


@pytest.fixture
def port() -> Iterator[int]:
    app = Starlette(routes=[Route("/", echo, methods=["GET", "POST"])])
    listening = bound(0)
    with served(app, listening, http=Hasty):
        yield listening.getsockname()[1]


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HT",
        b"POST / HTTP/1.1\r\nHost: a\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf",
    ],
)
def test_half_a_request_is_not_waited_for(port: int, sent: bytes) -> None:
    with socket.create_connection((HOST, port), timeout=20) as client:
        begun = time.monotonic()
        client.sendall(sent)
        while client.recv(1000):
            pass
        assert PATIENCE / 2 < time.monotonic() - begun < 10


def test_a_slow_client_and_a_busy_one_are_served(port: int) -> None:
    """Time counts until a request is whole, anew for each on one connection."""
    body = b"0123456789"
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n"
    with socket.create_connection((HOST, port), timeout=20) as client:
        for _ in range(4):
            client.sendall(head)
            time.sleep(PATIENCE / 2)
            client.sendall(body)
            answer = b""
            while not answer.endswith(body):
                answer += client.recv(1000)
            assert answer.startswith(b"HTTP/1.1 200")
