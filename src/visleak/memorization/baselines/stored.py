"""``compare.json``: a comparison for machines, and back."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import visleak
from visleak.documents import as_plain, from_plain, read_document
from visleak.errors import VisleakError
from visleak.memorization.baselines.headline import headline
from visleak.memorization.baselines.numbers import Row, rows_of
from visleak.memorization.baselines.paper import TABLE_2
from visleak.memorization.baselines.records import Attempt, Comparison

SCHEMA: Final = 1
KIND: Final = "visleak memorization compare"
RESULT: Final = "compare.json"

#: Fields that are told otherwise.
_APART: Final = ("attempts", "folder")


def as_dict(result: Comparison) -> dict[str, Any]:
    """Return the content of ``compare.json``; what is not known is ``null``."""
    rows: list[Row] = rows_of(result)
    plain = {
        each.name: as_plain(getattr(result, each.name))
        for each in fields(result)
        if each.name not in _APART
    }
    return {
        "schema": SCHEMA,
        "kind": KIND,
        "visleak": visleak.__version__,
        "headline": headline(result),
        **plain,
        "methods": as_plain(rows),
        "paper": as_plain(TABLE_2),
        "attempts": as_plain(result.attempts),
    }


def read_comparison(folder: str | Path) -> Comparison:
    """Return the comparison that a folder holds.

    Raises:
        VisleakError: there is none, it is damaged, or a newer visleak wrote it.
    """
    path = Path(folder) / RESULT
    content = read_document(path, KIND, SCHEMA, "it is no result of `visleak memorization compare`")
    try:
        attempts: tuple[Attempt, ...] = from_plain(tuple[Attempt, ...], content["attempts"])
        return Comparison(
            model=from_plain(dict[str, Any], content["model"]),
            score=from_plain(dict[str, Any], content["score"]),
            norm=from_plain(str, content["norm"]),
            budget=from_plain(dict[str, Any], content["budget"]),
            chains=from_plain(int, content["chains"]),
            seeds=from_plain(tuple[int, ...], content["seeds"]),
            verification=from_plain(dict[str, Any], content["verification"]),
            attempts=attempts,
            folder=Path(folder),
            key=from_plain(str, content["key"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise VisleakError(
            f"{path} is damaged ({error}); run visleak memorization compare again"
        ) from error
