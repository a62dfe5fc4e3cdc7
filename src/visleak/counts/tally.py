"""Counts of duplicates in a table of pairs: per type, per class, pairs and distinct images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from visleak.pipeline.copies import ContentPairs
from visleak.records import GRADES

#: Grades that make a pair a duplicate, the strongest first.
COUNTED: Final = GRADES[:3]


@dataclass(frozen=True, slots=True)
class Tally:
    """The duplicates of one kind: with training images, or within the test set.

    Attributes:
        pairs: number of pairs, by grade.
        images: number of distinct test images, by the strongest grade of each. Of a pair within
            the test set only the image in the column ``query`` counts: one of two is to go.
    """

    pairs: Mapping[str, int]
    images: Mapping[str, int]

    @property
    def all_pairs(self) -> int:
        """Pairs of any grade."""
        return sum(self.pairs.values())

    @property
    def all_images(self) -> int:
        """Distinct test images in them."""
        return sum(self.images.values())

    def as_dict(self) -> dict[str, Any]:
        """Return what ``--json`` prints."""
        total = {"pairs": self.all_pairs, "images": self.all_images}
        kinds = {g: {"pairs": self.pairs[g], "images": self.images[g]} for g in self.pairs}
        return kinds | {"total": total}


@dataclass(frozen=True, slots=True)
class State:
    """The duplicates of a test set under one column of grades.

    Attributes:
        leaks: with training images; ``None`` where there are none to compare with.
        within: within the test set; ``None`` where nobody looked for them.
        pairs: of both kinds.
        images: distinct test images of both kinds; one that is in both counts once.
        classes: the same by label; ``None`` stands for images without one.
    """

    leaks: Tally | None
    within: Tally | None
    pairs: int
    images: int
    classes: Mapping[str | None, int]

    @property
    def kinds(self) -> dict[str, Tally]:
        """The tallies there are, by name."""
        both = {"train-test": self.leaks, "within": self.within}
        return {name: tally for name, tally in both.items() if tally is not None}

    def as_dict(self) -> dict[str, Any]:
        """Return what ``--json`` prints."""
        kinds = {name: tally.as_dict() for name, tally in self.kinds.items()}
        return {"types": kinds, "pairs": self.pairs, "images": self.images}


@dataclass(frozen=True, slots=True)
class Class:
    """A class and its test images that have a duplicate.

    Attributes:
        name: the label; ``None`` for images without one.
        images: of them with a duplicate, after review.
        before: the same by the machine's grades.
        size: all that can be read.
    """

    name: str | None
    images: int
    before: int
    size: int


def state(
    pairs: pa.Table,
    contents: ContentPairs,
    column: str,
    grades: Sequence[str],
    *,
    leaks: bool,
    within: bool,
) -> State:
    """Count the duplicates of one test set.

    Args:
        pairs: its listed pairs, with columns ``query``, ``query_label``, ``coverage`` and
            ``column``.
        contents: of these pairs; pairs of copies that are not listed count as well.
        column: of the grades.
        grades: those that count, the strongest first.
        leaks, within: whether the set was compared with training images, and with itself.
    """
    code = pc.index_in(pairs[column], pa.array(grades, pa.string()))
    many = contents.stand_for(pc.fill_null(code, len(grades)).to_numpy())
    pairs = pairs.append_column("many", pa.array(many))
    found = pairs.filter(pc.is_valid(code))
    inside = pc.equal(found["coverage"], "within")
    rows = found.select(["query", "query_label"]).group_by(["query", "query_label"])
    labels = rows.aggregate([])["query_label"].to_pylist()
    return State(
        leaks=_tally(found.filter(pc.invert(inside)), column, grades) if leaks else None,
        within=_tally(found.filter(inside), column, grades) if within else None,
        pairs=pc.sum(found["many"]).as_py() or 0,
        images=len(labels),
        classes=Counter(labels),
    )


def _tally(found: pa.Table, column: str, grades: Sequence[str]) -> Tally:
    codes = pc.index_in(found[column], pa.array(grades, pa.string()))
    table = pa.table({"query": found["query"], "code": codes})
    best = table.group_by("query").aggregate([("code", "min")])["code_min"]
    images = Counter(best.to_pylist())
    pairs = {
        code: pc.sum(found["many"].filter(pc.equal(codes, code))) for code in range(len(grades))
    }
    return Tally(
        {grade: pairs[code].as_py() or 0 for code, grade in enumerate(grades)},
        {grade: images[code] for code, grade in enumerate(grades)},
    )


def classes_of(after: State, before: State, sizes: Mapping[str | None, int]) -> tuple[Class, ...]:
    """Return every class of a test set, that with most duplicates first, those without one last.

    Args:
        after, before: the counts.
        sizes: class to the number of its images.
    """
    names = {*sizes, *after.classes, *before.classes}
    found = [
        Class(name, after.classes.get(name, 0), before.classes.get(name, 0), sizes.get(name, 0))
        for name in names
    ]
    return tuple(sorted(found, key=lambda c: (c.name is None, -c.images, -c.before, c.name or "")))
