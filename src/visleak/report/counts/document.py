"""Counts of duplicates and of verdicts for people."""

from __future__ import annotations

import math
from collections.abc import Iterator

from visleak.quantities import counted
from visleak.rates import Rate
from visleak.records import ends_of
from visleak.report.counts.counting import Counts, Review, SetCounts
from visleak.reporting import Document
from visleak.reporting.markup import Grid

MOST_DISPUTES = 20  # disputed pairs that are listed, at most


def documents(counts: Counts) -> list[Document]:
    """Return the duplicates of each query set, and the verdicts if there are any."""
    made = [_set(counts, own) for own in counts.sets]
    if counts.review is None:
        return [*made, Document("Verdicts", "no verdicts yet; grades are automatic")]
    changed = (
        f"{counts.changed:,} listed pairs have another grade than the automatic one,"
        f" {counts.added:,} were found by people only"
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
    tables = [_types(counts, own)]
    if own.classes:
        tables.append(_classes(counts, own))
    if own.examples:
        tables.append(_examples(own))
    blank = f"pairs of blank images, excluded: {own.blank:,}"
    notes = (blank,) if own.blank else ()
    first, *others = _headlines(counts, own)
    return Document("Duplicates", first, tuple(others), tuple(tables), notes=notes)


def _headlines(counts: Counts, own: SetCounts) -> Iterator[str]:
    """Yield the share with a training image, which is that of the audit, and with repeats."""
    words = " or ".join(filter(None, (", ".join(counts.grades[:-1]), counts.grades[-1])))
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


def _types(counts: Counts, own: SetCounts) -> Grid:
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


def _classes(counts: Counts, own: SetCounts) -> Grid:
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
