"""The changed pairs as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from visleak.diff.difference import Difference
from visleak.diff.pairs import CHANGES, View, reason_word
from visleak.records import DEGREES, GRADES, Int64
from visleak.storage import csv_cell, replacing_text, write_csv_rows

COLUMNS: Final = (
    *("change", "reason", "query_set", "query", "reference_set", "reference", "within"),
    *("before_grade", "after_grade", "before_degree", "after_degree"),
    *("before_similarity", "after_similarity", "query_digest", "reference_digest"),
)

#: Rows turned into text at a time.
CHUNK: Final = 50_000


def write_changes(found: Difference, path: Path) -> None:
    """Write a row for each changed pair: leaks before repeats, new ones first, by id.

    Sets, ids and digests are those of the later audit, where it has the pair.

    Raises:
        VisleakError: the file cannot be written.
    """
    with replacing_text(path) as lines:
        write_csv_rows(lines, [COLUMNS])
        order = _order(found)
        for start in range(0, len(order), CHUNK):
            write_csv_rows(lines, rows(found, order[start : start + CHUNK]))


def _order(found: Difference) -> Int64:
    """Return the changes in the order of the file; images are in the order of their ids."""
    own = [np.zeros(len(found.changes), np.int64) for _ in range(2)]
    for view, places in (
        (found.before, found.changes.before),
        (found.after, found.changes.after),
    ):
        listed = np.flatnonzero(places >= 0)
        pairs = view.side.listed
        own[0][listed] = pairs.query[places[listed]]
        own[1][listed] = pairs.reference[places[listed]]
    return np.lexsort((own[1], own[0], found.changes.change, found.within))


def rows(found: Difference, which: Int64) -> Iterator[tuple[str, ...]]:
    """Yield some changes as the cells of :data:`COLUMNS`."""
    changes = found.changes
    before, after = changes.before[which], changes.after[which]
    who = [_who(found.after, after), _who(found.before, before)]
    measured = [_measured(found.before, before), _measured(found.after, after)]
    within = found.within[which]
    for place, row in enumerate(which.tolist()):
        sets, ids, digests = (who[0] if after[place] >= 0 else who[1])[place]
        old, new = measured[0][place], measured[1][place]
        cells = (
            CHANGES[changes.change[row]],
            reason_word(changes.change[row], changes.reason[row]),
            *(sets[0], ids[0], sets[1], ids[1]),
            "yes" if within[place] else "",
            *(cell for pair in zip(old, new, strict=True) for cell in pair),
            *digests,
        )
        yield tuple(csv_cell(cell) for cell in cells)


def _who(view: View, places: Int64) -> Sequence[Any]:
    """Return sets, ids and digests of the two images of some listed pairs, ``()`` for -1."""
    listed = np.flatnonzero(places >= 0)
    pairs = view.side.listed
    ends = []
    for column in (pairs.query, pairs.reference):
        images = view.side.images.select(["set", "id", "digest"])
        ends.append(images.take(pa.array(column[places[listed]])).to_pylist())
    result: list[Any] = [()] * len(places)
    for place, query, reference in zip(listed.tolist(), *ends, strict=True):
        result[place] = tuple(
            (query[key] or "", reference[key] or "") for key in ("set", "id", "digest")
        )
    return result


def _measured(view: View, places: Int64) -> Sequence[tuple[str, str, str]]:
    """Return grade, degree and similarity of some listed pairs as texts, empty for -1."""
    pairs = view.side.listed
    result = []
    for place in places.tolist():
        if place < 0:
            result.append(("", "", ""))
            continue
        similarity = pairs.similarity[place]
        result.append(
            (
                _name(GRADES, pairs.grade[place]),
                _name(DEGREES, pairs.degree[place]),
                "" if np.isnan(similarity) else str(similarity),
            )
        )
    return result


def _name(scale: Sequence[str], code: int) -> str:
    return scale[code] if code < len(scale) else ""
