"""What a page shows of the list, and in which order: read from its address and written into it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Final
from urllib.parse import urlencode

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import UsageError
from visleak.groups import is_word
from visleak.records import GRADES, Bool, Int64
from visleak.review.listing import Listing

#: Filter of the machine's grade: the grade alone, it or stronger, or pairs without one.
GRADE_CHOICES: Final = {
    "exact": "exact",
    "near+": "near or exact",
    "similar+": "similar or closer",
    "near": "near only",
    "similar": "similar only",
    "different": "different",
    "none": "no grade",
}
COVERAGES: Final = {"leaks": "between sets", "within": "within a set"}
STATES: Final = {"unjudged": "not judged by me", "judged": "judged by me", "disputed": "disputed"}
SORTS: Final = {
    "distance": "distance, closest first",
    "uncertain": "most uncertain first",
    "grade": "machine grade, strongest first",
}


@dataclass(frozen=True, slots=True)
class Choice:
    """Filters and order. Empty text filters nothing.

    Attributes:
        stop: ``off`` if the reviewer continues after the stop rule.
    """

    grade: str = ""
    label: str = ""
    sets: str = ""
    coverage: str = ""
    state: str = ""
    sort: str = "distance"
    stop: str = ""

    def __post_init__(self) -> None:
        choices: Mapping[str, tuple[str, ...]] = {
            "grade": ("", *GRADE_CHOICES),
            "coverage": ("", *COVERAGES),
            "state": ("", *STATES),
            "sort": tuple(SORTS),
            "stop": ("", "off"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                known = ", ".join(value for value in allowed if value)
                raise UsageError(f"{name} must be one of {known}; got {getattr(self, name)!r}")

    @classmethod
    def of(cls, values: Mapping[str, str]) -> Choice:
        """Return the choice in the query of an address; other parameters are ignored.

        >>> Choice.of({"grade": "near+", "page": "2"}).query
        'grade=near%2B'
        """
        names = [each.name for each in fields(cls)]
        return cls(**{name: values[name] for name in names if values.get(name)})

    @property
    def query(self) -> str:
        """What stands behind the question mark; empty for all pairs by distance."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        default = Choice()
        return urlencode({k: v for k, v in given.items() if v != getattr(default, k)})

    @property
    def filtered(self) -> int:
        """How many filters are set."""
        return sum(
            bool(getattr(self, name)) for name in ("grade", "label", "sets", "coverage", "state")
        )


def couple(query_set: str, reference_set: str) -> str:
    """Return how a pair of sets is called."""
    return f"within {query_set}" if query_set == reference_set else f"{query_set} → {reference_set}"


def _set_pairs(listing: Listing) -> Iterator[tuple[str, str]]:
    pairs = listing.pairs.group_by(["query_set", "reference_set"], use_threads=False).aggregate([])
    yield from zip(*(pairs[name].to_pylist() for name in pairs.column_names), strict=True)


def couples(listing: Listing) -> list[str]:
    """Return the pairs of sets that the list has."""
    return [couple(*names) for names in _set_pairs(listing)]


def labels(listing: Listing) -> list[str]:
    """Return the classes that the list has."""
    found: set[str] = set()
    for side in ("query_label", "reference_label"):
        found.update(pc.unique(listing.pairs[side].cast(pa.string())).drop_null().to_pylist())
    return sorted(found)


def fixed(listing: Listing, choice: Choice) -> Bool:
    """Return which rows the filters let through that no verdict changes."""
    keep = np.ones(len(listing), bool)
    if choice.grade == "none":
        keep &= listing.grade < 0
    elif choice.grade.endswith("+"):
        keep &= (listing.grade >= 0) & (listing.grade <= GRADES.index(choice.grade[:-1]))
    elif choice.grade:
        keep &= listing.grade == GRADES.index(choice.grade)
    if choice.coverage:
        keep &= listing.within == (choice.coverage == "within")
    if choice.label:
        sides = (listing.pairs[f"{side}_label"] for side in ("query", "reference"))
        keep &= np.logical_or(*(is_word(column, choice.label) for column in sides))
    if choice.sets:
        named = np.zeros(len(listing), bool)
        for query_set, reference_set in _set_pairs(listing):
            if couple(query_set, reference_set) == choice.sets:
                own = is_word(listing.pairs["query_set"], query_set)
                named |= own & is_word(listing.pairs["reference_set"], reference_set)
        keep &= named
    return keep


def order(listing: Listing, sort: str) -> Int64:
    """Return all rows of the list in an order; among equals by distance."""
    if sort == "uncertain":
        by = np.nan_to_num(np.abs(listing.probability - 0.5), nan=np.inf)
    elif sort == "grade":
        by = np.where(listing.grade < 0, len(GRADES), listing.grade).astype(np.float64)
    else:
        by = np.zeros(len(listing))
    return np.argsort(by, kind="stable")
