"""The documents and files of an impact: the papers' tables cell for cell, figures, and JSON."""

import csv
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from impact_making import cifair, table_3

from visleak.impact import read_impact, write
from visleak.impact.document import document, several_document, tables
from visleak.impact.headline import score, signed
from visleak.reporting import section

pytestmark = pytest.mark.usefixtures("drawn_figures")


def grids(result, title):
    """Return the tables whose titles begin with a text."""
    found = (table.grid() for table in tables(result) if table.rows)
    return [grid for grid in found if grid.title.startswith(title)]


def test_the_table_of_two_data_sets_is_the_papers():
    """Table 2 of Barz & Denzler (2020): CIFAR-10 and CIFAR-100 side by side, the best in bold."""
    page = several_document({"C10": cifair(0), "C100": cifair(2)})
    grid = next(each for each in page.grids() if each.title.startswith("Errors"))
    rows = {row[0]: row[1:] for row in grid.rows}
    assert rows["Plain-11"] == ["5.91", "6.43", "0.52", "8.80", "27.82", "31.34", "3.52", "12.65"]
    assert rows["PyramidNet-272-200"][4:] == ["17.05", "19.38", "2.33", "13.67"]
    best = {grid.rows[row][column] for row, column in grid.bold}
    assert best == {"3.56", "3.95", "0.30", "7.69", "17.05", "19.38", "2.33", "12.25"}
    for column, mean in ((3, 0.41), (7, 2.73)):
        values = [float(row[column]) for row in grid.rows]
        assert sum(values) / len(values) == pytest.approx(mean, abs=0.01)


def test_a_leak_without_images_is_named_not_shown():
    page = document(replace(table_3(), leaks={"hard": 0, "hard or soft": 1_680}), "terminal")
    assert {row[0] for row in page.grids()[0].rows} == {"", "hard or soft"}
    assert any("omitted" in note and note.endswith("hard") for note in page.notes)


def test_comparisons_have_both_probabilities():
    (grid,) = grids(table_3(), "Leaked images against the others")
    assert grid.rows[0] == [
        *("ResNet50", "hard", "789", "49,211", "-51.02 (-54.02 to -48.02)"),
        *("<0.001 (<0.001)", "0.012 (0.024)"),
    ]


@given(st.floats(-1, 1))
def test_a_percentage_has_two_decimals_and_no_negative_zero(value):
    text = score(value, percent=True)
    assert re.fullmatch(r"-?\d+\.\d\d", text)
    assert float(text) == pytest.approx(100 * value, abs=0.00501)
    assert text != "-0.00"
    assert signed(value, percent=True).lstrip("+") == text


@pytest.mark.parametrize("make", [table_3, cifair])
def test_what_was_written_comes_back(make, tmp_path):
    made = make()
    # a NaN equals nothing, its text does
    assert repr(read_impact(write(made, tmp_path))) == repr(made)


def test_the_csv_files_hold_every_number(tmp_path):
    out = write(cifair(), tmp_path)

    def rows_of(name):
        with (out / name).open(encoding="utf-8", newline="") as lines:
            return list(csv.DictReader(lines))

    flat = [(effect.model, row) for effect in cifair().effects for row in effect.rows]
    for found, (model, row) in zip(rows_of("impact.csv"), flat, strict=True):
        assert (found["model"], found["leak"], found["subset"]) == (model, row.leak, row.subset)
        assert float(found["score"]) == pytest.approx(row.score.value)
        assert float(found["gain"] or "nan") == pytest.approx(row.gain.value, nan_ok=True)
    assert float(rows_of("comparisons.csv")[0]["difference_low"]) < 0.05
    assert [row["fair"] for row in rows_of("flips.csv")] == ["-0.0005", "0.0218"]
    assert float(rows_of("gaps.csv")[1]["relative"]) == pytest.approx(0.0970, abs=5e-5)
    bare = tuple(replace(effect, comparisons=()) for effect in cifair().effects)
    write(replace(cifair(), effects=bare), tmp_path)
    assert not (tmp_path / "comparisons.csv").exists()


def test_names_stay_text(tmp_path):
    """Names that Markdown, LaTeX, a spreadsheet and SVG would each misread."""
    names = ("=<img src=x onerror=alert(1)>", "$x_y$ & 50%|b")
    effects = [replace(e, model=name) for e, name in zip(table_3().effects, names, strict=True)]
    made = replace(table_3(), effects=tuple(effects), test_set=names[0], notes=names)
    write(made, tmp_path)
    assert f"'{names[0]}" in (tmp_path / "impact.csv").read_text()
    assert "<" not in re.sub(r"\\.", "", (tmp_path / "impact.md").read_text(encoding="utf-8"))
    tags = {e.tag.rpartition("}")[2] for e in ElementTree.parse(tmp_path / "gains.svg").iter()}
    assert not tags & {"script", "img", "image"}
    page = section(document(made, "page"))
    assert "<img" not in re.sub(r"\\.", "", page["markdown"])
