"""Json files that say what they are: nothing else is taken for one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from visleak.documents import read_document
from visleak.errors import VisleakError

HINT = "make one with `visleak make`"


def read(path: Path, **changes: str) -> dict[str, object]:
    return read_document(path, "visleak things", 2, HINT, **changes)


@pytest.mark.parametrize("schema", [1, 2])
def test_a_document_of_this_or_an_older_layout_is_read(tmp_path: Path, schema: int) -> None:
    path, content = tmp_path / "a.json", {"kind": "visleak things", "schema": schema, "more": [1]}
    path.write_text(json.dumps(content))
    assert read(path) == content
    with pytest.raises(VisleakError, match=r'a\.json does not say "what": "visleak things"; make'):
        read(path, key="what")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "a.json cannot be read ("),
        ("[" * 100_000, "a.json cannot be read ("),
        ("[]", f'a.json does not say "kind": "visleak things"; {HINT}'),
        ('{"kind": "visleak others", "schema": 1}', "does not say"),
        ('{"kind": "visleak things"}', "has layout None, this visleak reads up to 2; use a newer"),
        ('{"kind": "visleak things", "schema": 3}', "has layout 3,"),
        ('{"kind": "visleak things", "schema": 0}', "has layout 0,"),
        ('{"kind": "visleak things", "schema": true}', "has layout True,"),
        ('{"kind": "visleak things", "schema": "1"}', "has layout '1',"),
    ],
)
def test_anything_else_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(VisleakError) as error:
        read(path)
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)
