"""A small audit to review, and a browser's side of the talk with the server."""

import csv
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Self

import cv2
import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

import visleak
from visleak.review.app import create_app
from visleak.review.security import Access
from visleak.review.serving import bound
from visleak.review.session import ReviewSession

PORT = 8765
HERE = f"http://127.0.0.1:{PORT}"

#: Names, labels and captions come from files of strangers.
HOSTILE = "<img src=x onerror=alert(1)>.png"
HOSTILE_LABEL = '"><script>alert(2)</script>'

#: What a script of our pages sends with a change.
OWN = {"origin": HERE, "x-visleak": "review"}


def make_audit(folder: Path, natural: dict[str, np.ndarray]) -> Path:
    """Audit 32-pixel images and two photographs; return the audit folder.

    Planted: near copies (darker), an exact one under a hostile name, a mirrored one, repeats in
    the test set, and one content in two training files.
    """
    rng = np.random.default_rng(7)
    tiles = [tile(natural[name], 32, rng) for name in sorted(natural) for _ in range(5)]
    photos = [tile(natural[name], 200, rng) for name in ("coffee", "astronaut")]
    test = {f"t{n:02}.png": tiles[n] for n in range(14)}
    test["t14.png"] = shifted(tiles[0])
    test["p0.png"] = photos[0]
    train = {f"r{n:02}.png": tiles[n + 14] for n in range(20)}
    train |= {f"near{n}.png": darker(tiles[n]) for n in range(4)}
    train["near0-again.png"] = darker(tiles[0])
    train["mirror.png"] = np.ascontiguousarray(tiles[5][:, ::-1])
    train[HOSTILE] = tiles[6]
    train["p1.png"] = darker(photos[0])
    for side, pictures in (("test", test), ("train", train)):
        write_set(folder / side, pictures)
    out = folder / "audit"
    visleak.audit(
        str(folder / "test.csv"), str(folder / "train.csv"), out=out, workers=1, cache=None
    )
    return out


def write_set(folder: Path, pictures: dict[str, np.ndarray]) -> None:
    """Write images, and a manifest beside them with labels and captions."""
    folder.mkdir(parents=True)
    with folder.with_suffix(".csv").open("w", newline="") as lines:
        writer = csv.writer(lines)
        writer.writerow(["id", "path", "label", "caption"])
        for number, (name, pixels) in enumerate(pictures.items()):
            Image.fromarray(pixels).save(folder / name)
            label = HOSTILE_LABEL if name == HOSTILE else ("cat", "dog")[number % 2]
            writer.writerow([name, f"{folder.name}/{name}", label, f"<b>{name}</b>"])


def tile(picture: np.ndarray, side: int, rng: np.random.Generator) -> np.ndarray:
    """Cut a square out of an image and make it ``side`` pixels wide."""
    size = min(picture.shape[:2]) // 2
    y, x = (int(rng.integers(0, length - size)) for length in picture.shape[:2])
    cut = picture[y : y + size, x : x + size]
    return np.asarray(cv2.resize(cut, (side, side), interpolation=cv2.INTER_AREA), np.uint8)


def darker(picture: np.ndarray) -> np.ndarray:
    return (picture * 0.85).astype(np.uint8)


def shifted(picture: np.ndarray) -> np.ndarray:
    return np.roll(picture, 1, axis=1)


@dataclass
class Browser:
    session: ReviewSession
    access: Access
    client: TestClient

    @classmethod
    def at(cls, session: ReviewSession) -> Self:
        access = Access(PORT)
        client = TestClient(create_app(session, access), base_url=HERE, follow_redirects=False)
        browser = cls(session, access, client)
        assert client.get(f"/?token={access.token}").status_code == 303
        return browser

    def page(self, address: str) -> str:
        """A page; lists are in the order of their rows unless the address names another."""
        if "sort=" not in address:
            address += f"{'&' if '?' in address else '?'}sort=distance"
        answer = self.client.get(address, follow_redirects=True)
        assert answer.status_code == 200, answer.text
        return str(answer.text)

    def pair(self, row: int, query: str = "") -> str:
        return self.page(f"/pair/{self.session.listing.name(row)}{query}")

    def judge(self, rows: list[int], judgment: str, **more: Any) -> dict[str, Any]:
        names = [self.session.listing.name(row) for row in rows]
        choice = {"sort": "distance", **more.pop("choice", {})}
        sent = {"pairs": names, "judgment": judgment, "choice": choice}
        return self.send("/api/judge", sent | more)

    def send(self, path: str, value: Any) -> dict[str, Any]:
        answer = self.client.post(path, json=value, headers=OWN)
        assert answer.status_code == 200, answer.text
        return answer.json()


def row_of(session: ReviewSession, query: str, reference: str = "") -> int:
    """Return the first pair of these two images, or with this one on either side."""
    rows = (session.listing.row(row) for row in range(len(session.listing)))
    ends = ((row["query"], row["reference"]) for row in rows)
    if reference:
        return next(row for row, pair in enumerate(ends) if pair == (query, reference))
    return next(row for row, pair in enumerate(ends) if query in pair)


def words(page: str) -> str:
    return " ".join(" ".join(Tags(page).texts).split())


def until(check: Callable[[], bool]) -> None:
    """Wait for something; Playwright's own way needs the eval that the pages forbid."""
    for _ in range(1200):
        if check():
            return
        time.sleep(0.025)
    pytest.fail("it never became true")


@contextmanager
def served(app: Any, listening: socket.socket, **options: Any) -> Iterator[None]:
    """Serve an application in a thread."""
    uvicorn = pytest.importorskip("uvicorn", reason="the review app needs the extra web")
    config = uvicorn.Config(app, log_level="error", lifespan="off", ws="none", **options)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    with closing(listening):
        thread.start()
        until(lambda: server.started)
        yield
        server.should_exit = True
        thread.join(timeout=20)
        assert not thread.is_alive()


@contextmanager
def windows(
    chromium: Any, app: Any, access: Access, expected: Sequence[str]
) -> Iterator[Callable[..., Any]]:
    """Serve an application; yield what opens a window of a browser, and see that all went well.

    Whatever a console, a dialog or a request to another host says must have an expected part.
    """
    listening = bound(0)
    access.port = listening.getsockname()[1]
    home, trouble, contexts = f"http://127.0.0.1:{access.port}", [], []

    def window(width: int = 1280, height: int = 900, **options: Any) -> Any:
        contexts.append(chromium.new_context(**options))
        page = contexts[-1].new_page()
        page.set_viewport_size({"width": width, "height": height})
        page.on("console", lambda message: trouble.append(message.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("dialog", lambda dialog: (trouble.append(dialog.message), dialog.dismiss()))
        page.on(
            "request",
            lambda request: (
                request.url.startswith(f"{home}/") or trouble.append(f"sent to {request.url}")
            ),
        )
        page.goto(access.url(access.token))
        return page

    with served(app, listening):
        yield window
        for context in contexts:
            context.close()
    assert [each for each in trouble if not any(part in each for part in expected)] == []


def broken_rules(page: Any) -> list[tuple[str, str]]:
    """Return what axe-core finds on a page."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    levels = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
    rules = {"runOnly": levels, "resultTypes": ["violations"]}
    found = axe.run(page, options=rules).response["violations"]
    return [(each["id"], node["html"][:120]) for each in found for node in each["nodes"]]


class Tags(HTMLParser):
    """The tags of a page with their attributes, as a browser reads them, and its texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]
