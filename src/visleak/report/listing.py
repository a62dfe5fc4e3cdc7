"""Every listed pair above ``different`` as data of the page, for its table and its filters."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from markupsafe import Markup

from visleak.records import Int64, between
from visleak.report.choice import Ledger

#: Most pairs of the table, and most bytes of them: the page has to open at once.
MOST: Final = 20_000
MOST_BYTES: Final = 1_500_000

#: Columns of a row of the data. The first six are places in the lists of names.
NAMED: Final = ("query_set", "reference_set", "kind", "query_label", "reference_label", "judged")
ROW: Final = (*NAMED, "query", "reference", "probability", "similarity", "conflict", "card")


@dataclass(frozen=True)
class Listing:
    """The pairs of the table."""

    data: Markup  # a JSON object that cannot end the element it stands in
    names: Mapping[str, Sequence[str]]  # the values of the columns of few values
    between: tuple[str, ...]  # the pairs of sets, as the filter names them
    pairs: int  # how many pairs are listed
    total: int  # how many the audit has above ``different``


def listed(columns: pa.Table, pairs: Ledger, anchors: Mapping[int, str]) -> Listing:
    """Return the strongest listed pairs, leaks and repeats first.

    Args:
        columns: the pairs, verdicts applied.
        pairs: of them.
        anchors: the cards of the gallery, by row.
    """
    wanted = pairs.order[(pairs.leak | pairs.shown)[pairs.order]]
    # leaks before what is only similar, each most certain first
    wanted = wanted[np.argsort(~pairs.leak[wanted], kind="stable")]
    kept = wanted[:MOST]
    known: dict[str, dict[str, int]] = {name: {"": 0} for name in NAMED}
    cards = _cards_of(pairs, anchors)
    rows: list[str] = []
    size = 0
    for named, rest in _rows(columns, pairs, kept, cards):
        places = [
            known[name].setdefault(word, len(known[name]))
            for name, word in zip(NAMED, named, strict=True)
        ]
        values = [*places, *rest]
        text = json.dumps(values, separators=(",", ":"))
        size += len(text) + 1
        if size > MOST_BYTES:
            break
        rows.append(text)
    names = {name: list(values) for name, values in known.items()}
    head = json.dumps({"columns": ROW, "names": names}, separators=(",", ":"))
    data = f'{head[:-1]},"rows":[{",".join(rows)}]}}'
    # the only characters that mean anything to a parser of HTML inside a script
    safe = data.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Listing(Markup(safe), names, _between(columns, kept), len(rows), len(wanted))


def _between(columns: pa.Table, rows: Int64) -> tuple[str, ...]:
    sets = columns.select(["query_set", "reference_set"]).take(pa.array(rows))
    found = sets.group_by(sets.column_names, use_threads=False).aggregate([]).to_pydict()
    return tuple(
        between(*pair) for pair in zip(found["query_set"], found["reference_set"], strict=True)
    )


def _cards_of(pairs: Ledger, anchors: Mapping[int, str]) -> dict[int, str]:
    """Return the card of each duplicate group: its most certain one."""
    found: dict[int, str] = {}
    for row, anchor in anchors.items():
        found.setdefault(int(pairs.key[row]), anchor)
    return found


def _rows(
    columns: pa.Table, pairs: Ledger, rows: Int64, cards: Mapping[int, str]
) -> Iterator[tuple[tuple[str, ...], tuple[str | float | None, ...]]]:
    """Yield the values of each row: those of few kinds, then the others."""
    part = columns.take(pa.array(rows)).to_pydict()
    degrees = zip(part["grade"], part["degree"], strict=True)
    part["kind"] = [grade or degree for grade, degree in degrees]
    named = zip(*([value or "" for value in part[name]] for name in NAMED), strict=True)
    numbers = ([_short(value) for value in part[name]] for name in ("probability", "similarity"))
    conflict = pairs.conflict[rows].astype(int).tolist()
    card = [cards.get(int(key), "") for key in pairs.key[rows]]
    rest = zip(part["query"], part["reference"], *numbers, conflict, card, strict=True)
    yield from zip(named, rest, strict=True)


def _short(value: float | None) -> float | None:
    return None if value is None or np.isnan(value) else round(value, 4)
