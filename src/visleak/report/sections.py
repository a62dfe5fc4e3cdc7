"""The pages of other steps: ``sections/NAME.json`` of the audit folder, in a fixed order.

A section is ``{"title": text, "headline": text, "markdown": text, "tables": [{"caption", "header",
"rows"}], "svg": [text or {"title", "svg"}]}``; every key may be missing. A headline also stands at
the top of the page. All of it is untrusted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from markupsafe import Markup

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

from visleak.grouping import document
from visleak.reporting import Document, section
from visleak.reporting.gallery import data_uri
from visleak.storage import SECTIONS
from visleak.storage.groupings import GroupingSummary

#: Known sections in the order of the page; others follow by name.
ORDER: Final = ("purge", "split", "replace", "impact", "robustness", "dlede", "memorization")
#: Most rows of a section's table on the page.
MOST_ROWS: Final = 200
#: Characters of a drawing; the page has to stay light.
LONGEST: Final = 2_000_000
#: Most rows of a table that is shown whole.
WHOLE: Final = 25


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: texts only; ``left_out`` rows are not shown."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int = 0

    @property
    def tall(self) -> bool:
        """Whether the table is a window of its own to scroll in; a short one is shown whole."""
        return len(self.rows) > WHOLE


@dataclass(frozen=True, slots=True)
class Drawing:
    """A drawing as the source of an image, which can run nothing, and its caption."""

    caption: str
    source: str


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the page; ``trouble`` says what of it could not be shown.

    ``headline`` is what stands of it at the top of the page, if anything.
    """

    anchor: str
    title: str
    body: Markup
    headline: str = ""
    tables: tuple[Grid, ...] = ()
    drawings: tuple[Drawing, ...] = ()
    trouble: tuple[str, ...] = ()


def load(
    folder: Path, grouping: GroupingSummary | None = None, overlap: Document | None = None
) -> tuple[Section, ...]:
    """Read the sections of an audit folder; a damaged one becomes a section that says so.

    Overlaps and groups that were found unasked come first: they are part of the audit, so no file
    holds them.
    """
    files = sorted((folder / SECTIONS).glob("*.json"), key=_place)
    anchors: list[str] = []
    for path in files:
        anchor = "section-" + (re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-") or "x")
        while anchor in anchors:
            anchor += "-again"
        anchors.append(anchor)
    found = tuple(_section(path, anchor) for path, anchor in zip(files, anchors, strict=True))
    if overlap is not None:
        found = (_made(section(overlap), "section-overlap", "Overlap"), *found)
    if grouping is None or not grouping.believed:
        return found
    content = section(document(grouping, str(folder)))
    return (_made(content, "section-found-groups", "Groups"), *found)


def _place(path: Path) -> tuple[int, str]:
    known = path.stem in ORDER
    return (ORDER.index(path.stem) if known else len(ORDER), path.stem)


def _section(path: Path, anchor: str) -> Section:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(value, dict):
            raise ValueError("it is not an object")
    except (OSError, ValueError, RecursionError) as error:
        trouble = (
            f"sections/{path.name} cannot be shown ({error}); run the step that wrote it again."
        )
        return Section(anchor, path.stem, Markup(""), trouble=(trouble,))
    return _made(value, anchor, path.stem)


def _made(value: Mapping[str, object], anchor: str, name: str) -> Section:
    """Return a section from its content; ``name`` is its title where it has none."""
    trouble_list: list[str] = []
    tables = tuple(_grids(value.get("tables"), trouble_list))
    drawings = tuple(_drawings(value.get("svg"), trouble_list))
    title = str(value.get("title") or name)
    body = rendered(str(value.get("markdown") or ""))
    headline = str(value.get("headline") or "")
    return Section(anchor, title, body, headline, tables, drawings, tuple(trouble_list))


def _grids(value: object, trouble: list[str]) -> list[Grid]:
    grids = []
    for number, table in enumerate(_listed(value), 1):
        about = table if isinstance(table, dict) else {}
        rows = about.get("rows")
        if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
            trouble.append(f"Table {number} cannot be shown: it has no list of rows.")
            continue
        grids.append(
            Grid(
                caption=str(about.get("caption") or ""),
                header=tuple(_cell(cell) for cell in _listed(about.get("header"))),
                rows=tuple(tuple(_cell(cell) for cell in row) for row in rows[:MOST_ROWS]),
                left_out=max(0, len(rows) - MOST_ROWS),
            )
        )
    return grids


def _drawings(value: object, trouble: list[str]) -> list[Drawing]:
    drawings = []
    for number, item in enumerate(_listed(value), 1):
        drawing = item if isinstance(item, dict) else {"svg": item}
        text = str(drawing.get("svg") or "")
        if len(text) > LONGEST:
            trouble.append(
                f"Drawing {number} cannot be shown: it has {len(text):,} characters,"
                f" {LONGEST:,} are allowed."
            )
            continue
        source = data_uri(text.encode("utf-8", "backslashreplace"), "image/svg+xml")
        drawings.append(Drawing(str(drawing.get("title") or ""), source))
    return drawings


def rendered(text: str) -> Markup:
    r"""Return Markdown as HTML: headings from the third level, links to ``https:`` addresses only.

    Raw HTML and images remain visible as the text they are.

    >>> print(rendered("# Cost\nIt is **2 %** of `a<b`."), end="")
    <h3>Cost</h3>
    <p>It is <strong>2 %</strong> of <code>a&lt;b</code>.</p>
    """
    parser = _parser()
    tokens = parser.parse(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1:]) + 2)}"
        for inner in token.children or ():
            if inner.type == "link_open":
                inner.attrSet("rel", "noopener noreferrer")
    return Markup(parser.renderer.render(tokens, parser.options, {}))


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).disable(
        ["image", "html_block", "html_inline"]
    )
    parser.validateLink = lambda url: url.startswith("https://")  # type: ignore[method-assign]
    return parser


def _listed(value: object) -> list[object]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _cell(value: object) -> str:
    """Write a cell: numbers short, nothing as nothing.

    >>> [_cell(value) for value in (0.12345678, 1234567, None, True, "<b>")]
    ['0.1235', '1,234,567', '', 'yes', '<b>']
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)
