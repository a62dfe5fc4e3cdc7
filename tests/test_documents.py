"""Json files that say what they are: nothing else is taken for one. Records as json, and back."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from refusals import refusal
from visleak.documents import as_plain, from_plain, read_document
from visleak.errors import VisleakError

HINT = "make one with `visleak make`"


@pytest.mark.parametrize("schema", [1, 2])
def test_a_document_of_this_or_an_older_layout_is_read(tmp_path, schema):
    path, content = tmp_path / "a.json", {"kind": "visleak things", "schema": schema, "more": [1]}
    path.write_text(json.dumps(content))
    assert read_document(path, "visleak things", 2, HINT) == content
    with pytest.raises(VisleakError, match=r'a\.json does not say "what": "visleak things"; make'):
        read_document(path, "visleak things", 2, HINT, key="what")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "a.json cannot be read ("),
        ("[" * 100_000, "a.json cannot be read ("),
        ("[]", f'a.json does not say "kind": "visleak things"; {HINT}'),
        ('{"kind": "visleak others", "schema": 1}', "does not say"),
        ('{"kind": "visleak things", "schema": 3}', "has layout 3, this visleak reads up to 2"),
        ('{"kind": "visleak things", "schema": 0}', "has layout 0,"),
        ('{"kind": "visleak things", "schema": true}', "has layout True,"),
    ],
)
def test_anything_else_is_refused_in_one_line(tmp_path, text, message):
    path = tmp_path / "a.json"
    path.write_text(text)
    line = refusal(VisleakError, read_document, path, "visleak things", 2, HINT)
    assert message in line
    assert str(path) in line


@dataclass(frozen=True)
class Part:
    share: float
    names: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Whole:
    parts: tuple[Part, ...]
    grid: npt.NDArray[np.float64]
    ends: tuple[int, str]
    limit: int | None
    by_name: Mapping[str, float]
    about: Mapping[str, Any]


WHOLE = Whole(
    (Part(0.5, frozenset({"b", "a"})), Part(math.nan)),
    np.array([[[0.25, math.nan]], [[1.0, 2.0]]]),
    (3, "x"),
    None,
    {"a": math.nan, "b": 1.0},
    {"any": [1, {"deep": None}]},
)


def test_a_record_comes_back_from_json():
    text = json.dumps(as_plain(WHOLE), allow_nan=False)
    found = from_plain(Whole, json.loads(text))
    assert found.parts[0] == WHOLE.parts[0]
    # a NaN equals nothing, its text does; that of a set may have any order
    found, given = (replace(each, parts=each.parts[1:]) for each in (found, WHOLE))
    assert repr(found) == repr(given)
    assert found.grid.dtype == np.float64
    assert from_plain(Whole, json.loads(text) | {"limit": 7}).limit == 7


@pytest.mark.parametrize(
    "change",
    [
        {"parts": [{"share": "0.5"}]},
        {"parts": [{"names": []}]},
        {"grid": [[1.0], [1.0, 2.0]]},
        {"ends": [3]},
        {"ends": [True, "x"]},
        {"limit": 1.5},
        {"by_name": {"a": "1"}},
    ],
)
def test_what_a_field_cannot_hold_is_refused(change):
    with pytest.raises((KeyError, TypeError, ValueError)):
        from_plain(Whole, as_plain(WHOLE) | change)
