"""Predictions matched to images by id, and which are correct."""

import numpy as np
import pyarrow as pa
import pytest
from predictions_making import IDS, benchmark
from sklearn.metrics import top_k_accuracy_score

from refusals import refusal
from visleak.errors import VisleakError
from visleak.impact.predictions import PredictionFile
from visleak.impact.predictions.matching import (
    Truth,
    correct_scores,
    coverage_note,
    match,
    unknown_note,
)


@pytest.mark.parametrize(
    ("ids", "theirs", "hint"),
    [
        ([f"{n:03d}.png" for n in range(20)], IDS, "ids agree without their folders"),
        ([f"/data/{n:03d}.jpg" for n in range(20)], IDS, "ids agree without folders and suffixes"),
        ([f"./{i}" for i in IDS], IDS, "between folders and without `./` before"),
        ([i.upper() for i in IDS], IDS, "ids agree without regard to case"),
        ([f" {i}" for i in IDS], IDS, "ids agree without spaces around them"),
        ([f"{n}.0" for n in range(20)], [str(n) for n in range(20)], "zeros and `.0`"),
        ([f"{n:04d}" for n in range(20)], [str(n) for n in range(20)], "without leading zeros"),
        ([str(n) for n in range(20)], IDS, "its ids look like row numbers"),
        ([f"q{n}" for n in range(20)], [str(n) for n in range(20)], "uses row numbers as ids of"),
        ([f"q{n}" for n in range(20)], IDS, "ids must be those of the audit (column `id`"),
    ],
)
def test_ids_that_match_nothing_get_the_likely_reason(ids, theirs, hint):
    said = refusal(VisleakError, match, pa.array(ids), benchmark(theirs), "f.csv")
    assert said.startswith("f.csv: none of its ids is one of set 'test' (20 and 20 ids): it has")
    assert f"set 'test' has {theirs[0]!r}" in said
    assert hint in said


def covered(count, total, *, allowed=False):
    """Return the notes about a file with predictions for the first images."""
    ids = [str(n) for n in range(total)]
    given, test = pa.array(ids[: max(count, 1)]), benchmark(ids, None)
    answered = np.arange(total) < count
    return list(coverage_note(answered, match(given, test, "f"), given, test, "f", allowed))


def test_below_95_percent_is_refused_unless_allowed():
    """At 95 % exactly it is said only; 94.99 % is not shown as 95.0."""
    (note,) = covered(19, 20)
    assert (
        "have a prediction (95.0 %); not in the file: 1, without a value: 0, such as '19'" in note
    )
    assert "only 18 of the 20 readable" in refusal(VisleakError, covered, 18, 20)
    assert covered(18, 20, allowed=True)[0].startswith("only 18 of the 20")
    assert "9,499 of the 10,000" in (said := refusal(VisleakError, covered, 9_499, 10_000))
    assert "(94.9 %)" in said
    assert "only 0 of the 20" in refusal(VisleakError, covered, 0, 20, allowed=True)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["x"], "1 of its 21 predictions (4.8 %) are not for a readable image of set 'test'"),
        (
            [str(n) for n in range(30)],
            "most of the file is about other images: 30 of its 50 predictions",
        ),
    ],
)
def test_answers_for_other_images_are_said(more, said):
    ids = pa.array([*IDS, *more])
    (note,) = unknown_note(match(ids, benchmark(), "f"), ids, benchmark())
    assert note.startswith(said)


def truth_of(labels):
    column = pa.array(labels, pa.string())
    return Truth(column, column.drop_null().unique(), "a test")


def in_blocks(values, size, classes=None):
    """Return a file of class scores, or of lists, that is read in blocks of some rows."""

    def blocks():
        for start in range(0, len(values), size):
            rows = [list(row) for row in values[start : start + size]]
            yield pa.array(rows, pa.list_(pa.float64()))

    ids = pa.array([str(n) for n in range(len(values))])
    names = None if classes is None else pa.array(classes)
    return PredictionFile("f", {"id": ids}, {"scores": blocks}, names)


@pytest.mark.parametrize("size", [7, 500])
def test_top_k_equals_scikit_learn(size):
    random = np.random.default_rng(0)
    values = random.permuted(np.tile(np.arange(30.0), (500, 1)), axis=1)
    label = random.integers(0, 30, 500)
    truth = truth_of([str(number) for number in label])
    found, *_ = correct_scores(in_blocks(values, size), np.arange(500), truth)
    classes = np.arange(30)
    assert found.first.mean() == top_k_accuracy_score(label, values, k=1, labels=classes)
    assert found.top.mean() == top_k_accuracy_score(label, values, k=5, labels=classes)


def test_minus_infinity_is_a_score():
    values = np.array([[-np.inf, 0.0], [-np.inf, -np.inf]])
    found, *_ = correct_scores(in_blocks(values, 9), np.arange(2), truth_of(["1", "0"]))
    assert found.first.tolist() == [1.0, 1.0]


def test_classes_of_one_name_are_one_class():
    values = np.array([[0.1, 0.2, 0.7], [0.7, 0.2, 0.1], [0.1, 0.7, 0.2]])
    scores = in_blocks(values, 2, ["crane", "dog", "Crane"])
    found, *_ = correct_scores(scores, np.arange(3), truth_of(["crane"] * 3))
    assert found.first.tolist() == [1.0, 1.0, 0.0]
    assert found.top is None  # of three classes all are among the first five


def test_only_rows_that_are_asked_for_count():
    values = np.array([[np.nan, 1.0], [0.0, 1.0], [1.0, 0.0]])
    scores = in_blocks(values, 2)
    found, *_ = correct_scores(scores, np.array([1, 2]), truth_of(["1", "1"]))
    assert found.first.tolist() == [1.0, 0.0]
    with pytest.raises(VisleakError, match="f: row 0 has a class score that is missing or NaN"):
        correct_scores(scores, np.array([0, 1]), truth_of(["1", "1"]))


def test_names_and_scores_must_be_as_many():
    scores = in_blocks(np.eye(2), 2, ["a", "b", "c"])
    with pytest.raises(VisleakError, match="f: 3 class names for 2 class scores per image"):
        correct_scores(scores, np.arange(2), truth_of(["a"] * 2))
