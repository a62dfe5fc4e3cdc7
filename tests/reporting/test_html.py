"""A document as a page: escaped texts, a policy for its own style only, images inside."""

from __future__ import annotations

import base64
import hashlib
import html
import re

from visleak.reporting import Document, Figure, page
from visleak.reporting.markup import Grid

HOSTILE = "<img src=x onerror=alert(1)> \u202e \udcff"


def made() -> str:
    grid = Grid(HOSTILE, [HOSTILE, "n"], [[HOSTILE, "1"], ["b", "2"]])
    figures = (Figure("f", "a figure", {"svg": b"<svg/>"}), Figure("none", "no figure", {}))
    document = Document(
        HOSTILE,
        HOSTILE,
        (HOSTILE,),
        (grid, Grid("empty", ["a"], [])),
        figures,
        (("a sheet", "sheet.png"), ("no sheet", "gone.png")),
        (HOSTILE,),
        (HOSTILE,),
    )
    return page(document, {"sheet.png": b"png"}, [(HOSTILE, "audits/a/report.html")])


def test_texts_are_escaped_and_images_are_in_the_page() -> None:
    text = made()
    text.encode("utf-8")
    assert text.count("&lt;img src=x onerror=alert(1)&gt;") == 11
    assert "\u202e" not in text
    assert "empty" not in text
    assert re.findall(r'<img src="(.*?)" alt="(.*?)"', text) == [
        (f"data:image/svg+xml;base64,{base64.b64encode(b'<svg/>').decode()}", "a figure"),
        (f"data:image/png;base64,{base64.b64encode(b'png').decode()}", "a sheet"),
    ]


def test_the_policy_allows_its_own_style_and_nothing_else() -> None:
    text = made()
    (policy,) = re.findall(r'Content-Security-Policy" content="(.*?)"', text)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert html.unescape(policy) == (
        "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none';"
        f" style-src 'sha256-{digest}'"
    )
    assert "<script" not in text
    assert " style=" not in text
    assert re.findall(r'<a href="(.*?)"', text) == ["audits/a/report.html"]
