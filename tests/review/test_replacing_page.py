"""The page on which replacements are chosen: what it shows, who may speak to it, what it keeps."""

from __future__ import annotations

import csv
import html
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from reviewed import HERE, OWN, PORT, served, until
from starlette.testclient import TestClient
from test_review_browser import RULES

from planted_pool import audited, darker, plant, png, scene, store, traps
from visleak.errors import UsageError, VisleakError
from visleak.progress import silent
from visleak.remedy.settings import SelectionSettings
from visleak.review import replacement_pages
from visleak.review.app import create_app
from visleak.review.replacement_pages import HOME, ReplacementSession, open_replacement
from visleak.review.security import Access, read_instructions
from visleak.review.serving import bound, review
from visleak.review.session import ReviewSession

HOSTILE = "<img src=x onerror=alert(1)>.png"
TOLD = """Whole objects only. <script>alert(3)</script>

## Cat
Domestic cats. No lions.

## lorry
Not needed here.
"""


@pytest.fixture(scope="session")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = plant(tmp_path_factory.mktemp("replaced"), fresh=4)
    traps(root)
    store(root / "pool", f"cat/{HOSTILE}", png(scene(8000)))
    store(root / "test", f"cat/{HOSTILE}", png(darker(scene(105))))
    (root / "instructions.md").write_text(TOLD)
    audited(root)
    return root


@dataclass
class Page:
    replacement: ReplacementSession
    client: TestClient
    access: Access
    folder: Path
    lines: list[str]

    def get(self, address: str) -> str:
        answer = self.client.get(address, follow_redirects=True)
        assert answer.status_code == 200, answer.text
        return str(answer.text)

    def post(self, do: str, place: int = 0, candidate: str = "", **more: Any) -> Any:
        sent = {"do": do, "place": place, "candidate": candidate, **more}
        return self.client.post("/api/replacing", json=sent, headers=OWN)

    def shown(self, address: str = "/replacing/1") -> str:
        found = re.search(r'data-candidate="(\w*)"', self.get(address))
        assert found is not None
        return found[1]

    def id_of(self, digest: str) -> str:
        row = self.replacement.selection.row_of(digest)
        assert row is not None
        return str(self.replacement.selection.pool.fingerprints.ids[row].as_py())


@pytest.fixture
def folder(planted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VISLEAK_CACHE", str(planted / "cache"))
    return Path(shutil.copytree(planted / "audit", tmp_path / "audit"))


@contextmanager
def replacing(
    session: ReviewSession, pool: Path, lines: list[str], instructions: Path | None = None
) -> Iterator[ReplacementSession]:
    show, bars = lines.append, lambda: nullcontext(silent)
    asked = (session.folder, pool, SelectionSettings(), instructions, session)
    with open_replacement(*asked, told=show, bars=bars) as replacement:
        yield replacement


@pytest.fixture
def opened(planted: Path, folder: Path) -> Iterator[Callable[..., Page]]:
    with ExitStack() as stack:

        def opened(pool: Path = planted / "pool") -> Page:
            lines: list[str] = []
            session = stack.enter_context(ReviewSession(folder, "ada"))
            made = replacing(session, pool, lines, planted / "instructions.md")
            replacement = stack.enter_context(made)
            access, more = Access(PORT), replacement_pages.routes(replacement)
            app = create_app(session, access, more, [replacement_pages.NAV], start=HOME)
            client = TestClient(app, base_url=HERE, follow_redirects=False)
            assert client.get(f"/?token={access.token}").status_code == 303
            return Page(replacement, client, access, folder, lines)

        yield opened


@pytest.fixture
def page(opened: Callable[..., Page]) -> Page:
    return opened()


def test_the_page_shows_what_one_decides_by(page: Page) -> None:
    text = page.get("/")
    assert "Duplicate 1 <span" in text
    assert page.lines[0].startswith("0 of 6 duplicates have a replacement; decisions are")
    assert page.lines[1] == "instructions for classes that no duplicate is of: lorry"
    assert len(re.findall(r'<img src="/replacing/image/[0-9a-f]{32}"', text)) == 6
    candidate = page.replacement.selection.offer(0).candidate
    assert candidate is not None
    for near in candidate.nearest:
        assert f"{near.similarity:.3f}" in text
        assert f"{near.distance:.3f}" in text
    assert text.count(">different</span>") == 3
    assert "Domestic cats. No lions." in text
    assert "Not needed here" not in text
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(3)" in text
    assert "seed 0" in text
    assert re.search(r'<b id="approved">0</b> <span class="quiet">of</span> 6', text)
    assert 'href="/replacing" aria-current="page"' in text


def test_names_in_a_pool_are_escaped(page: Page) -> None:
    images = page.replacement.selection.duplicates.images
    place = next(n for n, each in enumerate(images) if "onerror" in each.id)
    text = page.get(f"/replacing/{place + 1}")
    rows = page.replacement.selection.pool.queues["cat"].tolist()
    for candidate in page.replacement.selection.candidates(rows):
        if "onerror" in candidate.id:
            page.replacement.selection.approve(place, candidate.digest, "ada")
    text += page.get(f"/replacing/{place + 1}")
    assert "<img src=x" not in text
    assert text.count("&lt;img src=x onerror") >= 4


def test_pictures_are_served_by_name_only(page: Page) -> None:
    text = page.get("/replacing/1")
    (first, *_) = re.findall(r'src="(/replacing/image/[0-9a-f]{32})"', text)
    answer = page.client.get(first)
    assert answer.headers["content-type"] == "image/png"
    assert answer.content.startswith(b"\x89PNG")
    for other in ("x", "0" * 32, "..%2F..%2Faudit.json", "%2Fetc%2Fpasswd"):
        assert page.client.get(f"/replacing/image/{other}").status_code == 404


def test_approve_reject_withdraw_undo(page: Page) -> None:
    first = page.shown()
    answer = page.post("reject", 0, first).json()
    assert answer["next"] == f"/replacing/1?after={first}"
    second = page.shown(answer["next"])
    assert second not in ("", first)
    answer = page.post("approve", 0, second).json()
    assert (answer["next"], answer["approved"], answer["total"]) == ("/replacing/2", 1, 6)
    text = page.get("/replacing/1")
    assert "Approved by <bdi>ada</bdi>" in text
    assert html.escape(page.id_of(second)) in text
    assert "Withdraw the replacement" in text
    third = page.shown("/replacing/2")
    assert third not in (first, second)
    again = page.post("approve", 1, second)
    assert (again.status_code, again.json()["error"]) == (
        409,
        f"{page.id_of(second)} of the pool has a decision already; choose another",
    )
    assert page.post("withdraw", 0).json()["pool"] == page.id_of(second)
    answer = page.post("undo").json()
    assert (answer["decision"], answer["pool"]) == ("rejected", page.id_of(first))
    assert answer["next"] == "/replacing/1"
    assert page.post("undo").json()["decision"] is None
    page.post("approve", 0, first)
    # on disk before the answer came: in the file, or in its log
    kept = b"".join(path.read_bytes() for path in page.folder.glob("replacements.sqlite*"))
    assert first.encode() in kept


def test_a_copy_cannot_be_approved(page: Page) -> None:
    selection = page.replacement.selection
    ids = selection.pool.fingerprints.ids.to_pylist()
    (copy,) = selection.candidates([ids.index("cat/copy-of-train.png")])
    answer = page.post("approve", 0, copy.digest)
    assert (answer.status_code, answer.json()["error"]) == (
        409,
        "cat/copy-of-train.png: not eligible: near copy of train/cat/04.png",
    )
    # on the page it is passed over, and named
    texts = [
        page.get(f"/replacing/1?after={c.digest}")
        for c in selection.candidates(selection.pool.queues["cat"].tolist())
    ]
    assert any("not eligible: near copy of train/cat/04.png" in text for text in texts)


def test_no_candidate_left_and_all_done(opened: Callable[..., Page], tmp_path: Path) -> None:
    for number in range(2):
        store(tmp_path / "small", f"cat/{number}.png", png(scene(9000 + number)))
    page = opened(tmp_path / "small")
    for _ in range(2):
        place = int(page.client.get("/replacing").headers["location"].rpartition("/")[2]) - 1
        assert page.post("approve", place, page.shown(f"/replacing/{place + 1}")).status_code == 200
    # what can be decided comes first; here nothing is left for either class
    text = page.get("/replacing")
    assert "No candidate of class <bdi>cat</bdi> is left" in text
    assert "Give a larger pool with --pool" in text
    assert "too few" in text
    assert re.search(r'data-do="approve" disabled', text)
    assert "No candidate of class <bdi>dog</bdi> is left" in page.get("/replacing?class=dog")
    full = opened()
    full.replacement.selection.choose(lambda done, total: None)
    text = full.get("/replacing")
    assert "All 6 duplicates have a replacement" in text
    assert f"visleak replace {full.folder} --pool" in text
    assert "not seen by a person" in full.get("/replacing/6")
    # images of another pool stand, and are said to be elsewhere
    assert "Approved, but not in this pool" in page.get("/replacing/5")


def test_classes_without_candidates_come_last(opened: Callable[..., Page], tmp_path: Path) -> None:
    """After the last cat of the pool comes a dog, though other cats come first in the set."""
    store(tmp_path / "mixed", "cat/only.png", png(scene(9100)))
    store(tmp_path / "mixed", "dog/one.png", png(scene(9101)))
    page = opened(tmp_path / "mixed")
    labels = [each.label for each in page.replacement.selection.duplicates.images]
    answer = page.post("approve", 0, page.shown("/replacing/1")).json()
    assert answer["next"] == f"/replacing/{labels.index('dog') + 1}"


def test_one_class_at_a_time(page: Page) -> None:
    assert page.client.get("/replacing?class=dog").headers["location"] == "/replacing/5?class=dog"
    text = page.get("/replacing/5?class=dog")
    assert 'data-previous=""' in text
    assert 'data-next="/replacing/6?class=dog"' in text
    assert page.post("approve", 4, page.shown("/replacing/5"), **{"class": "dog"}).json()[
        "next"
    ] == ("/replacing/6?class=dog")


@pytest.mark.parametrize("address", ["/replacing/0", "/replacing/99", "/replacing/x"])
def test_addresses_that_do_not_exist(page: Page, address: str) -> None:
    assert page.client.get(address).status_code == 404


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        ({"do": "approve", "place": 99}, "there is no such duplicate; reload the page"),
        ({"do": "approve", "place": True}, "there is no such duplicate; reload the page"),
        ({"do": "approve", "place": "0"}, "there is no such duplicate; reload the page"),
        ({"do": "delete", "place": 0}, "do must be one of approve, reject, withdraw,"),
        ({"do": "approve", "place": 0, "candidate": "../x"}, "no usable image of the pool has"),
        ([], "a JSON object is required"),
    ],
)
def test_wrong_requests(page: Page, sent: Any, error: str) -> None:
    answer = page.client.post("/api/replacing", json=sent, headers=OWN)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(error)
    assert page.replacement.selection.approvals() == {}


# -- instructions --------------------------------------------------------------------------------


def test_instructions_of_a_text_and_of_json(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(
        "For all.\n\n## Great_white shark ##\nOne fish.\n\n## cat\nA\nB\n"
    )
    found = read_instructions(tmp_path / "a.md")
    assert found.general == "For all."
    assert found.of("great-white_shark") == "One fish."
    assert found.of("cat") == "A\nB"
    assert found.of("dog") == found.of(None) == ""
    (tmp_path / "b.json").write_text('\ufeff{"cat": " only cats "}', encoding="utf-8")
    assert read_instructions(tmp_path / "b.json").of("Cat") == "only cats"
    assert read_instructions(None).of("cat") == ""


def test_instructions_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"instructions .*nowhere\.md is not a file"):
        read_instructions(tmp_path / "nowhere.md")
    path = tmp_path / "a.json"
    for text, error in (
        ("{", "is not JSON"),
        ("[1]", "must be a JSON object of texts"),
        ('{"cat": 1}', "must be a JSON object of texts"),
    ):
        path.write_text(text)
        with pytest.raises(VisleakError, match=error):
            read_instructions(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(VisleakError, match="is not UTF-8 text"):
        read_instructions(path)
    path.write_bytes(b" " * 1_000_001)
    with pytest.raises(VisleakError, match="has more than 1,000,000 bytes"):
        read_instructions(path)


def test_instructions_need_a_pool(planted: Path) -> None:
    with pytest.raises(UsageError, match="instructions are for choosing replacements; name a pool"):
        review(planted / "audit", instructions=planted / "instructions.md", browser=False)


# -- in a browser --------------------------------------------------------------------------------

browser = pytest.mark.browser


@pytest.fixture
def site(chromium: Any, opened: Callable[..., Page]) -> Iterator[tuple[Page, Callable[..., Any]]]:
    page = opened()
    listening = bound(0)
    page.access.port = listening.getsockname()[1]
    trouble: list[str] = []
    windows: list[Any] = []

    def window(width: int = 1280, height: int = 800, **options: Any) -> Any:
        context = chromium.new_context(viewport={"width": width, "height": height}, **options)
        windows.append(context)
        shown = context.new_page()
        shown.on("console", lambda message: trouble.append(message.text))
        shown.on("pageerror", lambda error: trouble.append(str(error)))
        shown.goto(page.access.url(page.access.token))
        return shown

    with served(page.client.app, listening):
        yield page, window
        for context in windows:
            context.close()
    # a refused decision is told by the browser's console as well
    assert [each for each in trouble if "409" not in each] == []


def candidate_of(shown: Any) -> str:
    return str(shown.get_attribute("#place", "data-candidate"))


def place_of(shown: Any) -> int:
    return int(shown.get_attribute("#place", "data-place"))


@browser
@pytest.mark.slow
def test_by_keyboard_alone(site: Any) -> None:
    page, window = site
    shown = window()
    first = candidate_of(shown)
    shown.keyboard.press("n")
    until(lambda: candidate_of(shown) != first)
    second = candidate_of(shown)
    shown.keyboard.press("r")
    until(lambda: candidate_of(shown) not in (first, second))
    third = candidate_of(shown)
    shown.keyboard.press("a")
    until(lambda: place_of(shown) == 1)
    assert shown.inner_text("#approved") == "1"
    assert [
        (d.decision, d.pool_digest) for d in page.replacement.selection.decisions.standing()
    ] == [
        ("rejected", second),
        ("approved", third),
    ]
    shown.keyboard.press("ArrowLeft")
    until(lambda: place_of(shown) == 0)
    assert candidate_of(shown) == third
    shown.reload()
    assert "Approved by" in shown.inner_text("main")
    # another window had the same candidate before its eyes: it is told, and shown the next
    other = window()
    wanted = candidate_of(other)
    shown.keyboard.press("ArrowRight")
    until(lambda: place_of(shown) == 1)
    assert candidate_of(shown) == wanted
    shown.keyboard.press("a")
    until(lambda: place_of(shown) == 2)
    other.keyboard.press("a")
    until(lambda: "bad" in (other.get_attribute("#status", "class") or ""))
    assert other.inner_text("#approved") == "2"
    shown.keyboard.press("u")
    until(lambda: place_of(shown) == 1)
    assert shown.inner_text("#approved") == "1"
    # the buttons are reached and pressed without a mouse
    for _ in range(40):
        shown.keyboard.press("Tab")
        if shown.evaluate("document.activeElement.dataset.do") == "approve":
            break
    shown.keyboard.press("Enter")
    until(lambda: place_of(shown) == 2)
    shown.keyboard.press("?")
    assert shown.is_visible("#help")
    shown.keyboard.press("a")
    shown.keyboard.press("Escape")
    assert place_of(shown) == 2


@browser
@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "light"), (1280, "dark")])
def test_no_serious_issue_and_no_sideways_scrolling(site: Any, width: int, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page, window = site
    shown = window(width, 860, color_scheme=scheme, bypass_csp=True)

    def check() -> None:
        found = axe.run(shown, options=RULES).response["violations"]
        assert [(v["id"], [n["html"] for n in v["nodes"]]) for v in found] == []
        assert shown.evaluate("document.documentElement.scrollWidth") <= width
        broken = "Array.from(document.images).filter((i) => i.complete && !i.naturalWidth).length"
        assert shown.evaluate(broken) == 0

    check()
    shown.keyboard.press("a")
    until(lambda: place_of(shown) == 1)
    shown.keyboard.press("ArrowLeft")
    until(lambda: place_of(shown) == 0)
    shown.click("#filters summary")
    check()
    page.replacement.selection.choose(lambda done, total: None)
    shown.goto(f"http://127.0.0.1:{page.access.port}/replacing")
    check()


def test_what_is_printed_and_written_in_the_end(planted: Path, folder: Path) -> None:
    lines: list[str] = []
    with (
        ReviewSession(folder, "ada") as session,
        replacing(session, planted / "pool", lines) as replacement,
    ):
        candidate = replacement.selection.offer(0).candidate
        assert candidate is not None
        replacement.selection.approve(0, candidate.digest, replacement.reviewer)
    assert lines[-1] == "1 of 6 duplicates have a replacement"
    with (folder / "replacements.csv").open(newline="") as lines:
        (row,) = csv.DictReader(lines)
    assert (row["decision"], row["reviewer"], row["how"]) == ("approved", "ada", "person")
