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


def evidence(**checks):
    return Evidence(checks, checks.pop("matrix", np.zeros((2, 9), np.float32)))


def grades(**columns):
    made = {"probability": np.ones(2, np.float32), "reason": ("", ""), "transform": ("", "")}
    return Grades(np.zeros(2, np.int8), **(made | columns))


def test_a_set_may_be_empty_and_has_a_length():
    assert len(image_set([])) == 0
    assert len(image_set(["a", "A", "", "e\u0301", "\u00e9"])) == 5


THREE = np.zeros(3, np.float32)


@pytest.mark.parametrize(
    ("make", "columns", "words"),
    [
        *(
            (image_set, {name: pa.array(["x"])}, "set 'pets': all columns must have 2 rows")
            for name in ("locators", "labels", "captions", "groups", "frames")
        ),
        # an id is the only identity
        (image_set, {"ids": [*"abcbb"]}, "set 'pets': id 'b' occurs more than once, in rows 1 and"),
        (image_set, {"ids": ["a", None]}, "set 'pets': an id is null"),
        (image_set, {"roles": ("training", "validation")}, "pretraining; got 'validation'"),
        (fingerprints, {"rows": np.arange(3)}, "of 'pets': rows is (3,), not (2,)"),
        (fingerprints, {"matrix": np.ones((3, 2))}, "matrix is (3, 2), not (2, 2)"),
        (fingerprints, {"digests": np.zeros((2, 15))}, "digests is (2, 15), not (2, 16)"),
        (fingerprints, {"sizes": np.zeros(2)}, "sizes is (2,), not (2, 2)"),
        (fingerprints, {"flat": np.zeros((2, 1))}, "flat is (2, 1), not (2,)"),
        *(
            (pairs, {name: THREE}, f"pairs: {name} is (3,), not (2,)")
            for name in ("reference", "similarity", "background", "view", "votes")
        ),
        # a NaN would sort anywhere and pass no threshold
        (pairs, {"similarity": np.array([1, np.nan])}, "a similarity is not a number"),
        (pairs, {"similarity": np.array([1, np.inf])}, "a similarity is not a number"),
        (evidence, {"matrix": np.zeros((2, 3, 3))}, "evidence: matrix is (2, 3, 3), not (2, 9)"),
        (evidence, {"grey": THREE}, "evidence: check 'grey' is (3,), not (2,)"),
        (grades, {"probability": THREE}, "grades: probability is (3,), not (2,)"),
        (grades, {"reason": ("",)}, "grades: reason is (1,), not (2,)"),
        (grades, {"transform": ("",)}, "grades: transform is (1,), not (2,)"),
        (Unreadable, {"reason": "lazy"}, "reason must be one of missing, "),
    ],
)
def test_a_wrong_record_is_refused(make, columns, words):
    with pytest.raises((ValueError, VisleakError)) as caught:
        make(**columns)
    assert words in str(caught.value)


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
    assert {len(make()) for make in (image_set, fingerprints, pairs, evidence, grades)} == {2}


def test_words_keep_their_order():
    """Stored numbers are indices into these; reordering would change old audits."""
    assert VIEWS.index("mirror") == 4
    assert VIEWS.index("inverted") == len(VIEWS) - 1 == 8
    assert GRADES == ("exact", "near", "similar", "different")
