"""One document, in every format: the same cells, and hostile texts stay texts."""

import base64
import hashlib
import html
import io
import math
import re

import numpy as np
import pyarrow as pa
from PIL import Image

from visleak.reporting import (
    Column,
    Document,
    Figure,
    Table,
    latex,
    markdown,
    page,
    section,
    terminal,
)
from visleak.reporting.contact_sheet import Tile, contact_sheet
from visleak.reporting.markup import Grid

HOSTILE = "<img src=x> $x_1$ \\input{a} | [a](b) \x1b[31m =cmd()"

COLUMNS = (
    Column("prompt", heading="prompt"),
    Column("size", pa.int64(), "size", number=True),
    Column("secret", pa.float64()),
    Column(heading="share", show="{:.1f}".format, number=True),
)


def rows(count):
    return [(f"p{n}", 1000 + n if n else None, n / 2, n / 3) for n in range(count)]


def made(count=3, **more):
    table = Table("Prompts", COLUMNS, rows(count), file="all.csv", limit=2)
    return Document("Title", "three of four", ("a line",), (table,), notes=("a note",), **more)


def test_people_and_files_get_the_columns_meant_for_them():
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


def test_pages_and_sections_have_texts_tables_and_drawings():
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


def shown(document, **options):
    from rich.console import Console

    console = Console(width=200, file=io.StringIO())
    with console.capture() as text:
        for part in terminal(document, **options):
            console.print(part)
    return text.get()


def test_a_terminal_gets_few_rows_and_the_chosen_columns():
    text = shown(made(), columns=("prompt", "share"), rows=1)
    assert "1,001" not in text
    assert "and 1 more" in text
    grid = Grid("t", ["name", "value"], [["a (b to c)", ".64* (.60 to .68)"]])
    document = Document("t", "h", tables=(grid,))
    assert "(.60 to" not in shown(document, intervals=False)
    assert r"$.64{}_{\,.60}^{\,.68}$\rlap{*}" in latex(document)


def test_markup_in_texts_is_escaped():
    table = Table("T", COLUMNS[:1], [(HOSTILE,)])
    document = Document(HOSTILE, HOSTILE, (HOSTILE,), (table,), notes=(HOSTILE,))
    page = markdown(document)
    assert "<img" not in page.replace("\\<img", "")
    assert "](b)" not in page.replace("\\](", "")
    assert "\x1b" not in page + latex(document) + shown(document)
    assert "\\input{" not in latex(document)


def test_a_contact_sheet_has_every_row_and_fits_any_name():
    tiles = [Tile(str(n), lambda: np.zeros((9, 30, 3), np.uint8)) for n in range(3)]
    one = contact_sheet("T " * 300, "below", [("name " * 40, tiles)])
    two = contact_sheet("T\x1b", "below", [("a", tiles), ("b", tiles * 3)])
    small, large = (Image.open(io.BytesIO(data)) for data in (one, two))
    assert large.height > small.height
    assert large.width > small.width
    assert contact_sheet("T", "below", [("a", [])]) == b""


HTML = "<img src=x onerror=alert(1)> \u202e \udcff"


def test_a_page_escapes_texts_and_allows_its_own_style_and_images_only():
    tables = (Grid(HTML, [HTML, "n"], [[HTML, "1"], ["b", "2"]]), Grid("empty", ["a"], []))
    figures = (Figure("f", "a figure", {"svg": b"<svg/>"}), Figure("none", "no figure", {}))
    images = (("a sheet", "sheet.png"), ("no sheet", "gone.png"))
    document = Document(HTML, HTML, (HTML,), tables, figures, images, (HTML,), (HTML,))
    text = page(document, {"sheet.png": b"png"}, [(HTML, "audits/a/report.html")])
    text.encode("utf-8")
    assert text.count("&lt;img src=x onerror=alert(1)&gt;") == 11
    assert "\u202e" not in text
    assert "empty" not in text
    assert re.findall(r'<img src="(.*?)" alt="(.*?)"', text) == [
        (f"data:image/svg+xml;base64,{base64.b64encode(b'<svg/>').decode()}", "a figure"),
        (f"data:image/png;base64,{base64.b64encode(b'png').decode()}", "a sheet"),
    ]
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
