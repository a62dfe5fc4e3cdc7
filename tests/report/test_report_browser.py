"""Opens the page as a person does: from a file, in a browser, with and without scripts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from judging import HOSTILE, judge
from made_audit import HOSTILE_NAME, Made, Pixels, make_audit

from invoices import audited
from visleak.auditing import Audit
from visleak.report import reader_for_page, write_report

pytestmark = [pytest.mark.browser, pytest.mark.slow]

NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next((found for found in map(shutil.which, NAMES) if found), None)
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is on the PATH")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def address(made: Made, tmp_path_factory: pytest.TempPathFactory) -> str:
    output: Path = tmp_path_factory.mktemp("page") / "report.html"
    return write_report(made.folder, output, loader=made.pictures).as_uri()


@pytest.fixture(scope="module")
def reviewed(base: list[Pixels], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of an audit that people judged, one of whom has a name that bites."""
    made = make_audit(tmp_path_factory.mktemp("reviewed"), base)
    judge(made.folder)
    return write_report(made.folder, loader=made.pictures).as_uri()


@pytest.fixture
def page(chromium: Any, address: str) -> Iterator[Any]:
    """The open page; fails where anything went wrong in it or it asked for anything."""
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    trouble: list[str] = []
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("dialog", lambda dialog: (trouble.append(dialog.message), dialog.dismiss()))
    page.on(
        "request",
        lambda request: (
            request.url.startswith(("data:", address)) or trouble.append(f"asked for {request.url}")
        ),
    )
    page.goto(address)
    yield page
    assert trouble == []
    page.close()


def shown(page: Any) -> list[dict[str, str]]:
    found: list[dict[str, str]] = page.eval_on_selector_all(
        "#cards > li:not([hidden])", "cards => cards.map(card => ({...card.dataset}))"
    )
    return found


def until(page: Any, condition: str) -> None:
    """Wait until a condition holds; Playwright's own way needs the eval that the page forbids."""
    for _ in range(200):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(25)
    pytest.fail(f"never became true: {condition}")


def test_filters_narrow_the_gallery(page: Any) -> None:
    everything = shown(page)
    assert page.text_content("#count") == f"{len(everything)} of {len(everything)} shown"
    page.select_option("[name=kind]", "near")
    assert {card["kind"] for card in shown(page)} == {"near"}
    page.select_option("[name=between]", "test → train")
    page.check("[name=conflict]")
    narrowed = shown(page)
    assert narrowed
    assert all(
        (card["kind"], card["between"], card["conflict"]) == ("near", "test → train", "yes")
        for card in narrowed
    )
    page.click("button[type=reset]")
    until(page, f"document.querySelector('#count').value.startsWith('{len(everything)} ')")
    page.select_option("[name=label]", "lorry")
    assert {card["label"] for card in shown(page)} == {"lorry"}


def test_search_looks_for_every_word(page: Any) -> None:
    page.fill("[name=text]", "IMG_0012 photo")
    assert [card["query"] for card in shown(page)] == ["cat/img_0012.png"]
    page.fill("[name=text]", "no such name")
    assert shown(page) == []
    assert page.is_visible("#none-left")
    page.fill("[name=text]", HOSTILE_NAME)
    assert [card["query"] for card in shown(page)] == [HOSTILE_NAME]


def test_sorting_reorders(page: Any) -> None:
    page.select_option("[name=sort]", "similarity")
    similarity = [float(card["similarity"]) for card in shown(page)]
    assert similarity == sorted(similarity, reverse=True)
    page.select_option("[name=sort]", "query")
    names = [card["query"] for card in shown(page)]
    assert names == sorted(names)
    page.select_option("[name=sort]", "place")
    places = [int(card["place"]) for card in shown(page)]
    assert places == sorted(places)


def test_controls_work_from_the_keyboard(page: Any) -> None:
    page.focus("[name=text]")
    page.keyboard.type("img_0012")
    assert len(shown(page)) == 1
    visited = []
    for _ in range(6):
        page.keyboard.press("Tab")
        visited.append(page.evaluate("document.activeElement.name || document.activeElement.type"))
    assert visited == ["kind", "between", "label", "sort", "conflict", "reset"]
    page.keyboard.press("Enter")
    until(page, "document.querySelectorAll('#cards > li:not([hidden])').length > 1")


def test_marks_lie_on_the_thumbnails_and_can_be_hidden(chromium: Any, tmp_path: Path) -> None:
    audit = Audit(audited(tmp_path))
    page = chromium.new_page(viewport={"width": 1000, "height": 900})
    page.goto(write_report(audit.folder, loader=reader_for_page(audit)).as_uri())
    marks = page.locator("#cards svg.marks").first
    assert marks.bounding_box() == pytest.approx(
        page.locator("#cards .marked:has(svg) img").first.bounding_box(), abs=1
    )
    page.uncheck("[name=marks]")
    assert not marks.is_visible()
    page.click("#controls [type=reset]")
    until(page, "document.querySelector('#cards svg.marks').getClientRects().length > 0")
    page.close()


def test_link_to_a_hidden_card_shows_it(page: Any) -> None:
    page.select_option("[name=kind]", "similar")
    target = page.get_attribute("#conflicts a[href^='#pair-']", "href")
    page.click(f"#conflicts a[href='{target}']")
    until(page, f"!document.querySelector('{target}').hidden")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 800, 1280])
def test_page_never_scrolls_sideways(page: Any, width: int, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    # Cards out of sight are not laid out; for this test they have to be.
    page.evaluate("document.querySelectorAll('#cards > li').forEach(c => c.className = 'x')")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    wide = page.evaluate(
        "[...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, .panels, svg'))"
        f".filter(e => e.getBoundingClientRect().right > {width} + 1)"
        ".map(e => e.outerHTML.slice(0, 90))"
    )
    assert wide == []


def test_every_picture_is_drawn(page: Any) -> None:
    until(page, "[...document.images].every(i => i.complete)")
    assert page.evaluate("document.images.length") > 60
    assert page.evaluate("[...document.images].every(i => i.naturalWidth > 0)")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(page: Any, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    faint = page.evaluate(CONTRAST)
    assert faint == []


def test_page_works_without_scripts(chromium: Any, address: str) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert page.locator("#cards > li").count() > 20
    assert page.locator("#cards > li").first.is_visible()
    assert not page.locator("#controls").is_visible()
    context.close()


#: Lists the texts whose contrast with their background is under 4.5 to 1 (WCAG 2.2, 1.4.3).
CONTRAST = """() => {
  const channels = text => text.match(/[\\d.]+/g).map(Number);
  const linear = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const ground = e => {
    for (; e; e = e.parentElement) {
      const c = channels(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] === 1) return c;
    }
    return [255, 255, 255];
  };
  const faint = new Set();
  for (const e of document.querySelectorAll('body *')) {
    if (e.closest('svg g, .skip, script')) continue;
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
    const style = getComputedStyle(e);
    const ink = e.namespaceURI.endsWith('svg') ? style.fill : style.color;
    const [a, b] = [light(channels(ink)), light(ground(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) faint.add(`${ratio.toFixed(2)} ${e.outerHTML.slice(0, 80)}`);
  }
  return [...faint];
}"""


@pytest.mark.parametrize("width", [400, 1280])
def test_review_is_shown_and_fits(chromium: Any, reviewed: str, width: int) -> None:
    """Names of reviewers stay text, nothing juts out, and no rule of accessibility is broken."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe-core").Axe()
    page = chromium.new_page(viewport={"width": width, "height": 900})
    trouble: list[str] = []
    page.on("console", lambda message: trouble.append(message.text))
    page.on("dialog", lambda dialog: (trouble.append(dialog.message), dialog.dismiss()))
    page.goto(reviewed)
    assert HOSTILE in page.text_content("#review")
    assert page.eval_on_selector_all("#review .examples img", "all => all.length") >= 9
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wide) == 0
    page.fill("[name=text]", "judged")
    assert len(shown(page)) == 3
    found = axe.run(page, context="#review").response["violations"]
    assert [each["id"] for each in found if each["impact"] in ("serious", "critical")] == []
    assert trouble == []
    page.close()
