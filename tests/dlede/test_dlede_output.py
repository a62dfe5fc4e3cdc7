"""What is said and written: true in every state, files that come back, the paper's tables."""

import csv
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from dlede_making import KITTI, cirrus, curves, early, kitti, result, whole

from visleak.dlede.document import document, read_result, write
from visleak.dlede.document.figures import figures
from visleak.dlede.document.text import headline, statements
from visleak.dlede.judge.scores import read_scores
from visleak.dlede.results import precise_rise


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    write(whole(), folder, sheet=b"png")
    return folder


def rows_of(file):
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def table(made, title):
    return next(grid for grid in document(made).grids() if grid.title.startswith(title))


def column(made, name):
    grid = table(made, "Scores by share")
    return [row[grid.header.index(name)] for row in grid.rows]


def text(made):
    return "\n".join((headline(made), *statements(made)))


def judged(made, **changes):
    return replace(made, judgement=replace(made.judgement, **changes))


def of(*rows, repetitions=8):
    """Return a result of metrics with hardly any noise."""
    names = ("map50", "f1") if len(rows) == 2 else [f"m{n}" for n in range(len(rows))]
    return result(curves(dict(zip(names, rows, strict=True)), repetitions, 0.0005), tuple(names))


def disagreeing(repetitions=8):
    return of((0.6, 0.605, 0.61), (0.5, 0.6, 0.7), repetitions=repetitions)


def undecided(**changes):
    return judged(early(), leaking=0.72, clean=0.031, verdict="undecided", **changes)


def calibrated(threshold):
    made = whole()
    return replace(made, calibration=replace(made.calibration, threshold=threshold))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (cirrus, "no leak shows (certainty over 99.9 %, 10 repetitions)"),
        (cirrus, "by 22.4 % and F1 by 16.3 %, the next 10 % by 14.1 % and 12.3 % (each above 5 %"),
        # KITTI starts at F1 .839: memorizing 10 % adds .1 (1 - .839) / .839 = 1.9 %, leak or not
        (kitti, "so high that memorizing the leaked images alone adds about 1.9 %"),
        (kitti, "mAP@0.5 by 0.5 % and F1 by 0.4 %, the next 10 % by 1.2 % and 1.0 %"),
        (lambda: replace(cirrus(), judgement=cirrus().others[1]), "by 39.7 % and F1 by 30.6 %"),
        (
            lambda: undecided(more=6),
            "6 more repetitions would probably decide it: --repetitions 11",
        ),
        (lambda: undecided(more=None), "more repetitions would hardly decide it"),
        (disagreeing, "by mAP@0.5 the split seems to leak already and by F1 no leak shows"),
        (lambda: disagreeing(1), "by mAP@0.5 the split seems to leak already and by F1 no leak"),
        (lambda: of(*[(0.5, 0.52, 0.6)] * 3, (0.5, 0.6, 0.7)), "4 metrics by 4.0 to 20.0 %"),
        (lambda: of((0.8, 0.81, 0.82), (0.01, 0.01, 0.0102)), "F1 of 0.010"),
        (
            lambda: of(*[(0.8, 0.81, 0.82)] * 2),
            "mAP@0.5 and F1 of 0.800 and 0.800 without leaks on",
        ),
        # of a split that leaks the score starts higher, which the increase alone does not show
        (whole, "is 0.852 on this split and 0.486 on clean splits of the same images"),
        (whole, "the threshold is 8.3 %, by which the means say that the split seems to leak"),
        (lambda: calibrated(0.001), "by which the means show no leak"),
        (lambda: calibrated(0.01), "by which the means contradict each other"),
        (lambda: judged(whole(), threshold=0.083), "the threshold is calibrated on 2 clean splits"),
    ],
)
def test_what_a_result_says(make, words):
    assert words in text(make())


def test_trainings_made_elsewhere_cannot_be_repeated_here():
    assert "--repetitions" not in text(replace(undecided(more=6), trainer={"name": "scores"}))


def test_a_rounded_number_keeps_its_side_of_the_threshold():
    for share in (0.0496, 0.04999, 0.05, 0.0500001, 0.0501, 0.12):
        assert (float(precise_rise(share, 0.05)) > 5.0) == (share > 0.0500005)


def test_the_hash_table_counts_every_cut(out):
    grid = table(whole(), "Perceptual hashes")
    pairs = [row[2] for row in grid.rows]
    assert (len(pairs), pairs[0], pairs[8], pairs[10]) == (17, "851", "21,118", "27,369")
    assert grid.rows[10][-1] == "77.51"
    assert len(rows_of(out / "phash.csv")) == 65


def test_what_was_written_comes_back(out):
    # a NaN equals nothing, its text does
    assert repr(read_result(out)) == repr(whole())


def test_a_missing_training_stays_missing(tmp_path):
    made = kitti()
    values = made.scores.values.copy()
    values[:, 3, 5] = np.nan
    made = replace(made, scores=replace(made.scores, values=values))
    write(made, tmp_path)
    assert np.isnan(read_result(tmp_path).scores.values[:, 3, 5]).all()
    rows = rows_of(tmp_path / "curve.csv")
    assert len(rows) == 109
    assert [row["step"] for row in rows if row["repetition"] == "4"].count("50") == 0
    assert column(made, "runs") == ["10"] * 5 + ["9"] + ["10"] * 5


def test_the_curve_can_be_judged_again(out):
    found, scores = read_scores(out / "curve.csv"), whole().scores
    assert (found.steps, found.repetitions) == (scores.steps, scores.repetitions)
    for metric in scores.metrics:
        assert found.of(metric) == pytest.approx(scores.of(metric))


@pytest.mark.parametrize(
    ("means", "repetitions"), [((0.6, 0.59, 0.585), 1), ((0.5, 0.505, 0.52), 2)]
)
@pytest.mark.usefixtures("drawn_figures")
def test_wide_intervals_and_other_units_can_be_drawn(means, repetitions):
    made = result(curves({"map50": means, "f1": means}, repetitions, 0.12, seed=5))
    values = np.concatenate([made.scores.values, 20.0 * made.scores.values[:1]])
    units = {"metrics": ("map50", "f1", "loss"), "lower": frozenset({"loss"})}
    with_loss = replace(made, scores=replace(made.scores, values=values, **units))
    assert all(figure.files["png"][:4] == b"\x89PNG" for figure in figures(with_loss)[:2])
    assert column(with_loss, "loss (lower is better)")
    many = {f"m{n}" * 20: (0.5, 0.6, 0.7) for n in range(9)}
    assert figures(result(curves(many, 3, 0.01), tuple(many)))[0].files


def test_intervals_hold_the_means(out):
    rows = rows_of(out / "increases.csv")
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
    assert column(made, "R mAP@0.5 %")[1 if missing == "zero" else 2] == "-"
