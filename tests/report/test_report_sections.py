import json
import re
from pathlib import Path

import pytest

from visleak.report import sections
from visleak.report.markdown import render
from visleak.report.svg import sanitised

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("one\ntwo\n\nthree", "<p>one two</p>\n<p>three</p>"),
        ("## A *b*", "<h4>A <em>b</em></h4>"),
        (
            "- a\n- **b**\n1. c",
            "<ul><li>a</li><li><strong>b</strong></li></ul>\n<ol><li>c</li></ol>",
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
    assert render(text) == html


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
    made = str(render(text))
    assert set(re.findall(r"<(\w+)", made)) <= {"p", "h3", "strong", "pre", "code", "a"}
    assert not re.search(r"<[^>]*\b(on\w+|src)\s*=", made)
    assert 'href="javascript' not in made
    assert 'href="http:' not in made


def test_drawing_keeps_shapes_and_drops_the_rest() -> None:
    made = str(
        sanitised(
            """<?xml version="1.0"?><!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "x.dtd">
            <svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"
              viewBox="0 0 9 9" onload="alert(1)"><!-- c --><script>alert(2)</script>
              <style>*{fill:url(https://x)}</style><image href="https://x/y.png"/>
              <foreignObject><b>no</b></foreignObject><a href="javascript:alert(3)"/>
              <defs><clipPath id="c"><rect width="9" height="9"/></clipPath></defs>
              <g style="fill: none; stroke: #00f; background: url(https://x); behavior: url(#b)"
                 clip-path="url(#c)" onclick="alert(4)"><path d="M 0 0 L 9 9" id="p"/></g>
              <use xlink:href="#p" x="1"/><use xlink:href="https://x/y.svg#p"/>
              <rect fill="url(https://x)" stroke="url(#g)" width="1" height="1"/>
              <text x="1">a &lt;b&gt; &amp; c</text></svg>""",
            "s1",
        )
    )
    for word in (
        "script",
        "alert",
        "style",
        "image",
        "foreign",
        "https:",
        "xlink",
        "behavior",
        "<a",
    ):
        assert word not in made, word
    for part in (
        'fill="none" stroke="#00f"',
        'clip-path="url(#s1-c)"',
        'id="s1-c"',
        'href="#s1-p"',
        'stroke="url(#s1-g)"',
        "a &lt;b&gt; &amp; c",
        'xmlns="http://www.w3.org/2000/svg"',
    ):
        assert part in made, part


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        ("<svg", "not well-formed"),
        ("<html/>", "begins with <html>, not <svg>"),
        ('<!DOCTYPE s [<!ENTITY a "b">]><svg>&a;</svg>', "declares entities"),
        ("<svg>" + "<g>" * 99 + "</g>" * 99 + "</svg>", "nested more than 60 deep"),
        ("<svg>" + " " * 2_000_001 + "</svg>", "2,000,000 are allowed"),
    ],
)
def test_drawing_that_is_none_is_refused(text: str, trouble: str) -> None:
    with pytest.raises(ValueError, match=trouble):
        sanitised(text, "x")


def test_drawing_of_the_plotting_library_survives() -> None:
    import io

    from matplotlib.figure import Figure

    figure = Figure(figsize=(2, 2))
    figure.add_subplot().plot([0, 1], [0, 1])
    out = io.StringIO()
    figure.savefig(out, format="svg")
    made = str(sanitised(out.getvalue(), "m"))
    assert made.count("<path") > 3
    assert "style=" not in made
    assert set(re.findall(r'href="#([\w.-]+)"', made)) <= set(re.findall(r'id="([\w.-]+)"', made))


def write(folder: Path, name: str, text: str) -> None:
    path = folder / "sections" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_sections_come_in_fixed_order(tmp_path: Path) -> None:
    for name in ("zebra", "impact", "purge", "another"):
        write(tmp_path, name, json.dumps({"title": name.title()}))
    assert [s.title for s in sections.load(tmp_path)] == ["Purge", "Impact", "Another", "Zebra"]
    assert sections.load(tmp_path / "nothing") == ()


def test_sections_of_like_names_have_anchors_of_their_own(tmp_path: Path) -> None:
    for name in ("a b", "a-b", "A+b", "\u00e4"):
        write(tmp_path, name, "{}")
    anchors = [s.anchor for s in sections.load(tmp_path)]
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
    (made,) = sections.load(tmp_path)
    assert made.anchor == "section-impact"
    assert made.body == "<p>It costs <strong>2 %</strong>.</p>"
    assert made.tables[0].rows[0] == ("run 0", "0.1235", "")
    assert (len(made.tables[0].rows), made.tables[0].left_out) == (200, 50)
    assert [d.caption for d in made.drawings] == ["", "Curve"]
    assert made.trouble == ()


@pytest.mark.parametrize("text", ["{", "[1]", "null", "[" * 5000])
def test_damaged_section_says_so(tmp_path: Path, text: str) -> None:
    write(tmp_path, "impact", text)
    (made,) = sections.load(tmp_path)
    assert made.trouble[0].startswith("sections/impact.json cannot be shown (")
    assert made.trouble[0].endswith("run the step that wrote it again.")


def test_damaged_parts_say_so(tmp_path: Path) -> None:
    value = {"tables": [{"rows": 3}, "x", {"rows": [["a"]]}], "svg": "<svg"}
    write(tmp_path, "impact", json.dumps(value))
    (made,) = sections.load(tmp_path)
    assert len(made.tables) == 1
    assert [line.split(":")[0] for line in made.trouble] == [
        "Table 1 cannot be shown",
        "Table 2 cannot be shown",
        "Drawing 1 cannot be shown",
    ]
