"""The lists beside a fair test set: its duplicates as ciFAIR lists them, and their replacements."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from visleak.records import GRADES
from visleak.replacements import Decision, Selection, distance
from visleak.storage import csv_cell, write_csv_rows

#: Header of the lists of ciFAIR.
CIFAIR: Final = ("TestID", "TrainID", "Distance", "Judgment")

#: Files beside the fair test set.
DUPLICATES: Final = "duplicates.csv"
WITHIN: Final = "duplicates_within_test.csv"
REPLACEMENTS: Final = "replacements.csv"
MISSING: Final = "without_replacement.csv"

_COLUMNS: Final = ("test", "pool", "class", "test_digest", "pool_digest", "how", "reviewer")


def lists_of(
    selection: Selection, replaced: Sequence[Decision], missing: Sequence[tuple[str, str]]
) -> Iterator[tuple[str, bytes]]:
    """Yield the files beside the test set, by name.

    Args:
        selection: the duplicates.
        replaced: the approvals that are used.
        missing: ids of duplicates without a replacement, with the reason.
    """
    for name, within in ((DUPLICATES, False), (WITHIN, True)):
        rows = sorted(_cifair_rows(selection, within), key=lambda row: row[0])
        yield name, _csv(CIFAIR, (row for _, row in rows))
    used = (
        (d.test, d.pool, d.label, d.test_digest, d.pool_digest, d.how, d.reviewer) for d in replaced
    )
    yield REPLACEMENTS, _csv(_COLUMNS, used)
    if missing:
        yield MISSING, _csv(("test", "why"), missing)


def _cifair_rows(selection: Selection, within: bool) -> Iterator[tuple[float, tuple[str, ...]]]:
    """Yield distance and row of each pair of a duplicate, as ciFAIR lists them."""
    images = selection.duplicates.images
    several = len({leak.set for each in images for leak in each.leaks if not leak.within}) > 1
    for each in images:
        for leak in each.leaks:
            if leak.within != within:
                continue
            far = distance(selection.similarity(each, leak))
            other = f"{leak.set}/{leak.id}" if several and not within else leak.id
            yield far, (each.id, other, repr(far), str(GRADES.index(leak.grade)))


def _csv(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> bytes:
    text = io.StringIO(newline="")
    write_csv_rows(text, [header])
    write_csv_rows(text, (tuple(map(csv_cell, row)) for row in rows))
    return text.getvalue().encode("utf-8", "surrogateescape")
