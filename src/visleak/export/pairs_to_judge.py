"""The pairs that another tool shows to people: rows, images and content digests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc

from visleak.auditing import Audit, apply_verdicts
from visleak.errors import VisleakError
from visleak.records import Bytes8, GradeName, PairRow, ends_of
from visleak.reporting.gallery import decoded
from visleak.verdicts import digests_of

#: Pairs whose images are decoded at a time.
CHUNK: Final = 64


class PairToJudge(NamedTuple):
    """A pair with its images, query first."""

    row: PairRow
    images: tuple[Bytes8, Bytes8]
    digests: tuple[str, str]

    @property
    def caption(self) -> str:
        """Both images by name."""
        (query_set, query), (reference_set, reference) = ends_of(self.row)
        return f"{query} ({query_set}) and {reference} ({reference_set})"


def pairs_to_judge(folder: Path, grade: str | None, query_set: str | None) -> Iterator[PairToJudge]:
    """Yield the pairs of a test set, the likeliest leaks first."""
    audit = apply_verdicts(Audit(folder))
    table = audit.pairs(grade=cast(GradeName, grade or "similar"))
    table = table.filter(pc.equal(table["query_set"], query_set))
    keys = [("probability", "descending"), ("similarity", "descending"), ("query", "ascending")]
    table = table.take(pc.sort_indices(table, keys))
    digests = zip(*(side.to_pylist() for side in digests_of(audit.folder, table)), strict=True)
    for start in range(0, table.num_rows, CHUNK):
        yield from _decoded(audit, table.slice(start, CHUNK), digests)


def _decoded(
    audit: Audit, table: pa.Table, digests: Iterator[tuple[str, str]]
) -> Iterator[PairToJudge]:
    rows: list[PairRow] = table.to_pylist()
    images = decoded(rows, audit.readable_images)
    for row in rows:
        ends = ends_of(row)
        for end in ends:
            if end not in images:
                raise VisleakError(
                    f"{end[1]} of {end[0]} cannot be read again, and tasks contain the images;"
                    " give back its files, or judge in visleak review"
                )
        yield PairToJudge(row, (images[ends[0]], images[ends[1]]), next(digests))
