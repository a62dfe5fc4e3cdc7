"""Published values to print beside one's own: a JSON file, in per cent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from visleak.documents import read_document
from visleak.errors import UsageError, VisleakError

KIND: Final = "visleak published values"
SCHEMA: Final = 1

#: Rates that may be published.
RATES: Final = ("hard", "soft", "hard_or_soft")

#: What is printed: one number, a range of which it is one, or nothing.
Value = float | tuple[float, float] | None

Values = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Paper:
    """What somebody published."""

    source: str  # whose numbers they are
    cells: Mapping[tuple[str, str], Values]  # (query, reference) to rates in per cent
    intra: Mapping[str, Values]  # query to its rates in all other sets of its dataset together

    def of(self, query: str, reference: str) -> Values:
        """Return what is published of a comparison; the total is the sum where none is printed."""
        return self.cells.get((query, reference), {})


NOTHING: Final = Paper("", {}, {})


def read_paper(path: Path) -> Paper:
    """Read published values."""
    if not path.is_file():
        raise UsageError(f"published values {path} is not a file; leave `paper` out, or name one")
    content = read_document(path, KIND, SCHEMA, "it holds no published values (docs/study.md)")
    try:
        cells = {
            (_text(row, "query"), _text(row, "reference")): _values(row)
            for row in _rows(content, "cells")
        }
        intra = {_text(row, "query"): _values(row) for row in _rows(content, "intra")}
        return Paper(_text(content, "source"), cells, intra)
    except (TypeError, ValueError, KeyError) as error:
        raise VisleakError(f"published values {path} is damaged: {error}") from error


def _rows(content: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    rows = content.get(key, [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise TypeError(f"{key} is not a list of objects")
    return rows


def _text(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not value:
        raise TypeError(f"{key} is missing, or no text, in {str(row)[:60]}")
    return value


def _values(row: Mapping[str, Any]) -> Values:
    values: dict[str, Value] = {name: _value(row[name]) for name in RATES if name in row}
    hard, soft = values.get("hard"), values.get("soft")
    if "hard_or_soft" not in values and isinstance(hard, float) and isinstance(soft, float):
        values["hard_or_soft"] = round(hard + soft, 6)
    return values


def _value(given: object) -> Value:
    """Return a number, a range or nothing.

    >>> _value(3), _value([1.35, 1.38]), _value(None)
    (3.0, (1.35, 1.38), None)
    """
    if given is None:
        return None
    if isinstance(given, list) and len(given) == 2:
        low, high = (_number(each) for each in given)
        return low, high
    return _number(given)


def _number(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise TypeError(f"{given!r} is not a number of per cent")
    value = float(given)
    if not math.isfinite(value) or not 0.0 <= value <= 100.0:
        raise ValueError(f"{given!r} is not a number of per cent")
    return value


def shown(value: Value) -> str:
    """Return a value as it is printed; empty if none is.

    >>> shown(0.5), shown((1.35, 1.38)), shown(None)
    ('0.50', '1.35-1.38', '')
    """
    if value is None:
        return ""
    if isinstance(value, tuple):
        return f"{value[0]:.2f}-{value[1]:.2f}"
    return f"{value:.2f}"
