"""Counts the duplicates of an audit folder."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from visleak.counts.examples import Example, examples
from visleak.counts.review import Review, review_of
from visleak.counts.tally import COUNTED, Class, State, classes_of, state
from visleak.errors import UsageError
from visleak.pipeline.copies import ContentPairs
from visleak.stats import Rate
from visleak.storage import IMAGES, ComparisonSummary, read_table
from visleak.verdicts import Verdict, judged_pairs, judged_summary, read_verdicts
from visleak.verdicts.exchange import as_listed

#: What the document of counts says that it is.
KIND: Final = "visleak counts"

#: Columns of the pairs that counts and the cards of examples need.
COLUMNS: Final = (
    "query_set",
    "query",
    "reference_set",
    "reference",
    "similarity",
    "view",
    "matrix",
    "grade",
    "query_label",
    "reference_label",
    "coverage",
    "machine_grade",
    "judged",
)


@dataclass(frozen=True, slots=True)
class SetCounts:
    """The duplicates of one test set.

    Attributes:
        query_set: its name.
        size: images that could be read.
        after: with the verdicts of people counted.
        before: the machine's grades alone; the same where nobody judged.
        classes: by label, most duplicates first; empty where there are no labels.
        examples: of each type.
        unplaced: duplicates without a similarity, which are never examples.
        blank: duplicates of blank pictures, which are counted nowhere.
    """

    query_set: str
    size: int
    after: State
    before: State
    classes: tuple[Class, ...]
    examples: tuple[Example, ...]
    unplaced: int
    blank: int

    @property
    def share(self) -> Rate:
        """Distinct test images with a duplicate, of all that could be read."""
        return Rate.of(self.after.images, self.size)

    def as_dict(self) -> dict[str, Any]:
        """Return what ``--json`` prints."""
        return {
            "query_set": self.query_set,
            "images": self.size,
            "after": self.after.as_dict(),
            "before": self.before.as_dict(),
            "share": self.share.as_dict(),
            "classes": [
                {"label": c.name, "images": c.images, "before": c.before, "of": c.size}
                for c in self.classes
            ],
            "examples": [each.as_dict() for each in self.examples],
            "without_similarity": self.unplaced,
            "blank_pairs": self.blank,
        }


@dataclass(frozen=True, slots=True)
class Counts:
    """The duplicates of an audit, and who reviewed it.

    Attributes:
        grades: that count, the strongest first.
        sets: a test set each.
        review: who judged and how far they agree; ``None`` where nobody judged.
        changed, added: listed pairs whose grade people changed; pairs only people found.
    """

    grades: tuple[str, ...]
    sets: tuple[SetCounts, ...]
    review: Review | None
    changed: int
    added: int

    def as_dict(self) -> dict[str, Any]:
        """Return what ``--json`` prints: all of it."""
        return {
            "kind": KIND,
            "grades": list(self.grades),
            "review": None
            if self.review is None
            else self.review.as_dict() | {"changed": self.changed, "added": self.added},
            "sets": [each.as_dict() for each in self.sets],
        }


def count(
    folder: str | os.PathLike[str],
    *,
    grade: str = "near",
    verdicts: Iterable[Verdict] | None = None,
    judged: bool = False,
) -> Counts:
    """Count the duplicates of an audit, before and after review.

    Args:
        folder: an audit folder.
        grade: the weakest that counts: ``exact``, ``near``, or ``similar`` as in the paper.
        verdicts: to lay over, in order of time; by default those of the folder.
        judged: count only the pairs that people judged and agree on, as the paper does.

    Raises:
        UsageError: the folder holds no finished audit, or no pair of it has a grade or verdict.
        VisleakError: a file of it is damaged.
    """
    if grade not in COUNTED:
        raise UsageError(f"grade must be one of {', '.join(COUNTED)}; got {grade!r}")
    home = Path(folder)
    said = tuple(read_verdicts(home) if verdicts is None else verdicts)
    summary = judged_summary(home, said)
    if summary.grader is None and not said:
        raise UsageError(
            f"{folder} was audited without verification, so no pair has a grade; judge them with"
            " `visleak review`"
        )
    if judged and not said:
        raise UsageError(f"nobody has judged a pair of {folder} yet; run `visleak review` on it")
    grades = COUNTED[: COUNTED.index(grade) + 1]
    pairs = as_listed(_duplicates(home, said), said)
    if judged:
        pairs = pairs.filter(pc.equal(pairs["judged"], "human"))
    images = read_table(home, IMAGES, ["set", "id", "digest", "label", "flat"])
    review = summary.review
    return Counts(
        grades=grades,
        sets=tuple(
            _set(total.query_set, summary.comparisons, pairs, images, grades)
            for total in summary.totals
        ),
        review=review_of(said) if said else None,
        changed=review.changed if review else 0,
        added=review.added if review else 0,
    )


def _duplicates(folder: Path, said: Sequence[Verdict]) -> pa.Table:
    """Return the pairs that machine or people call a duplicate."""
    pairs = judged_pairs(folder, COLUMNS, said)
    known = pa.array(COUNTED, pa.string())
    return pairs.filter(
        pc.or_(pc.is_in(pairs["grade"], known), pc.is_in(pairs["machine_grade"], known))
    )


def _set(
    name: str,
    comparisons: Sequence[ComparisonSummary],
    pairs: pa.Table,
    images: pa.Table,
    grades: Sequence[str],
) -> SetCounts:
    own = [each for each in comparisons if each.query_set == name]
    pairs = pairs.filter(pc.equal(pairs["query_set"], name))
    listed = images
    images = images.filter(pc.equal(images["set"], name))
    # of blank pictures nothing is known; no rate counts them
    flat = images.filter(pc.fill_null(images["flat"], False))["id"].combine_chunks()
    blank = pc.is_in(pairs["query"], flat)
    counted = pairs.filter(pc.invert(blank))
    kinds = {
        "leaks": any(each.coverage != "within" for each in own),
        "within": any(each.coverage == "within" for each in own),
    }
    contents = ContentPairs.of_tables(counted, listed)
    after = state(counted, contents, "grade", grades, **kinds)
    before = state(counted, contents, "machine_grade", grades, **kinds)
    sizes = Counter(images["label"].to_pylist())
    labelled = any(label is not None for label in sizes)
    there = counted.filter(pc.is_in(counted["grade"], pa.array(grades, pa.string())))
    return SetCounts(
        query_set=name,
        size=max((each.queries for each in own), default=len(images)),
        after=after,
        before=before,
        classes=classes_of(after, before, sizes) if labelled else (),
        examples=examples(there, grades),
        unplaced=there["similarity"].null_count,
        blank=pairs.num_rows - counted.num_rows,
    )
