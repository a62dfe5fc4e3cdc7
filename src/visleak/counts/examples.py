"""Example pairs of each type at fixed percentiles of their distance, as figure 1 of the paper."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from visleak.verdicts import disputed

#: Percentiles of distance at which an example stands.
PERCENTILES: Final = (10, 50, 90)


@dataclass(frozen=True, slots=True)
class Example:
    """A pair that stands for its type.

    Attributes:
        grade: its type.
        percentiles: of the distances of that type where it stands; several if there are few.
        pair: its row of ``pairs.parquet``, verdicts laid over.
    """

    grade: str
    percentiles: tuple[int, ...]
    pair: Mapping[str, Any]

    @property
    def distance(self) -> float:
        """``sqrt(2 - 2 * similarity)``, the distance of unit vectors."""
        return math.sqrt(max(0.0, 2.0 - 2.0 * float(self.pair["similarity"])))

    @property
    def place(self) -> str:
        """The percentiles in words.

        >>> Example("near", (10, 50, 90), {}).place
        '10th, 50th and 90th percentile'
        """
        *others, last = (f"{each}th" for each in self.percentiles)
        return f"{', '.join(others)}{' and ' if others else ''}{last} percentile"

    def as_dict(self) -> dict[str, Any]:
        """Return what ``--json`` prints."""
        names = ("query_set", "query", "reference_set", "reference", "similarity", "judged")
        return {
            "grade": self.grade,
            "percentiles": list(self.percentiles),
            "distance": self.distance,
            **{name: self.pair[name] for name in names},
        }


def examples(pairs: pa.Table, grades: Sequence[str]) -> tuple[Example, ...]:
    """Choose the examples of each type, of both kinds of duplicates together.

    Pairs whose similarity nobody measured have no place on the scale and are never chosen; nor
    are disputed ones, which stand for nothing. At percentile ``p`` of ``n`` pairs stands the one
    whose rank from 0 is nearest to ``p / 100 * (n - 1)``.

    Args:
        pairs: of one test set; those of one distance stand in the order of ids.
        grades: the types.
    """
    chosen: list[Example] = []
    usable = pc.and_not(pc.is_valid(pairs["similarity"]), disputed(pairs))
    pairs = pairs.filter(usable)
    for grade in grades:
        own = pairs.filter(pc.equal(pairs["grade"], grade))
        keys = [("similarity", "descending"), ("query", "ascending"), ("reference", "ascending")]
        order = pc.sort_indices(own, [*keys, ("reference_set", "ascending")])
        ranks: dict[int, list[int]] = {}
        for each in PERCENTILES if len(own) else ():
            ranks.setdefault(math.floor(each / 100 * (len(own) - 1) + 0.5), []).append(each)
        rows = own.take(order.take(pa.array(list(ranks), pa.int64()))).to_pylist()
        chosen += [
            Example(grade, tuple(places), row)
            for places, row in zip(ranks.values(), rows, strict=True)
        ]
    return tuple(chosen)
