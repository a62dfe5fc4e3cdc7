"""How many duplicates of which kind, as Barz & Denzler (2020) print them, before and after review.

A duplicate is a pair that is exact, near or similar. Source: their figures 1 and 4 and table 1.
"""

from visleak.report.counts.counting import (
    Class,
    Counts,
    Example,
    Review,
    SetCounts,
    State,
    Tally,
    count,
    review_of,
)
from visleak.report.counts.document import documents, review_document
from visleak.report.counts.writing import COUNTS, write_counts

__all__ = [
    "COUNTS",
    "Class",
    "Counts",
    "Example",
    "Review",
    "SetCounts",
    "State",
    "Tally",
    "count",
    "documents",
    "review_document",
    "review_of",
    "write_counts",
]
