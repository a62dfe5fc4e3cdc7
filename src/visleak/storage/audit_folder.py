"""The audit folder: names of its files, schemas of its tables, and how they are read."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from visleak.errors import VisleakError
from visleak.records import Problem
from visleak.storage.files import csv_text, opened_for_arrow, write_csv

#: Version of the folder's layout; readers refuse a newer one and read every older one.
SCHEMA: Final = 1


PAIRS_SCHEMA: Final = pa.schema(
    [
        ("query_set", pa.string()),
        ("query", pa.string()),
        ("reference_set", pa.string()),
        ("reference", pa.string()),
        ("similarity", pa.float32()),
        ("background", pa.float32()),
        ("view", pa.string()),
        ("degree", pa.string()),
        ("grade", pa.string()),
        ("probability", pa.float32()),
        ("reason", pa.string()),
        ("transform", pa.string()),
        ("matrix", pa.list_(pa.float32(), 9)),
        ("query_label", pa.string()),
        ("reference_label", pa.string()),
        ("label_relation", pa.string()),
        ("modality", pa.string()),
        ("coverage", pa.string()),
    ]
)


IMAGES_SCHEMA: Final = pa.schema(
    [
        ("set", pa.string()),
        ("id", pa.string()),
        ("digest", pa.string()),
        ("label", pa.string()),
        ("caption", pa.string()),
        ("group", pa.string()),
        ("frame", pa.int64()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("flat", pa.bool_()),
        ("locator", pa.string()),
        ("nearest_set", pa.string()),
        ("nearest", pa.string()),
        ("nearest_similarity", pa.float32()),
        ("background", pa.float32()),
        ("pairs_total", pa.int64()),
    ]
)


PROBLEM_COLUMNS: Final = ("set", "id", "locator", "reason", "detail")


PAIRS: Final = "pairs.parquet"


IMAGES: Final = "images.parquet"


AUDIT: Final = "audit.json"


UNREADABLE: Final = "unreadable.csv"


RECORDINGS: Final = "recordings.csv"


REPORT: Final = "report.html"


SECTIONS: Final = "sections"


#: What people judged of the pairs of an audit: a ledger, and the same as a table.
LEDGER: Final = "verdicts.sqlite"


VERDICTS: Final = "verdicts.csv"


#: What was decided about replacements: a ledger, and the same as a table.
DECISIONS: Final = "replacements.sqlite"


REPLACEMENTS: Final = "replacements.csv"


def write_problems(path: Path, problems: Iterable[Problem]) -> None:
    """Write ``unreadable.csv``: set, id, locator, reason, detail; sorted by set and id."""
    rows = sorted((p.set, p.id, p.locator, p.reason, p.detail) for p in problems)
    write_csv(path, PROBLEM_COLUMNS, rows)


def read_problems(path: Path) -> tuple[Problem, ...]:
    """Read ``unreadable.csv`` back."""
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            header, *rows = csv.reader(lines)
        if tuple(header) != PROBLEM_COLUMNS:
            raise ValueError(f"its columns are not {', '.join(PROBLEM_COLUMNS)}")
        return tuple(Problem(*map(csv_text, row)) for row in rows)
    except (OSError, ValueError, TypeError, csv.Error) as error:
        raise VisleakError(f"{path} cannot be read ({error}); run the audit again") from error


def read_table(
    folder: Path, name: str, columns: list[str] | None = None, where: pc.Expression | None = None
) -> pa.Table:
    """Read a table of an audit folder."""
    path = folder / name
    try:
        with opened_for_arrow(path) as file:
            return pq.read_table(
                file, columns=columns, filters=where, page_checksum_verification=True
            )
    except (OSError, pa.ArrowException) as error:
        raise VisleakError(f"{path} cannot be read ({error}); run the audit again") from error
