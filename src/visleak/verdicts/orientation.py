"""Which of two images of one set a person called the duplicate."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from visleak.verdicts.record import Verdict


def as_listed(pairs: pa.Table, said: Iterable[Verdict]) -> pa.Table:
    """Return pairs with those within a set turned around where a person's list has them so.

    In a list of repeats within the test set the first column says which of the two images is to
    go; the machine's table has the lower id there. Only names, ids and labels are turned, so the
    rows are for counting and listing.

    Args:
        pairs: rows of ``pairs.parquet`` with the columns of both images and ``coverage``.
        said: verdicts.
    """
    other_way = {
        (v.query_set, v.reference, v.query) for v in said if v.query_set == v.reference_set
    }
    inside = pc.equal(pairs["coverage"], "within").to_pylist()
    names = (pairs[end].to_pylist() for end in ("query_set", "query", "reference"))
    turned = [
        within and pair in other_way
        for within, pair in zip(inside, zip(*names, strict=True), strict=True)
    ]
    if not any(turned):
        return pairs
    mask = pa.array(turned, pa.bool_())
    swapped = {}
    for left in [name for name in pairs.column_names if name.startswith("query")]:
        right = f"reference{left.removeprefix('query')}"
        swapped[left] = pc.if_else(mask, pairs[right], pairs[left])
        swapped[right] = pc.if_else(mask, pairs[left], pairs[right])
    for name, column in swapped.items():
        pairs = pairs.set_column(pairs.column_names.index(name), name, column)
    return pairs
