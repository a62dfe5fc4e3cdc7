"""The page on which replacements are chosen: what it shows, who may speak to it, what it keeps."""

import html
import re
import shutil
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest
from reviewed import HERE, OWN, PORT, broken_rules, until, windows
from starlette.testclient import TestClient

from planted_pool import audited, darker, plant, png, scene, store, traps
from visleak.errors import UsageError, VisleakError
from visleak.progress import silent
from visleak.remedy.settings import SelectionSettings
from visleak.review import replacement_pages
from visleak.review.app import create_app
from visleak.review.replacement_pages import HOME, ReplacementSession, open_replacement
from visleak.review.security import Access, read_instructions
from visleak.review.session import ReviewSession

HOSTILE = "<img src=x onerror=alert(1)>.png"
TOLD = """Whole objects only. <script>alert(3)</script>

## Cat
Domestic cats. No lions.

## lorry
Not needed here.
"""


@pytest.fixture(scope="session")
def planted(tmp_path_factory):
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

    def get(self, address):
        answer = self.client.get(address, follow_redirects=True)
        assert answer.status_code == 200, answer.text
        return str(answer.text)

    def post(self, do, place=0, candidate="", **more):
        sent = {"do": do, "place": place, "candidate": candidate, **more}
        return self.client.post("/api/replacing", json=sent, headers=OWN)

    def shown(self, address="/replacing/1"):
        found = re.search(r'data-candidate="(\w*)"', self.get(address))
        return found[1]

    def id_of(self, digest):
        row = self.replacement.selection.row_of(digest)
        return str(self.replacement.selection.pool.fingerprints.ids[row].as_py())


@pytest.fixture
def folder(planted, tmp_path, monkeypatch):
    monkeypatch.setenv("VISLEAK_CACHE", str(planted / "cache"))
    return Path(shutil.copytree(planted / "audit", tmp_path / "audit"))


@pytest.fixture
def opened(planted, folder):
    with ExitStack() as stack:

        def opened(pool=None):
            lines = []
            session = stack.enter_context(ReviewSession(folder, "ada"))
            words = None if pool else planted / "instructions.md"
            asked = folder, pool or planted / "pool", SelectionSettings(), words, session
            made = open_replacement(*asked, told=lines.append, bars=lambda: nullcontext(silent))
            replacement = stack.enter_context(made)
            access, more = Access(PORT), replacement_pages.routes(replacement)
            app = create_app(session, access, more, [replacement_pages.NAV], start=HOME)
            client = TestClient(app, base_url=HERE, follow_redirects=False)
            assert client.get(f"/?token={access.token}").status_code == 303
            return Page(replacement, client, access, folder, lines)

        yield opened


@pytest.fixture
def page(opened):
    return opened()


def test_the_page_shows_what_one_decides_by(page):
    text = page.get("/")
    assert page.lines[0].startswith("0 of 6 duplicates have a replacement; decisions are")
    assert page.lines[1] == "instructions for classes that no duplicate is of: lorry"
    assert len(re.findall(r'<img src="/replacing/image/[0-9a-f]{32}"', text)) == 6
    candidate = page.replacement.selection.offer(0).candidate
    numbers = [value for near in candidate.nearest for value in (near.similarity, near.distance)]
    shown = "Domestic cats. No lions.", "&lt;script&gt;alert(3)", "seed 0"
    assert all(each in text for each in (*shown, *(f"{value:.3f}" for value in numbers)))
    assert text.count(">different</span>") == 3
    assert "Not needed here" not in text
    assert "<script>alert" not in text


def test_names_in_a_pool_are_escaped(page):
    images = page.replacement.selection.duplicates.images
    place = next(n for n, each in enumerate(images) if "onerror" in each.id)
    text = page.get(f"/replacing/{place + 1}")
    rows = page.replacement.selection.pool.queues["cat"].tolist()
    candidates = page.replacement.selection.candidates(rows)
    hostile = next(each for each in candidates if "onerror" in each.id)
    page.replacement.selection.approve(place, hostile.digest, "ada")
    text += page.get(f"/replacing/{place + 1}")
    assert "<img src=x" not in text
    assert text.count("&lt;img src=x onerror") >= 4


def test_pictures_are_served_by_name_only(page):
    text = page.get("/replacing/1")
    (first, *_) = re.findall(r'src="(/replacing/image/[0-9a-f]{32})"', text)
    answer = page.client.get(first)
    assert answer.headers["content-type"] == "image/png"
    assert answer.content.startswith(b"\x89PNG")
    for other in ("x", "0" * 32, "..%2F..%2Faudit.json", "%2Fetc%2Fpasswd"):
        assert page.client.get(f"/replacing/image/{other}").status_code == 404
    for other in ("0", "99", "x"):
        assert page.client.get(f"/replacing/{other}").status_code == 404


def test_approve_reject_withdraw_undo(page):
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
    assert page.shown("/replacing/2") not in (first, second)
    again = page.post("approve", 1, second)
    assert again.status_code == 409
    assert "of the pool has a decision already; choose another" in again.json()["error"]
    assert page.post("withdraw", 0).json()["pool"] == page.id_of(second)
    answer = page.post("undo").json()
    assert (answer["decision"], answer["pool"]) == ("rejected", page.id_of(first))
    assert answer["next"] == "/replacing/1"
    assert page.post("undo").json()["decision"] is None
    page.post("approve", 0, first)
    # on disk before the answer came: in the file, or in its log
    kept = b"".join(path.read_bytes() for path in page.folder.glob("replacements.sqlite*"))
    assert first.encode() in kept


def test_a_copy_cannot_be_approved(page):
    selection = page.replacement.selection
    ids = selection.pool.fingerprints.ids.to_pylist()
    (copy,) = selection.candidates([ids.index("cat/copy-of-train.png")])
    why = "not eligible: near copy of train/cat/04.png"
    answer = page.post("approve", 0, copy.digest)
    assert (answer.status_code, answer.json()["error"]) == (409, f"cat/copy-of-train.png: {why}")
    # on the page it is passed over, and named
    others = selection.candidates(selection.pool.queues["cat"].tolist())
    assert any(why in page.get(f"/replacing/1?after={each.digest}") for each in others)


def test_no_candidate_left_and_all_done(opened, tmp_path):
    for number in range(2):
        store(tmp_path / "small", f"cat/{number}.png", png(scene(9000 + number)))
    page = opened(tmp_path / "small")
    for _ in range(2):
        place = int(page.client.get("/replacing").headers["location"].rpartition("/")[2]) - 1
        assert page.post("approve", place, page.shown(f"/replacing/{place + 1}")).status_code == 200
    # what can be decided comes first; here nothing is left for either class
    text = page.get("/replacing")
    assert "No candidate of class <bdi>cat</bdi> is left" in text
    assert 'data-do="approve" disabled' in text
    full = opened()
    full.replacement.selection.choose(lambda done, total: None)
    assert "All 6 duplicates have a replacement" in full.get("/replacing")
    assert "not seen by a person" in full.get("/replacing/6")
    # images of another pool stand, and are said to be elsewhere
    assert "Approved, but not in this pool" in page.get("/replacing/5")


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        ({"do": "approve", "place": 99}, "there is no such duplicate; reload the page"),
        ({"do": "approve", "place": True}, "there is no such duplicate; reload the page"),
        ({"do": "delete", "place": 0}, "do must be one of approve, reject, withdraw,"),
        ({"do": "approve", "place": 0, "candidate": "../x"}, "no usable image of the pool has"),
        ([], "a JSON object is required"),
    ],
)
def test_wrong_requests(page, sent, error):
    answer = page.client.post("/api/replacing", json=sent, headers=OWN)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(error)
    assert page.replacement.selection.approvals() == {}


def test_instructions_of_a_text_and_of_json(tmp_path):
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


def test_instructions_that_cannot_be_used(tmp_path):
    with pytest.raises(UsageError, match=r"instructions .*nowhere\.md is not a file"):
        read_instructions(tmp_path / "nowhere.md")
    path = tmp_path / "a.json"
    for data, error in (
        (b"{", "is not JSON"),
        (b"[1]", "must be a JSON object of texts"),
        (b'{"cat": 1}', "must be a JSON object of texts"),
        (b"\xff\xfe\x00", "is not UTF-8 text"),
        (b" " * 1_000_001, "has more than 1,000,000 bytes"),
    ):
        path.write_bytes(data)
        with pytest.raises(VisleakError, match=error):
            read_instructions(path)


browser = pytest.mark.browser


@pytest.fixture
def site(chromium, opened):
    page = opened()
    # a refused decision is told by the browser's console as well
    with windows(chromium, page.client.app, page.access, ["409"]) as window:
        yield page, window


def candidate_of(shown):
    return str(shown.get_attribute("#place", "data-candidate"))


def place_of(shown):
    return int(shown.get_attribute("#place", "data-place"))


@browser
@pytest.mark.slow
def test_by_keyboard_alone(site):
    page, window = site
    shown = window()
    seen = [candidate_of(shown)]
    for key in "nr":
        shown.keyboard.press(key)
        until(lambda: candidate_of(shown) not in seen)
        seen.append(candidate_of(shown))
    _, second, third = seen
    shown.keyboard.press("a")
    until(lambda: place_of(shown) == 1)
    assert shown.inner_text("#approved") == "1"
    decisions = page.replacement.selection.decisions.standing()
    said = [(each.decision, each.pool_digest) for each in decisions]
    assert said == [("rejected", second), ("approved", third)]
    shown.keyboard.press("ArrowLeft")
    until(lambda: place_of(shown) == 0)
    assert candidate_of(shown) == third
    shown.reload()
    assert "Approved by" in shown.inner_text("main")
    # another window had the same candidate before its eyes: it is told, and shown the next
    other = window()
    shown.keyboard.press("ArrowRight")
    until(lambda: place_of(shown) == 1)
    assert candidate_of(shown) == candidate_of(other)
    shown.focus("[data-do=approve]")
    shown.keyboard.press("Enter")
    until(lambda: place_of(shown) == 2)
    other.keyboard.press("a")
    until(lambda: "bad" in (other.get_attribute("#status", "class") or ""))
    assert other.inner_text("#approved") == "2"
    shown.keyboard.press("u")
    until(lambda: place_of(shown) == 1)
    assert shown.inner_text("#approved") == "1"


@browser
@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "light"), (1280, "dark")])
def test_no_serious_issue_and_no_sideways_scrolling(site, width, scheme):
    page, window = site
    shown = window(width, 860, color_scheme=scheme, bypass_csp=True)

    def check():
        assert broken_rules(shown) == []
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
