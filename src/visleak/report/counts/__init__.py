"""How many duplicates of which kind, as Barz & Denzler (2020) print them, before and after review.

A duplicate is a pair that is exact, near or similar. Source: their figures 1 and 4 and table 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from visleak.errors import UsageError, VisleakError
from visleak.quantities import counted, listed
from visleak.rates import Rate
from visleak.records import Bytes8, ends_of
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
from visleak.reporting import Document
from visleak.reporting.charts import Bar, bar_chart
from visleak.reporting.contact_sheet import write_card
from visleak.reporting.gallery import ImageLoader, decoded, relation
from visleak.reporting.markup import Grid
from visleak.storage import write_bytes, write_csv, write_json

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
    try:
        # a result of which a file is missing is not finished
        (folder / COUNTS).unlink(missing_ok=True)
        for old in folder.glob(f"{EXAMPLE}*.png"):
            old.unlink()
        write_csv(folder / "types.csv", TYPES, _types(counts))
        write_csv(folder / "classes.csv", CLASSES, _classes(counts))
        for name, drawing in drawings.items():
            write_bytes(folder / name, drawing)
        drawn = _write_examples(counts, folder, read)
        write_json(folder / COUNTS, counts.as_dict())
    except OSError as error:
        where = error.filename or folder
        raise VisleakError(f"{where} cannot be written ({error.strerror})") from error
    names = (COUNTS, "types.csv", "classes.csv", *drawings)
    return (*(folder / name for name in names), *drawn)


def _write_examples(counts: Counts, folder: Path, read: ImageLoader | None) -> list[Path]:
    """Draw the example pairs whose images can be read, and return their files."""
    examples = [(n, each) for n, own in enumerate(counts.sets, 1) for each in own.examples]
    pixels = decoded([each.pair for _, each in examples], read) if read else {}
    written = []
    for number, example in examples:
        places = "-".join(str(each) for each in example.percentiles)
        path = folder / f"{EXAMPLE}{_number(counts, number)}-{example.grade}-{places}.png"
        if _draw(example, path, pixels):
            written.append(path)
    return written


def _number(counts: Counts, number: int) -> str:
    """Return the suffix of the files of a test set; names of sets are not used in file names."""
    return f"-{number}" if len(counts.sets) > 1 else ""


def _types(counts: Counts) -> Iterator[tuple[str, ...]]:
    for own in counts.sets:
        for kind, after in own.after.kinds.items():
            before = own.before.kinds[kind]
            for grade in counts.grades:
                counted = (after.pairs, after.images, before.pairs, before.images)
                yield own.query_set, kind, grade, *(str(each[grade]) for each in counted)


def _classes(counts: Counts) -> Iterator[tuple[str, ...]]:
    for own in counts.sets:
        for each in own.classes:
            numbers = (each.images, each.before, each.size)
            yield own.query_set, each.name or "", *map(str, numbers)


def _draw(example: Example, path: Path, pixels: Mapping[tuple[str, str], Bytes8]) -> bool:
    """Draw an example pair; return whether both images are available."""
    row = example.pair
    query, reference = map(pixels.get, ends_of(row))
    if query is None or reference is None:
        return False
    title = f"{example.grade}: {example.place} of distance ({example.distance:.3f})"
    line = f"{row['query_set']}: {row['query']}   {row['reference_set']}: {row['reference']}"
    write_card(path, query, reference, relation(row), title=title, lines=[line])
    return True


# -- figures: per type (figure 4 of the paper) and per class (table 1) ----------------------------


def types_figure(counts: Counts) -> bytes:
    """Draw the pairs of each kind by type, automatic grades above those after review."""
    bars = [_bar(*row) for own in counts.sets for row in _rows(own, counts)]
    return bar_chart(bars, "types", label="pairs", legend=counts.grades)["svg"]


def _bar(name: str, counted: Mapping[str, int]) -> Bar:
    note = " + ".join(f"{count:,}" for count in counted.values())
    note += f" = {sum(counted.values()):,}" if len(counted) > 1 else ""
    return Bar(name, note, tuple(counted.items()))


def _rows(own: SetCounts, counts: Counts) -> Iterator[tuple[str, dict[str, int]]]:
    before = f"{own.query_set}: " if len(counts.sets) > 1 else ""
    states: list[tuple[str, State]] = [("", own.after)]
    if counts.review is not None:
        states = [(", machine alone", own.before), (", after review", own.after)]
    for kind in own.after.kinds:
        for words, state in states:
            yield f"{before}{KINDS[kind]}{words}", dict(state.kinds[kind].pairs)


def classes_figure(own: SetCounts) -> bytes | None:
    """Draw a test set's images with a duplicate by class; ``None`` where no class has any."""
    rows = [(c.name or "(no label)", {"total": c.images}) for c in own.classes if c.images]
    if not rows:
        return None
    bars = [_bar(*row) for row in rows[:MOST_CLASSES]]
    return bar_chart(bars, f"classes {own.query_set}", label="images with a duplicate")["svg"]


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
    tables = [_reviewers(review)]
    if agreed.kappas:
        tables.append(_kappas(review))
    if review.disputes and not note:
        tables.append(_disputes(review))
    headline = f"{counted(agreed.judged, 'pair')} judged, {agreed.disputed:,} disputed"
    return Document("Verdicts", headline, tables=tuple(tables), notes=(note,) if note else ())


def _set(counts: Counts, own: SetCounts) -> Document:
    tables = [_document_types(counts, own)]
    if own.classes:
        tables.append(_document_classes(counts, own))
    if own.examples:
        tables.append(_examples(own))
    blank = f"pairs of blank images, excluded: {own.blank:,}"
    notes = (blank,) if own.blank else ()
    first, *others = _headlines(counts, own)
    return Document("Duplicates", first, tuple(others), tuple(tables), notes=notes)


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


def _document_types(counts: Counts, own: SetCounts) -> Grid:
    reviewed = counts.review is not None

    def numbers(after: tuple[int, int], before: tuple[int, int]) -> list[str]:
        return [f"{number:,}" for number in (*after, *(before if reviewed else ()))]

    rows = []
    for kind, after in own.after.kinds.items():
        before, name = own.before.kinds[kind], kind
        for grade in counts.grades:
            pairs = (after.pairs[grade], after.images[grade])
            rows.append([name, grade, *numbers(pairs, (before.pairs[grade], before.images[grade]))])
            name = ""
        pairs = (after.all_pairs, after.all_images)
        rows.append(["", "all", *numbers(pairs, (before.all_pairs, before.all_images))])
    total = (own.after.pairs, own.after.images)
    rows.append(["together", "", *numbers(total, (own.before.pairs, own.before.images))])
    more = ["pairs before", "images before"] if reviewed else []
    return Grid("by type", ["duplicates", "type", "pairs", "images", *more], rows, texts=2)


def _document_classes(counts: Counts, own: SetCounts) -> Grid:
    reviewed = counts.review is not None
    totals = (own.after.images, own.before.images, sum(c.size for c in own.classes))
    found = [(c.name or "(no label)", c.images, c.before, c.size) for c in own.classes]
    rows = [
        [name, f"{after:,}", *([f"{before:,}"] if reviewed else []), f"{size:,}"]
        for name, after, before, size in [*found, ("together", *totals)]
    ]
    return Grid("by class", ["class", "images", *(["before"] if reviewed else []), "of"], rows)


def _examples(own: SetCounts) -> Grid:
    rows = [
        [
            each.grade,
            each.place,
            *(": ".join(end) for end in ends_of(each.pair)),
            f"{each.distance:.3f}",
        ]
        for each in own.examples
    ]
    header = ["example", "of distance", "query", "reference", "distance"]
    return Grid("examples", header, rows, texts=4)


def _reviewers(review: Review) -> Grid:
    grades = list(review.settled)
    rows = [
        [name, *(f"{own[grade]:,}" for grade in grades), f"{sum(own.values()):,}"]
        for name, own in [*review.judgments.items(), ("settled", review.settled)]
    ]
    return Grid("reviewers", ["reviewer", *grades, "pairs"], rows)


def _kappas(review: Review) -> Grid:
    rows = [
        [
            " and ".join(each.reviewers),
            f"{each.pairs:,}",
            f"{each.agreed:,}",
            "-" if math.isnan(each.kappa) else f"{each.kappa:.2f}",
        ]
        for each in review.agreement.kappas
    ]
    return Grid("agreement", ["agreement on near-or-not", "pairs", "agreed", "kappa"], rows)


def _disputes(review: Review) -> Grid:
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
    return Grid(title, ["query", "reference", "verdicts"], rows, texts=3)
