"""One document, in every format: the same cells, and hostile texts stay texts."""

from __future__ import annotations

import io
import math

import numpy as np
import pyarrow as pa
from PIL import Image

from visleak.reporting import Column, Document, Figure, Table, latex, markdown, section, terminal
from visleak.reporting.contact_sheet import Tile, contact_sheet
from visleak.reporting.markup import Grid

HOSTILE = "<img src=x> $x_1$ \\input{a} | [a](b) \x1b[31m =cmd()"

COLUMNS = (
    Column("prompt", heading="prompt"),
    Column("size", pa.int64(), "size", number=True),
    Column("secret", pa.float64()),
    Column(heading="share", show="{:.1f}".format, number=True),
)


def rows(count: int) -> list[tuple[str, int | None, float, float]]:
    return [(f"p{n}", 1000 + n if n else None, n / 2, n / 3) for n in range(count)]


def made(count: int = 3, **more: object) -> Document:
    table = Table("Prompts", COLUMNS, rows(count), file="all.csv", limit=2)
    return Document("Title", "three of four", ("a line",), (table,), notes=("a note",), **more)  # type: ignore[arg-type]


def test_people_and_files_get_the_columns_meant_for_them() -> None:
    (table,) = made().tables
    assert isinstance(table, Table)
    grid = table.grid()
    assert grid.header == ["prompt", "size", "share"]
    assert grid.rows == [["p0", "", "0.0"], ["p1", "1,001", "0.3"]]
    assert grid.texts == 1
    assert grid.title == "Prompts (2 of 3; all.csv has all)"
    stored = table.arrow()
    assert stored.column_names == ["prompt", "size", "secret"]
    assert stored["size"].to_pylist() == [None, 1001, 1002]
    assert COLUMNS[3].text(math.nan) == COLUMNS[3].text(None) == ""
    # without rows it has its columns in files and no place on a page
    empty = Table("Nothing", COLUMNS, [])
    assert empty.arrow().schema.names == stored.column_names
    assert Document("t", "h", tables=(empty,)).grids() == []


def test_pages_and_sections_have_texts_tables_and_drawings() -> None:
    figure = Figure("curve", "The curve", {"svg": b"<svg/>"}, shown=True)
    figures = (figure, Figure("none", "None", {}))
    document = made(figures=figures, images=(("Sheet", "a.png"),), reading=("read so",))
    page = markdown(document)
    for part in ("# Title", "**Three of four.**", "| prompt |", "](curve.svg)", "- read so"):
        assert part in page
    content = section(document)
    assert content["headline"] == "Three of four."
    assert content["tables"][0]["header"] == ["prompt", "size", "share"]
    assert content["svg"] == [{"title": "The curve", "svg": "<svg/>"}]
    assert "a note" in content["markdown"]


def test_numbers_with_intervals_become_small_digits_in_latex_only() -> None:
    grid = Grid("t", ["name", "value"], [["a", ".64* (.60 to .68)"], ["b", "-1"]])
    tex = latex(Document("t", "h", tables=(grid,)))
    assert r"$.64{}_{\,.60}^{\,.68}$\rlap{*}" in tex
    assert "$-$1" in tex
    assert ".64" in markdown(Document("t", "h", tables=(grid,)))


def shown(document: Document, **options: object) -> str:
    from rich.console import Console

    console = Console(width=200, file=io.StringIO())
    with console.capture() as text:
        for part in terminal(document, **options):  # type: ignore[arg-type]
            console.print(part)
    return text.get()


def test_a_terminal_gets_few_rows_and_the_chosen_columns() -> None:
    text = shown(made(), columns=("prompt", "share"), rows=1)
    assert "1,001" not in text
    assert "and 1 more" in text
    grid = Grid("t", ["name", "value"], [["a (b to c)", "1 (0 to 2)"]])
    assert "(0 to 2)" not in shown(Document("t", "h", tables=(grid,)), intervals=False)


def test_markup_in_texts_is_escaped() -> None:
    table = Table("T", COLUMNS[:1], [(HOSTILE,)])
    document = Document(HOSTILE, HOSTILE, (HOSTILE,), (table,), notes=(HOSTILE,))
    page = markdown(document)
    assert "<img" not in page.replace("\\<img", "")
    assert "](b)" not in page.replace("\\](", "")
    assert "\x1b" not in page + latex(document) + shown(document)
    assert "\\input{" not in latex(document)


def test_a_contact_sheet_has_every_row_and_fits_any_name() -> None:
    picture = np.zeros((9, 30, 3), np.uint8)
    tiles = [Tile(str(n), lambda: picture) for n in range(3)]
    one = contact_sheet("T " * 300, "below", [("name " * 40, tiles)])
    two = contact_sheet("T\x1b", "below", [("a", tiles), ("b", tiles * 3)])
    small, large = (Image.open(io.BytesIO(data)) for data in (one, two))
    assert large.height > small.height
    assert large.width > small.width
    assert contact_sheet("T", "below", [("a", [])]) == b""
    assert contact_sheet("T", "below", []) == b""
