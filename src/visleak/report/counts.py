"""How many duplicates of which kind, as Barz & Denzler (2020) print them, before and after review.

A duplicate is a pair that is exact, near or similar. Source: their figures 1 and 4 and table 1.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from visleak.documents import as_plain
from visleak.errors import UsageError, VisleakError, not_one_of
from visleak.pipeline.rates import ContentPairs
from visleak.quantities import counted, listed
from visleak.rates import Rate
from visleak.records import GRADES, PairRow, ends_of
from visleak.reporting import Document
from visleak.reporting.charts import Bar, bar_chart
from visleak.reporting.contact_sheet import write_card
from visleak.reporting.gallery import ImageLoader, decoded, relation
from visleak.reporting.markup import Grid
from visleak.storage import (
    IMAGES,
    ComparisonSummary,
    read_table,
    write_bytes,
    write_csv,
    write_json,
)
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
KIND: Final = "visleak counts"  # kind of the document of counts
PERCENTILES: Final = (10, 50, 90)  # percentiles of distance of the examples

#: Columns of the pairs that counts and the cards of examples need.
COLUMNS: Final = (
    *("query_set", "query", "reference_set", "reference", "similarity", "view", "matrix"),
    *("grade", "query_label", "reference_label", "coverage", "machine_grade", "judged"),
)


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
        rows = {grade: (count, self.images[grade]) for grade, count in self.pairs.items()}
        rows["total"] = self.all_pairs, self.all_images
        return {name: {"pairs": pairs, "images": images} for name, (pairs, images) in rows.items()}


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
            "settled": self.settled,
            "reviewers": self.judgments,
            "kappas": as_plain(self.agreement.kappas),
            "disputes": as_plain(self.disputes),
        }


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
        changes = {"changed": self.changed, "added": self.added}
        return {
            "kind": KIND,
            "grades": list(self.grades),
            "review": self.review.as_dict() | changes if self.review else None,
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
    pairs = judged_pairs(home, COLUMNS, given)
    known = pa.array(COUNTED, pa.string())
    counted = [pc.is_in(pairs[name], known) for name in ("grade", "machine_grade")]
    pairs = as_listed(pairs.filter(pc.or_(*counted)), given)
    if judged:
        pairs = pairs.filter(pc.equal(pairs["judged"], "human"))
    images = read_table(home, IMAGES, ["set", "id", "digest", "label", "flat"])
    review = summary.review
    return Counts(
        grades=grades,
        sets=tuple(
            _counts_of_set(total.query_set, summary.comparisons, pairs, images, grades)
            for total in summary.totals
        ),
        review=review_of(given) if given else None,
        changed=review.changed if review else 0,
        added=review.added if review else 0,
    )


def _counts_of_set(
    name: str,
    comparisons: Sequence[ComparisonSummary],
    pairs: pa.Table,
    images: pa.Table,
    grades: Sequence[str],
) -> SetCounts:
    compared = [each for each in comparisons if each.query_set == name]
    kinds = [each.coverage == "within" for each in compared]
    pairs = pairs.filter(pc.equal(pairs["query_set"], name))
    own = images.filter(pc.equal(images["set"], name))
    # blank images are not counted in any rate
    flat = own.filter(pc.fill_null(own["flat"], False))["id"].combine_chunks()
    counted = pairs.filter(pc.invert(pc.is_in(pairs["query"], flat)))
    contents = ContentPairs.of_tables(counted, images)
    after, before = (
        _state(counted, contents, column, grades, leaks=not all(kinds), within=any(kinds))
        for column in ("grade", "machine_grade")
    )
    sizes = Counter(own["label"].to_pylist())
    there = counted.filter(pc.is_in(counted["grade"], pa.array(grades, pa.string())))
    return SetCounts(
        query_set=name,
        size=max((each.queries for each in compared), default=len(own)),
        after=after,
        before=before,
        classes=_classes_of(after, before, sizes) if set(sizes) - {None} else (),
        examples=_examples_of(there, grades),
        unplaced=there["similarity"].null_count,
        blank=pairs.num_rows - counted.num_rows,
    )


def _state(
    pairs: pa.Table,
    contents: ContentPairs,
    column: str,
    grades: Sequence[str],
    *,
    leaks: bool,
    within: bool,
) -> State:
    code = pc.index_in(pairs[column], pa.array(grades, pa.string()))
    many = contents.stand_for(pc.fill_null(code, len(grades)).to_numpy())
    pairs = pairs.append_column("many", pa.array(many)).append_column("code", code)
    found = pairs.filter(pc.is_valid(code))
    inside = pc.equal(found["coverage"], "within")
    rows = found.select(["query", "query_label"]).group_by(["query", "query_label"])
    labels = rows.aggregate([])["query_label"].to_pylist()
    return State(
        leaks=_tally(found.filter(pc.invert(inside)), grades) if leaks else None,
        within=_tally(found.filter(inside), grades) if within else None,
        pairs=pc.sum(found["many"]).as_py() or 0,
        images=len(labels),
        classes=Counter(labels),
    )


def _tally(found: pa.Table, grades: Sequence[str]) -> Tally:
    best = found.group_by("query").aggregate([("code", "min")])["code_min"]
    images = Counter(best.to_pylist())
    by_code = found.group_by("code").aggregate([("many", "sum")])
    pairs = dict(zip(by_code["code"].to_pylist(), by_code["many_sum"].to_pylist(), strict=True))
    return Tally(
        {grade: pairs.get(code, 0) for code, grade in enumerate(grades)},
        {grade: images[code] for code, grade in enumerate(grades)},
    )


def _classes_of(after: State, before: State, sizes: Mapping[str | None, int]) -> tuple[Class, ...]:
    """Return every class of a test set, that with most duplicates first, unlabelled images last."""
    found = [
        Class(name, after.classes.get(name, 0), before.classes.get(name, 0), sizes.get(name, 0))
        for name in {*sizes, *after.classes, *before.classes}
    ]
    return tuple(sorted(found, key=lambda c: (c.name is None, -c.images, -c.before, c.name or "")))


def _examples_of(pairs: pa.Table, grades: Sequence[str]) -> tuple[Example, ...]:
    """Choose the examples of each type, of both kinds of duplicates together.

    Pairs without a similarity and disputed pairs are never chosen. The example at percentile ``p``
    of ``n`` pairs is the one whose rank from 0 is nearest to ``p / 100 * (n - 1)``.
    """
    chosen: list[Example] = []
    pairs = pairs.filter(pc.and_not(pc.is_valid(pairs["similarity"]), disputed(pairs)))
    keys = [(name, "ascending") for name in ("query", "reference", "reference_set")]
    pairs = pairs.sort_by([("similarity", "descending"), *keys])
    for grade in grades:
        own = pairs.filter(pc.equal(pairs["grade"], grade))
        ranks: dict[int, list[int]] = {}
        for each in PERCENTILES if len(own) else ():
            ranks.setdefault(math.floor(each / 100 * (len(own) - 1) + 0.5), []).append(each)
        rows = own.take(pa.array(list(ranks), pa.int64())).to_pylist()
        for places, row in zip(ranks.values(), rows, strict=True):
            chosen.append(Example(grade, tuple(places), row))
    return tuple(chosen)


def review_of(verdicts: Sequence[Verdict]) -> Review:
    """Count verdicts."""
    settled, agreed = consensus_of(verdicts).values(), agreement(verdicts)
    given = Counter((said.reviewer, said.judgment) for each in settled for said in each.verdicts)
    standing = Counter(each.grade for each in settled)
    disputes = []
    for ruled in (each.verdicts for each in settled if each.disputed):
        last, said = ruled[-1], {each.reviewer: each.judgment for each in ruled}
        disputes.append(
            Dispute(last.query_set, last.query, last.reference_set, last.reference, said)
        )
    return Review(
        agreement=agreed,
        judgments={name: {g: given[name, g] for g in GRADES} for name in agreed.reviewers},
        settled={grade: standing[grade] for grade in GRADES},
        disputes=tuple(disputes),
    )


# -- writes the counts as files: JSON, tables, figures, and the example pairs as images -----------


COUNTS: Final = "counts.json"
EXAMPLE: Final = "example"
TYPES: Final = ("set", "kind", "grade", "pairs", "images", "machine_pairs", "machine_images")
CLASSES: Final = ("set", "class", "images", "machine_images", "of")

MOST_CLASSES: Final = 12  # most classes of a drawing; the table has all

#: What the kinds of duplicates are called.
KINDS: Final = {"train-test": "train-test", "within": "within the set"}


def write_counts(counts: Counts, folder: Path, read: ImageLoader | None) -> tuple[Path, ...]:
    """Write ``types.csv``, ``classes.csv``, figures and example pairs; ``counts.json`` comes last.

    Files of these names are replaced, and examples of an earlier run go.

    Args:
        counts: of an audit.
        folder: to write to.
        read: called once per set with sorted ids; without it, or where an image cannot be read,
            an example is not drawn.

    Returns:
        The files written.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"the output {folder} is a file; choose a folder")
    drawings = {"types.svg": types_figure(counts)}
    for number, own in enumerate(counts.sets, 1):
        if by_class := classes_figure(own):
            drawings[f"classes{_number(counts, number)}.svg"] = by_class
    types = (
        (own.query_set, kind, grade, *(str(each[grade]) for each in _columns(own, kind)))
        for own in counts.sets
        for kind in own.after.kinds
        for grade in counts.grades
    )
    classes = (
        (own.query_set, each.name or "", *map(str, (each.images, each.before, each.size)))
        for own in counts.sets
        for each in own.classes
    )
    try:
        # a result of which a file is missing is not finished
        (folder / COUNTS).unlink(missing_ok=True)
        for old in folder.glob(f"{EXAMPLE}*.png"):
            old.unlink()
        write_csv(folder / "types.csv", TYPES, types)
        write_csv(folder / "classes.csv", CLASSES, classes)
        for name, drawing in drawings.items():
            write_bytes(folder / name, drawing)
        drawn = _write_examples(counts, folder, read) if read else []
        write_json(folder / COUNTS, counts.as_dict())
    except OSError as error:
        where = error.filename or folder
        raise VisleakError(f"{where} cannot be written ({error.strerror})") from error
    names = (COUNTS, "types.csv", "classes.csv", *drawings)
    return (*(folder / name for name in names), *drawn)


def _columns(own: SetCounts, kind: str) -> list[Mapping[str, int]]:
    """Return pairs and images of a kind by grade, then both by the automatic grades."""
    tallies = (own.after.kinds[kind], own.before.kinds[kind])
    return [column for tally in tallies for column in (tally.pairs, tally.images)]


def _write_examples(counts: Counts, folder: Path, read: ImageLoader) -> list[Path]:
    examples = [(n, each) for n, own in enumerate(counts.sets, 1) for each in own.examples]
    pixels = decoded([each.pair for _, each in examples], read)
    written = []
    for number, example in examples:
        row = example.pair
        query, reference = map(pixels.get, ends_of(row))
        if query is None or reference is None:
            continue
        places = "-".join(map(str, example.percentiles))
        path = folder / f"{EXAMPLE}{_number(counts, number)}-{example.grade}-{places}.png"
        title = f"{example.grade}: {example.place} of distance ({example.distance:.3f})"
        line = "   ".join(": ".join(end) for end in ends_of(row))
        write_card(path, query, reference, relation(row), title=title, lines=[line])
        written.append(path)
    return written


def _number(counts: Counts, number: int) -> str:
    """Return the suffix of the files of a test set; names of sets are not used in file names."""
    return f"-{number}" if len(counts.sets) > 1 else ""


# -- figures: per type (figure 4 of the paper) and per class (table 1) ----------------------------


def types_figure(counts: Counts) -> bytes:
    """Draw the pairs of each kind by type, automatic grades above those after review."""
    bars = []
    for own in counts.sets:
        before = f"{own.query_set}: " if len(counts.sets) > 1 else ""
        states = [("", own.after)]
        if counts.review is not None:
            states = [(", machine alone", own.before), (", after review", own.after)]
        for kind in own.after.kinds:
            for words, state in states:
                bars.append(_bar(f"{before}{KINDS[kind]}{words}", state.kinds[kind].pairs))
    return bar_chart(bars, "types", label="pairs", legend=counts.grades)["svg"]


def classes_figure(own: SetCounts) -> bytes | None:
    """Draw a test set's images with a duplicate by class; ``None`` where no class has any."""
    found = [each for each in own.classes if each.images][:MOST_CLASSES]
    bars = [_bar(each.name or "(no label)", {"total": each.images}) for each in found]
    label = "images with a duplicate"
    return bar_chart(bars, f"classes {own.query_set}", label=label)["svg"] if bars else None


def _bar(name: str, counted: Mapping[str, int]) -> Bar:
    note = " + ".join(f"{count:,}" for count in counted.values())
    note += f" = {sum(counted.values()):,}" if len(counted) > 1 else ""
    return Bar(name, note, tuple(counted.items()))


# -- counts of duplicates and of verdicts for people ----------------------------------------------


MOST_DISPUTES = 20  # disputed pairs that are listed, at most


def documents(counts: Counts) -> list[Document]:
    """Return the duplicates of each query set, and the verdicts if there are any."""
    made = [_set(counts, own) for own in counts.sets]
    if counts.review is None:
        return [*made, Document("Verdicts", "no verdicts yet; grades are automatic")]
    changed = (
        f"{counted(counts.changed, 'listed pair', 'has', 'have')} another grade than the automatic"
        f" one; found by people only: {counts.added:,}"
    )
    return [*made, review_document(counts.review, changed)]


def review_document(review: Review, note: str = "") -> Document:
    """Return who judged what, how far they agree, and which pairs are disputed."""
    agreed = review.agreement
    if not agreed.judged:
        return Document("Verdicts", "no pair was judged yet; see visleak review --help")
    people = [
        [name, *_numbers((*own.values(), sum(own.values())))]
        for name, own in [*review.judgments.items(), ("settled", review.settled)]
    ]
    tables = [Grid("reviewers", ["reviewer", *review.settled, "pairs"], people)]
    if agreed.kappas:
        rows = [
            [
                " and ".join(each.reviewers),
                *_numbers((each.pairs, each.agreed)),
                "-" if math.isnan(each.kappa) else f"{each.kappa:.2f}",
            ]
            for each in agreed.kappas
        ]
        header = ["agreement on near-or-not", "pairs", "agreed", "kappa"]
        tables.append(Grid("agreement", header, rows))
    if review.disputes and not note:
        rows = [
            [
                f"{each.query_set}: {each.query}",
                f"{each.reference_set}: {each.reference}",
                ", ".join(f"{name}: {grade}" for name, grade in each.said.items()),
            ]
            for each in review.disputes[:MOST_DISPUTES]
        ]
        title = "disputed pairs"
        if len(review.disputes) > MOST_DISPUTES:
            title += f" ({MOST_DISPUTES} of {len(review.disputes):,}; --json has all)"
        tables.append(Grid(title, ["query", "reference", "verdicts"], rows, texts=3))
    headline = f"{counted(agreed.judged, 'pair')} judged, {agreed.disputed:,} disputed"
    return Document("Verdicts", headline, tables=tuple(tables), notes=(note,) if note else ())


def _set(counts: Counts, own: SetCounts) -> Document:
    reviewed = counts.review is not None
    shown = 4 if reviewed else 2  # without review the numbers before it are the same
    rows = []
    for kind in own.after.kinds:
        columns = _columns(own, kind)[:shown]
        names = [kind, *[""] * len(counts.grades)]
        for name, grade in zip(names, counts.grades, strict=False):
            rows.append([name, grade, *_numbers(column[grade] for column in columns)])
        rows.append(["", "all", *_numbers(sum(column.values()) for column in columns)])
    total = (own.after.pairs, own.after.images, own.before.pairs, own.before.images)
    rows.append(["together", "", *_numbers(total[:shown])])
    header = ["duplicates", "type", "pairs", "images", "pairs before", "images before"]
    tables = [Grid("by type", header[: 2 + shown], rows, texts=2)]
    if own.classes:
        all_of = (own.after.images, own.before.images, sum(each.size for each in own.classes))
        classes = [(c.name or "(no label)", c.images, c.before, c.size) for c in own.classes]
        rows = [
            [name, *_numbers((after, before, size) if reviewed else (after, size))]
            for name, after, before, size in [*classes, ("together", *all_of)]
        ]
        header = ["class", "images", *(["before"] if reviewed else []), "of"]
        tables.append(Grid("by class", header, rows))
    if own.examples:
        rows = [
            [each.grade, each.place, *map(": ".join, ends_of(each.pair)), f"{each.distance:.3f}"]
            for each in own.examples
        ]
        header = ["example", "of distance", "query", "reference", "distance"]
        tables.append(Grid("examples", header, rows, texts=4))
    notes = (f"pairs of blank images, excluded: {own.blank:,}",) if own.blank else ()
    first, *others = _headlines(counts, own)
    return Document("Duplicates", first, tuple(others), tuple(tables), notes=notes)


def _numbers(values: Iterable[int]) -> Iterator[str]:
    return (f"{value:,}" for value in values)


def _headlines(counts: Counts, own: SetCounts) -> Iterator[str]:
    """Yield the share with a training image, which is that of the audit, and with repeats."""
    words = listed(counts.grades, "or")
    after = "" if counts.review is None else ", after review"
    leaks, within = own.after.leaks, own.after.within
    if leaks is not None:
        found = f"{_share(own, leaks.all_images)} have a duplicate ({words}) in the training images"
        yield f"{found}, in {counted(leaks.all_pairs, 'pair')}{after}"
    if within is not None and (leaks is None or within.all_pairs):
        where = "within the set" if leaks is None else "there or within the set"
        found = f"{_share(own, own.after.images)} have a duplicate ({words}) {where}"
        yield f"{found}, in {counted(own.after.pairs, 'pair')}{after}"


def _share(own: SetCounts, images: int) -> str:
    rate = Rate.of(images, own.size)
    return str(rate).replace(f"of {rate.total:,}", f"of {rate.total:,} {own.query_set} images", 1)
