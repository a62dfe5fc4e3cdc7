"""Accepted pairs: a small text file to keep in a repository, keyed by content digests."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pyarrow.compute as pc

from visleak.delimited import opened_table
from visleak.errors import UsageError, VisleakError
from visleak.records import GRADES
from visleak.storage import csv_text, read_summary, write_csv
from visleak.verdicts.level import Level, leaks
from visleak.verdicts.overlay import digests_of
from visleak.verdicts.record import Key, pair_key

COLUMNS: Final = ("first", "second", "grade", "query", "reference", "note")

#: No grade: the pair is accepted whatever grade a later audit assigns.
ANY: Final = ""

_DIGEST: Final = re.compile(r"[0-9a-f]{32}")


def write_accepted(
    folder: Path, out: Path, grade: str | None = None, query_set: str | None = None
) -> tuple[Path, ...]:
    """Write the leaking pairs of an audit as accepted ones, each pair of contents once."""
    if grade not in (None, *GRADES[:3]):
        raise UsageError(f"grade must be one of {', '.join(GRADES[:3])}; got {grade!r}")
    columns = ["query_set", "query", "reference_set", "reference", "grade"]
    table = leaks(folder, read_summary(folder), Level(grade or "near"), columns)
    if query_set is not None:
        table = table.filter(pc.equal(table["query_set"], query_set))
    rows: dict[Key, tuple[str, ...]] = {}
    sides = (side.to_pylist() for side in digests_of(folder, table))
    for row, first, second in zip(table.to_pylist(), *sides, strict=True):
        if first is None or second is None:
            raise VisleakError(
                f"{row['query']!r} and {row['reference']!r} cannot be accepted by content: only"
                " vectors are left of them; give the audit folder itself as --baseline"
            )
        key = pair_key(first, second)
        rows.setdefault(key, (*key, row["grade"], row["query"], row["reference"], ""))
    try:
        write_csv(out, COLUMNS, (rows[key] for key in sorted(rows)))
    except OSError as error:
        raise VisleakError(f"{out} cannot be written ({error.strerror})") from error
    return (out,)


def read_accepted(path: Path) -> Mapping[Key, str]:
    """Read accepted pairs: key to the weakest grade a later audit may give, :data:`ANY` for all.

    ``first`` and ``second`` are required; columns may have any order, others are ignored. Of
    two rows with one pair the more tolerant one counts.
    """
    if not path.is_file():
        raise UsageError(f"{path} does not exist; give an audit folder or a file of accepted pairs")
    line, found = 1, dict[Key, str]()
    try:
        with opened_table(path) as (text, delimiter):
            reader = csv.DictReader(text, delimiter=delimiter, strict=True)
            missing = [name for name in COLUMNS[:2] if name not in (reader.fieldnames or ())]
            if missing:
                raise ValueError(
                    f"it has no column {missing[0]!r}; its first line must be {','.join(COLUMNS)}"
                )
            for row in reader:
                line = reader.line_num
                key, grade = _pair(row)
                found[key] = tolerant(found.get(key, grade), grade)
    except (OSError, ValueError, csv.Error) as error:
        raise VisleakError(f"{path}, line {line}, cannot be read: {error}") from error
    return found


def _pair(row: Mapping[str, str | None]) -> tuple[Key, str]:
    cells = {name: csv_text(row.get(name) or "").strip().lower() for name in COLUMNS[:3]}
    for name in COLUMNS[:2]:
        if not _DIGEST.fullmatch(cells[name]):
            raise ValueError(
                f"{name} must be a content digest of 32 hex digits; got {cells[name][:40]!r}"
            )
    if cells["grade"] not in (ANY, *GRADES):
        raise ValueError(
            f"grade must be one of {', '.join(GRADES)}, or empty; got {cells['grade'][:40]!r}"
        )
    return pair_key(cells["first"], cells["second"]), cells["grade"]


def tolerant(left: str, right: str) -> str:
    """Return the one of two grades that accepts more: none at all, then the stronger one.

    >>> tolerant("near", "exact"), tolerant("near", ANY)
    ('exact', '')
    """
    order = (ANY, *GRADES)
    return order[min(order.index(left), order.index(right))]


def accepting(pairs: Mapping[Key, str], level: Level) -> Iterator[Key]:
    """Yield the pairs accepted at a level.

    A pair accepted as ``near`` is accepted where ``near`` or ``similar`` counts, not where
    ``exact`` does. Degrees rank pairs by similarity alone, so every accepted pair is accepted
    there.
    """
    for key, grade in pairs.items():
        if grade == ANY or level.scale == "degree" or GRADES.index(grade) <= level.code:
            yield key
