"""A grade or a degree *or stronger*, and the pairs that make an image leak at it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import not_one_of
from visleak.records import DEGREES, GRADES
from visleak.storage import IMAGES, AuditSummary, read_table
from visleak.verdicts.overlay import judged_pairs

#: Grade or degree, meant as *it or stronger*, to the rate of ``audit.json`` that counts it, and
#: what an image that it counts has.
RATES: Final = {
    "exact": ("exact", "an exact copy"),
    "near": ("near_or_exact", "a near-duplicate or exact copy"),
    "similar": ("similar_or_closer", "a similar or closer image"),
    "hard": ("hard", "a hard leak"),
    "soft": ("hard_or_soft", "a hard or soft leak"),
}


@dataclass(frozen=True, slots=True)
class Level:
    """A grade or degree, meant as *it or stronger*.

    >>> Level("near").scale, Level("near").names
    ('grade', ('exact', 'near'))
    """

    name: str  # ``exact``, ``near``, ``similar``, ``hard`` or ``soft``

    def __post_init__(self) -> None:
        if self.name not in RATES:
            raise not_one_of("the grade", self.name, RATES)

    @property
    def scale(self) -> str:
        """The column it is about: ``grade`` or ``degree``."""
        return "degree" if self.name in DEGREES else "grade"

    @property
    def names(self) -> tuple[str, ...]:
        """Grades or degrees that count, strongest first."""
        scale = DEGREES if self.name in DEGREES else GRADES
        return scale[: scale.index(self.name) + 1]

    @property
    def code(self) -> int:
        """Its place on its scale; a stronger one is smaller."""
        return len(self.names) - 1

    @property
    def rate(self) -> str:
        """The rate in ``audit.json`` that counts the images that leak at it."""
        return RATES[self.name][0]

    @property
    def words(self) -> str:
        """Description of the leak of an image."""
        return RATES[self.name][1]


def alone(summary: AuditSummary, query_set: str) -> bool:
    """Whether a set was compared with itself only, so its duplicates count as leaks."""
    own = [each for each in summary.comparisons if each.query_set == query_set]
    return all(each.coverage == "within" for each in own)


def leaks(
    folder: Path, summary: AuditSummary, level: Level | None, columns: Sequence[str]
) -> pa.Table:
    """Return the pairs that the rate of a level counts, with verdicts applied.

    Duplicates within a set are excluded, unless a set was compared with itself only; so are blank
    images.
    """
    scale = () if level is None else (level.scale,)
    needed = dict.fromkeys((*columns, "query_set", "query", "coverage", *scale))
    table = judged_pairs(folder, list(needed))
    if level is not None:
        table = table.filter(pc.is_in(table[level.scale], pa.array(level.names)))
    selves = [t.query_set for t in summary.totals if alone(summary, t.query_set)]
    own = pc.is_in(table["query_set"], pa.array(selves, pa.string()))
    table = table.filter(pc.or_(pc.not_equal(table["coverage"], "within"), own))
    blank = read_table(folder, IMAGES, ["set", "id"], pc.field("flat"))
    for name in pc.unique(table["query_set"]).to_pylist() if blank.num_rows else ():
        ids = blank.filter(pc.equal(blank["set"], name))["id"].combine_chunks()
        flat = pc.and_(pc.equal(table["query_set"], name), pc.is_in(table["query"], ids))
        table = table.filter(pc.invert(flat))
    return table.select(list(columns))
