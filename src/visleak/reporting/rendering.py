"""A document as Markdown, LaTeX, a section of an audit's page, and for a terminal."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from markupsafe import Markup

import visleak
from visleak.reporting.document import Document
from visleak.reporting.gallery import data_uri
from visleak.reporting.markup import (
    Grid,
    latex_cell,
    latex_table,
    markdown_cell,
    markdown_table,
    paged,
)
from visleak.templates import environment, plain, policy, visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console, RenderableType
    from rich.table import Table

_MEDIA = {"svg": "image/svg+xml", "png": "image/png", "webp": "image/webp", "jpg": "image/jpeg"}


def page(
    document: Document,
    images: Mapping[str, bytes] | None = None,
    links: Sequence[tuple[str, str]] = (),
) -> str:
    """Return a document as a page; all of it is escaped, figures are images in it."""
    known = images or {}
    style = (resources.files("visleak.reporting") / "templates" / "document.css").read_text("utf-8")
    figures = [(each.title, each.files.get("svg"), "svg") for each in document.figures]
    sheets = [(title, known.get(name), name.rpartition(".")[2]) for title, name in document.images]
    shown = [
        (title, data_uri(data, _MEDIA[ending])) for title, data, ending in figures + sheets if data
    ]
    text = (
        environment("visleak.reporting", visible)
        .get_template("document.html.j2")
        .render(
            document=document,
            headline=_sentence(document.headline),
            images=shown,
            links=links,
            grids=document.grids(),
            notes=_notes(document),
            policy=policy(style),
            style=Markup(style),
            version=visleak.__version__,
        )
    )
    # a name that is not UTF-8 holds lone surrogates
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


#: The interval of a number, behind it.
_INTERVAL: Final = re.compile(r" \([^()]+ to [^()]+\)$")

#: Styles of facts on a terminal.
_STYLES: Final = {"": "", "caution": "yellow", "good": "green", "strong": "bold"}

#: Rows of a table on one page of LaTeX.
PAGE: Final = 48

#: Rows of a table on a terminal.
ROWS: Final = 10


def markdown(document: Document) -> str:
    """Return a document as a page of Markdown."""
    headline = markdown_cell(_sentence(document.headline))
    lines = [f"# {markdown_cell(document.title)}", "", f"**{headline}**"]
    lines += _bullets([*document.lines, *_facts(document)])
    for grid in document.grids():
        lines += ["", f"## {markdown_cell(grid.title)}", "", *markdown_table(grid)]
    images = [
        (each.title, f"{each.name}.svg")
        for each in document.figures
        if each.shown and "svg" in each.files
    ]
    for title, file in (*images, *document.images):
        name = markdown_cell(title)
        lines += ["", f"## {name}", "", f"![{name}]({file})"]
    for title, texts in _notes(document):
        if texts:
            lines += ["", f"## {title}", *_bullets(texts)]
    return "\n".join(lines) + "\n"


def latex(document: Document) -> str:
    """Return the tables of a document as LaTeX, to be included in another."""
    lines = ["% needs \\usepackage{booktabs}", f"% {latex_cell(document.headline)}"]
    for grid in document.grids():
        for part in paged(grid, PAGE):
            lines += ["", *latex_table(part, intervals=True)]
    for line in (*document.lines, *_facts(document)):
        lines += ["", f"% {latex_cell(line)}"]
    return "\n".join(lines) + "\n"


def section(document: Document) -> dict[str, object]:
    """Return a document as a section of an audit's page, which escapes everything once more."""
    headline = _sentence(document.headline)
    lines = (*document.lines, *_facts(document), *document.notes, *document.reading)
    return {
        "title": document.title,
        "headline": headline,
        "markdown": "\n".join([f"**{markdown_cell(headline)}**", *_bullets(lines)]) + "\n",
        "tables": [
            {"caption": grid.title, "header": grid.header, "rows": grid.rows}
            for grid in document.grids()
        ],
        "svg": [
            {"title": each.title, "svg": each.files["svg"].decode("utf-8")}
            for each in document.figures
            if "svg" in each.files
        ],
    }


def terminal(
    document: Document,
    *,
    columns: Sequence[str] = (),
    rows: int = ROWS,
    intervals: bool = True,
    tables: int | None = 1,
) -> Iterator[RenderableType]:
    """Yield headline, statements, the first tables (``None``: all, with titles), facts, notes."""
    from rich.text import Text

    yield Text(plain(document.headline), "bold")
    for line in document.lines:
        yield Text(plain(line))
    for whole in document.grids()[:tables]:
        yield Text()
        if (tables is None or min(tables, len(document.grids())) > 1) and whole.title:
            yield Text(plain(whole.title), "bold")
        grid = _chosen(whole, columns)
        cut = [[cell if intervals else _INTERVAL.sub("", cell) for cell in r] for r in grid.rows]
        yield from table(replace(grid, rows=cut), rows)
    if document.facts:
        yield Text()
    width = max((len(fact.name) + 2 for fact in document.facts if fact.name), default=0)
    for fact in document.facts:
        name = f"{fact.name:<{width}}"
        yield Text.assemble((name, "dim"), (plain(fact.text), _STYLES[fact.style]))
    if document.notes:
        yield Text()
    for line in document.notes:
        yield Text(plain(line), "dim")


def table(grid: Grid, rows: int = ROWS) -> Iterator[RenderableType]:
    """Yield a table for a terminal, and how many rows it leaves out."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim")
    for place, name in enumerate(grid.header):
        if place < grid.texts:
            made.add_column(plain(name), overflow="fold")
        else:
            made.add_column(plain(name), justify="right", no_wrap=True)
    for number, row in enumerate(grid.rows[:rows]):
        styles = ["bold" if (number, at) in grid.bold else "" for at in range(len(row))]
        made.add_row(*(Text(plain(c), style) for c, style in zip(row, styles, strict=True)))
    yield made
    if len(grid.rows) > rows:
        yield Text(f"and {len(grid.rows) - rows:,} more")


def _chosen(grid: Grid, columns: Sequence[str]) -> Grid:
    if not columns:
        return grid
    places = [grid.header.index(name) for name in columns if name in grid.header]
    rows = [[row[at] for at in places] for row in grid.rows]
    texts = sum(at < grid.texts for at in places)
    return Grid(grid.title, [grid.header[at] for at in places], rows, texts)


def _facts(document: Document) -> list[str]:
    return [f"{fact.name}: {fact.text}" if fact.name else fact.text for fact in document.facts]


def _notes(document: Document) -> list[tuple[str, tuple[str, ...]]]:
    return [("What was measured", document.notes), ("How to read this", document.reading)]


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _bullets(texts: Sequence[str]) -> list[str]:
    return ["", *(f"- {markdown_cell(text)}" for text in texts)] if texts else []


# -- A summary as rich renders it, for a terminal or as plain text --------------------------------


#: Columns where the output is not a terminal.
WIDEST: Final = 10_000

#: So narrow a column of texts may become on a narrow terminal.
NARROWEST: Final = 10

#: Blanks between two columns.
_BETWEEN: Final = 3


def shown(result: Any) -> Iterable[RenderableType]:
    """Return the parts of a document, or of lines, texts and tables; lines are made plain."""
    from rich.text import Text

    parts = terminal(result) if isinstance(result, Document) else result
    return [Text(plain(part)) if isinstance(part, str) else part for part in parts]


def rendered(parts: Iterable[RenderableType]) -> str:
    """Return renderables as text: coloured for a terminal, plain otherwise.

    Lines of plain text are never wrapped, and off a terminal tables are as wide as they need to
    be: a path can be copied, a row can be searched for.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=sys.stdout, markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = WIDEST
    with console.capture() as captured:
        for part in parts:
            if isinstance(part, Table):
                _narrow(part, console)
            console.print(part, soft_wrap=isinstance(part, Text))
    text = captured.get()
    return text if console.is_terminal else re.sub(r"[ ]+$", "", text, flags=re.MULTILINE)


def _width(table: Table, console: Console) -> int:
    """Return how wide a table would like to be."""
    return console.measure(table, options=console.options.update(max_width=WIDEST)).maximum


def _narrow(table: Table, console: Console) -> None:
    """Break the names of columns over lines, and cut numbers, before a column of texts vanishes."""
    if _width(table, console) <= console.width:
        return
    numbers = [column for column in table.columns if column.no_wrap]
    texts = [column for column in table.columns if not column.no_wrap]
    room = console.width - _BETWEEN * (len(table.columns) - 1)
    wanted = []
    for column in numbers:
        widest = max((len(str(cell)) for cell in column.cells), default=0)
        lines = textwrap.wrap(str(column.header), max(widest, NARROWEST)) or [""]
        column.header = "\n".join(lines)
        wanted.append(max(widest, *map(len, lines)))
    for column in texts:
        own = (column.header, *column.cells)
        column.min_width = min(NARROWEST, max(len(str(cell)) for cell in own))
        room -= column.min_width
    if sum(wanted) > room:
        # the narrowest first: what one does not need, wider ones may have
        ranked = sorted(zip(wanted, numbers, strict=True), key=lambda each: each[0])
        for place, (wish, column) in enumerate(ranked):
            column.max_width = max(1, min(wish, room // (len(ranked) - place)))
            room -= column.max_width
