import base64
import json
import re

import pytest

from visleak.report import page

HOSTILE = "<img src=x onerror=alert(1)>"


def test_headings_begin_below_those_of_the_page_and_links_tell_no_address():
    made = page.rendered("## A *b*\n\n[see](https://example.org/a?b=1&c=2)")
    assert re.sub(r"\n(?=<)", "", made.strip()) == (
        '<h4>A <em>b</em></h4><p><a href="https://example.org/a?b=1&amp;c=2"'
        ' rel="noopener noreferrer">see</a></p>'
    )


@pytest.mark.parametrize(
    "text",
    [
        HOSTILE,
        "[x](javascript:alert(1))",
        '[x](https://a.example/"onmouseover="alert(1))',
        "![x](https://tracker.example/p.png)",
        "**<script>alert(1)</script>**",
        "```\n</code></pre><script>alert(1)</script>",
    ],
)
def test_markdown_lets_no_tag_through(text):
    made = str(page.rendered(text))
    assert set(re.findall(r"<(\w+)", made)) <= {"p", "h3", "strong", "pre", "code", "a"}
    assert not re.search(r"<[^>]*\b(on\w+|src)\s*=", made)
    assert 'href="javascript' not in made
    assert 'href="http:' not in made


def write(folder, name, text):
    path = folder / "sections" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_sections_come_in_fixed_order_with_anchors_of_their_own(tmp_path):
    for name in ("zebra", "impact", "purge", "a b", "a-b", "A+b", "\u00e4"):
        write(tmp_path, name, json.dumps({"title": name}))
    made = page.load(tmp_path)
    titles = [section.title for section in made]
    assert (titles[:2], titles[-1]) == (["purge", "impact"], "\u00e4")
    anchors = {section.anchor for section in made}
    assert len(anchors) == 7
    assert all(re.fullmatch(r"[a-z0-9-]+", anchor) for anchor in anchors)
    assert page.load(tmp_path / "nothing") == ()


def test_section_with_everything(tmp_path):
    """An SVG in ``img`` has no scripts, no network and no document."""
    drawing = "<svg onload='alert(1)'><script>alert(2)</script></svg>"
    rows = [[f"run {i}", 0.123456, None] for i in range(250)]
    value = {
        "markdown": "It costs **2 %**.",
        "tables": [{"caption": "Runs", "header": ["a", "b", "c"], "rows": rows}],
        "svg": [drawing, {"title": "Curve", "svg": "<svg/>"}],
    }
    write(tmp_path, "impact", json.dumps(value))
    (made,) = page.load(tmp_path)
    assert made.anchor == "section-impact"
    assert made.body.strip() == "<p>It costs <strong>2 %</strong>.</p>"
    assert made.tables[0].rows[0] == ("run 0", "0.1235", "")
    assert (len(made.tables[0].rows), made.tables[0].left_out) == (200, 50)
    assert [d.caption for d in made.drawings] == ["", "Curve"]
    kind, _, content = made.drawings[0].source.partition(",")
    assert kind == "data:image/svg+xml;base64"
    assert base64.b64decode(content).decode() == drawing
    assert made.trouble == ()


@pytest.mark.parametrize("text", ["{", "[1]", "null", "[" * 5000])
def test_damaged_section_says_so(tmp_path, text):
    write(tmp_path, "impact", text)
    (made,) = page.load(tmp_path)
    assert made.trouble[0].startswith("sections/impact.json cannot be shown (")
    assert made.trouble[0].endswith("run the step that wrote it again.")


def test_damaged_parts_say_so(tmp_path):
    value = {"tables": [{"rows": 3}, "x", {"rows": [["a"]]}], "svg": ["<svg/>", "x" * 2_000_001]}
    write(tmp_path, "impact", json.dumps(value))
    (made,) = page.load(tmp_path)
    assert len(made.tables) == 1
    assert [line.split(":")[0] for line in made.trouble] == [
        "Table 1 cannot be shown",
        "Table 2 cannot be shown",
        "Drawing 2 cannot be shown",
    ]
