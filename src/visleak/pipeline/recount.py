"""An audit, counted again from the tables of its folder by the functions that wrote them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import VisleakError
from visleak.grading.verdict import EQUAL_BYTES, NOT_VERIFIED, SAME_PIXELS
from visleak.pipeline import overlaps, recordings, segments, selection
from visleak.pipeline.comparison import Comparison, Relations, same_bytes
from visleak.pipeline.encoded_set import EmbeddingCounts, Side, ranks_of
from visleak.pipeline.folder import image_tables, pair_tables
from visleak.pipeline.run import Outcome, couples
from visleak.pipeline.summary import comparison_of, conflicts, lost_images, total_of
from visleak.quantities import counted
from visleak.records import (
    GRADES,
    VIEWS,
    Bool,
    Fingerprints,
    Float32,
    Grades,
    ImageSet,
    Int64,
    Pairs,
    Problem,
    Unreadable,
)
from visleak.storage import (
    AUDIT,
    IMAGES,
    PAIRS,
    RECORDINGS,
    SEGMENTS,
    UNREADABLE,
    csv_of,
    read_problems,
    read_summary,
    read_table,
)
from visleak.storage.audit_folder import (
    AuditSummary,
    ComparisonSummary,
    SetSummary,
    TotalSummary,
    VerificationSummary,
    schema_of,
)

#: Probabilities are stored in single precision, and compared with thresholds in double.
ROUNDING: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Recount:
    """An audit as its tables give it."""

    # as in the summary
    comparisons: tuple[ComparisonSummary, ...]
    totals: tuple[TotalSummary, ...]
    label_conflicts: int
    unfinished: int
    verification: VerificationSummary
    # with the numbers of images, blank images and contents that the tables have
    sets: tuple[SetSummary, ...]
    # contradictions within the tables, as file and what is wrong
    wrong: tuple[tuple[str, str], ...]


def recount(folder: Path) -> Recount:
    """Return an audit as its tables give it; verdicts of people are not counted."""
    stored = read_summary(folder)
    measured = stored.settings.overlap is not None
    schemas = {name: schema_of(name, overlap=measured) for name in (IMAGES, PAIRS)}
    images, pairs = (
        read_table(folder, name, checked=False).select(schema.names).cast(schema).combine_chunks()
        for name, schema in schemas.items()
    )
    problems = read_problems(folder / UNREADABLE)
    sides = {about.name: _side(about, stored, images, problems) for about in stored.sets}
    settings = recordings.bounded(stored.settings, stored.grouping)
    damaged: Wrong = ()
    try:
        shared = segments.read_segments(folder / SEGMENTS)
    except VisleakError as error:
        shared, damaged = {}, [(SEGMENTS, str(error))]
    comparisons = tuple(
        replace(
            each,
            recordings=recordings.recording_leak(each, settings),
            segments=shared.get(each.names, ()),
        )
        for each in _comparisons(stored, sides, pairs)
    )
    queries = tuple(sides[about.name] for about in stored.sets if about.side == "query")
    references = tuple(side for side in sides.values() if side not in queries)
    outcome = Outcome(queries, references, comparisons, stored.thresholds, None)
    population = {about.name: _population(about, stored) for about in stored.sets}
    wrong = (
        *_missing(stored, outcome, pairs),
        *_others(PAIRS, pairs, pair_tables(comparisons, overlap=measured)),
        *_others(IMAGES, images, image_tables(sides.values(), comparisons, overlap=measured)),
        *_grades(stored, comparisons),
        *_totals(stored, outcome, images),
        *_distances(folder, outcome),
        *(damaged or _unlisted(outcome)),
    )
    return Recount(
        comparisons=tuple(
            comparison_of(each, population[each.query.name], stored.settings.overlap)
            for each in comparisons
        ),
        totals=tuple(
            total_of(outcome, side, population[side.name], stored.settings.overlap)
            for side in queries
            if any(each.query is side for each in comparisons)
        ),
        label_conflicts=sum(map(conflicts, comparisons)),
        unfinished=lost_images(outcome),
        verification=selection.count_skipped(each.skipped for each in comparisons)[0],
        sets=tuple(_counted(about, sides[about.name], stored) for about in stored.sets),
        wrong=wrong,
    )


# -- the sides -----------------------------------------------------------------------------------


class _Nothing:
    """Reads nothing: only the tables are left of the images."""

    def read(self, positions: Sequence[int]) -> Iterator[Unreadable]:
        return (Unreadable("missing", "only the tables are read") for _ in positions)


def _side(
    about: SetSummary, stored: AuditSummary, images: pa.Table, problems: Iterable[Problem]
) -> Side:
    """Return a set with its readable images, as the tables list them."""
    own = images.filter(pc.equal(images["set"], about.name)).combine_chunks()
    column = {name: _array(own, name) for name in images.column_names}
    count, name = own.num_rows, about.name
    digests, of_bytes = _digests(column["digest"], name)
    sizes = [pc.fill_null(column[side], 0).to_numpy() for side in ("width", "height")]
    exposed = any(
        each.reference_set == name and each.modality == "full" for each in stored.comparisons
    )
    labels, captions, groups, frames = (
        None if column[each].null_count == count else column[each]
        for each in ("label", "caption", "group", "frame")
    )
    files = ImageSet(
        name,
        column["id"],
        column["locator"],
        _Nothing(),
        labels,
        captions,
        groups,
        frames,
        timed=about.frame_unit == "ms",
        dataset=about.dataset,
        roles=about.roles,
        # annotations are not stored; where they decide, all of a comparison has one modality
        annotated=exposed,
        has_pixels=about.has_pixels,
    )
    fingerprints = Fingerprints(
        name,
        np.arange(count),
        column["id"],
        np.empty((count, 0), np.float32),
        digests,
        np.stack(sizes, axis=1).astype(np.int32),
        pc.fill_null(column["flat"], False).to_numpy(zero_copy_only=False),
        stored.encoder.digest,
        tuple(each for each in problems if each.set == name),
        of_bytes,
    )
    embeddings = None
    if about.listed is not None:
        embeddings = EmbeddingCounts(about.images, about.norms_off or 0, about.flat is None)
    background = pc.fill_null(column["background"], 0).to_numpy()
    return Side(files, fingerprints, background, ranks_of(column["id"]), embeddings=embeddings)


def _digests(column: pa.Array, name: str) -> tuple[npt.NDArray[np.uint8], bool]:
    """Return the digests of contents; where only vectors are left each image is a content."""
    texts = column.to_pylist()
    of_bytes = not texts or texts[0] is not None
    try:
        if of_bytes:
            content = bytes.fromhex("".join(texts))
        else:
            content = b"".join(row.to_bytes(16, "big") for row in range(len(texts)))
        return np.frombuffer(content, np.uint8).reshape(len(texts), 16), of_bytes
    except (TypeError, ValueError) as error:
        raise VisleakError(f"{IMAGES}: the digests of set {name!r} are not hexadecimal") from error


def _array(table: pa.Table, name: str) -> pa.Array:
    column = table[name]
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


def _population(about: SetSummary, stored: AuditSummary) -> int | None:
    """Return of how many readable images a query set is a sample, ``None`` if it is whole."""
    whole = about.images - about.unreadable
    sampled = stored.settings.sample and about.side == "query" and about.readable < whole
    return whole if sampled else None


def _counted(about: SetSummary, side: Side, stored: AuditSummary) -> SetSummary:
    own, count = side.fingerprints, len(side.fingerprints)
    unreadable = len(own.problems)
    found = replace(about, unreadable=unreadable)
    if about.listed is not None:
        found = replace(found, listed=count)
    if side.streamed:
        return replace(found, readable=about.images - unreadable)
    whole = count + unreadable
    if stored.settings.sample and about.side == "query":
        whole = max(whole, about.images)
    if own.of_bytes:
        found = replace(found, distinct=len(np.unique(side.contents)))
    return replace(found, images=whole, readable=count, flat=int(own.flat.sum()))


# -- the comparisons -----------------------------------------------------------------------------


def _comparisons(
    stored: AuditSummary, sides: dict[str, Side], pairs: pa.Table
) -> Iterator[Comparison]:
    for about in stored.comparisons:
        names = about.query_set, about.reference_set
        if not {*names} <= sides.keys():
            raise VisleakError(f"{AUDIT} compares {names[0]!r} with {names[1]!r}: no such set")
        query, reference = (sides[name] for name in names)
        mine = pc.and_(
            pc.equal(pairs["query_set"], names[0]), pc.equal(pairs["reference_set"], names[1])
        )
        rows = pairs.filter(mine).combine_chunks()
        left, right = _rows_of(rows, "query", query), _rows_of(rows, "reference", reference)
        order = pa.array(np.lexsort((reference.order[right], query.order[left])))
        rows, left, right = rows.take(order).combine_chunks(), left[order], right[order]
        found = Pairs(
            *names,
            left,
            right,
            _array(rows, "similarity").to_numpy(zero_copy_only=False),
            ((query.background[left] + reference.background[right]) / 2).astype(np.float32),
            _codes(rows, "view", VIEWS).astype(np.int8),
            # stored by image, not by comparison
            np.zeros(len(query.fingerprints), np.int64),
        )
        annotations = stored.settings.annotations
        made = Comparison.of(query, reference, found, stored.thresholds, annotations)
        made = replace(made, chance=about.chance)
        if stored.settings.overlap is not None and made.has_pixels:
            overlap = np.full((len(rows), 9), np.nan, np.float32)
            known, matrices = _matrices(rows, "overlap_matrix")
            overlap[known] = matrices
            made = replace(made, overlap=overlap)
        yield _with_grades(made, rows) if stored.grader and made.has_pixels else made


def _with_grades(comparison: Comparison, rows: pa.Table) -> Comparison:
    reason = _array(rows, "reason").fill_null("").to_pylist()
    fitted = Relations(*_matrices(rows, "matrix"))
    codes = {text: code for code, text in enumerate(NOT_VERIFIED) if text}
    grades = Grades(
        _codes(rows, "grade", GRADES).astype(np.int8),
        _array(rows, "probability").to_numpy(zero_copy_only=False),
        tuple(reason),
        tuple(_array(rows, "transform").fill_null("").to_pylist()),
    )
    skipped = np.array([codes.get(text, 0) for text in reason], np.int8)
    return replace(comparison, grades=grades, relations=fitted, skipped=skipped)


def _matrices(rows: pa.Table, name: str) -> tuple[Int64, Float32]:
    """Return which rows of a column of relations have one, and those relations (k, 9)."""
    column = _array(rows, name)
    known = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    return known, column.drop_null().flatten().to_numpy().reshape(-1, 9)


def _rows_of(pairs: pa.Table, end: str, side: Side) -> Int64:
    place = pc.index_in(_array(pairs, end), side.fingerprints.ids)
    if place.null_count:
        raise VisleakError(
            f"{PAIRS}: {counted(place.null_count, 'pair')} of set {side.name!r} with a {end} that"
            f" is not in {IMAGES}"
        )
    return np.asarray(place.to_numpy(), np.int64)


def _codes(rows: pa.Table, name: str, values: Sequence[str]) -> Int64:
    """Return a column as places in its values; -1 for null."""
    column = _array(rows, name)
    found = pc.index_in(column, pa.array(values))
    if found.null_count != column.null_count:
        raise VisleakError(f"{PAIRS}: a {name} is not one of {', '.join(values)}")
    return np.asarray(found.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)


# -- contradictions ------------------------------------------------------------------------------

#: Files, and what is wrong with them.
Wrong = Iterable[tuple[str, str]]


def _missing(stored: AuditSummary, outcome: Outcome, pairs: pa.Table) -> Wrong:
    """Yield comparisons that are lacking, and pairs of sets that were not compared."""
    queries = [side.images for side in outcome.queries]
    references = [side.images for side in outcome.references]
    made = [each.names for each in outcome.comparisons]
    for query, reference in couples(queries, references, stored.settings):
        if (query, reference) not in made:
            yield AUDIT, f"lacks the comparison of {query} with {reference}"
    left = pairs.num_rows - sum(len(each.pairs) for each in outcome.comparisons)
    if left:
        yield PAIRS, f"holds {left:,} pairs of sets that {AUDIT} does not compare"


def _others(name: str, found: pa.Table, expected: Iterable[pa.Table]) -> Wrong:
    """Yield the columns of a table that are not what the rest of the folder gives."""
    schema = found.schema
    table = pa.concat_tables([schema.empty_table(), *expected]).combine_chunks()
    if table.num_rows != found.num_rows:
        return
    identity = {"set", "id", "query_set", "query", "reference_set", "reference"}
    # relations and totals per image are not stored elsewhere
    elsewhere = ("matrix", "overlap_matrix", "pairs_total")
    differing = [each for each in schema.names if not found[each].equals(table[each])]
    if identity & {*differing}:
        yield name, "has rows in another order, or a row twice"
        return
    for each in differing:
        if each not in elsewhere:
            left, right = found[each], table[each]
            equal = pc.fill_null(pc.equal(left, right), False)
            both = pc.and_(pc.is_null(left), pc.is_null(right))
            rows = len(left) - (pc.sum(pc.or_(equal, both)).as_py() or 0)
            yield name, f"{each} of {rows:,} rows does not follow from the rest of the folder"


def _grades(stored: AuditSummary, comparisons: Iterable[Comparison]) -> Wrong:
    """Yield grades that contradict probabilities, digests, reasons or the kind of image."""
    for each in comparisons:
        if stored.grader is None or stored.grader.near_at is None or each.grades is None:
            continue
        grades, query, pairs = each.grades, each.query.fingerprints, each.pairs
        grade, chance = grades.grade, grades.probability
        near_at, known = stored.grader.near_at, grade >= 0
        near, exact = known & (grade <= GRADES.index("near")), grade == GRADES.index("exact")
        blank, same = query.flat[pairs.query], same_bytes(pairs, each.query, each.reference)
        reason = np.array([*grades.reason, ""], object)[:-1]
        changed = np.array([bool(text) for text in grades.transform], np.bool_)
        least = np.where(exact, min(near_at, SAME_PIXELS), near_at) - ROUNDING
        rules: dict[str, Bool] = {
            "a probability without a grade, or a grade without one": known == np.isnan(chance),
            "a probability outside of 0 to 1": (chance < 0) | (chance > 1),
            "near or exact grades below the probability of near": near & (chance < least) & ~blank,
            "other grades at or above the probability of near": (
                known & ~near & (chance >= near_at + ROUNDING)
            ),
            "grades of blank images that are neither exact nor similar": (
                known & blank & ~exact & (grade != GRADES.index("similar"))
            ),
            "equal contents that are not exact": same & ~(exact & (chance == 1)),
            "other contents with the reason of equal ones": ~same & (reason == EQUAL_BYTES),
            "reasons of pairs that were not verified, with a grade": (
                known & (each.skipped > 0) if each.skipped is not None else ~known & known
            ),
            "transforms of grades that have none": (
                changed & ~np.isin(grade, [GRADES.index("near"), GRADES.index("similar")])
            ),
        }
        for what, rows in rules.items():
            if rows.any():
                names = " and ".join(dict.fromkeys(each.names))
                yield PAIRS, f"has {what} ({int(rows.sum()):,} pairs of {names})"


def _totals(stored: AuditSummary, outcome: Outcome, images: pa.Table) -> Wrong:
    """Yield query sets with images that have more listed pairs than they have in total."""
    if stored.thresholds.soft is None or stored.settings.candidates == "nearest":
        return
    for side in outcome.queries:
        counted = overlaps.counted([each for each in outcome.comparisons if each.query is side])
        listed = np.zeros(len(side.fingerprints), np.int64)
        for each in counted:
            above = each.degree >= 0
            ends = (each.pairs.query, each.pairs.reference)
            for rows in ends if each.coverage == "within" else ends[:1]:
                listed += np.bincount(rows[above], minlength=len(listed))
        total = images.filter(pc.equal(images["set"], side.name))["pairs_total"].to_numpy()
        wrong = int(((listed > total) & ~side.fingerprints.flat).sum())
        if wrong:
            yield IMAGES, f"pairs_total of {wrong:,} {side.name} images is below the listed pairs"


def _distances(folder: Path, outcome: Outcome) -> Wrong:
    """Yield whether the table of recordings is that of the images."""
    if any(each.recordings is not None for each in outcome.comparisons):
        expected = csv_of(recordings.COLUMNS, recordings.rows(outcome.comparisons))
        try:
            if (folder / RECORDINGS).read_text(encoding="utf-8") != expected:
                yield RECORDINGS, f"does not follow from {IMAGES} and {PAIRS}"
        except (OSError, UnicodeDecodeError) as error:
            yield RECORDINGS, f"cannot be read ({error})"


def _unlisted(outcome: Outcome) -> Wrong:
    """Yield near frames of recordings that no segment holds; ends are those of the files."""
    for each in outcome.comparisons:
        if count := segments.unlisted(each):
            names = " and ".join(dict.fromkeys(each.names))
            yield SEGMENTS, f"lacks {count:,} near pairs of recordings of {names}"
