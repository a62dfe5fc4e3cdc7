"""A person at work in a real browser: keys, two windows, sheets; nothing asked of other hosts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from reviewed import broken_rules, row_of, until, windows

from invoices import audited
from visleak.records import GRADES
from visleak.review.app import create_app
from visleak.review.security import Access
from visleak.review.session import ReviewSession
from visleak.verdicts import read_verdicts

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@dataclass
class Site:
    session: ReviewSession
    home: str
    window: Callable[..., Any]
    expected: list[str]

    def pair(self, row):
        return f"{self.home}/pair/{self.session.listing.name(row)}?sort=distance"

    def shown(self, page):
        return self.session.listing.find(page.get_attribute("#pair", "data-pair"))

    def judged(self):
        found = self.session.listing
        verdicts = read_verdicts(self.session.folder)
        return [(found.find("-".join(each.key)), each.judgment) for each in verdicts]


@pytest.fixture
def site(chromium, session):
    access, expected = Access(0), []
    app = create_app(session, access, start="/pairs?sort=distance")
    with windows(chromium, app, access, expected) as window:
        yield Site(session, f"http://127.0.0.1:{access.port}", window, expected)


def at(page):
    """Return where a window is; ``page.url`` is the last that Playwright was told."""
    page.wait_for_timeout(1)
    return str(page.url)


def arrive(site, page, row):
    until(lambda: not page.query_selector("#pair") or site.shown(page) == row)
    page.wait_for_timeout(30)


def press(site, page, key, row):
    page.keyboard.press(key)
    arrive(site, page, row)


def test_ten_pairs_by_keyboard_reload_and_undo(site):
    page = site.window()
    assert at(page) == site.pair(0)
    for row in range(10):
        press(site, page, "1234"[row % 4], row + 1)
    assert site.judged() == [(row, GRADES[row % 4]) for row in range(10)]
    assert page.inner_text("#judged") == "10"
    assert page.title().startswith("Pair 11 of")
    page.reload()
    assert site.shown(page) == 10
    press(site, page, "u", 9)
    assert len(site.judged()) == 9
    assert page.inner_text("#status") == "Undone."
    assert page.inner_text("#judged") == "9"
    # a verdict can be changed, and the change undone
    press(site, page, "ArrowLeft", 8)
    assert page.get_attribute("[data-judge=exact]", "aria-pressed") == "true"
    press(site, page, "3", 9)
    assert (8, "similar") in site.judged()
    press(site, page, "u", 8)
    assert (8, "exact") in site.judged()
    # skipping judges nothing; the browser's own history works
    press(site, page, "s", 9)
    press(site, page, "ArrowRight", 10)
    page.go_back()
    arrive(site, page, 9)
    assert len(site.judged()) == 9


def test_a_key_that_is_held_or_hurried_never_judges_what_was_not_shown(site):
    page = site.window()
    page.keyboard.down("4")
    for _ in range(6):
        page.keyboard.down("4")  # what a held key sends
    page.keyboard.up("4")
    arrive(site, page, 1)
    assert site.judged() == [(0, "different")]
    seen = []
    page.expose_function("report", lambda *name: seen.extend(name))
    pressed = "() => report(document.getElementById('pair').dataset.pair)"
    page.evaluate(f"addEventListener('keydown', {pressed}, true)")
    for _ in range(5):
        page.keyboard.press("2")
    page.wait_for_timeout(600)
    judged = [row for row, judgment in site.judged() if judgment == "near"]
    assert len(seen) == 5
    assert judged == list(range(1, 1 + len(judged)))
    assert judged
    assert {site.session.listing.find(name) for name in seen} >= set(judged)


def test_everything_works_without_a_mouse(site):
    page = site.window()
    page.focus("[data-judge=similar]")
    press(site, page, "Enter", 1)
    focused = "document.activeElement.dataset.judge"
    assert page.evaluate(focused) == "similar"
    press(site, page, "Space", 2)
    assert [judgment for _, judgment in site.judged()] == ["similar", "similar"]
    page.keyboard.press("f")
    assert page.evaluate("document.activeElement.name") == "grade"
    # keys typed into a menu choose there and judge nothing
    page.keyboard.press("2")
    assert len(site.judged()) == 2
    page.select_option("[name=grade]", "near+")
    page.click(".filters button")
    until(lambda: "grade=near%2B" in at(page))
    assert page.inner_text(".badge").startswith("1")
    page.wait_for_load_state()
    page.keyboard.press("?")
    assert page.is_visible("#help")
    page.keyboard.press("4")
    assert len(site.judged()) == 2
    page.keyboard.press("Escape")
    assert not page.is_visible("#help")
    page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_single_keys_can_be_switched_off(site):
    """WCAG 2.2, 2.1.4: who speaks to the machine sets off letters by accident."""
    page = site.window()
    page.click("#help-button")
    page.uncheck("#keys-on")
    page.keyboard.press("Escape")
    page.keyboard.press("4")
    until(lambda: "shortcuts are off" in page.text_content("#status"))
    page.reload()
    page.keyboard.press("4")
    page.click("[data-judge=near]")
    arrive(site, page, 1)
    assert site.judged() == [(0, "near")]


def test_blink_and_overlay(site):
    page = site.window()
    page.keyboard.press("o")
    opacity = "document.getElementById('above').style.opacity"
    assert page.evaluate(opacity) == "0.5"
    assert not page.is_visible("#query")
    page.focus("#blend")
    page.keyboard.press("End")
    assert page.evaluate(opacity) == "1"
    page.keyboard.press("ArrowLeft")  # moves the slider, not the page
    assert page.evaluate(opacity) == "0.99"
    assert site.shown(page) == 0
    press(site, page, "ArrowRight", 0)
    page.keyboard.press("b")
    first = page.evaluate(opacity)
    until(lambda: page.evaluate(opacity) != first)
    # the view stays from pair to pair
    press(site, page, "4", 1)
    assert page.get_attribute("#stage", "data-view") == "blink"
    # Escape closes the filters before anything else
    page.keyboard.press("f")
    page.keyboard.press("Escape")
    assert page.evaluate("!document.getElementById('filters').open")
    assert page.get_attribute("#stage", "data-view") == "blink"
    page.keyboard.press("Escape")
    assert page.is_visible("#query")


class TestMarks:
    """Of drawn invoices with one changed field."""

    @pytest.fixture
    def finished(self, tmp_path):
        return audited(tmp_path / "marks")

    def test_marks_lie_on_the_images_and_can_be_switched_off(self, site):
        row = row_of(site.session, "turned.png", "original-1.png")
        page = site.window()
        page.goto(site.pair(row))
        count = page.locator("svg.marks").count
        until(lambda: count() == 3)
        for name in ("query", "reference", "above"):
            if name == "above":
                page.keyboard.press("o")
            marks = page.locator(f"#{name} + svg.marks")
            until(marks.is_visible)
            place = page.locator(f"#{name}").bounding_box()
            assert marks.bounding_box() == pytest.approx(place, abs=1)
        page.keyboard.press("m")
        assert count() == 0
        # still off on the next pair; the checkbox does not take the keys away
        press(site, page, "s", row + 1)
        assert not page.is_checked("#marks")
        press(site, page, "ArrowLeft", row)
        until(lambda: page.is_enabled("#marks"))
        page.click("#marks")
        until(lambda: count() == 3)
        page.keyboard.press("o")
        assert page.get_attribute("#stage", "data-view") == "side"


def test_a_sheet_by_keyboard_and_mouse(site):
    page = site.window()
    page.goto(f"{site.home}/sheet?sort=distance")
    focused = "document.activeElement.dataset.pair"
    name = site.session.listing.name
    assert page.evaluate(focused) == name(0)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("2")
    until(lambda: page.evaluate(focused) == name(2))
    assert site.judged() == [(1, "near")]
    page.keyboard.press("ArrowDown")
    assert page.evaluate(focused) == name(2 + 4)  # four stand side by side
    page.keyboard.press("ArrowUp")
    page.keyboard.press("u")
    until(lambda: site.judged() == [])
    until(lambda: page.evaluate(focused) == name(1))
    page.click(f"[data-pair='{name(3)}'] [data-judge=exact]")
    until(lambda: site.judged() == [(3, "exact")])
    until(lambda: page.get_attribute(f"[data-pair='{name(3)}']", "data-mine") == "exact")
    # what was never on screen is not judged, and no grade is preset
    until(lambda: "of 23 seen" in page.inner_text("#left"))
    assert page.is_disabled("#rest")
    for card in page.query_selector_all(".card"):
        card.scroll_into_view_if_needed()
    until(lambda: page.inner_text("#left") == "(23)")
    page.select_option("#rest-grade", "different")
    page.click("#rest")
    # some of them are near by automatic grade
    until(lambda: "by automatic grade" in page.inner_text("#status"))
    assert site.judged() == [(3, "exact")]
    page.click("#rest")
    until(lambda: len(site.judged()) == 24)
    until(lambda: page.is_disabled("#rest"))
    assert page.inner_text("#judged") == "24"
    page.click("[data-do=undo]")
    until(lambda: site.judged() == [(3, "exact")])
    until(lambda: page.inner_text("#left") == "(23)")
    page.focus(f"[data-pair='{name(2)}']")
    page.keyboard.press("Enter")
    until(lambda: at(page) == site.pair(2))
    page.go_back()
    page.keyboard.press("n")
    until(lambda: "from=" in at(page))


def test_a_server_that_has_stopped_is_reported(site):
    page = site.window()
    page.route("**/api/judge", lambda route: route.abort())
    page.reload()  # a page that is open may send its next request past the route
    site.expected.append("Failed to load resource: net::ERR_FAILED")
    page.keyboard.press("1")
    until(lambda: "Is visleak review still running?" in page.inner_text("#status"))
    assert site.shown(page) == 0
    page.unroute("**/api/judge")
    press(site, page, "1", 1)
    assert len(site.judged()) == 1


def opened(site, page):
    """Open every kind of page; yield what it is."""
    site.expected.append("404 (Not Found)")
    site.session.judge([0, 1], "near")
    site.session.judge(range(2, 24), "different")
    group = f"/group/{site.session.listing.name(0)}"
    others = "/sheet", "/result", "/pairs", group, "/pairs?label=zebra", "/pair/nothing"
    loaded = "[...document.images].every(i => !i.src || i.complete || i.loading == 'lazy')"
    for address in (site.pair(25), site.pair(0), *(f"{site.home}{path}" for path in others)):
        page.goto(address)
        until(lambda: page.evaluate(loaded))
        yield address
    page.goto(site.pair(25))
    for key in ("o", "f"):
        page.keyboard.press(key)
        yield key
    page.reload()
    page.keyboard.press("?")
    yield "help"


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (768, "light"), (390, "dark")])
def test_no_page_breaks_a_rule_or_scrolls_sideways(site, scheme, width):
    # axe is put into the page by force; the page's own rules stay on in all other tests
    page = site.window(width, 800, bypass_csp=True, color_scheme=scheme, reduced_motion="reduce")
    for kind in opened(site, page):
        assert broken_rules(page) == [], kind
        assert page.evaluate("document.documentElement.scrollWidth") == width, kind
        wide = page.evaluate(
            "[...document.querySelectorAll('body *')]"
            ".filter(e => !e.closest('.scroll, pre, .skip, .sr, .status, dialog'))"
            f".filter(e => e.getBoundingClientRect().right > {width} + 1)"
            ".map(e => e.outerHTML.slice(0, 90))"
        )
        assert wide == [], kind


@pytest.mark.parametrize(("width", "height"), [(390, 700), (1280, 640)])
def test_nothing_covers_or_moves_the_verdict(site, width, height):
    """Not the banner of the stop rule, and no message: a click meant for a verdict finds it."""
    page = site.window(width, height)
    buttons = "[...document.querySelectorAll('.verdict-bar .judge')]"
    places = f"{buttons}.map(button => button.getBoundingClientRect().toJSON())"
    page.goto(site.pair(25))
    before = page.evaluate(places)
    site.session.judge([0], "near")
    site.session.judge(range(1, 24), "different")
    page.reload()
    assert page.is_visible(".banner")
    assert page.evaluate(places) == before
    page.keyboard.press("4")
    arrive(site, page, 26)
    assert page.is_visible(".status.shown")
    box = page.locator(".status").bounding_box()
    assert all(box["y"] + box["height"] <= each["top"] for each in page.evaluate(places))
    middle = "(([x, y]) => document.elementFromPoint(x, y).closest('.judge') !== null)"
    for each in before:
        point = [each["left"] + each["width"] / 2, each["top"] + each["height"] / 2]
        assert page.evaluate(f"{middle}({point})")
