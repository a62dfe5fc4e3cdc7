import base64
import json
import re
from pathlib import Path

import pytest

from visleak.report import page

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("one\ntwo\n\nthree", "<p>one\ntwo</p><p>three</p>"),
        ("## A *b*", "<h4>A <em>b</em></h4>"),
        (
            "- a\n- **b**\n\n1. c",
            "<ul><li>a</li><li><strong>b</strong></li></ul><ol><li>c</li></ol>",
        ),
        ("```\n<b>\n**x**\n```", "<pre><code>&lt;b&gt;\n**x**</code></pre>"),
        ("`**a**`", "<p><code>**a**</code></p>"),
        ("2 * 3 * 4 and snake_case", "<p>2 * 3 * 4 and snake_case</p>"),
        (
            "[see](https://example.org/a?b=1&c=2)",
            '<p><a href="https://example.org/a?b=1&amp;c=2" rel="noopener noreferrer">see</a></p>',
        ),
    ],
)
def test_markdown_subset(text: str, html: str) -> None:
    assert re.sub(r"\n(?=<)", "", page.rendered(text).strip()) == html


@pytest.mark.parametrize(
    "text",
    [
        HOSTILE,
        "[x](javascript:alert(1))",
        "[x](http://plain.example)",
        '[x](https://a.example/"onmouseover="alert(1))',
        "![x](https://tracker.example/p.png)",
        "**<script>alert(1)</script>**",
        "# <svg onload=alert(1)>",
        "```\n</code></pre><script>alert(1)</script>",
    ],
)
def test_markdown_lets_no_tag_through(text: str) -> None:
    made = str(page.rendered(text))
    assert set(re.findall(r"<(\w+)", made)) <= {"p", "h3", "strong", "pre", "code", "a"}
    assert not re.search(r"<[^>]*\b(on\w+|src)\s*=", made)
    assert 'href="javascript' not in made
    assert 'href="http:' not in made


def test_a_drawing_is_an_image_that_cannot_run_anything(tmp_path: Path) -> None:
    """Whatever it holds: an SVG in ``img`` has no scripts, no network and no document."""
    drawing = "<svg onload='alert(1)'><script>alert(2)</script></svg>"
    write(tmp_path, "impact", json.dumps({"svg": [drawing, "x" * 2_000_001]}))
    (made,) = page.load(tmp_path)
    (shown,) = made.drawings
    kind, _, content = shown.source.partition(",")
    assert kind == "data:image/svg+xml;base64"
    assert base64.b64decode(content).decode() == drawing
    assert made.trouble == (
        "Drawing 2 cannot be shown: it has 2,000,001 characters, 2,000,000 are allowed.",
    )


def write(folder: Path, name: str, text: str) -> None:
    path = folder / "sections" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_sections_come_in_fixed_order(tmp_path: Path) -> None:
    for name in ("zebra", "impact", "purge", "another"):
        write(tmp_path, name, json.dumps({"title": name.title()}))
    assert [s.title for s in page.load(tmp_path)] == ["Purge", "Impact", "Another", "Zebra"]
    assert page.load(tmp_path / "nothing") == ()


def test_sections_of_like_names_have_anchors_of_their_own(tmp_path: Path) -> None:
    for name in ("a b", "a-b", "A+b", "\u00e4"):
        write(tmp_path, name, "{}")
    anchors = [s.anchor for s in page.load(tmp_path)]
    assert len(set(anchors)) == 4
    assert all(re.fullmatch(r"[a-z0-9-]+", anchor) for anchor in anchors)


def test_section_with_everything(tmp_path: Path) -> None:
    rows = [[f"run {i}", 0.123456, None] for i in range(250)]
    value = {
        "title": "Impact",
        "markdown": "It costs **2 %**.",
        "tables": [{"caption": "Runs", "header": ["a", "b", "c"], "rows": rows}],
        "svg": ["<svg/>", {"title": "Curve", "svg": "<svg/>"}],
    }
    write(tmp_path, "impact", json.dumps(value))
    (made,) = page.load(tmp_path)
    assert made.anchor == "section-impact"
    assert made.body.strip() == "<p>It costs <strong>2 %</strong>.</p>"
    assert made.tables[0].rows[0] == ("run 0", "0.1235", "")
    assert (len(made.tables[0].rows), made.tables[0].left_out) == (200, 50)
    assert [d.caption for d in made.drawings] == ["", "Curve"]
    assert made.trouble == ()


@pytest.mark.parametrize("text", ["{", "[1]", "null", "[" * 5000])
def test_damaged_section_says_so(tmp_path: Path, text: str) -> None:
    write(tmp_path, "impact", text)
    (made,) = page.load(tmp_path)
    assert made.trouble[0].startswith("sections/impact.json cannot be shown (")
    assert made.trouble[0].endswith("run the step that wrote it again.")


def test_damaged_parts_say_so(tmp_path: Path) -> None:
    value = {"tables": [{"rows": 3}, "x", {"rows": [["a"]]}], "svg": "x" * 2_000_001}
    write(tmp_path, "impact", json.dumps(value))
    (made,) = page.load(tmp_path)
    assert len(made.tables) == 1
    assert [line.split(":")[0] for line in made.trouble] == [
        "Table 1 cannot be shown",
        "Table 2 cannot be shown",
        "Drawing 1 cannot be shown",
    ]
