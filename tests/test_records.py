"""Records refuse to be born wrong, so that later steps need not check again."""

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
    Unreadable,
)


def image_set(ids=("a", "b"), **columns):
    ids = pa.array(ids, pa.string())
    return ImageSet("pets", ids, opener=None, **({"locators": ids} | columns))


def fingerprints(**columns):
    made = {
        "rows": np.arange(2),
        "ids": pa.array(["a", "b"]),
        "matrix": np.eye(2, dtype=np.float32),
        "digests": np.zeros((2, 16), np.uint8),
        "sizes": np.ones((2, 2), np.int32),
        "flat": np.zeros(2, np.bool_),
    }
    return Fingerprints(set="pets", encoder="e", **(made | columns))


def pairs(**columns):
    made = {name: np.zeros(2, np.int64) for name in ("query", "reference", "view")}
    made |= {name: np.ones(2, np.float32) for name in ("similarity", "background")}
    return Pairs("test", "train", **(made | {"total": np.array([2])} | columns))


def evidence(**checks):
    return Evidence(checks, checks.pop("matrix", np.zeros((2, 9), np.float32)))


def grades(**columns):
    made = {"probability": np.ones(2, np.float32), "reason": ("", ""), "transform": ("", "")}
    return Grades(np.zeros(2, np.int8), **(made | columns))


THREE = np.zeros(3, np.float32)


@pytest.mark.parametrize(
    ("make", "columns", "words"),
    [
        (image_set, {"frames": pa.array([1])}, "set 'pets': all columns must have 2 rows"),
        # an id is the only identity
        (image_set, {"ids": [*"abcbb"]}, "set 'pets': id 'b' occurs more than once, in rows 1 and"),
        (image_set, {"ids": ["a", None]}, "set 'pets': an id is null"),
        (image_set, {"roles": ("training", "validation")}, "pretraining; got 'validation'"),
        (fingerprints, {"digests": np.zeros((2, 15))}, "digests is (2, 15), not (2, 16)"),
        (pairs, {"votes": THREE}, "pairs: votes is (3,), not (2,)"),
        # a NaN would sort anywhere and pass no threshold
        (pairs, {"similarity": np.array([1, np.nan])}, "a similarity is not a number"),
        (evidence, {"matrix": np.zeros((2, 3, 3))}, "evidence: matrix is (2, 3, 3), not (2, 9)"),
        (evidence, {"grey": THREE}, "evidence: check 'grey' is (3,), not (2,)"),
        (grades, {"reason": ("",)}, "grades: reason is (1,), not (2,)"),
        (Unreadable, {"reason": "lazy"}, "reason must be one of missing, "),
    ],
)
def test_a_wrong_record_is_refused(make, columns, words):
    with pytest.raises((ValueError, VisleakError)) as caught:
        make(**columns)
    assert words in str(caught.value)


def test_lengths_are_rows():
    assert {len(make()) for make in (image_set, fingerprints, pairs, evidence, grades)} == {2}
    assert len(image_set([])) == 0
    assert len(image_set(["a", "A", "", "e\u0301", "\u00e9"])) == 5


def test_words_keep_their_order():
    """Stored numbers are indices into these; reordering would change old audits."""
    assert (VIEWS.index("mirror"), VIEWS.index("inverted"), len(VIEWS)) == (4, 8, 9)
    assert GRADES == ("exact", "near", "similar", "different")
