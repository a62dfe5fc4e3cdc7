"""The lists of ciFAIR as files: ``TestID,TrainID,Distance,Judgment``."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from visleak.delimited import opened_table
from visleak.errors import UsageError, VisleakError
from visleak.records import GRADES
from visleak.storage import csv_cell, csv_text, replacing_text, write_csv_rows
from visleak.verdicts.ledger import COLUMNS

HEADER: Final = ("TestID", "TrainID", "Distance", "Judgment")

#: Put before the suffix of the file with the repeats within the test set.
WITHIN_SUFFIX: Final = "_within_test"


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a list: ids of the two images, and the judgment as a grade."""

    test: str
    train: str
    judgment: str


def second_path(path: Path) -> Path:
    """Return the path of the list of duplicates within the test set.

    >>> second_path(Path("lists/mine.csv")).as_posix()
    'lists/mine_within_test.csv'
    """
    return path.with_name(f"{path.stem}{WITHIN_SUFFIX}{path.suffix}")


def chosen_set(option: str, name: str | None, names: Iterable[str]) -> str:
    """Return the set that a column of a list is of."""
    known = list(dict.fromkeys(names))
    if name is None and len(known) == 1:
        return known[0]
    if name is None:
        raise UsageError(
            f"a column of a list has one set; choose with {option}: {', '.join(known)}"
        )
    if name not in known:
        raise UsageError(f"{option} must be one of {', '.join(known)}; got {name!r}")
    return name


def is_plain(path: Path) -> bool:
    """Whether a table is ``verdicts.csv``, as its header tells."""
    try:
        with opened_table(path) as (lines, delimiter):
            header = next(csv.reader(lines, delimiter=delimiter), [])
            names = [name.strip() for name in header]
    except (OSError, ValueError, csv.Error) as error:
        raise VisleakError(f"{path} cannot be read as a table ({error})") from error
    if set(COLUMNS[:4]) <= set(names):
        return True
    wanted = [name for name in HEADER if name != "Distance"]
    if not set(wanted) <= set(names):
        found = ", ".join(names[:6]) or "none"
        raise VisleakError(
            f"{path} is not a list of pairs: it must have the columns {', '.join(wanted)}, or those"
            f" of verdicts.csv; it has {found}{' and more' if len(names) > 6 else ''}"
        )
    return False


def read_list(path: Path) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """Return the rows of a list, and the names of ignored columns.

    ``Distance`` is checked and not used: it is of the features of the list, which differ from
    those of an audit.
    """
    try:
        with opened_table(path) as (lines, delimiter):
            reader = csv.reader(lines, delimiter=delimiter)
            names = [name.strip() for name in next(reader)]
            rows = [_row(path, reader.line_num, names, cells) for cells in reader if any(cells)]
    except (OSError, ValueError, csv.Error) as error:
        raise VisleakError(f"{path} cannot be read as a table ({error})") from error
    return tuple(rows), tuple(name for name in names if name not in HEADER)


def _row(path: Path, line: int, names: list[str], cells: list[str]) -> Row:
    if len(cells) != len(names):
        raise VisleakError(
            f"{path}, line {line}: {len(cells)} cells under {len(names)} columns; nothing was"
            " imported"
        )
    row = dict(zip(names, cells, strict=True))
    ids = [csv_text(row[name]) for name in HEADER[:2]]
    judgment, distance = row["Judgment"].strip(), row.get("Distance", "").strip()
    wrong = ""
    if judgment not in ("0", "1", "2", "3"):
        wrong = f"Judgment must be 0 exact, 1 near, 2 similar or 3 different; got {judgment!r}"
    elif not all(ids):
        wrong = f"{HEADER[ids.index('')]} is empty"
    elif not _is_distance(distance):
        wrong = f"Distance must be a number of 0 or more, or empty; got {distance!r}"
    if wrong:
        raise VisleakError(f"{path}, line {line}: {wrong}; nothing was imported")
    return Row(ids[0], ids[1], GRADES[int(judgment)])


def _is_distance(text: str) -> bool:
    try:
        return not text or 0.0 <= float(text) < math.inf
    except ValueError:
        return False


def write_list(path: str | os.PathLike[str], pairs: pa.Table) -> None:
    """Write pairs as a list, closest first, in one step."""
    target = Path(path)
    with replacing_text(target) as lines:
        write_csv_rows(lines, [HEADER])
        write_csv_rows(lines, _rows(pairs))


def _rows(pairs: pa.Table) -> Iterator[tuple[str, ...]]:
    """Yield rows, closest first, those of one distance as they come, those without one last."""
    similarity = pairs["similarity"].to_numpy().astype(np.float64)
    distance = np.sqrt(np.maximum(0.0, 2.0 - 2.0 * similarity))
    queries, references = pairs["query"].to_pylist(), pairs["reference"].to_pylist()
    grades = pairs["grade"].to_pylist()
    for row in np.argsort(distance, kind="stable").tolist():
        far = float(distance[row])
        yield (
            csv_cell(queries[row]),
            csv_cell(references[row]),
            "" if math.isnan(far) else repr(far),
            str(GRADES.index(grades[row])),
        )
