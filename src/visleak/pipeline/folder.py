"""Writing the audit folder: its tables, and whether it holds a result already."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from visleak import grouping
from visleak.documents import digest_of
from visleak.errors import HeldError, VisleakError
from visleak.grading import load_grader
from visleak.images import DECODING
from visleak.options import AUTO
from visleak.pipeline import overlaps, recordings, segments, selection
from visleak.pipeline.comparison import Comparison, comparable, relation
from visleak.pipeline.context import trim_heap
from visleak.pipeline.encoded_set import Side, are_back, files_of
from visleak.pipeline.run import Outcome
from visleak.records import (
    DEGREES,
    GRADES,
    VIEWS,
    AnySet,
    EmbeddingSet,
    Encoder,
    Float32,
    ImageSet,
    Int32,
    Int64,
)
from visleak.settings import Settings
from visleak.storage import (
    AUDIT,
    GROUPS,
    IMAGES,
    PAIRS,
    RECORDINGS,
    SECTIONS,
    SEGMENTS,
    UNREADABLE,
    AuditSummary,
    file_digest,
    read_problems,
    read_summary,
    write_csv,
    write_problems,
    write_tables,
)
from visleak.storage.audit_folder import GROUP_COLUMNS, Thresholds, is_as_written, schema_of
from visleak.vectors import parts_of
from visleak.verification import check

#: Rows per row group.
GROUP: Final = 50_000

Columns = dict[str, pa.Array | npt.NDArray[np.generic]]


def pair_tables(comparisons: Sequence[Comparison], *, overlap: bool = False) -> Iterator[pa.Table]:
    """Yield the rows of ``pairs.parquet``: by query set, query, falling similarity, reference."""
    for name in sorted({each.query.name for each in comparisons}):
        own = (each for each in comparisons if each.query.name == name)
        schema = schema_of(PAIRS, overlap=overlap)
        for table in _by_query(sorted(own, key=lambda each: each.reference.name), schema):
            yield table
            # before the next one is made
            trim_heap()


def _by_query(own: Sequence[Comparison], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows of one query set, its comparisons merged."""
    if len(own) == 1 and (one := _order_of(own[0])) is not None:
        for some in parts_of(len(one), GROUP):
            yield _rows(own[0], one[some].astype(np.int64), schema)
        return
    which: Int64 = np.repeat(np.arange(len(own)), [len(c.pairs) for c in own])
    row = np.concatenate([np.arange(len(c.pairs)) for c in own])
    similarity = np.concatenate([c.pairs.similarity for c in own])
    reference = np.concatenate([c.reference.order[c.pairs.reference] for c in own])
    query = np.concatenate([c.query.order[c.pairs.query] for c in own])
    order = np.lexsort((reference, which, -similarity, query))
    for some in parts_of(len(order), GROUP):
        part = order[some]
        # rows are made comparison by comparison, then sorted
        pieces = [
            _rows(c, row[part[np.flatnonzero(which[part] == i)]], schema) for i, c in enumerate(own)
        ]
        back = np.argsort(np.argsort(which[part], kind="stable"), kind="stable")
        yield pa.concat_tables(pieces).take(pa.array(back))


def _order_of(comparison: Comparison) -> Int32 | None:
    """Return the pairs by query, falling similarity and reference, in blocks that bound memory.

    ``None`` if they are not by query yet.
    """
    pairs, count = comparison.pairs, len(comparison.pairs)
    query = comparison.query.order[pairs.query].astype(np.int32)
    if (query[1:] < query[:-1]).any():
        return None
    order = np.empty(count, np.int32)
    # between two queries
    cuts = np.unique(np.searchsorted(query, query[GROUP::GROUP]))
    for start, end in pairwise([0, *cuts.tolist(), count]):
        reference = comparison.reference.order[pairs.reference[start:end]]
        keys = reference, -pairs.similarity[start:end], query[start:end]
        order[start:end] = start + np.lexsort(keys)
    return order


def _rows(comparison: Comparison, rows: Int64, schema: pa.Schema) -> pa.Table:
    pairs, count = comparison.pairs, len(rows)
    query, reference = comparison.query, comparison.reference
    left, right = query.fingerprints, reference.fingerprints
    labels = (
        _taken(query.images.labels, left.rows[pairs.query[rows]]),
        _taken(reference.images.labels, right.rows[pairs.reference[rows]]),
    )
    columns: Columns = {
        "query_set": _constant(query.name, count),
        "query": left.ids.take(pa.array(pairs.query[rows])),
        "reference_set": _constant(reference.name, count),
        "reference": right.ids.take(pa.array(pairs.reference[rows])),
        "similarity": pairs.similarity[rows],
        "background": pairs.background[rows],
        "view": pa.array(np.array(VIEWS)[pairs.view[rows]], pa.string()),
        "degree": _named(comparison.degree[rows], DEGREES),
        **_grades(comparison, rows),
        "query_label": labels[0],
        "reference_label": labels[1],
        "label_relation": relation(*labels, comparable(query.images, reference.images)),
        "modality": _constant(comparison.modality, count),
        "coverage": _constant(comparison.coverage, count),
    }
    if comparison.overlap is not None:
        own = comparison.overlap[rows]
        columns["overlap"] = pa.array(overlaps.shares(own), from_pandas=True)
        columns["overlap_matrix"] = _matrices(own, np.asarray(~np.isnan(own[:, 0])))
    return pa.table(
        [
            columns[each.name] if each.name in columns else pa.nulls(count, each.type)
            for each in schema
        ],
        schema=schema,
    )


def _grades(comparison: Comparison, rows: Int64) -> Columns:
    if comparison.grades is None or comparison.relations is None:
        return {}
    grades, (matrix, known) = comparison.grades, comparison.relations.of(rows)
    return {
        "grade": _named(grades.grade[rows], GRADES),
        "probability": pa.array(grades.probability[rows], from_pandas=True),
        "reason": pa.array([grades.reason[row] for row in rows], pa.string()),
        "transform": pa.array([grades.transform[row] for row in rows], pa.string()),
        "matrix": _matrices(matrix, known),
    }


def _matrices(rows: Float32, known: npt.NDArray[np.bool_]) -> pa.Array:
    """Return relations (n, 9) as a column, null where one is not known."""
    values = pa.array(np.where(known[:, None], rows, 0).ravel(), pa.float32())
    return pa.FixedSizeListArray.from_arrays(values, 9, mask=pa.array(~known))


def _named(codes: npt.NDArray[np.int8], names: tuple[str, ...]) -> pa.Array:
    """Return codes as their names, null for -1."""
    indices = pa.array(codes.astype(np.int32), mask=codes < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(names)).dictionary_decode()


def _constant(value: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.string()), count)


def _taken(column: pa.Array | None, rows: Int64, kind: pa.DataType | None = None) -> pa.Array:
    """Return some rows of a set's column, null where the set has none."""
    if column is None:
        return pa.nulls(len(rows), kind or pa.string())
    return column.take(pa.array(rows))


@dataclass(frozen=True, slots=True)
class Nearest:
    """The most similar reference of each image of a set."""

    similarity: Float32  # float32 (n,), NaN where there is none
    set: Int64  # index of the comparison; -1 where there is none
    row: Int64  # of the reference
    total: Int64  # int64 (n,): pairs at or above the soft threshold, over all references


def nearest(own: Sequence[Comparison], count: int) -> Nearest:
    """Return the nearest references of the images of one query set."""
    similarity = np.full(count, np.nan, np.float32)
    which, row = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    total = np.zeros(count, np.int64)
    for index, comparison in enumerate(own):
        pairs = comparison.pairs
        total += pairs.total
        ends = [(pairs.query, pairs.reference)]
        if comparison.coverage == "within":
            ends.append((pairs.reference, pairs.query))
        for query, reference in ends:
            best = np.full(count, -np.inf, np.float32)
            np.maximum.at(best, query, pairs.similarity)
            # of equals the first one, in the order of ids
            rows = np.flatnonzero(pairs.similarity == best[query])
            first = rows[np.unique(query[rows], return_index=True)[1]]
            closer = ~(similarity[query[first]] >= pairs.similarity[first])
            first = first[closer]
            similarity[query[first]] = pairs.similarity[first]
            which[query[first]], row[query[first]] = index, reference[first]
    return Nearest(similarity, which, row, total)


def image_tables(
    sides: Iterable[Side], comparisons: Sequence[Comparison], *, overlap: bool = False
) -> Iterator[pa.Table]:
    """Yield the rows of ``images.parquet``: by set in the order of the call, then by id."""
    sides = tuple(sides)
    scenes = overlaps.scenes(sides, comparisons) if overlap else None
    for side in sides:
        # duplicates within a set are not leaks: they only count if nothing else was compared
        own = overlaps.counted([each for each in comparisons if each.query.name == side.name])
        found = nearest(own, len(side.fingerprints))
        seen = overlaps.seen(own, len(side.fingerprints)) if overlap else None
        order = np.argsort(side.order)
        for part in parts_of(len(order), GROUP):
            rows = order[part]
            more = _nearest_columns(own, found, rows)
            if scenes is not None:
                scene = scenes[side.name][rows]
                more["scene"] = pa.array(scene, mask=scene < 0)
                more["seen"] = pa.nulls(len(rows), pa.float32()) if seen is None else seen[rows]
            yield _image_rows(side, rows, found, more)


def _image_rows(side: Side, rows: Int64, found: Nearest, more: Columns) -> pa.Table:
    images, fingerprints = side.images, side.fingerprints
    listed = fingerprints.rows[rows]
    known = fingerprints.of_bytes
    digests = [fingerprints.digests[row].tobytes().hex() if known else None for row in rows]
    width, height = fingerprints.sizes[rows].T
    columns: Columns = {
        "set": _constant(images.name, len(rows)),
        "id": fingerprints.ids.take(pa.array(rows)),
        "digest": pa.array(digests, pa.string()),
        "label": _taken(images.labels, listed),
        "caption": _taken(images.captions, listed),
        "group": _taken(images.groups, listed),
        "frame": _taken(images.frames, listed, pa.int64()),
        "width": pa.array(width, mask=width == 0),
        "height": pa.array(height, mask=height == 0),
        "flat": fingerprints.flat[rows],
        "locator": images.locators.take(pa.array(listed)),
        **more,
        "background": side.background[rows],
        "pairs_total": found.total[rows],
    }
    schema = schema_of(IMAGES, overlap="scene" in more)
    return pa.table([columns[name] for name in schema.names], schema=schema)


def _nearest_columns(own: Sequence[Comparison], found: Nearest, rows: Int64) -> Columns:
    """Return set, id and similarity of the nearest references of some images."""
    names = np.full(len(rows), None, object)
    ids = np.full(len(rows), None, object)
    for index, comparison in enumerate(own):
        mine = np.flatnonzero(found.set[rows] == index)
        reference = pa.array(found.row[rows[mine]])
        names[mine] = comparison.reference.name
        ids[mine] = comparison.reference.fingerprints.ids.take(reference).to_pylist()
    return {
        "nearest_set": pa.array(names, pa.string()),
        "nearest": pa.array(ids, pa.string()),
        "nearest_similarity": pa.array(found.similarity[rows], from_pandas=True),
    }


def key_of(
    queries: Sequence[AnySet],
    references: Sequence[AnySet],
    encoder: Encoder,
    settings: Settings,
    thresholds: Thresholds,
) -> str | None:
    """Return a digest of everything an audit depends on, or ``None`` if that is not known.

    Files count by name, size and time of change. Images in memory have no stamp, nor has an encoder
    that only exists in this run.
    """
    stamps = [stamp_of(images) for images in (*queries, *references)]
    if None in stamps or not getattr(encoder, "lasting", True):
        return None
    parts: dict[str, object] = {
        "settings": settings.as_dict(),
        "decoding": DECODING,
        "encoder": encoder.digest,
        "thresholds": [thresholds.hard, thresholds.soft, thresholds.provenance],
        "verifier": check.digest().hex(),
        "rounds": [selection.ACROSS, selection.WITHIN, selection.STEP],
        "grader": load_grader().digest,
        "sets": stamps,
        "queries": len(queries),
    }
    if settings.overlap is not None:
        parts["overlap"] = overlaps.digest().hex()
    if precision := getattr(encoder, "precision", ""):
        parts["precision"] = precision
    return digest_of(parts)


def stamp_of(images: AnySet) -> str | None:
    """Return a digest of a set's listing and of the state of its files, ``None`` if not known."""
    if not images.source:
        return None
    hasher = hashlib.blake2b(digest_size=16)
    about = [images.name, images.dataset, *images.roles, str(images.annotated), images.source]
    hasher.update("\0".join(about).encode(errors="surrogateescape"))
    if isinstance(images, EmbeddingSet):
        chosen = [f"{name}={value}" for name, value in sorted(images.options.items())]
        files = [f"{part.locator} {part.stamp}" for part in images.partitions]
        hasher.update("\0".join([*chosen, *files]).encode(errors="surrogateescape"))
        return hasher.hexdigest()
    # an opener of remote data provides its own stamp
    own = getattr(images.opener, "stamp", "")
    if own is None:
        return None
    hasher.update(own.encode(errors="surrogateescape"))
    columns = [images.ids, images.locators, images.labels, images.captions, images.groups]
    if images.options.get("group") == AUTO:
        hasher.update(b"auto")
    if images.frames is not None:
        hasher.update(b"ms" if images.timed else b"frames")
        columns.append(images.frames)
    for column in columns:
        for buffer in column.buffers() if column is not None else ():
            hasher.update(buffer or b"-")
    for file in files_of(images).to_pylist():
        try:
            status = os.stat(file)
            hasher.update(f"{status.st_size} {status.st_mtime_ns} ".encode())
        except OSError:
            hasher.update(b"missing ")
    return hasher.hexdigest()


def holds(folder: Path, key: str | None, sets: Iterable[AnySet], *, force: bool) -> bool:
    """Whether the folder holds the same audit, finished.

    One that lost images or is damaged is repeated, and so is one whose images were away and are
    back.
    """
    if force or not (folder / AUDIT).is_file():
        return False
    known = read_summary(folder)
    if key is None or known.key != key:
        raise HeldError(
            f"{folder} holds another audit (other sets, files or settings); choose another folder"
            " with -o DIR, or replace it with --force"
        )
    whole = all((folder / name).is_file() for name in (PAIRS, IMAGES, UNREADABLE))
    if known.unfinished or not whole or not is_as_written(folder, known.digest):
        return False
    problems = read_problems(folder / UNREADABLE)
    return not any(
        are_back(each.opener, each.ids, [p for p in problems if p.set == each.name])
        for each in sets
        if isinstance(each, ImageSet)
    )


def write(folder: Path, outcome: Outcome, summary: AuditSummary) -> None:
    """Write the tables, then ``audit.json``, whose presence marks the folder as complete."""
    try:
        (folder / AUDIT).unlink(missing_ok=True)
        for name in (RECORDINGS, GROUPS, SEGMENTS):
            (folder / name).unlink(missing_ok=True)
        # pages of commands that used the previous audit
        shutil.rmtree(folder / SECTIONS, ignore_errors=True)
        sides, comparisons = outcome.sides.values(), outcome.comparisons
        measured = summary.settings.overlap is not None
        pairs, images = (schema_of(name, overlap=measured) for name in (PAIRS, IMAGES))
        write_tables(folder / PAIRS, pairs, pair_tables(comparisons, overlap=measured))
        write_tables(folder / IMAGES, images, image_tables(sides, comparisons, overlap=measured))
        problems = [p for side in sides for p in side.images.problems]
        problems += [p for side in sides for p in side.fingerprints.problems]
        write_problems(folder / UNREADABLE, problems)
        names = [PAIRS, IMAGES, UNREADABLE]
        for name, columns, rows in (
            (RECORDINGS, recordings.COLUMNS, list(recordings.rows(comparisons))),
            (GROUPS, GROUP_COLUMNS, list(_group_rows(outcome))),
            (SEGMENTS, segments.COLUMNS, list(segments.rows(comparisons))),
        ):
            timed = any(each.recordings is not None for each in comparisons)
            if rows or (name == RECORDINGS and timed):
                write_csv(folder / name, columns, rows)
                names.append(name)
        replace(summary, files={n: file_digest(folder / n) for n in names}).save(folder)
    except OSError as error:
        raise VisleakError(f"{folder} cannot be written ({error.strerror or error})") from error


def _group_rows(outcome: Outcome) -> Iterator[tuple[str, ...]]:
    """Yield the rows of ``groups.csv``: by scheme, then in the order of the sets."""
    number = 0
    for sets, found in outcome.found:
        for each in found:
            number += 1
            if each.hypothesis.believed:
                yield from grouping.rows(each, sets, number)
