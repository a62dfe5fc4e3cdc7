"""Top-1 and top-5, against scikit-learn and counts by hand."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sklearn.metrics import top_k_accuracy_score

from visleak.errors import VisleakError
from visleak.impact.predictions import PredictionFile
from visleak.impact.predictions.matching import Truth, correct_scores, places


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
    return PredictionFile({}, {"scores": blocks}, names, path="f", ids=ids)


@pytest.mark.parametrize("size", [1, 7, 500])
def test_top_k_equals_scikit_learn(size):
    random = np.random.default_rng(0)
    values = random.permuted(np.tile(np.arange(30.0), (500, 1)), axis=1)
    label = random.integers(0, 30, 500)
    truth = truth_of([str(number) for number in label])
    found = correct_scores(in_blocks(values, size), np.arange(500), truth).correct
    classes = np.arange(30)
    assert found.first.mean() == top_k_accuracy_score(label, values, k=1, labels=classes)
    assert found.top.mean() == top_k_accuracy_score(label, values, k=5, labels=classes)


@given(
    arrays.arrays(
        np.float32,
        st.tuples(st.integers(1, 6), st.integers(1, 8)),
        elements=st.sampled_from([0, 1, 2]),
    )
)
def test_places_are_those_of_a_stable_sort(values):
    """Ties go by the order of classes: each place is taken once, and the first is argmax's."""
    count = values.shape[1]
    found = np.stack(
        [places(values, np.full((len(values), 1), column)) for column in range(count)], axis=1
    )
    order = np.argsort(-values, axis=1, kind="stable")
    assert (np.argsort(found, axis=1) == order).all()
    assert (np.argmin(found, axis=1) == values.argmax(axis=1)).all()


def test_minus_infinity_is_a_score():
    values = np.array([[-np.inf, 0.0], [-np.inf, -np.inf]])
    found = correct_scores(in_blocks(values, 9), np.arange(2), truth_of(["1", "0"]))
    assert found.correct.first.tolist() == [1.0, 1.0]


def test_classes_of_one_name_are_one_class():
    """ImageNet has two classes `crane`; the better of them counts, as it does for a prediction."""
    values = np.array([[0.1, 0.2, 0.7], [0.7, 0.2, 0.1], [0.1, 0.7, 0.2]])
    scores = in_blocks(values, 2, ["crane", "dog", "Crane"])
    found = correct_scores(scores, np.arange(3), truth_of(["crane"] * 3))
    assert found.correct.first.tolist() == [1.0, 1.0, 0.0]
    assert found.correct.top is None  # of three classes all are among the first five


def test_only_rows_that_are_asked_for_count():
    """A NaN of an image that the audit lacks is nobody's business; one of another is refused."""
    values = np.array([[np.nan, 1.0], [0.0, 1.0], [1.0, 0.0]])
    scores = in_blocks(values, 2)
    found = correct_scores(scores, np.array([1, 2]), truth_of(["1", "1"]))
    assert found.correct.first.tolist() == [1.0, 0.0]
    with pytest.raises(VisleakError, match="f: row 0 has a class score that is missing or NaN"):
        correct_scores(scores, np.array([0, 1]), truth_of(["1", "1"]))


def test_names_and_scores_must_be_as_many():
    with pytest.raises(VisleakError, match="f: 3 class names for 2 class scores per image"):
        correct_scores(in_blocks(np.eye(2), 2, ["a", "b", "c"]), np.arange(2), truth_of(["a"] * 2))
    with pytest.raises(VisleakError, match="f: its class scores have no class"):
        correct_scores(in_blocks(np.ones((2, 0)), 2), np.arange(2), truth_of(["a"] * 2))
