"""Top-1 and top-5, against scikit-learn and counts by hand."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sklearn.metrics import top_k_accuracy_score

from visleak.errors import VisleakError
from visleak.impact.answer_columns import ClassScores
from visleak.impact.scoring import Truth, places, right_ranked, right_scores


def truth_of(labels: list[str | None]) -> Truth:
    column = pa.array(labels, pa.string())
    return Truth(column, column.drop_null().unique(), "a test")


def in_blocks(values: np.ndarray, size: int, classes: list[str] | None = None) -> ClassScores:
    def blocks() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for start in range(0, len(values), size):
            part = values[start : start + size]
            yield part, np.ones(len(part), dtype=bool)

    return ClassScores(None if classes is None else pa.array(classes), blocks)


@pytest.mark.parametrize("size", [1, 7, 500])
def test_top_k_equals_scikit_learn(size: int) -> None:
    """Without ties there is one answer, whatever the blocks."""
    random = np.random.default_rng(0)
    values = random.permuted(np.tile(np.arange(30.0), (500, 1)), axis=1)
    label = random.integers(0, 30, 500)
    truth = truth_of([str(number) for number in label])
    found = right_scores(in_blocks(values, size), np.arange(500), truth, "f").right
    assert found.top is not None
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
def test_places_are_those_of_a_stable_sort(values: np.ndarray) -> None:
    """Ties go by the order of classes: each place is taken once, and the first is argmax's."""
    count = values.shape[1]
    found = np.stack(
        [places(values, np.full((len(values), 1), column)) for column in range(count)], axis=1
    )
    order = np.argsort(-values, axis=1, kind="stable")
    assert (np.argsort(found, axis=1) == order).all()
    assert (np.argmin(found, axis=1) == values.argmax(axis=1)).all()


def test_minus_infinity_is_a_score() -> None:
    """Logarithms of probabilities are often so; only the order counts."""
    values = np.array([[-np.inf, 0.0], [-np.inf, -np.inf]])
    found = right_scores(in_blocks(values, 9), np.arange(2), truth_of(["1", "0"]), "f")
    assert found.right.first.tolist() == [1.0, 1.0]


def test_classes_of_one_name_are_one_class() -> None:
    """ImageNet has two classes `crane`; the better of them counts, as it does for a prediction."""
    values = np.array([[0.1, 0.2, 0.7], [0.7, 0.2, 0.1], [0.1, 0.7, 0.2]])
    scores = in_blocks(values, 2, ["crane", "dog", "Crane"])
    found = right_scores(scores, np.arange(3), truth_of(["crane"] * 3), "f")
    assert found.right.first.tolist() == [1.0, 1.0, 0.0]
    assert found.right.top is None  # of three classes all are among the first five


def test_only_rows_that_are_asked_for_count() -> None:
    """A NaN of an image that the audit lacks is nobody's business; one of another is refused."""
    values = np.array([[np.nan, 1.0], [0.0, 1.0], [1.0, 0.0]])
    scores = in_blocks(values, 2)
    found = right_scores(scores, np.array([1, 2]), truth_of(["1", "1"]), "f")
    assert found.right.first.tolist() == [1.0, 0.0]
    with pytest.raises(VisleakError, match="f: row 0 has a class score that is missing or NaN"):
        right_scores(scores, np.array([0, 1]), truth_of(["1", "1"]), "f")


def test_names_and_scores_must_be_as_many() -> None:
    with pytest.raises(VisleakError, match="f: 3 class names for 2 class scores an image"):
        right_scores(
            in_blocks(np.eye(2), 2, ["a", "b", "c"]), np.arange(2), truth_of(["a"] * 2), "f"
        )
    with pytest.raises(VisleakError, match="f: its class scores are of no class"):
        right_scores(in_blocks(np.ones((2, 0)), 2), np.arange(2), truth_of(["a"] * 2), "f")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", None]), st.lists(st.sampled_from("abcdefg"), max_size=7)
        ),
        min_size=1,
        max_size=9,
    ),
    st.integers(1, 4),
)
def test_ranked_lists_are_counted_as_by_hand(
    images: list[tuple[str | None, list[str]]], size: int
) -> None:
    """Of any lengths, in any blocks; an empty list is no answer, nor is an image without label."""
    lists = [ranked for _, ranked in images]

    def blocks() -> Iterator[pa.ListArray]:
        for start in range(0, len(lists), size):
            yield pa.array(lists[start : start + size], pa.list_(pa.string()))

    rows = np.arange(0, len(images), 2)
    chosen = images[::2]
    found = right_ranked(blocks, rows, truth_of([label for label, _ in chosen]))

    def right(k: int) -> list[float]:
        return [
            float(label in ranked[:k]) if label and ranked else np.nan for label, ranked in chosen
        ]

    np.testing.assert_array_equal(found.right.first, right(1))
    longest = max(len(ranked) for _, ranked in chosen)
    many = len({name for _, ranked in chosen for name in ranked}) > 5
    assert (found.longest, found.many) == (longest, many)
    assert (found.right.top is not None) == (longest >= 5 and many)
    if found.right.top is not None:
        np.testing.assert_array_equal(found.right.top, right(5))
    assert found.firsts.to_pylist() == [ranked[0] if ranked else None for _, ranked in chosen]
