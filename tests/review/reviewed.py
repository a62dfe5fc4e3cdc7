"""A small audit to review, and a browser's side of the talk with the server."""

import csv
import threading
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass
from html.parser import HTMLParser

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


def make_audit(folder, natural):
    """Audit 32-pixel images and two photographs with planted copies, hostile names and repeats."""
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


def write_set(folder, pictures):
    """Write images, and a manifest beside them with labels and captions."""
    folder.mkdir(parents=True)
    with folder.with_suffix(".csv").open("w", newline="") as lines:
        writer = csv.writer(lines)
        writer.writerow(["id", "path", "label", "caption"])
        for number, (name, pixels) in enumerate(pictures.items()):
            Image.fromarray(pixels).save(folder / name)
            label = HOSTILE_LABEL if name == HOSTILE else ("cat", "dog")[number % 2]
            writer.writerow([name, f"{folder.name}/{name}", label, f"<b>{name}</b>"])


def tile(picture, side, rng):
    """Cut a square out of an image and make it ``side`` pixels wide."""
    size = min(picture.shape[:2]) // 2
    y, x = (int(rng.integers(0, length - size)) for length in picture.shape[:2])
    cut = picture[y : y + size, x : x + size]
    return np.asarray(cv2.resize(cut, (side, side), interpolation=cv2.INTER_AREA), np.uint8)


def darker(picture):
    return (picture * 0.85).astype(np.uint8)


def shifted(picture):
    return np.roll(picture, 1, axis=1)


@dataclass
class Browser:
    session: ReviewSession
    access: Access
    client: TestClient

    @classmethod
    def at(cls, session):
        access = Access(PORT)
        client = TestClient(create_app(session, access), base_url=HERE, follow_redirects=False)
        browser = cls(session, access, client)
        assert client.get(f"/?token={access.token}").status_code == 303
        return browser

    def page(self, address):
        """A page; lists are in the order of their rows unless the address names another."""
        if "sort=" not in address:
            address += f"{'&' if '?' in address else '?'}sort=distance"
        answer = self.client.get(address, follow_redirects=True)
        assert answer.status_code == 200, answer.text
        return str(answer.text)

    def pair(self, row, query=""):
        return self.page(f"/pair/{self.session.listing.name(row)}{query}")

    def judge(self, rows, judgment, **more):
        names = [self.session.listing.name(row) for row in rows]
        choice = {"sort": "distance", **more.pop("choice", {})}
        sent = {"pairs": names, "judgment": judgment, "choice": choice}
        return self.send("/api/judge", sent | more)

    def send(self, path, value):
        answer = self.client.post(path, json=value, headers=OWN)
        assert answer.status_code == 200, answer.text
        return answer.json()


def row_of(session, query, reference=""):
    """Return the first pair of these two images, or with this one on either side."""
    rows = (session.listing.row(row) for row in range(len(session.listing)))
    ends = ((row["query"], row["reference"]) for row in rows)
    if reference:
        return next(row for row, pair in enumerate(ends) if pair == (query, reference))
    return next(row for row, pair in enumerate(ends) if query in pair)


def words(page):
    return " ".join(" ".join(Tags(page).texts).split())


def until(check):
    """Wait for something; Playwright's own way needs the eval that the pages forbid."""
    for _ in range(1200):
        if check():
            return
        time.sleep(0.025)
    pytest.fail("it never became true")


@contextmanager
def served(app, listening, **options):
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
def windows(chromium, app, access, expected):
    """Serve an application; yield what opens a window of it, and see that it says no more."""
    listening = bound(0)
    access.port = listening.getsockname()[1]
    home, trouble, contexts = f"http://127.0.0.1:{access.port}", [], []

    def window(width=1280, height=900, **options):
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


def broken_rules(page):
    """Return what axe-core finds on a page."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    levels = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
    rules = {"runOnly": levels, "resultTypes": ["violations"]}
    found = axe.run(page, options=rules).response["violations"]
    return [(each["id"], node["html"][:120]) for each in found for node in each["nodes"]]


class Tags(HTMLParser):
    """The tags of a page with their attributes, as a browser reads them, and its texts."""

    def __init__(self, text):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]
