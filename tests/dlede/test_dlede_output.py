"""What is written: files that come back, the paper's tables, names as text, figures."""

import csv
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from dlede_making import KITTI, cirrus, curves, early, kitti, result, whole
from matplotlib.figure import Figure as Canvas
from matplotlib.text import Annotation

from visleak.dlede.document import document, read_result, write
from visleak.dlede.document.figures import figures
from visleak.dlede.judge.scores import read_scores

pytestmark = pytest.mark.usefixtures("drawn_figures")


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    write(whole(), folder, sheet=b"png")
    return folder


def table(made, title):
    return next(grid for grid in document(made).grids() if grid.title.startswith(title))


def scores(made):
    return table(made, "Scores by share")


def column(grid, name):
    return [row[grid.header.index(name)] for row in grid.rows]


def test_the_hash_table_counts_every_cut(out):
    grid = table(whole(), "Perceptual hashes")
    assert column(grid, "distance") == [str(cut) for cut in range(17)]
    pairs = [row[2] for row in grid.rows]
    assert (pairs[0], pairs[8], pairs[10]) == ("851", "21,118", "27,369")
    assert grid.rows[10][-1] == "77.51"
    with (out / "phash.csv").open(newline="") as lines:
        assert len(list(csv.DictReader(lines))) == 65


@pytest.mark.parametrize("make", [cirrus, kitti, early, whole])
def test_what_was_written_comes_back(make, tmp_path):
    made = make()
    write(made, tmp_path)
    found = read_result(tmp_path)
    # a NaN equals nothing, its text does
    assert repr(found) == repr(made)


def test_a_missing_training_stays_missing(tmp_path):
    made = kitti()
    values = made.scores.values.copy()
    values[:, 3, 5] = np.nan
    made = replace(made, scores=replace(made.scores, values=values))
    write(made, tmp_path)
    assert np.isnan(read_result(tmp_path).scores.values[:, 3, 5]).all()
    with (tmp_path / "curve.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == 109
    assert [row["step"] for row in rows if row["repetition"] == "4"].count("50") == 0
    grid = scores(made)
    assert column(grid, "runs") == ["10"] * 5 + ["9"] + ["10"] * 5


def test_the_curve_can_be_judged_again(out):
    found, scores = read_scores(out / "curve.csv"), whole().scores
    assert (found.steps, found.repetitions) == (scores.steps, scores.repetitions)
    for metric in scores.metrics:
        assert found.of(metric) == pytest.approx(scores.of(metric))


@pytest.mark.parametrize(
    ("means", "repetitions"), [((0.6, 0.59, 0.585), 1), ((0.5, 0.505, 0.52), 2)]
)
def test_wide_intervals_and_other_units_can_be_drawn(means, repetitions):
    made = result(curves({"map50": means, "f1": means}, repetitions, 0.12, seed=5))
    loss = 20.0 * made.scores.values[:1]
    scores_with_loss = replace(
        made.scores,
        metrics=("map50", "f1", "loss"),
        values=np.concatenate([made.scores.values, loss]),
        lower=frozenset({"loss"}),
    )
    with_loss = replace(made, scores=scores_with_loss)
    assert all(figure.files["png"][:4] == b"\x89PNG" for figure in figures(with_loss)[:2])
    assert "loss (lower is better)" in scores(with_loss).header
    many = {f"m{n}" * 20: (0.5, 0.6, 0.7) for n in range(9)}
    assert figures(result(curves(many, 3, 0.01), tuple(many)))[0].files


@pytest.mark.parametrize("repetitions", [1, 5])
@pytest.mark.parametrize("means", [(0.80, 0.76, 0.78), (0.80, 0.70, 0.62)])
def test_increases_carry_no_arrow_without_an_interval_and_no_number_on_the_axis(
    means, repetitions, monkeypatch
):
    drawn = []
    monkeypatch.setattr(Canvas, "savefig", lambda figure, *_, **__: drawn.append(figure))
    spread = 0.02 if repetitions > 1 else 0.0
    figures(result(curves({"map50": means, "f1": means[::-1]}, repetitions, spread)))
    axes = next(f.axes[0] for f in drawn if "increase" in f.axes[0].get_ylabel())
    axes.figure.draw_without_rendering()
    markers = {str(line.get_marker()) for line in axes.lines}
    assert repetitions > 1 or markers == {"None"}
    bars = {round(bar.get_x() + bar.get_width() / 2, 6): bar.get_height() for bar in axes.patches}
    numbers = {round(text.xy[0], 6): text for text in axes.texts if isinstance(text, Annotation)}
    assert bars.keys() <= numbers.keys()
    inside = axes.get_window_extent()
    zero = axes.transData.transform((0, 0))[1]
    for x, height in bars.items():
        box = numbers[x].get_window_extent()
        end = axes.transData.transform((0, height))[1]
        assert box.y1 <= min(end, zero) if height < 0 else box.y0 >= max(end, zero)
        assert inside.y0 <= box.y0
        assert box.y1 <= inside.y1


def test_everything_is_reported():
    made = document(whole())
    assert any("851 of 2,250 test images have a copy" in line for line in made.lines)
    captions = [grid.title for grid in made.grids()]
    for words in (
        *("Scores by share", "Verdicts at a", "Perceptual hashes", "Most similar pairs"),
        *("Images of each class", "Objects of each class", "Gain of leaked"),
        *("clean splits of the same images, 21 groups", "longer training", "failed twice"),
    ):
        assert any(words in caption for caption in captions), words


def test_intervals_hold_the_means(out):
    with (out / "increases.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert {row["metric"] for row in rows} == {"map50", "f1"}
    for row in rows:
        assert float(row["mean_low"]) < float(row["mean"]) < float(row["mean_high"])
    own = [row for row in rows if row["metric"] == "map50"]
    ends = ("increase", "increase_low", "increase_high")
    assert [own[0][end] for end in ends] == ["", "", ""]
    for before, after in pairwise(own):
        rise = float(after["mean"]) / float(before["mean"]) - 1
        assert float(after["increase"]) == pytest.approx(rise)
    assert [float(row["mean"]) for row in own] == pytest.approx(list(KITTI["map50"]))


@pytest.mark.parametrize("missing", ["zero", "step"])
def test_a_curve_that_cannot_be_judged_is_shown_all_the_same(missing, tmp_path):
    made = early(3)
    values = made.scores.values.copy()
    if missing == "zero":
        values[0, :, 0] = 0.0
    else:
        values[:, :, 2] = np.nan
    made = result(replace(made.scores, values=values))
    write(made, tmp_path)
    assert repr(read_result(tmp_path)) == repr(made)
    grid = scores(made)
    assert column(grid, "R mAP@0.5 %")[1 if missing == "zero" else 2] == "-"
