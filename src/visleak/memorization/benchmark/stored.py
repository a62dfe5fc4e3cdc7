"""``benchmark.json``: a benchmark for machines, and back."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import visleak
from visleak.documents import as_plain, from_plain, read_document
from visleak.errors import VisleakError
from visleak.memorization.benchmark.headline import headline, verdicts
from visleak.memorization.benchmark.records import (
    Benchmark,
    Curve,
    Floor,
    Listed,
    MethodRow,
    ReferencePoint,
)

SCHEMA: Final = 1
KIND: Final = "visleak memorization benchmark"

#: The file, written last, and the table of single images.
RESULT: Final = "benchmark.json"
MEASUREMENTS: Final = "measurements.parquet"

_HINT: Final = "it is no result of `visleak memorization benchmark`"


def as_dict(result: Benchmark) -> dict[str, Any]:
    """Return the content of ``benchmark.json``; what is not known is ``null``."""
    plain = {
        each.name: as_plain(getattr(result, each.name))
        for each in fields(result)
        if each.name != "folder"
    }
    return {
        "schema": SCHEMA,
        "kind": KIND,
        "visleak": visleak.__version__,
        "headline": headline(result),
        "verdicts": verdicts(result),
        **plain,
    }


def read_benchmark(folder: str | Path) -> Benchmark:
    """Return the benchmark that a folder holds.

    Raises:
        VisleakError: there is none, it is damaged, or a newer visleak wrote it.
    """
    path = Path(folder) / RESULT
    content = read_document(path, KIND, SCHEMA, _HINT)
    try:
        rows: tuple[MethodRow, ...] = from_plain(tuple[MethodRow, ...], content["rows"])
        return Benchmark(
            folder=Path(folder),
            about=from_plain(dict[str, Any], content["about"]),
            triggers=from_plain(Listed, content["triggers"]),
            general=from_plain(Listed | None, content["general"]),
            rows=rows,
            curves=from_plain(tuple[Curve, ...], content["curves"]),
            reference=from_plain(ReferencePoint | None, content["reference"]),
            notes=from_plain(tuple[str, ...], content["notes"]),
            key=from_plain(str, content["key"]),
            floor=from_plain(Floor | None, content.get("floor")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise VisleakError(
            f"{path} is damaged ({error}); run visleak memorization benchmark again"
        ) from error
