"""Every rule of the access, one by one: what another site, user or machine may try."""

import json
import re
import socket
import time

import pytest
from reviewed import HERE, OWN, PORT, Tags, served
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from visleak.review.app import create_app
from visleak.review.security import BODY, Access
from visleak.review.serving import HOST, PatientProtocol, bound
from visleak.review.session import ReviewSession

PAGES = ("/", "/pairs", "/sheet", "/result", "/nothing", "/pair/x", "/image/x")


@pytest.fixture
def access():
    return Access(PORT)


@pytest.fixture
def stranger(session, access):
    return TestClient(create_app(session, access), base_url=HERE, follow_redirects=False)


def judgment(session):
    return {"pairs": [session.listing.name(0)], "judgment": "near"}


def test_the_token_becomes_a_cookie_and_leaves_the_address(stranger, access):
    answer = stranger.get(f"/?token={access.token}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "domain" not in cookie
    assert access.cookie_name == f"visleak_review_{PORT}"
    assert access.token not in cookie
    assert stranger.get("/pairs").status_code == 303
    assert "no-store" in answer.headers["cache-control"]


def test_the_printed_token_serves_again_the_opened_one_does_not(stranger, access):
    """Command lines of processes can be read by other users of the machine."""
    once = access.once
    assert stranger.get(f"/?token={once}").status_code == 303
    stranger.cookies.clear()
    assert stranger.get(f"/?token={once}").status_code == 403
    assert stranger.get(f"/?token={access.token}").status_code == 303
    assert stranger.get(f"/?token={access.token}").status_code == 303


@pytest.mark.parametrize("page", PAGES)
def test_without_the_cookie_no_page_is_shown(stranger, session, page):
    answer = stranger.get(page)
    assert answer.status_code == 403
    assert "link that visleak printed in the terminal" in answer.text
    assert session.reviewer not in answer.text
    assert "/pairs" not in answer.text


def test_a_wrong_cookie_or_token_is_refused(stranger, access):
    for token in ("guess", "", "%ff"):
        assert stranger.get(f"/?token={token}").status_code == 403
    stranger.cookies.set(access.cookie_name, access.token)
    assert stranger.get("/pairs").status_code == 403
    assert stranger.post(f"/?token={access.token}", json={}, headers=OWN).status_code == 403


def test_images_need_the_cookie_too(browser, stranger):
    address = browser.session.registry.url("test", "t00.png")
    assert browser.client.get(address).status_code == 200
    assert stranger.get(address).status_code == 403


def test_another_host_is_refused(browser):
    """DNS rebinding: a name of another site that is made to lead to this machine."""
    other = "evil.example", "127.0.0.1.evil.example", "[::1]"
    for host in (*other, *(f"{name}:{PORT}" for name in other), "127.0.0.1", "127.0.0.1:1", ""):
        for path in ("/pairs", "/static/review.css"):
            assert browser.client.get(path, headers={"host": host}).status_code == 421


def test_localhost_is_another_name_of_this_machine(session, access):
    client = TestClient(create_app(session, access), base_url=f"http://localhost:{PORT}")
    assert client.get(f"/?token={access.token}").status_code == 200
    headers = {"origin": f"http://localhost:{PORT}", "x-visleak": "review"}
    assert client.post("/api/undo", json={}, headers=headers).status_code == 200
    # the cookie of one name must not be used from the other
    assert client.post("/api/undo", json={}, headers=OWN).status_code == 403


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": None}, 403),
        ({"origin": f"http://127.0.0.1:{PORT + 1}"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"x-visleak": None}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({}, 200),
    ],
)
def test_a_change_must_come_from_this_page(browser, change, status):
    headers = {"content-type": "application/json", "sec-fetch-site": "same-origin", **OWN} | change
    sent = {name: value for name, value in headers.items() if value is not None}
    data = json.dumps(judgment(browser.session))
    answer = browser.client.post("/api/judge", content=data, headers=sent)
    assert answer.status_code == status
    assert len(browser.session.ledger.standing()) == (status == 200)


def test_nothing_changes_without_the_cookie(stranger, session):
    assert stranger.post("/api/judge", json=judgment(session), headers=OWN).status_code == 403
    assert session.ledger.standing() == ()


def test_bodies_are_bounded(browser):
    headers = {"content-type": "application/json", **OWN}
    large = browser.client.post("/api/judge", content=b" " * (BODY + 1), headers=headers)
    assert large.status_code == 413
    endless = headers | {"content-length": "9" * 5_000}
    assert browser.client.post("/api/judge", content=b"{}", headers=endless).status_code == 413
    # what does not say how long it is
    chunks = browser.client.post("/api/judge", content=iter([b"{", b"}"]), headers=headers)
    assert chunks.status_code == 411
    for text in (b"", b"[1]", b"{", b"\xff", b"[" * 30_000):
        reply = browser.client.post("/api/judge", content=text, headers=headers)
        assert reply.status_code == 400, text[:10]
        assert reply.json() == {"error": "a JSON object is required"}


def test_other_methods_are_refused(browser):
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"):
        assert browser.client.request(method, "/pairs").status_code == 405
    assert browser.client.get("/api/undo").status_code == 405


@pytest.mark.parametrize("page", [*PAGES, "/static/review.css", "/static/none.css"])
def test_every_answer_has_the_headers(browser, stranger, page):
    for client in (browser.client, stranger):
        headers = client.get(page, follow_redirects=True).headers
        policy = dict(
            rule.strip().split(" ", 1) for rule in headers["content-security-policy"].split(";")
        )
        for rule in ("default-src", "base-uri", "frame-ancestors"):
            assert policy.pop(rule) == "'none'"
        assert set(policy.values()) == {"'self'"}
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-content-type-options"] == "nosniff"
        for name in ("opener", "resource"):
            assert headers[f"cross-origin-{name}-policy"] == "same-origin"
        assert headers["cache-control"] in ("no-store", "no-cache")
        assert "server" not in headers


def test_pages_have_no_inline_script_style_or_foreign_address(browser):
    browser.judge([1], "near")
    for address in ("/pairs", "/sheet", "/result", "/pairs?grade=exact&state=disputed"):
        page = Tags(browser.page(address))
        assert all(each.get("src") for each in page.all("script"))
        assert page.all("style") == []
        names = {name for _, attributes in page.tags for name in attributes}
        assert [name for name in names if name == "style" or name.startswith("on")] == []
        linked = [
            str(attributes[name])
            for _, attributes in page.tags
            for name in ("src", "href", "action")
            if name in attributes
        ]
        assert linked
        assert [each for each in linked if not each.startswith(("/", "#", "?"))] == []


@pytest.mark.parametrize(
    "path",
    [
        *("/image/../../etc/passwd", "/image/..%2f..%2fetc%2fpasswd", "/static/../security.py"),
        *("/static/%2e%2e/security.py", "/static/..%2fsecurity.py"),
        *(f"/image/{'0' * 32}", "/image/t00.png"),
    ],
)
def test_no_path_of_a_client_reaches_the_disk(browser, path):
    answer = browser.client.get(path)
    assert answer.status_code == 404
    assert "Not found" in answer.text


def test_addresses_of_images_reveal_nothing_and_differ_by_run(session):
    mine = session.registry.url("test", "t00.png")
    assert re.fullmatch(r"/image/[0-9a-f]{32}", mine)
    assert mine == session.registry.url("test", "t00.png")
    assert mine != session.registry.url("train", "t00.png")
    with ReviewSession(session.folder, "ben") as other:
        assert other.registry.url("test", "t00.png") != mine


def test_a_failure_inside_has_the_headers_and_keeps_its_secrets(session, access, monkeypatch):
    client = TestClient(create_app(session, access), base_url=HERE, raise_server_exceptions=False)
    client.get(f"/?token={access.token}")
    monkeypatch.setattr(session, "first", lambda choice: 1 / 0)
    answer = client.get("/pairs")
    assert answer.status_code == 500
    assert "Unexpected ZeroDivisionError" in answer.text
    assert "Traceback" not in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]


#: Seconds that these servers wait.
PATIENCE = 0.4


class Hasty(PatientProtocol):
    patience = PATIENCE


async def echo(request):
    return PlainTextResponse(await request.body())


@pytest.fixture
def port():
    app = Starlette(routes=[Route("/", echo, methods=["GET", "POST"])])
    listening = bound(0)
    with served(app, listening, http=Hasty):
        yield listening.getsockname()[1]


HEAD = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n"


@pytest.mark.parametrize("sent", [b"", b"GET / HT", HEAD[:-2], HEAD + b"half"])
def test_half_a_request_is_not_waited_for(port, sent):
    with socket.create_connection((HOST, port), timeout=20) as client:
        begun = time.monotonic()
        client.sendall(sent)
        while client.recv(1000):
            pass
        assert PATIENCE / 2 < time.monotonic() - begun < 10


def test_a_slow_client_and_a_busy_one_are_served(port):
    """Time counts until a request is whole, anew for each on one connection."""
    body = b"0123456789"
    with socket.create_connection((HOST, port), timeout=20) as client:
        for _ in range(4):
            client.sendall(HEAD)
            time.sleep(PATIENCE / 2)
            client.sendall(body)
            answer = b""
            while not answer.endswith(body):
                answer += client.recv(1000)
            assert answer.startswith(b"HTTP/1.1 200")
