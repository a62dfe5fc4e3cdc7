"""What an impact writes: files that come back, names as text, figures with what they say."""

from __future__ import annotations

import csv
import json
import math
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from impact_making import HOSTILE, cifair, hostile, table_2, table_3, table_4
from PIL import Image

from visleak.errors import VisleakError
from visleak.impact import figures, scatter
from visleak.impact.markup import latex
from visleak.impact.output import write
from visleak.impact.results import Effect, Estimate, Impact, Row
from visleak.impact.rows import COMPARISONS, EFFECTS, FLIPS, GAPS
from visleak.impact.section import section
from visleak.impact.stored import as_dict, read_impact
from visleak.report import sections

ALWAYS = {
    "impact.json", "impact.csv", "comparisons.csv", "impact.md", "impact.tex",
    "gains.svg", "gains.png", "fair.svg", "fair.png",
}  # fmt: skip


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(cifair(), tmp_path_factory.mktemp("cifair"))


@pytest.fixture(scope="module")
def bitten(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(hostile(), tmp_path_factory.mktemp("hostile"))


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def test_files_of_an_earlier_result_go(tmp_path: Path) -> None:
    write(cifair(), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == ALWAYS | {"flips.csv", "gaps.csv"}
    alone = table_2()
    bare = replace(alone, leaks=dict.fromkeys(alone.leaks, 0))
    bare = replace(bare, effects=(replace(bare.effects[0], comparisons=()),))
    write(bare, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        "impact.json", "impact.csv", "impact.md", "impact.tex"
    }  # fmt: skip


@pytest.mark.parametrize("make", [table_2, table_3, table_4, cifair, hostile])
def test_what_was_written_comes_back(make: Callable[[], Impact], tmp_path: Path) -> None:
    """NaN by NaN: nothing is lost but that numbers not known are null in the file."""
    made = make()
    (tmp_path / "impact.json").write_text(json.dumps(as_dict(made), allow_nan=False))
    found = read_impact(tmp_path)
    # a NaN equals nothing, its text does
    assert repr(found) == repr(made)


def test_a_newer_or_damaged_file_is_refused_in_one_line(out: Path, tmp_path: Path) -> None:
    content = json.loads((out / "impact.json").read_text())
    path = tmp_path / "impact.json"
    path.write_text(json.dumps(content | {"schema": 2}))
    with pytest.raises(
        VisleakError, match=r"has layout 2, this visleak reads up to 1; use a newer"
    ):
        read_impact(tmp_path)
    path.write_text(json.dumps(content | {"kind": "visleak study"}))
    with pytest.raises(VisleakError, match=r"it is not a result of `visleak impact`"):
        read_impact(tmp_path)
    with pytest.raises(VisleakError, match=r"cannot be read"):
        read_impact(tmp_path / "none")
    for key, value in (("images", "many"), ("images", True), ("effects", [{}]), ("leaks", [])):
        path.write_text(json.dumps(content | {key: value}))
        with pytest.raises(VisleakError, match=r"is damaged \(.*\); run visleak impact again"):
            read_impact(tmp_path)
    del content["flips"]
    path.write_text(json.dumps(content))
    with pytest.raises(VisleakError, match=r"is damaged \('flips'\)"):
        read_impact(tmp_path)


def test_a_write_that_fails_leaves_no_result(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half old and half new must not look like a result."""
    from visleak.impact import output

    shutil.copytree(out, tmp_path / "copy")
    monkeypatch.setattr(output, "latex", lambda result: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write(table_2(), tmp_path / "copy")
    assert not (tmp_path / "copy" / "impact.json").exists()
    assert not list((tmp_path / "copy").glob("*.part"))


def test_the_csv_files_hold_every_number(out: Path) -> None:
    made = cifair()
    rows = rows_of(out / "impact.csv")
    assert tuple(rows[0]) == EFFECTS
    assert len(rows) == sum(len(effect.rows) for effect in made.effects)
    flat = [(effect, row) for effect in made.effects for row in effect.rows]
    for found, (effect, row) in zip(rows, flat, strict=True):
        assert (found["model"], found["leak"], found["subset"]) == (
            effect.model, row.leak, row.subset,
        )  # fmt: skip
        assert float(found["score"]) == pytest.approx(row.score.value)
        assert found["deviation"] == ""
        known = not math.isnan(row.gain.value)
        assert (float(found["gain"]) if known else found["gain"]) == (
            pytest.approx(row.gain.value) if known else ""
        )
    (first, *_) = rows_of(out / "comparisons.csv")
    assert tuple(first) == COMPARISONS
    assert float(first["difference_low"]) < 0.05
    flips = rows_of(out / "flips.csv")
    assert tuple(flips[0]) == FLIPS
    # negative numbers are numbers, not formulas to be quoted
    assert [(row["flipped"], row["fair"]) for row in flips] == [
        ("yes", "-0.0005"),
        ("no", "0.0218"),
    ]
    gaps = rows_of(out / "gaps.csv")
    assert tuple(gaps[0]) == GAPS
    assert float(gaps[1]["relative"]) == pytest.approx(0.0970, abs=5e-5)


def test_a_name_is_no_formula(bitten: Path) -> None:
    for name in ("impact.csv", "comparisons.csv", "flips.csv", "gaps.csv"):
        with (bitten / name).open(newline="", encoding="utf-8") as lines:
            cells = [cell for row in csv.reader(lines) for cell in row]
        assert not any(cell.startswith(("=", "+", "@", "\t")) for cell in cells)
        assert not any(cell.startswith("-") and not _is_number(cell) for cell in cells)
    assert "'=cmd()" in {row["model"] for row in rows_of(bitten / "impact.csv")}


def _is_number(cell: str) -> bool:
    return bool(re.fullmatch(r"-?[\d.]+(e-\d+)?", cell))


def test_a_name_is_no_markup(bitten: Path) -> None:
    text = (bitten / "impact.md").read_text(encoding="utf-8")
    bare = re.sub(r"\\.", "", text)
    assert "<" not in bare
    assert "$" not in bare
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        counts = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(counts) == 1
    tex = (bitten / "impact.tex").read_text(encoding="utf-8")
    for columns, body in re.findall(
        r"\\begin{tabular}{(.*?)}\n(.*?)\\end{tabular}", tex, re.DOTALL
    ):
        rows = [line for line in body.splitlines() if line.endswith(r"\\")]
        assert {len(re.findall(r"(?<!\\)&", row)) + 1 for row in rows} == {len(columns)}
    assert "\x1b" not in text + tex


def test_a_figure_holds_no_markup(bitten: Path) -> None:
    for name in ("gains.svg", "fair.svg"):
        root = ElementTree.parse(bitten / name).getroot()
        assert not [
            e for e in root.iter() if e.tag.rpartition("}")[2] in ("script", "img", "image")
        ]
        # texts are drawn as shapes, so that no name is left to be read as anything
        assert "onerror" not in re.sub(r"<!--.*?-->", "", (bitten / name).read_text())
        assert "<img" not in (bitten / name).read_text()


def test_the_latex_compiles(bitten: Path, tmp_path: Path) -> None:
    """With booktabs alone, whatever names are in it."""
    program = shutil.which("pdflatex")
    if program is None:
        pytest.skip("pdflatex is not installed")
    write(table_4(), tmp_path)
    shutil.copy(bitten / "impact.tex", tmp_path / "hostile.tex")
    (tmp_path / "paper.tex").write_text(
        "\\documentclass{article}\\usepackage{booktabs}\\begin{document}\n"
        "\\input{hostile}\\clearpage\\input{impact}\n\\end{document}\n"
    )
    ran = subprocess.run(
        [program, "-interaction=nonstopmode", "-halt-on-error", "paper.tex"],
        cwd=tmp_path, capture_output=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout.decode(errors="replace")[-800:]


def test_no_table_is_longer_than_a_page_of_latex() -> None:
    """Sixty models of one leak: each stands in one part."""
    result = cifair()
    names = [f"m{number:02d}" for number in range(60)]
    gaps = tuple(replace(result.gaps[0], model=name) for name in names)
    tex = latex(replace(result, gaps=gaps))
    first, second = re.findall(r"\\caption{Error on.*?\\end{table}", tex, re.DOTALL)
    assert "(1 of 2)" in first
    assert "(2 of 2)" in second
    assert re.findall(r"^m\d\d", first + second, re.MULTILINE) == names


@pytest.mark.parametrize("name", ["gains", "fair"])
def test_figures_have_colour_on_them(out: Path, name: str) -> None:
    with Image.open(out / f"{name}.png") as image:
        assert image.width > 500
        colours = image.convert("RGB").getcolors(1 << 24)
        total = image.width * image.height
    assert colours is not None
    assert any(max(c) - min(c) > 60 and count / total > 0.0005 for count, c in colours)


def test_the_same_result_gives_the_same_bytes(out: Path, tmp_path: Path) -> None:
    write(cifair(), tmp_path)
    for path in sorted(out.iterdir()):
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name


def test_bars_are_as_long_as_their_gains(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[float] = []
    real = figures._bar

    def spied(axes, y, gain, colour, reach, *, percent):
        before = len(axes.patches)
        real(axes, y, gain, colour, reach, percent=percent)
        (patch,) = axes.patches[before:]
        drawn.append(patch.get_width())
        assert reach[0] <= patch.get_width() <= reach[1]

    monkeypatch.setattr(figures, "_bar", spied)
    result = table_3()
    figures.gains(result)
    expected = [
        100 * result.effect(model, "accuracy").row(leak, subset).gain.value
        for leak in result.leaks
        for subset in ("non-leaked", "leaked", "same label", "different label", "random")
        for model in result.models
    ]
    np.testing.assert_allclose(drawn, expected)


def test_an_interval_of_one_image_does_not_flatten_the_rest() -> None:
    """The axis ends where bars and the intervals of leaked images and of the others end."""
    result = table_3()
    effect = result.effects[0]
    wide = [
        replace(row, gain=replace(row.gain, low=-0.99)) if row.subset == "random" else row
        for row in effect.rows
    ]
    rows = {"hard": ["non-leaked", "leaked", "random"]}
    assert figures._reach([replace(effect, rows=tuple(wide))], rows) == figures._reach(
        [effect], rows
    )


def test_what_does_not_fit_the_figure_is_counted() -> None:
    """Six colours; a seventh model is in the tables, and the title says so."""
    texts: list[str] = []
    result = cifair()
    effects = (*result.effects, replace(result.effects[0], model="seventh"))

    def spied(figure: object, name: str) -> dict[str, bytes]:
        texts.extend(text.get_text() for text in figure.texts)  # type: ignore[attr-defined]
        return {"svg": b""}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "saved", spied)
        figures.gains(replace(result, effects=effects))
    assert "Gain on parts of cifar10: accuracy; 1 more in the tables" in texts


def test_points_are_errors_where_both_are_known() -> None:
    found, across, up = scatter.points(cifair())
    assert (found[1].original.value, found[1].fair.value) == pytest.approx((0.0526, 0.0577))
    assert (across, up) == ("error on cifar10, %", "error on its fair test set, %")
    found, across, up = scatter.points(table_3())
    assert [p.name for p in found] == ["ResNet50", "ResNet152"]
    assert [p.fair.value for p in found] == pytest.approx([0.81, 0.8352])
    assert (across, up) == ("accuracy on all of val, %", "without leaks (hard or soft), %")


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_names_never_overlap(wanted: list[float]) -> None:
    step = 1 / 19
    places = scatter.spread(sorted(wanted), step)
    assert all(b - a >= step - 1e-9 for a, b in pairwise(places))
    assert min(places) >= -1e-9
    assert max(places) <= 1 + 1e-9


def test_no_two_texts_of_the_scatter_overlap() -> None:
    """Twelve models with all but one number: names, axes and title as they are drawn."""
    result = cifair()
    gaps = [
        replace(
            result.gaps[0], model=f"model number {n}", fair=Estimate(0.06 + n * 1e-5, 0.05, 0.07)
        )
        for n in range(12)
    ]
    boxes: list[object] = []

    def spied(figure: object, name: str) -> dict[str, bytes]:
        renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
        axes = figure.axes[0]  # type: ignore[attr-defined]
        texts = [*figure.texts, *axes.texts, axes.xaxis.label, axes.yaxis.label]  # type: ignore[attr-defined]
        boxes.extend(text.get_window_extent(renderer) for text in texts)
        return {"svg": b"", "png": b""}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scatter, "saved", spied)
        scatter.fair(replace(result, gaps=tuple(gaps)))
    assert len(boxes) == 12 + 5
    for at, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[at + 1 :])  # type: ignore[attr-defined]


def test_the_section_is_one_that_the_report_can_show(tmp_path: Path) -> None:
    (tmp_path / "sections").mkdir()
    for made in (table_3(), hostile()):
        (tmp_path / "sections" / "impact.json").write_text(json.dumps(section(made)))
        (found,) = sections.load(tmp_path)
        assert found.trouble == ()
        assert found.title == "Impact on scores"
        assert len(found.drawings) == 2
        assert all(each.source.startswith("data:image/svg+xml;") for each in found.drawings)
        page = str(found.body)
        assert "<img" not in page
        assert "<script" not in page
        assert "<a " not in page


def test_names_stand_in_the_section_as_they_are() -> None:
    """Escaped for Markdown, and the report takes the escapes away again."""
    from visleak.report.sections import rendered

    made = hostile()
    link = "[click](https://evil.example) **bold** `code`"
    body = str(rendered(section(replace(made, notes=(*HOSTILE, link)))["markdown"]))
    assert "<li>[click](https://evil.example) **bold** `code`</li>" in body
    assert "<li>a|b</li>" in body
    assert "<li>&lt;img src=x onerror=alert(1)&gt;</li>" in body
    assert "<a " not in body


def test_the_section_draws_the_leak_of_the_sentences() -> None:
    """No more than three panels, and it says how many there are."""
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
    first, _ = section(result)["svg"]
    assert first["title"].endswith("; 3 of 5 leaks, gains.svg has all")
    from visleak.impact.section import _panels

    assert _panels(result) == (["near or exact", "hard", "hard or soft"], 5)


@pytest.mark.parametrize("scale", [1e-5, 0.07, 123.0, 130_053.0])
def test_numbers_of_bars_lie_in_their_panel(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses of many digits are not written over the names of the parts; nor gains over others."""
    leaks = {"hard": 289, "hard or soft": 2_000}
    rows = [Row("", "original", 10_000, Estimate(scale), Estimate(math.nan))]
    for leak, images in leaks.items():
        for subset, gain in (("non-leaked", -0.9), ("leaked", 1.1), ("random", -0.01)):
            value = gain * scale
            ends = Estimate(value, value - 0.2 * scale, value + 0.2 * scale)
            # the interval of one draw is not known
            known = ends if subset != "random" else Estimate(value)
            rows.append(Row(leak, subset, images, Estimate(scale + value), known))
    effect = Effect("m", "loss", (10_000, 10_000), False, False, True, tuple(rows), ())
    result = replace(table_2(), effects=(effect,), leaks=leaks)
    drawn = []

    def kept(figure: Any, name: str) -> dict[str, bytes]:
        figure.canvas.draw()
        drawn.append(figure)
        return {}

    monkeypatch.setattr(figures, "saved", kept)
    figures.gains(result)
    (figure,) = drawn
    for axes in figure.axes:
        frame = axes.get_window_extent()
        for text in axes.texts:
            box = text.get_window_extent()
            assert frame.x0 <= box.x0, text.get_text()
            assert box.x1 <= frame.x1, text.get_text()
        assert not axes.xaxis.get_offset_text().get_text()
        # arrows are for what goes on beyond the axis, and nothing does here
        markers = {str(line.get_marker()) for line in axes.lines}
        assert not markers & {"<", ">"}
