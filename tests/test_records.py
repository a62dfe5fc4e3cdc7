"""Records refuse to be born wrong, so that later steps need not check again."""

import dataclasses

import numpy as np
import pyarrow as pa
import pytest

from visleak.errors import VisleakError
from visleak.records import (
    GRADES,
    VIEWS,
    Evidence,
    Fingerprints,
    Grades,
    ImageSet,
    Pairs,
    Problem,
    Unreadable,
)


def image_set(ids=("a", "b"), **columns):
    ids = pa.array(ids, pa.string())
    columns = {"locators": ids, **columns}
    return ImageSet("pets", ids, opener=None, **columns)


def fingerprints(**columns):
    made = {
        "rows": np.arange(2),
        "ids": pa.array(["a", "b"]),
        "matrix": np.eye(2, dtype=np.float32),
        "digests": np.zeros((2, 16), np.uint8),
        "sizes": np.ones((2, 2), np.int32),
        "flat": np.zeros(2, np.bool_),
        **columns,
    }
    return Fingerprints(set="pets", encoder="e", **made)


def pairs(**columns):
    made = {
        "query": np.zeros(2, np.int64),
        "reference": np.arange(2),
        "similarity": np.ones(2, np.float32),
        "background": np.zeros(2, np.float32),
        "view": np.zeros(2, np.int8),
        "total": np.array([2]),
        **columns,
    }
    return Pairs("test", "train", **made)


@pytest.mark.parametrize("column", ["locators", "labels", "captions", "groups", "frames"])
def test_a_set_has_columns_of_one_length(column):
    with pytest.raises(ValueError, match=r"^set 'pets': all columns must have 2 rows$"):
        image_set(**{column: pa.array(["x"])})


def test_duplicate_ids_name_two_rows():
    """An id is the only identity."""
    with pytest.raises(VisleakError) as caught:
        image_set(["a", "b", "c", "b", "b"])
    assert "set 'pets': id 'b' occurs more than once, in rows 1 and 3; ids" in str(caught.value)


def test_a_null_id_is_refused():
    with pytest.raises(VisleakError, match=r"^set 'pets': an id is null; every image needs an id$"):
        image_set(["a", None])


def test_an_unknown_role_is_refused():
    said = "^set 'pets': roles are benchmark, training, pretraining; got 'validation'$"
    with pytest.raises(VisleakError, match=said):
        image_set(roles=("training", "validation"))


def test_a_set_may_be_empty_and_knows_its_length():
    assert len(image_set([])) == 0
    assert len(image_set(["a", "A", "", "e\u0301", "\u00e9"])) == 5


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("rows", np.arange(3), r"rows is \(3,\), not \(2,\)"),
        ("matrix", np.ones((3, 2), np.float32), r"matrix is \(3, 2\), not \(2, 2\)"),
        ("digests", np.zeros((2, 15), np.uint8), r"digests is \(2, 15\), not \(2, 16\)"),
        ("sizes", np.zeros(2, np.int32), r"sizes is \(2,\), not \(2, 2\)"),
        ("flat", np.zeros((2, 1), np.bool_), r"flat is \(2, 1\), not \(2,\)"),
    ],
)
def test_fingerprints_of_wrong_shape_are_refused(column, value, said):
    with pytest.raises(ValueError, match=f"^fingerprints of 'pets': {said}$"):
        fingerprints(**{column: value})


@pytest.mark.parametrize("column", ["reference", "similarity", "background", "view"])
def test_pairs_have_columns_of_one_length(column):
    with pytest.raises(ValueError, match=rf"^pairs: {column} is \(3,\), not \(2,\)$"):
        pairs(**{column: np.zeros(3, np.float32)})


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_pairs_have_finite_similarities(value):
    """A NaN would sort anywhere and pass no threshold."""
    with pytest.raises(ValueError, match=r"^pairs: a similarity is not a number$"):
        pairs(similarity=np.array([1, value], np.float32))


def test_evidence_of_wrong_shape_is_refused():
    with pytest.raises(ValueError, match=r"^evidence: matrix is \(2, 3, 3\), not \(2, 9\)$"):
        Evidence({}, np.zeros((2, 3, 3), np.float32))
    with pytest.raises(ValueError, match=r"^evidence: check 'grey' is \(3,\), not \(2,\)$"):
        Evidence({"grey": np.zeros(3, np.float32)}, np.zeros((2, 9), np.float32))


@pytest.mark.parametrize("column", ["probability", "reason", "transform"])
def test_grades_have_columns_of_one_length(column):
    made = {"probability": np.ones(2, np.float32), "reason": ("", ""), "transform": ("", "")}
    made[column] = made[column][:1]
    with pytest.raises(ValueError, match=rf"^grades: {column} is \(1,\), not \(2,\)$"):
        Grades(np.zeros(2, np.int8), **made)


def test_only_known_reasons():
    with pytest.raises(ValueError, match=r"^reason must be one of missing, .*; got 'lazy'$"):
        Unreadable("lazy")


@pytest.mark.parametrize(
    "record",
    [
        image_set(),
        fingerprints(),
        pairs(),
        Unreadable("empty"),
        Problem("s", "i", "l", "empty"),
        Evidence({}, np.zeros((0, 9), np.float32)),
    ],
    ids=lambda record: type(record).__name__,
)
def test_records_are_frozen(record):
    name = dataclasses.fields(record)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(record, name, None)


def test_lengths_are_rows():
    grades = Grades(np.zeros(1, np.int8), np.ones(1, np.float32), ("",), ("",))
    assert [len(image_set()), len(fingerprints()), len(pairs()), len(grades)] == [2, 2, 2, 1]


def test_words_keep_their_order():
    """Stored numbers are indices into these; reordering would change old audits."""
    assert VIEWS.index("mirror") == 4
    assert VIEWS.index("inverted") == len(VIEWS) - 1 == 8
    assert GRADES == ("exact", "near", "similar", "different")
