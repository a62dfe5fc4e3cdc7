"""The documents and files of an impact: the papers' tables cell for cell, figures, and JSON."""

import csv
import math
import re
from dataclasses import replace
from io import BytesIO
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from impact_making import (
    HOSTILE,
    TABLE_2,
    cifair,
    effect_of,
    gaps_of,
    hostile,
    impact_of,
    table_2,
    table_3,
    table_4,
)
from PIL import Image

from visleak.impact import read_impact, write
from visleak.impact.document import document, several_document, tables
from visleak.impact.figures import draw_bar, gains, points
from visleak.impact.headline import estimated, probability, score, signed
from visleak.impact.results import Flip
from visleak.reporting import markdown, section
from visleak.reporting.drawing import figure_of
from visleak.stats.bootstrap import Estimate

pytestmark = pytest.mark.usefixtures("drawn_figures")


def cells(text):
    return [[cell.strip() for cell in line.split("|")] for line in text.strip().splitlines()]


def grids(result, title):
    """Return the tables whose titles begin with a text."""
    found = (table.grid() for table in tables(result) if table.rows)
    return [grid for grid in found if grid.title.startswith(title)]


def plain(cell):
    """Return a number without its interval."""
    return re.sub(r" \(.* to .*\)$", "", cell)


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


def test_the_best_of_a_column_is_bold():
    """As printed: the smallest errors of ResNeXt on CIFAR-10, gap and relative gap of DenseNet."""
    (grid,) = grids(cifair(), "Error on")
    bold = {(grid.rows[row][0], plain(grid.rows[row][column])) for row, column in grid.bold}
    dense, resnext = "DenseNet-BC (L=190, k=40)", "ResNeXt-29 (8x64d)"
    assert bold == {(resnext, "3.56"), (resnext, "3.95"), (dense, "+0.30"), (dense, "7.69")}
    first, *_ = gaps_of(0)
    assert grids(replace(cifair(), gaps=(first,)), "Error on")[0].bold == frozenset()
    both = replace(cifair(), gaps=(first, replace(first, model="equal")))
    assert {row for row, _ in grids(both, "Error on")[0].bold} == {0, 1}


@pytest.mark.parametrize(("models", "metrics"), [(1, 1), (1, 8), (11, 1), (4, 3)])
def test_no_table_is_wider_than_a_page(models, metrics):
    effects = [
        effect_of(TABLE_2, 0, f"m{model}", f"s{metric}")
        for model in range(models)
        for metric in range(metrics)
    ]
    result = impact_of(effects, {"hard": 271, "hard or soft": 2_281})
    page = document(result, "terminal")
    found = [grid for grid in page.grids() if grid.title.startswith("Scores on parts")]
    assert max(len(grid.header) for grid in found) <= 9
    assert len({grid.title for grid in found}) == len(found)
    assert sum(grid.header.count("gain") for grid in found) == models * metrics


def test_a_leak_without_images_is_named_not_shown():
    result = impact_of([effect_of(TABLE_2, 0, "a")], {"hard": 0, "hard or soft": 2_281})
    (grid,) = grids(result, "Scores on parts")
    assert {row[0] for row in grid.rows} == {"", "hard or soft"}
    assert any(
        "omitted" in note and note.endswith("hard") for note in document(result, "terminal").notes
    )


def test_parts_without_images_have_no_score():
    effect = effect_of(TABLE_2, 0, "a")
    empty = replace(effect.rows[2], images=0, score=Estimate(math.nan), gain=Estimate(math.nan))
    rows = (*effect.rows[:2], empty, *effect.rows[3:])
    result = impact_of([replace(effect, rows=rows)], {"hard": 9, "hard or soft": 9})
    (grid,) = grids(result, "Scores on parts")
    assert grid.rows[2] == ["hard", "leaked", "0", "", ""]


def test_comparisons_have_both_probabilities():
    (grid,) = grids(table_3(), "Leaked images against the others")
    assert grid.header[-2:] == ["p (Holm)", "within classes"]
    assert grid.rows[0] == [
        *("ResNet50", "hard", "789", "49,211", "-51.02 (-54.02 to -48.02)"),
        *("<0.001 (<0.001)", "0.012 (0.024)"),
    ]
    # without labels there is no column of classes
    unknown = {"within_classes": math.nan, "within_classes_adjusted": math.nan}
    effects = [
        replace(e, comparisons=tuple(replace(each, **unknown) for each in e.comparisons))
        for e in table_3().effects
    ]
    result = impact_of(effects, {"hard": 789, "hard or soft": 1_680})
    assert "within classes" not in grids(result, "Leaked images against the others")[0].header


def test_the_fair_score_and_the_inflation():
    (grid,) = grids(table_3(), "Scores of images that do not leak")
    # 80.37 on all, 81.00 on images that do not leak: the leaks lower the score
    assert list(map(plain, grid.rows[1])) == [
        *("ResNet50", "hard or soft", "48,320", "80.37", "81.00", "-0.63")
    ]
    lost = [
        replace(effect, comparisons=(replace(effect.comparisons[0], classes_lost=2),))
        for effect in table_3().effects
    ]
    (grid,) = grids(impact_of(lost, {"hard": 789}), "Scores of images that do not leak")
    assert (grid.header[-1], [row[-1] for row in grid.rows]) == ("classes lost", ["2", "2"])


def test_models_that_keep_their_order_are_counted():
    """On CIFAR-10 WRN and DenseNet swap; the other pair is counted in a note."""
    (grid,) = grids(cifair(), "Models that change")
    assert [row[2:7] for row in grid.rows] == [
        ["WRN-28-10", "DenseNet-BC (L=190, k=40)", "+0.01", "-0.05", "yes"]
    ]
    assert any(
        note.startswith("1 of 2 orders of two models")
        for note in document(cifair(), "terminal").notes
    )
    may = Flip("accuracy", "near or exact", "WRN-28-10", "Plain-11", 0.1, 0.1, False, 0.05, 0.1, 9)
    (grid,) = grids(replace(cifair(), flips=(may,)), "Models that change")
    assert grid.rows[0][6:] == ["no", "5.00", "10.00"]


def test_a_terminal_shows_cumulative_leaks_of_several_models():
    rows = ("hard", "exact", "mine")
    effects = [
        replace(e, rows=(e.rows[0], *(replace(e.rows[1], leak=leak) for leak in rows)))
        for e in table_3().effects
    ]
    result = impact_of(effects, dict.fromkeys(rows, 9))
    page = document(result, "terminal")
    assert {row[0] for row in page.grids()[0].rows} == {"", "hard", "mine"}
    assert page.notes[-1] == "in the files only: exact"
    alone = document(impact_of(effects[:1], dict.fromkeys(rows, 9)), "terminal")
    assert {row[0] for row in alone.grids()[0].rows} == {"", *rows}


@given(st.floats(-1, 1))
def test_a_percentage_has_two_decimals_and_no_negative_zero(value):
    text = score(value, percent=True)
    assert re.fullmatch(r"-?\d+\.\d\d", text)
    assert float(text) == pytest.approx(100 * value, abs=0.00501)
    assert text != "-0.00"
    assert signed(value, percent=True).lstrip("+") == text


@given(st.floats(-1e9, 1e9, allow_nan=False))
def test_another_score_has_four_digits(value):
    text = score(value, percent=False).replace(",", "")
    assert float(text) == pytest.approx(value, rel=5.01e-4)
    digits = re.sub(r"e.*|[-.]", "", text).lstrip("0")
    assert value == 0 or len(digits) == 4 or abs(value) >= 999


def test_what_is_not_known_is_empty():
    assert estimated(Estimate(0.5), percent=True) == "50.00"
    assert estimated(Estimate(math.nan), percent=True) == probability(math.nan) == ""
    assert (probability(0.00099), probability(0.001)) == ("<0.001", "0.001")


# -- files ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return write(cifair(), tmp_path_factory.mktemp("cifair"))


@pytest.mark.parametrize("make", [table_2, table_3, table_4, cifair, hostile])
def test_what_was_written_comes_back(make, tmp_path):
    made = make()
    # a NaN equals nothing, its text does
    assert repr(read_impact(write(made, tmp_path))) == repr(made)


def test_files_of_an_earlier_result_are_removed(out, tmp_path):
    always = {"impact.json", "impact.csv", "impact.md", "impact.tex"}
    figures = {f"{name}.{kind}" for name in ("gains", "fair") for kind in ("svg", "png")}
    tables = {"comparisons.csv", "flips.csv", "gaps.csv"}
    write(cifair(), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == always | figures | tables
    for path in out.iterdir():
        # the same result gives the same bytes
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name
    alone = table_2()
    bare = replace(alone, leaks=dict.fromkeys(alone.leaks, 0))
    write(replace(bare, effects=(replace(bare.effects[0], comparisons=()),)), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == always


def test_the_csv_files_hold_every_number(out):
    def rows_of(name):
        with (out / name).open(encoding="utf-8", newline="") as lines:
            return list(csv.DictReader(lines))

    flat = [(effect, row) for effect in cifair().effects for row in effect.rows]
    for found, (effect, row) in zip(rows_of("impact.csv"), flat, strict=True):
        assert (found["model"], found["leak"], found["subset"], found["deviation"]) == (
            *(effect.model, row.leak, row.subset, ""),
        )
        assert float(found["score"]) == pytest.approx(row.score.value)
        gain = row.gain.value
        assert float(found["gain"] or "nan") == pytest.approx(gain, nan_ok=True)
    assert float(rows_of("comparisons.csv")[0]["difference_low"]) < 0.05
    assert [(row["flipped"], row["fair"]) for row in rows_of("flips.csv")] == [
        ("yes", "-0.0005"),
        ("no", "0.0218"),
    ]
    assert float(rows_of("gaps.csv")[1]["relative"]) == pytest.approx(0.0970, abs=5e-5)


def test_names_stay_text(tmp_path):
    write(hostile(), tmp_path)
    with (tmp_path / "impact.csv").open(newline="", encoding="utf-8") as lines:
        assert "'=cmd()" in {row["model"] for row in csv.DictReader(lines)}
    assert "<" not in re.sub(r"\\.", "", (tmp_path / "impact.md").read_text(encoding="utf-8"))
    for name in ("gains.svg", "fair.svg"):
        tags = {e.tag.rpartition("}")[2] for e in ElementTree.parse(tmp_path / name).iter()}
        assert not tags & {"script", "img", "image"}
    page = section(document(replace(hostile(), notes=HOSTILE), "page"))
    assert "<img" not in re.sub(r"\\.", "", page["markdown"])


# -- figures --------------------------------------------------------------------------------------


def test_bars_are_as_long_as_their_gains_and_end_with_the_axis():
    with figure_of((4, 2)) as figure:
        axes = figure.subplots()
        draw_bar(axes, 0, Estimate(0.1, 0.05, 0.15), "red", (-20, 20), percent=True)
        assert axes.patches[0].get_width() == pytest.approx(10)
        assert not {str(line.get_marker()) for line in axes.lines} & {"<", ">"}
        draw_bar(axes, 1, Estimate(-0.5, -0.9, 0.1), "red", (-20, 20), percent=True)
        assert axes.patches[1].get_width() == pytest.approx(-20)
        assert {str(line.get_marker()) for line in axes.lines} >= {"<"}
        assert [text.get_text() for text in axes.texts] == ["+10.00", "−50.00"]


@pytest.mark.parametrize("gain", [0.1, -0.1])
def test_a_gain_without_an_interval_has_no_arrow_and_its_number_beyond_the_bar(gain):
    with figure_of((4, 2)) as figure:
        axes = figure.subplots()
        axes.set_xlim(-20, 20)
        draw_bar(axes, 0, Estimate(gain), "red", (-12, 12), percent=True)
        figure.draw_without_rendering()
        assert {str(line.get_marker()) for line in axes.lines} == {"None"}
        number = axes.texts[0].get_window_extent()
        zero, end = (axes.transData.transform((x, 0))[0] for x in (0, 100 * gain))
        assert number.x1 <= end < zero if gain < 0 else number.x0 >= end > zero


def test_leaks_of_the_same_images_share_a_panel():
    effect = effect_of(TABLE_2, 0, "m", "loss")
    twice = [*effect.rows, *(replace(r, leak="exact") for r in effect.rows if r.leak == "hard")]
    same = replace(effect, rows=tuple(twice))
    one, both, apart = (
        gains(impact_of([own], leaks), columns=1)["png"]
        for own, leaks in (
            (effect, {"hard": 271}),
            (same, {"hard": 271, "exact": 271}),
            (same, {"hard": 271, "exact": 270}),
        )
    )
    heights = [Image.open(BytesIO(file)).height for file in (one, both, apart)]
    assert heights[0] == heights[1] < heights[2]


def test_points_are_errors_where_both_are_known():
    found, across, up = points(cifair())
    assert (found[1][1].value, found[1][2].value) == pytest.approx((0.0526, 0.0577))
    assert (across, up) == ("error on cifar10, %", "error on its fair test set, %")
    found, across, up = points(table_3())
    assert [name for name, *_ in found] == ["ResNet50", "ResNet152"]
    assert [fair.value for *_, fair in found] == pytest.approx([0.81, 0.8352])
    assert (across, up) == ("accuracy on all of val, %", "without leaks (hard or soft), %")


def test_a_page_has_the_panels_of_three_leaks():
    made = cifair()
    (each,) = made.effects[0].comparisons
    names = ["hard", "hard or soft", "soft only", "exact", "near or exact"]
    rows = [replace(row, leak=name) for name in names for row in made.effects[0].rows[1:]]
    effect = replace(
        made.effects[0],
        rows=(made.effects[0].rows[0], *rows),
        comparisons=tuple(replace(each, leak=name) for name in names),
    )
    result = replace(made, effects=(effect,), leaks=dict.fromkeys(names, 289))
    first, second = section(document(result, "page"))["svg"]
    assert first["title"].endswith("; 3 of 5 leaks, gains.svg has all")
    assert "<path" in first["svg"]
    assert "<path" in second["svg"]
    assert "gains.svg" in markdown(document(result))
