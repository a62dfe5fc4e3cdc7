"""What a page shows of the list, and in which order: read from its address and written into it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final
from urllib.parse import urlencode

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import UsageError
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


def couples(listing: Listing) -> list[str]:
    """Return the pairs of sets that the list has."""
    pairs = listing.pairs.group_by(["query_set", "reference_set"], use_threads=False).aggregate([])
    return [
        couple(q, r)
        for q, r in zip(*(pairs[n].to_pylist() for n in pairs.column_names), strict=True)
    ]


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
        keep &= _equal(listing, "query_label", choice.label) | _equal(
            listing, "reference_label", choice.label
        )
    if choice.sets:
        keep &= _of_sets(listing, choice.sets)
    return keep


def _equal(listing: Listing, column: str, value: str) -> Bool:
    same = pc.equal(listing.pairs[column].cast(pa.string()), value)
    return np.asarray(pc.fill_null(same, False).to_numpy())


def _of_sets(listing: Listing, name: str) -> Bool:
    keep = np.zeros(len(listing), bool)
    names = [
        pc.unique(listing.pairs[f"{s}_set"].cast(pa.string())).to_pylist()
        for s in ("query", "reference")
    ]
    for query_set in names[0]:
        for reference_set in names[1]:
            if couple(query_set, reference_set) == name:
                keep |= _equal(listing, "query_set", query_set) & _equal(
                    listing, "reference_set", reference_set
                )
    return keep


def order(listing: Listing, sort: str) -> Int64:
    """Return all rows of the list in an order; among equals by distance."""
    by: Any = {
        "distance": np.zeros(len(listing)),
        "uncertain": _last_if_unknown(np.abs(listing.probability - 0.5)),
        "grade": np.where(listing.grade < 0, len(GRADES), listing.grade),
    }[sort]
    return np.argsort(by, kind="stable").astype(np.int64)


def _last_if_unknown(values: Any) -> Any:
    return np.where(np.isnan(values), np.inf, values)
