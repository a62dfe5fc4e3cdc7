"""Opens the page as a person does: from a file, in a browser, with and without scripts."""

import csv
import re
from contextlib import contextmanager

import pytest
from judging import judge
from made_audit import HOSTILE_LABEL, HOSTILE_NAME, make_audit

from invoices import audited
from visleak.auditing import Audit
from visleak.report import reader_for_page, write_report
from visleak.storage import PAIRS, read_table

pytestmark = [pytest.mark.usefixtures("drawn_figures"), pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def address(made, tmp_path_factory):
    output = tmp_path_factory.mktemp("page") / "report.html"
    return write_report(made.folder, output, loader=made.pictures).as_uri()


@pytest.fixture(scope="module")
def reviewed(base, tmp_path_factory):
    """The page of an audit that people judged, one of whom has a name that bites."""
    made = make_audit(tmp_path_factory.mktemp("reviewed"), base)
    judge(made.folder)
    return write_report(made.folder, loader=made.pictures).as_uri()


@contextmanager
def opened(chromium, address, width=1280):
    """Open a page; fails where anything went wrong in it or it asked for anything."""
    page = chromium.new_page(viewport={"width": width, "height": 900})
    trouble = []
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("dialog", lambda dialog: (trouble.append(dialog.message), dialog.dismiss()))
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address)
    yield page
    assert trouble == []
    assert [url for url in asked if not url.startswith(("data:", address))] == []
    page.close()


@pytest.fixture
def page(chromium, address):
    with opened(chromium, address) as page:
        yield page


def shown(page):
    return page.eval_on_selector_all(
        "#cards > li:not([hidden])", "cards => cards.map(card => ({...card.dataset}))"
    )


def until(page, condition):
    """Wait until a condition holds; Playwright's own way needs the eval that the page forbids."""
    for _ in range(200):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(25)
    pytest.fail(f"never became true: {condition}")


def counted(page):
    """How many pairs meet the filters, and how many of them have images."""
    pairs, cards = re.findall(r"([\d,]+) of", page.text_content("#count"))
    return int(pairs.replace(",", "")), int(cards)


def test_filters_narrow_the_pairs(page, made):
    everything = counted(page)
    grades = [pair["grade"] for pair in read_table(made.folder, PAIRS).to_pylist()]
    assert everything == (sum(grade != "different" for grade in grades), 36)
    page.select_option("[name=kind]", "near")
    assert {card["kind"] for card in shown(page)} == {"near"}
    assert counted(page)[0] == grades.count("near")
    page.select_option("[name=between]", "test → train")
    page.check("[name=conflict]")
    narrowed = shown(page)
    assert narrowed
    assert all(
        (card["kind"], card["between"], card["conflict"]) == ("near", "test → train", "yes")
        for card in narrowed
    )
    page.click("button[type=reset]")
    until(page, "document.querySelector('[name=kind]').value === ''")
    until(page, f"document.querySelector('#count').value.startsWith('{everything[0]} of')")
    page.select_option("[name=label]", "lorry")
    assert {card["label"] for card in shown(page)} == {"lorry"}


def rows(page, column):
    return page.eval_on_selector_all(
        f"#table tbody td:nth-child({column})", "cells => cells.map(cell => cell.textContent)"
    )


def test_table_is_sorted_and_leads_to_the_images(page):
    page.select_option("[name=view]", "table")
    assert not page.is_visible("#cards")
    assert len(rows(page, 1)) == counted(page)[0]
    page.click("[data-column=similarity] button")
    similarity = [float(text) for text in rows(page, 5)]
    assert similarity == sorted(similarity, reverse=True)
    page.click("[data-column=query] button")
    page.click("[data-column=query] button")
    assert rows(page, 1) == sorted(rows(page, 1), reverse=True)
    assert page.get_attribute("[data-column=query]", "aria-sort") == "descending"
    page.click("#table tbody tr:first-child a")
    until(page, "!document.querySelector('#cards').hidden")
    assert page.locator(page.evaluate("location.hash")).is_visible()


def test_pages_hold_a_few_cards_and_links_find_the_others(page, made):
    assert len(shown(page)) == 24
    first = {card["query"] for card in shown(page)}
    page.click("#pager [data-step='1']")
    assert len(shown(page)) == 36 - 24
    assert not first & {card["query"] for card in shown(page)}
    page.click("#cards .enlarge button")  # also of a card that was not parsed before
    assert page.is_visible("#compare #stage img")
    page.keyboard.press("Escape")
    last = page.evaluate("document.querySelector('#cards > li:not([hidden]):last-of-type').id")
    page.click("#pager [data-step='-1']")
    page.evaluate(f"location.hash = '{last}'")
    until(page, f"!document.getElementById('{last}').hidden")


def test_filtered_pairs_are_exported(page, tmp_path):
    page.select_option("[name=kind]", "exact")
    with page.expect_download() as waiting:
        page.click("#export")
    waiting.value.save_as(tmp_path / "pairs.csv")
    with (tmp_path / "pairs.csv").open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    assert len(found) == counted(page)[0]
    assert {row["grade"] for row in found} == {"exact"}
    assert HOSTILE_LABEL in {row["query_label"] for row in found}


def test_pair_is_enlarged_and_the_query_laid_over_the_reference(page):
    """The mirrored query of a pair is turned back when the two images blink."""
    page.fill("[name=text]", "img_0018")
    page.click("#cards > li:not([hidden]) .thumbs img")
    assert page.is_visible("#compare")
    small = page.locator("#cards > li:not([hidden]) .thumbs img").first.bounding_box()
    assert page.locator("#stage img").first.bounding_box()["width"] > 2 * small["width"]
    page.keyboard.press("b")
    above = "document.querySelector('#stage .pile img:last-child')"
    matrix = page.evaluate(f"new DOMMatrix({above}.style.transform).toFloat64Array()[0]")
    assert matrix == pytest.approx(-1)
    boxes = [page.locator(f"#stage .pile img:nth-child({n})").bounding_box() for n in (1, 2)]
    assert boxes[0] == pytest.approx(boxes[1], abs=1)
    until(page, f"{above}.style.visibility === 'hidden'")
    page.keyboard.press("Escape")
    assert not page.is_visible("#compare")
    page.click("button[type=reset]")
    # also where the table hides the cards
    page.select_option("[name=view]", "table")
    page.click("#strongest li:nth-child(2) img")
    title = page.text_content("#compare-h")
    page.keyboard.press("ArrowRight")
    assert page.text_content("#compare-h") != title


@pytest.mark.parametrize(
    ("width", "scheme"), [(390, "light"), (768, "dark"), (1280, "light"), (1280, "dark")]
)
def test_the_page_fits_and_breaks_no_rule_of_accessibility(chromium, reviewed, width, scheme):
    """Nothing scrolls sideways, tiles do not touch, and contrast is enough in both schemes."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe-core").Axe()
    with opened(chromium, reviewed, width) as page:
        page.emulate_media(color_scheme=scheme)
        wide = page.evaluate(
            "[...document.querySelectorAll('main *')]"
            ".filter(e => !e.closest('.scroll, .panels, figure[tabindex], svg'))"
            f".filter(e => e.getBoundingClientRect().right > {width} + 1)"
            ".map(e => e.outerHTML.slice(0, 90))"
        )
        assert wide == []
        assert page.evaluate("document.documentElement.scrollWidth") == width
        scale = "images => Math.min(...images.map(image => image.width / image.naturalWidth))"
        assert page.eval_on_selector_all(".charts img", scale) > 0.75
        gaps = """tiles => Math.min(...tiles.map(tile =>
            tile.querySelector('.marked').getBoundingClientRect().left
            - tile.previousElementSibling.querySelector('img').getBoundingClientRect().right))"""
        assert page.eval_on_selector_all(".thumbs > .same", gaps) > 2
        views = ("", "document.querySelector('[name=view]').value = 'table'", OPEN)
        for view in views if width == 1280 else views[:1]:
            page.evaluate(view)
            page.evaluate("document.querySelector('#controls').dispatchEvent(new Event('input'))")
            found = axe.run(page).response["violations"]
            assert [(each["id"], each["nodes"][0]["html"][:200]) for each in found] == []


#: Opens the closer look at a pair.
OPEN = "document.querySelector('#strongest img').click()"


def test_cards_are_searched_and_sorted(page):
    page.fill("[name=text]", "IMG_0012 photo")
    assert [card["query"] for card in shown(page)] == ["cat/img_0012.png"]
    page.fill("[name=text]", "no such name")
    assert shown(page) == []
    assert page.is_visible("#none-left")
    page.fill("[name=text]", HOSTILE_NAME)
    assert [card["query"] for card in shown(page)] == [HOSTILE_NAME]
    page.fill("[name=text]", "")
    page.select_option("[name=sort]", "similarity")
    similarity = [float(card["similarity"]) for card in shown(page)]
    assert similarity == sorted(similarity, reverse=True)
    page.select_option("[name=sort]", "place")
    places = [int(card["place"]) for card in shown(page)]
    assert places == sorted(places)


def test_controls_work_from_the_keyboard(page):
    page.focus("[name=text]")
    page.keyboard.type("img_0012")
    assert len(shown(page)) == 1
    visited = []
    for _ in range(8):
        page.keyboard.press("Tab")
        visited.append(page.evaluate("document.activeElement.name || document.activeElement.type"))
    assert visited[:7] == ["kind", "between", "label", "sort", "view", "conflict", "reset"]
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    until(page, "document.querySelectorAll('#cards > li:not([hidden])').length > 1")


def test_marks_lie_on_the_thumbnails_and_can_be_hidden(chromium, tmp_path):
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


def test_link_to_a_hidden_card_shows_it(page):
    page.select_option("[name=kind]", "similar")
    target = page.get_attribute("#conflicts a[href^='#pair-']", "href")
    page.click(f"#conflicts a[href='{target}']")
    until(page, f"!document.querySelector('{target}').hidden")


def test_page_works_without_scripts(chromium, address):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert page.locator("#cards > li").count() > 20
    assert page.locator("#cards > li").first.is_visible()
    assert not page.locator("#controls").is_visible()
    context.close()
