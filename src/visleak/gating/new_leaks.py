"""The leaks of an audit that its baseline does not know."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import UsageError
from visleak.gating.baseline import Baseline, keys_of, within_of
from visleak.rates import Rate, chance
from visleak.records import DEGREES, GRADES, Bool, PairRow
from visleak.storage import AuditSummary
from visleak.templates import plain
from visleak.verdicts.level import Level, alone, leaks

#: What is kept of a pair: enough to name it.
COLUMNS: Final = (
    *("query_set", "query", "reference_set", "reference", "similarity", "degree", "grade"),
    *("probability", "reason", "transform", "coverage"),
)


@dataclass(frozen=True, slots=True)
class NewLeaks:
    """What is new in a query set at a level."""

    query_set: str  # its name
    level: Level  # the weakest that counts
    rate: Rate  # of the images with at least one pair that is not known
    known: int  # how many more images leak, by known pairs alone
    pairs: pa.Table  # the rows of ``pairs.parquet`` that are not known, worst first

    def as_dict(self, named: int = 10) -> dict[str, object]:
        """Return plain values, with the ``named`` worst pairs."""
        worst = self.pairs.slice(0, named).to_pylist()
        return {
            "level": self.level.name,
            "query_set": self.query_set,
            "new": self.rate.as_dict(),
            "known": self.known,
            "new_pairs": self.pairs.num_rows,
            "worst": [{k: v for k, v in row.items() if k != "coverage"} for row in worst],
        }


def new_leaks(
    folder: Path, summary: AuditSummary, level: Level, baseline: Baseline | None = None
) -> tuple[NewLeaks, ...]:
    """Return what is new in each query set of an audit, verdicts of people applied.

    An image is new if at least one of the pairs by which it leaks is.

    Args:
        folder: the audit folder.
        summary: its ``audit.json``, verdicts counted.
        level: the weakest that counts; its rate must have been measured.
        baseline: what is known; without it all is new.

    Raises:
        VisleakError: a table of the folder is damaged.
    """
    table = leaks(folder, summary, level, COLUMNS)
    if baseline is None:
        known = np.zeros(table.num_rows, bool)
    else:
        known = baseline.knows(keys_of(folder, table), within_of(summary, table), level)
    found = []
    for total in summary.totals:
        name = total.query_set
        own = pc.equal(table["query_set"], name).to_numpy()
        inside = alone(summary, name)
        fresh = _images(table, own & ~known, inside)
        every = _images(table, own, inside)
        rate = total.rates[level.rate]
        if rate is None:
            raise UsageError(f"{folder} has no rate of {level.name!r}")
        found.append(
            NewLeaks(
                name,
                level,
                Rate.of(fresh, rate.total, population=rate.population),
                every - fresh,
                worst_first(table.filter(pa.array(own & ~known))),
            )
        )
    return tuple(found)


def _images(table: pa.Table, rows: Bool, inside: bool) -> int:
    """Return how many images the rows are about: the queries, inside one set both images."""
    chosen = table.filter(pa.array(rows))
    ids = chosen["query"]
    if inside:
        ids = pa.chunked_array([*ids.chunks, *chosen["reference"].chunks], pa.string())
    return len(pc.unique(ids))


def worst_first(pairs: pa.Table) -> pa.Table:
    """Return pairs by grade, falling probability and similarity, then by their ids."""
    grade = pc.fill_null(pc.index_in(pairs["grade"], pa.array(GRADES)), len(GRADES))
    degree = pc.fill_null(pc.index_in(pairs["degree"], pa.array(DEGREES)), len(DEGREES))
    ranked = pairs.append_column("_grade", grade).append_column("_degree", degree)
    order = pc.sort_indices(
        ranked,
        sort_keys=[
            ("_grade", "ascending"),
            ("probability", "descending"),
            ("_degree", "ascending"),
            ("similarity", "descending"),
            *((name, "ascending") for name in COLUMNS[:4]),
        ],
    )
    return pairs.take(order)


def worst(found: NewLeaks, count: int) -> list[PairRow]:
    """Return the worst pair of each of the worst images."""
    queries = found.pairs["query"].to_numpy(zero_copy_only=False)
    first = np.sort(np.unique(queries, return_index=True)[1])[:count]
    rows: list[PairRow] = found.pairs.take(pa.array(first)).to_pylist()
    return rows


def named(found: NewLeaks, count: int) -> Iterator[str]:
    """Yield a line for the worst pair of each of the worst images, and one for what is left."""
    shown = worst(found, count)
    yield from map(pair_line, shown)
    left = found.pairs.num_rows - len(shown)
    if left:
        yield f"and {left:,} more {'pair' if left == 1 else 'pairs'}"


def pair_line(row: PairRow) -> str:
    """Return a pair in one line: who, how strong, how sure, and what was done to the image."""
    said = [row["grade"] or row["degree"] or "no grade"]
    if row["probability"] is not None:
        said.append(f"probability {chance(row['probability'])}")
    if row["similarity"] is not None:
        said.append(f"similarity {row['similarity']:.3f}")
    why = row["transform"] or row["reason"]
    return plain(
        f"{row['query_set']} {row['query']} = {row['reference_set']} {row['reference']}:"
        f" {', '.join(said)}{f' ({why})' if why else ''}"
    )
