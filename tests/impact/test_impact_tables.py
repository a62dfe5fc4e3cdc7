"""The papers' tables come out of their numbers, cell for cell."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from impact_making import (
    ERRORS,
    TABLE_2,
    TABLE_3,
    cifair,
    effect_of,
    gaps_of,
    impact_of,
    table_2,
    table_3,
    table_4,
)

from visleak.impact.contrasts import comparisons, fair, flips, gaps
from visleak.impact.markup import markdown
from visleak.impact.numbers import probability, score, signed, signed_interval
from visleak.impact.results import Effect, Estimate, Flip, Impact
from visleak.impact.tables import details, layouts
from visleak.impact.together import together_grids

#: As printed, but for the gains of the last two, which were taken against another row.
PRINTED_3 = """
original | | 50,000 | 80.37 | | 82.83 |
non-leaked | hard | 49,211 | 81.18 | +0.81 | 83.65 | +0.82
leaked | hard | 789 | 30.16 | -50.21 | 31.69 | -51.14
same label | hard | 11 | 100.00 | +19.63 | 100.00 | +17.17
different label | hard | 778 | 29.18 | -51.19 | 30.72 | -52.11
random | hard | 789 | 83.27 | +2.90 | 84.54 | +1.71
non-leaked | hard or soft | 48,320 | 81.00 | +0.63 | 83.52 | +0.69
leaked | hard or soft | 1,680 | 62.44 | -17.93 | 62.80 | -20.03
same label | hard or soft | 812 | 96.06 | +15.69 | 95.44 | +12.61
different label | hard or soft | 868 | 30.99 | -49.38 | 32.26 | -50.57
random | hard or soft | 1,680 | 80.24 | -0.13 | 83.04 | +0.21
"""

PRINTED_2 = {
    ("hard", "non-leaked"): ("49,729", "54.15", "-0.03"),
    ("hard", "leaked"): ("271", "60.15", "+5.97"),
    ("hard", "random"): ("271", "53.51", "-0.67"),
    ("hard or soft", "non-leaked"): ("47,719", "53.54", "-0.64"),
    ("hard or soft", "leaked"): ("2,281", "67.65", "+13.47"),
    ("hard or soft", "random"): ("2,281", "54.84", "+0.66"),
}

PRINTED_4 = """
original | 31,783 | 33.22 | 55.25 | 64.13
non-leaked | 200 | 36.00 ± 3.14 | 58.65 ± 4.19 | 66.15 ± 2.96
leaked | 200 | 45.55 ± 1.19 | 70.80 ± 1.11 | 79.20 ± 0.67
random | 200 | 34.30 ± 2.85 | 55.95 ± 2.54 | 64.80 ± 2.67
non-leaked | 200 | 33.05 ± 3.56 | 54.95 ± 3.12 | 63.75 ± 2.15
leaked | 200 | 34.90 ± 2.07 | 59.05 ± 2.76 | 68.25 ± 2.12
random | 200 | 32.15 ± 3.56 | 56.35 ± 5.18 | 64.25 ± 4.21
"""

#: Gap and relative gap, of CIFAR-10 and CIFAR-100.
PRINTED_GAPS = {
    "Plain-11": ("0.52", "8.80", "3.52", "12.65"),
    "ResNet-110": ("0.51", "9.70", "3.19", "12.25"),
    "WRN-28-10": ("0.36", "9.25", "2.53", "13.35"),
    "DenseNet-BC (L=190, k=40)": ("0.30", "7.69", "2.40", "12.89"),
    "ResNeXt-29 (8x64d)": ("0.39", "10.96", "2.46", "13.38"),
    "PyramidNet-272-200": ("0.42", "11.73", "2.33", "13.67"),
}


def cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in text.strip().splitlines()]


def markdown_rows(result: Impact, title: str) -> list[list[str]]:
    """Return the cells beneath a title of ``impact.md``, without the header."""
    block = markdown(result).split(f"## {title}\n\n", 1)[1].split("\n\n", 1)[0]
    lines = block.splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" |")] for line in lines]


def test_the_papers_own_means_prove_the_misprints() -> None:
    """A whole is the weighted mean of its parts: with the images as printed it is not."""
    for table in (TABLE_2, TABLE_3):
        (_, _, total, whole), *rest = table
        parts = [row for row in rest if row[0] == "hard or soft"][:2]
        assert sum(images for _, _, images, _ in parts) == total
        mean = sum(images * scores[0] for _, _, images, scores in parts) / total
        assert mean == pytest.approx(whole[0], abs=0.011)


def test_table_2_of_ramos() -> None:
    """One model and one metric: the intervals stand beside."""
    (grid,) = layouts(table_2())
    assert grid.header[:4] == ["subset", "leak", "images", "score %"]
    found = {(row[1], row[0]): (row[2], row[3], row[5]) for row in grid.rows}
    assert found.pop(("", "original")) == ("50,000", "54.18", "")
    assert found == PRINTED_2
    assert details(table_2()) == []


def test_table_3_of_ramos_in_markdown() -> None:
    result = table_3()
    assert markdown_rows(result, "Scores on parts of val: accuracy") == cells(PRINTED_3)
    (grid,) = layouts(result)
    assert grid.header[3:] == ["ResNet50 %", "gain", "ResNet152 %", "gain"]
    assert [each.title for each in details(result)] == [
        "Scores with intervals: ResNet50, accuracy",
        "Scores with intervals: ResNet152, accuracy",
    ]


def test_table_4_of_ramos() -> None:
    (grid,) = layouts(table_4())
    assert grid.header == ["subset", "leak", "images", "r@1 %", "r@5 %", "r@10 %"]
    assert [row[:1] + row[2:] for row in grid.rows] == cells(PRINTED_4)
    assert "standard deviation" in grid.title


@pytest.mark.parametrize("first", [0, 2])
def test_table_2_of_cifair(first: int) -> None:
    (grid,) = gaps(cifair(first))
    for row, (name, errors) in zip(grid.rows, ERRORS.items(), strict=True):
        before, after = errors[first : first + 2]
        gap, relative = PRINTED_GAPS[name][first : first + 2]
        assert row[:4] == [name, f"{before:.2f}", f"{after:.2f}", gap]
        assert row[5] == relative


def test_the_best_of_a_column_is_bold() -> None:
    """As printed: the smallest errors of ResNeXt on CIFAR-10, gap and relative gap of DenseNet."""
    rows = markdown_rows(cifair(), "Error on cifar10 and on its fair test set")
    bold = {(row[0], cell) for row in rows for cell in row if cell.startswith("**")}
    dense, resnext = "DenseNet-BC (L=190, k=40)", "ResNeXt-29 (8x64d)"
    assert bold == {
        (resnext, "**3.56**"), (resnext, "**3.95**"), (dense, "**0.30**"), (dense, "**7.69**"),
    }  # fmt: skip
    alone = replace(cifair(), gaps=tuple(gaps_of(0)[:1]))
    assert gaps(alone)[0].bold == frozenset()


def test_equal_bests_are_both_bold() -> None:
    first, *_ = gaps_of(0)
    (grid,) = gaps(replace(cifair(), gaps=(first, replace(first, model="twin"))))
    assert {row for row, _ in grid.bold} == {0, 1}


@given(st.integers(1, 11), st.integers(1, 8))
def test_no_table_is_wider_than_a_page(models: int, metrics: int) -> None:
    """Every score of every model stands in one table of scores."""
    effects = [
        effect_of(TABLE_2, 0, f"m{model}", f"s{metric}")
        for model in range(models)
        for metric in range(metrics)
    ]
    result = impact_of(effects, {"hard": 271, "hard or soft": 2_281})
    grids = layouts(result)
    assert max(len(grid.header) for grid in grids) <= 9
    assert len({grid.title for grid in grids}) == len(grids)
    named = sum(sum(cell == "gain" for cell in grid.header) for grid in grids)
    assert named == models * metrics
    every = models * metrics
    assert len(details(result)) == (every if every > 1 else 0)


def test_a_leak_that_nobody_has_is_said_not_shown() -> None:
    effect = effect_of(TABLE_2, 0, "a")
    result = impact_of([effect], {"hard": 0, "hard or soft": 2_281})
    (grid,) = layouts(result)
    assert {row[1] for row in grid.rows} == {"", "hard or soft"}
    assert "left out of the tables, because no image leaks so: hard\n" in markdown(result)


def test_models_that_answered_other_images_share_a_table() -> None:
    first = effect_of(TABLE_2, 0, "a")
    fewer = tuple(replace(row, images=row.images - 1) for row in first.rows[:-1])
    result = impact_of(
        [first, replace(first, model="b", rows=fewer)], {"hard": 271, "hard or soft": 2_281}
    )
    (grid,) = layouts(result)
    assert grid.rows[0][2] == "49,999-50,000"
    # the row that the second lacks
    assert grid.rows[-1][3:] == ["54.84", "+0.66", "-", "-"]


def test_parts_without_images_have_no_score() -> None:
    effect = effect_of(TABLE_2, 0, "a")
    empty = replace(effect.rows[2], images=0, score=Estimate(math.nan), gain=Estimate(math.nan))
    rows = (*effect.rows[:2], empty, *effect.rows[3:])
    (grid,) = layouts(impact_of([replace(effect, rows=rows)], {"hard": 9, "hard or soft": 9}))
    assert grid.rows[2] == ["leaked", "hard", "0", "-", "-", "-", "-"]


def test_comparisons_say_both_probabilities() -> None:
    (grid,) = comparisons(table_3())
    assert grid.header[-2:] == ["p (Holm)", "within classes"]
    assert grid.rows[0] == [
        "ResNet50", "hard", "789", "49,211", "-51.02", "-54.02 to -48.02", "<0.001 (<0.001)",
        "0.012 (0.024)",
    ]  # fmt: skip
    # without labels there is no column of classes
    effects = [
        replace(
            effect,
            comparisons=tuple(
                replace(each, within_classes=math.nan, within_classes_adjusted=math.nan)
                for each in effect.comparisons
            ),
        )
        for effect in table_3().effects
    ]
    (grid,) = comparisons(impact_of(effects, {"hard": 789, "hard or soft": 1_680}))
    assert "within classes" not in grid.header


def test_the_fair_score_and_the_inflation() -> None:
    (grid,) = fair(table_3())
    # 80.37 on all, 81.00 on what does not leak: the leaks make the score lower
    assert grid.rows[1][:5] == ["ResNet50", "hard or soft", "48,320", "80.37", "81.00"]
    assert grid.rows[1][6] == "-0.63"
    assert "classes lost" not in grid.header
    lost: list[Effect] = [
        replace(effect, comparisons=(replace(effect.comparisons[0], classes_lost=2),))
        for effect in table_3().effects
    ]
    (grid,) = fair(impact_of(lost, {"hard": 789}))
    assert [row[-1] for row in grid.rows] == ["2", "2"]


def test_tables_say_where_less_is_better() -> None:
    """+0.10 in a loss is a loss, and who leads has the negative number."""
    result = cifair()
    effects = tuple(replace(effect, lower=True) for effect in result.effects)
    lower = replace(result, effects=effects)
    for table in (comparisons, fair):
        assert "accuracy (less is better)" in table(lower)[0].title
        assert "less is better" not in table(result)[0].title
    assert flips(lower)[0].rows[0][0] == "accuracy (less is better)"


def test_models_that_keep_their_order_are_counted() -> None:
    """On CIFAR-10 WRN and DenseNet swap; what does not is in a line, not in silence."""
    (grid,) = flips(cifair())
    assert [row[2:7] for row in grid.rows] == [
        ["WRN-28-10", "DenseNet-BC (L=190, k=40)", "+0.01", "-0.05", "yes"]
    ]
    assert "1 of 2 orders of two models hold in more than 95 %" in markdown(cifair())
    may = Flip("accuracy", "near or exact", "WRN-28-10", "Plain-11", 0.1, 0.1, False, 0.05, 0.1, 9)
    (grid,) = flips(replace(cifair(), flips=(may,)))
    assert grid.rows[0][6:] == ["no", "5.00", "10.00"]


@given(st.floats(-1, 1))
def test_a_percentage_has_two_decimals_and_no_negative_zero(value: float) -> None:
    text = score(value, percent=True)
    assert re.fullmatch(r"-?\d+\.\d\d", text)
    assert float(text) == pytest.approx(100 * value, abs=0.00501)
    assert text != "-0.00"
    assert signed(value, percent=True).lstrip("+") == text


@given(st.floats(-1e9, 1e9, allow_nan=False))
def test_another_score_has_four_digits(value: float) -> None:
    text = score(value, percent=False).replace(",", "")
    assert float(text) == pytest.approx(value, rel=5.01e-4)
    digits = re.sub(r"e.*|[-.]", "", text).lstrip("0")
    assert value == 0 or len(digits) == 4 or abs(value) >= 999


def test_what_is_not_known_is_a_hyphen() -> None:
    assert signed_interval(Estimate(0.5), percent=True) == "-"
    assert probability(math.nan) == "-"
    assert probability(0.00099) == "<0.001"
    assert probability(0.001) == "0.001"


def test_the_table_of_two_data_sets_is_the_papers() -> None:
    """Table 2 of Barz & Denzler (2020): CIFAR-10 and CIFAR-100 side by side, the best in bold."""
    grids = together_grids({"C10": cifair(0), "C100": cifair(2)})
    grid = next(each for each in grids if each.title.startswith("Errors"))
    rows = {row[0]: row[1:] for row in grid.rows}
    assert rows["Plain-11"] == ["5.91", "6.43", "0.52", "8.80", "27.82", "31.34", "3.52", "12.65"]
    assert rows["PyramidNet-272-200"][4:] == ["17.05", "19.38", "2.33", "13.67"]
    best = {grid.rows[row][column] for row, column in grid.bold}
    assert best == {"3.56", "3.95", "0.30", "7.69", "17.05", "19.38", "2.33", "12.25"}
    for column, mean in ((3, 0.41), (7, 2.73)):
        values = [float(row[column]) for row in grid.rows]
        assert sum(values) / len(values) == pytest.approx(mean, abs=0.01)
