"""Counts of the duplicates of an audit: per type and class, before and after review, examples."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from visleak.documents import as_plain
from visleak.errors import UsageError, not_one_of
from visleak.pipeline.rates import ContentPairs
from visleak.quantities import listed
from visleak.rates import Rate
from visleak.records import GRADES, PairRow
from visleak.storage import IMAGES, ComparisonSummary, read_table
from visleak.verdicts import (
    Agreement,
    Verdict,
    agreement,
    consensus_of,
    disputed,
    judged_pairs,
    judged_summary,
    read_verdicts,
)
from visleak.verdicts.exchange import as_listed

COUNTED: Final = GRADES[:3]  # grades that make a pair a duplicate, the strongest first


@dataclass(frozen=True, slots=True)
class Tally:
    """The duplicates of one kind: with training images, or within the test set."""

    pairs: Mapping[str, int]  # number of pairs, by grade
    # number of distinct test images, by the strongest grade of each. Of a pair within the test set
    # only the image in the column `query` counts: one of two is to be removed
    images: Mapping[str, int]

    @property
    def all_pairs(self) -> int:
        """Pairs of any grade."""
        return sum(self.pairs.values())

    @property
    def all_images(self) -> int:
        """Distinct test images in them."""
        return sum(self.images.values())

    def as_dict(self) -> dict[str, object]:
        """Return what ``--json`` prints."""
        kinds: dict[str, object] = {
            grade: {"pairs": count, "images": self.images[grade]}
            for grade, count in self.pairs.items()
        }
        return kinds | {"total": {"pairs": self.all_pairs, "images": self.all_images}}


@dataclass(frozen=True, slots=True)
class State:
    """The duplicates of a test set under one column of grades."""

    leaks: Tally | None  # with training images; `None` where there are none to compare with
    within: Tally | None  # within the test set; `None` where they were not searched
    pairs: int  # of both kinds
    images: int  # distinct test images of both kinds; one that is in both counts once
    classes: Mapping[str | None, int]  # the same by label; `None` for images without one

    @property
    def kinds(self) -> dict[str, Tally]:
        """The tallies by name."""
        both = {"train-test": self.leaks, "within": self.within}
        return {name: tally for name, tally in both.items() if tally is not None}

    def as_dict(self) -> dict[str, object]:
        """Return what ``--json`` prints."""
        kinds = {name: tally.as_dict() for name, tally in self.kinds.items()}
        return {"types": kinds, "pairs": self.pairs, "images": self.images}


@dataclass(frozen=True, slots=True)
class Class:
    """A class and its test images that have a duplicate."""

    name: str | None  # the label; `None` for images without one
    images: int  # of them with a duplicate, after review
    before: int  # the same by the automatic grades
    size: int  # all that can be read


def state(
    pairs: pa.Table,
    contents: ContentPairs,
    column: str,
    grades: Sequence[str],
    *,
    leaks: bool,
    within: bool,
) -> State:
    """Count the duplicates of one test set."""
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
    """Return every class of a test set, that with most duplicates first, unlabelled images last."""
    names = {*sizes, *after.classes, *before.classes}
    found = [
        Class(name, after.classes.get(name, 0), before.classes.get(name, 0), sizes.get(name, 0))
        for name in names
    ]
    return tuple(sorted(found, key=lambda c: (c.name is None, -c.images, -c.before, c.name or "")))


PERCENTILES: Final = (10, 50, 90)  # percentiles of distance of the examples


@dataclass(frozen=True, slots=True)
class Example:
    """An example pair of a type."""

    grade: str  # its type
    # of its distance among those of the type; several if there are few pairs
    percentiles: tuple[int, ...]
    pair: PairRow  # with verdicts

    @property
    def distance(self) -> float:
        """``sqrt(2 - 2 * similarity)``, the distance of unit vectors."""
        return math.sqrt(max(0.0, 2.0 - 2.0 * (self.pair["similarity"] or 0.0)))

    @property
    def place(self) -> str:
        """The percentiles in words.

        >>> Example("near", (10, 50, 90), {}).place
        '10th, 50th and 90th percentile'
        """
        return f"{listed(f'{each}th' for each in self.percentiles)} percentile"

    def as_dict(self) -> dict[str, object]:
        """Return what ``--json`` prints."""
        names = ("query_set", "query", "reference_set", "reference", "similarity", "judged")
        pair = dict(self.pair)
        return {
            "grade": self.grade,
            "percentiles": list(self.percentiles),
            "distance": self.distance,
            **{name: pair[name] for name in names},
        }


def examples(pairs: pa.Table, grades: Sequence[str]) -> tuple[Example, ...]:
    """Choose the examples of each type, of both kinds of duplicates together.

    Pairs without a similarity and disputed pairs are never chosen. The example at percentile ``p``
    of ``n`` pairs is the one whose rank from 0 is nearest to ``p / 100 * (n - 1)``.
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


@dataclass(frozen=True, slots=True)
class Dispute:
    """A pair on which reviewers disagree on near-or-not, and the verdict of each of them."""

    query_set: str
    query: str
    reference_set: str
    reference: str
    said: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Review:
    """The verdicts of an audit folder, counted."""

    agreement: Agreement  # pairs per reviewer, and kappa of every two
    judgments: Mapping[str, Mapping[str, int]]  # reviewer to the number of each grade
    settled: Mapping[str, int]  # number of pairs of each grade; disputed ones have none
    disputes: tuple[Dispute, ...]  # the disputed pairs

    def as_dict(self) -> dict[str, object]:
        """Return what ``--json`` prints; a kappa that is not defined is ``None``."""
        return {
            "judged": self.agreement.judged,
            "disputed": self.agreement.disputed,
            "settled": dict(self.settled),
            "reviewers": {name: dict(counts) for name, counts in self.judgments.items()},
            "kappas": as_plain(self.agreement.kappas),
            "disputes": as_plain(self.disputes),
        }


def review_of(verdicts: Sequence[Verdict]) -> Review:
    """Count verdicts."""
    settled = consensus_of(verdicts)
    agreed = agreement(verdicts)
    given = Counter(
        (verdict.reviewer, verdict.judgment)
        for each in settled.values()
        for verdict in each.verdicts
    )
    standing = Counter(each.grade for each in settled.values())
    return Review(
        agreement=agreed,
        judgments={name: {g: given[name, g] for g in GRADES} for name in agreed.reviewers},
        settled={grade: standing[grade] for grade in GRADES},
        disputes=tuple(_dispute(each.verdicts) for each in settled.values() if each.disputed),
    )


def _dispute(verdicts: Sequence[Verdict]) -> Dispute:
    last = verdicts[-1]
    said = {verdict.reviewer: verdict.judgment for verdict in verdicts}
    return Dispute(last.query_set, last.query, last.reference_set, last.reference, said)


KIND: Final = "visleak counts"  # kind of the document of counts

#: Columns of the pairs that counts and the cards of examples need.
COLUMNS: Final = (
    *("query_set", "query", "reference_set", "reference", "similarity", "view", "matrix"),
    *("grade", "query_label", "reference_label", "coverage", "machine_grade", "judged"),
)


@dataclass(frozen=True, slots=True)
class SetCounts:
    """The duplicates of one test set."""

    query_set: str  # its name
    size: int  # images that could be read
    after: State  # with the verdicts of reviewers
    before: State  # the automatic grades alone; the same where there are no verdicts
    classes: tuple[Class, ...]  # by label, most duplicates first; empty where there are no labels
    examples: tuple[Example, ...]  # of each type
    unplaced: int  # duplicates without a similarity, which are never examples
    blank: int  # duplicates of blank images, which are not counted

    @property
    def share(self) -> Rate:
        """Distinct test images with a duplicate, of all that could be read."""
        return Rate.of(self.after.images, self.size)

    def as_dict(self) -> dict[str, object]:
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
    """The duplicates of an audit, and its review."""

    grades: tuple[str, ...]  # that count, the strongest first
    sets: tuple[SetCounts, ...]  # a test set each
    review: Review | None  # verdicts and agreement; ``None`` where there are none
    # listed pairs whose grade reviewers changed; pairs only reviewers found
    changed: int
    added: int

    def as_dict(self) -> dict[str, object]:
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
        verdicts: in order of time; by default those of the folder.
        judged: count reviewed pairs without dispute only, as the paper does.

    Raises:
        UsageError: the folder holds no finished audit, or no pair of it has a grade or verdict.
        VisleakError: a file of it is damaged.
    """
    if grade not in COUNTED:
        raise not_one_of("grade", grade, COUNTED)
    home = Path(folder)
    given = tuple(read_verdicts(home) if verdicts is None else verdicts)
    summary = judged_summary(home, given)
    if summary.grader is None and not given:
        raise UsageError(
            f"{folder} was audited without verification, so no pair has a grade; judge them with"
            " `visleak review`"
        )
    if judged and not given:
        raise UsageError(f"{folder} has no verdicts; run `visleak review` on it")
    grades = COUNTED[: COUNTED.index(grade) + 1]
    pairs = as_listed(_duplicates(home, given), given)
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
        review=review_of(given) if given else None,
        changed=review.changed if review else 0,
        added=review.added if review else 0,
    )


def _duplicates(folder: Path, given: Sequence[Verdict]) -> pa.Table:
    pairs = judged_pairs(folder, COLUMNS, given)
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
    # blank images are not counted in any rate
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
