"""Writing the audit folder, and knowing whether it already holds what is asked for."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from visleak.documents import digest_of
from visleak.errors import UsageError, VisleakError
from visleak.grading import load_grader
from visleak.images import DECODING
from visleak.pipeline import labels, recordings, selection
from visleak.pipeline.candidates import Side
from visleak.pipeline.comparison import Comparison
from visleak.pipeline.run import Outcome
from visleak.pipeline.thresholds import Thresholds
from visleak.records import (
    DEGREES,
    GRADES,
    VIEWS,
    AnySet,
    EmbeddingSet,
    Encoder,
    Float32,
    ImageSet,
    Int64,
)
from visleak.settings import Settings
from visleak.storage import (
    AUDIT,
    IMAGES,
    IMAGES_SCHEMA,
    PAIRS,
    PAIRS_SCHEMA,
    RECORDINGS,
    SECTIONS,
    UNREADABLE,
    AuditSummary,
    file_digest,
    read_summary,
    write_csv,
    write_problems,
    write_tables,
)
from visleak.verify import check

#: Rows a row group.
GROUP: Final = 50_000


def pair_tables(compared: Sequence[Comparison], sides: Mapping[str, Side]) -> Iterator[pa.Table]:
    """Yield the rows of ``pairs.parquet``: by query set, query id, falling similarity, reference.

    Args:
        compared: the comparisons.
        sides: the sides by set name.
    """
    for name in sorted({each.query.name for each in compared}):
        own = sorted((c for c in compared if c.query.name == name), key=lambda c: c.reference.name)
        yield from _by_query(own, sides)


def _by_query(own: Sequence[Comparison], sides: Mapping[str, Side]) -> Iterator[pa.Table]:
    """Yield the rows of one query set, its comparisons merged."""
    rank = sides[own[0].query.name].order
    which: Int64 = np.repeat(np.arange(len(own)), [len(c.pairs) for c in own])
    row = np.concatenate([np.arange(len(c.pairs)) for c in own])
    similarity = np.concatenate([c.pairs.similarity for c in own])
    reference = np.concatenate([sides[c.reference.name].order[c.pairs.reference] for c in own])
    query = np.concatenate([rank[c.pairs.query] for c in own])
    order = np.lexsort((reference, which, -similarity, query))
    for start in range(0, len(order), GROUP):
        part = order[start : start + GROUP]
        # a group is put together comparison by comparison, then brought into order
        pieces = [
            _rows(c, sides, row[part[np.flatnonzero(which[part] == i)]]) for i, c in enumerate(own)
        ]
        back = np.argsort(np.argsort(which[part], kind="stable"), kind="stable")
        yield pa.concat_tables(pieces).take(pa.array(back))


def _rows(compared: Comparison, sides: Mapping[str, Side], rows: Int64) -> pa.Table:
    """Return some pairs of a comparison as rows of ``pairs.parquet``."""
    pairs, count = compared.pairs, len(rows)
    left, right = (
        sides[compared.query.name].fingerprints,
        sides[compared.reference.name].fingerprints,
    )
    query, reference = pa.array(pairs.query[rows]), pa.array(pairs.reference[rows])
    query_label = _taken(compared.query.labels, left.rows[pairs.query[rows]])
    reference_label = _taken(compared.reference.labels, right.rows[pairs.reference[rows]])
    same_classes = labels.comparable(compared.query, compared.reference)
    columns: dict[str, Any] = {
        "query_set": _constant(compared.query.name, count),
        "query": left.ids.take(query),
        "reference_set": _constant(compared.reference.name, count),
        "reference": right.ids.take(reference),
        "similarity": pairs.similarity[rows],
        "background": pairs.background[rows],
        "view": pa.array(np.array(VIEWS)[pairs.view[rows]], pa.string()),
        "degree": _named(compared.degree[rows], DEGREES),
        **_verdicts(compared, rows),
        "query_label": query_label,
        "reference_label": reference_label,
        "label_relation": labels.relation(query_label, reference_label, same_classes),
        "modality": _constant(compared.modality, count),
        "coverage": _constant(compared.coverage, count),
    }
    return pa.table([columns[name] for name in PAIRS_SCHEMA.names], schema=PAIRS_SCHEMA)


def _verdicts(compared: Comparison, rows: Int64) -> dict[str, Any]:
    """Return the columns that verification fills; null where pictures were not looked at."""
    count = len(rows)
    if compared.grades is None or compared.matrix is None:
        names = ("grade", "probability", "reason", "transform", "matrix")
        return {name: pa.nulls(count, PAIRS_SCHEMA.field(name).type) for name in names}
    grades, matrix = compared.grades, compared.matrix[rows]
    missing = np.asarray(np.isnan(matrix).any(axis=1))
    values = pa.array(np.where(missing[:, None], 0, matrix).ravel(), pa.float32())
    fixed = pa.FixedSizeListArray.from_arrays(values, 9, mask=pa.array(missing))
    return {
        "grade": _named(grades.grade[rows], GRADES),
        "probability": pa.array(grades.probability[rows], from_pandas=True),
        "reason": pa.array([grades.reason[row] for row in rows], pa.string()),
        "transform": pa.array([grades.transform[row] for row in rows], pa.string()),
        "matrix": fixed,
    }


def _named(codes: npt.NDArray[np.int8], names: tuple[str, ...]) -> pa.Array:
    """Return codes as their names, null for -1."""
    indices = pa.array(codes.astype(np.int32), mask=codes < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(names)).dictionary_decode()


def _positive(sizes: npt.NDArray[np.int32]) -> pa.Array:
    """Return sizes, null where they are not known."""
    return pa.array(sizes, mask=sizes == 0)


def _constant(value: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.string()), count)


def _taken(column: pa.Array | None, rows: Int64, kind: Any = None) -> pa.Array:
    """Return some rows of a set's column, null where the set has none."""
    if column is None:
        return pa.nulls(len(rows), kind or pa.string())
    return column.take(pa.array(rows))


@dataclass(frozen=True, slots=True)
class Nearest:
    """The most similar reference found for each image of a set, within comparisons left out.

    Attributes:
        similarity: ``float32`` (n,), NaN where there is none.
        set, row: index of the comparison and row of the reference; -1 where there is none.
        total: ``int64`` (n,): pairs at or above the soft threshold, over all references.
    """

    similarity: Float32
    set: Int64
    row: Int64
    total: Int64


def nearest(own: Sequence[Comparison], count: int) -> Nearest:
    """Return the nearest references of the images of one query set.

    Args:
        own: the comparisons to look at; pairs within the set count for both of their images.
        count: number of fingerprints of the set.
    """
    similarity = np.full(count, np.nan, np.float32)
    which, row = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    total = np.zeros(count, np.int64)
    for index, compared in enumerate(own):
        pairs = compared.pairs
        total += pairs.total
        ends = [(pairs.query, pairs.reference)]
        if compared.coverage == "within":
            ends.append((pairs.reference, pairs.query))
        for query, reference in ends:
            # by falling similarity; the stable sort keeps the order of ids among equals
            order = np.lexsort((-pairs.similarity, query))
            first = order[np.flatnonzero(np.diff(query[order], prepend=-1))]
            closer = ~(similarity[query[first]] >= pairs.similarity[first])
            first = first[closer]
            similarity[query[first]] = pairs.similarity[first]
            which[query[first]], row[query[first]] = index, reference[first]
    return Nearest(similarity, which, row, total)


def image_tables(
    sets: Sequence[ImageSet], compared: Sequence[Comparison], sides: Mapping[str, Side]
) -> Iterator[pa.Table]:
    """Yield the rows of ``images.parquet``: by set in the order of the call, then by id."""
    for images in sets:
        side = sides[images.name]
        own = [c for c in compared if c.query.name == images.name]
        # repeats within a set are no leak: they are its nearest only where it is all there is
        own = [c for c in own if c.coverage != "within"] or own
        found = nearest(own, len(side.fingerprints))
        order = np.argsort(side.order)
        for start in range(0, len(order), GROUP):
            rows = order[start : start + GROUP]
            yield _image_rows(images, side, rows, found, _nearest_columns(own, sides, found, rows))


def _image_rows(
    images: ImageSet, side: Side, rows: Int64, found: Nearest, nearest_columns: dict[str, Any]
) -> pa.Table:
    prints = side.fingerprints
    listed = prints.rows[rows]
    known = prints.of_bytes
    digests = [prints.digests[row].tobytes().hex() if known else None for row in rows]
    columns: dict[str, Any] = {
        "set": _constant(images.name, len(rows)),
        "id": prints.ids.take(pa.array(rows)),
        "digest": pa.array(digests, pa.string()),
        "label": _taken(images.labels, listed),
        "caption": _taken(images.captions, listed),
        "group": _taken(images.groups, listed),
        "frame": _taken(images.frames, listed, pa.int64()),
        "width": _positive(prints.sizes[rows, 0]),
        "height": _positive(prints.sizes[rows, 1]),
        "flat": prints.flat[rows],
        "locator": images.locators.take(pa.array(listed)),
        **nearest_columns,
        "background": side.background[rows],
        "pairs_total": found.total[rows],
    }
    return pa.table([columns[name] for name in IMAGES_SCHEMA.names], schema=IMAGES_SCHEMA)


def _nearest_columns(
    own: Sequence[Comparison], sides: Mapping[str, Side], found: Nearest, rows: Int64
) -> dict[str, Any]:
    """Return set, id and similarity of the nearest references of some images."""
    names = np.full(len(rows), None, object)
    ids = np.full(len(rows), None, object)
    for index, compared in enumerate(own):
        mine = np.flatnonzero(found.set[rows] == index)
        reference = pa.array(found.row[rows[mine]])
        names[mine] = compared.reference.name
        ids[mine] = sides[compared.reference.name].fingerprints.ids.take(reference).to_pylist()
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
    """Return a digest of everything an audit's answer depends on, or ``None`` if unknowable.

    Files stand in by name, size and time of change; pictures in memory cannot be stamped, nor can
    an encoder that only this run knows.
    """
    stamps = [stamp_of(images) for images in (*queries, *references)]
    if None in stamps or not getattr(encoder, "lasting", True):
        return None
    parts: dict[str, Any] = {
        "settings": settings.as_dict(),
        "decoding": DECODING,
        "encoder": encoder.digest,
        "thresholds": [thresholds.hard, thresholds.soft, thresholds.provenance],
        "verifier": check.digest().hex(),
        "rounds": [selection.ACROSS, selection.WITHIN],
        "grader": load_grader().digest,
        "sets": stamps,
        "queries": len(queries),
    }
    if precision := getattr(encoder, "precision", ""):
        parts["precision"] = precision
    return digest_of(parts)


def stamp_of(images: AnySet) -> str | None:
    """Return a digest of a set's listing and of the state of its files, ``None`` if unknowable."""
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
    # an opener of what is not a file here says itself whether that has changed
    own = getattr(images.opener, "stamp", "")
    if own is None:
        return None
    hasher.update(own.encode(errors="surrogateescape"))
    _stamp_images(hasher, images)
    return hasher.hexdigest()


def _stamp_images(hasher: hashlib.blake2b, images: ImageSet) -> None:
    columns = [images.ids, images.locators, images.labels, images.captions, images.groups]
    if images.frames is not None:
        hasher.update(b"ms" if images.timed else b"frames")
        columns.append(images.frames)
    for column in columns:
        for buffer in column.buffers() if column is not None else ():
            hasher.update(buffer or b"-")
    # a locator inside a file is FILE!MEMBER
    files = pc.unique(pc.list_element(pc.split_pattern(images.locators, "!", max_splits=1), 0))
    for file in files.to_pylist():
        try:
            status = os.stat(file)
            hasher.update(f"{status.st_size} {status.st_mtime_ns} ".encode())
        except OSError:
            hasher.update(b"missing ")


def holds(folder: Path, key: str | None, *, force: bool) -> bool:
    """Whether the folder already holds this very audit, finished.

    One that lost images on the way is done again.

    Raises:
        UsageError: it holds another audit and ``force`` is not set.
    """
    if not (folder / AUDIT).is_file():
        return False
    if force:
        return False
    known = read_summary(folder)
    if key is not None and known.key == key:
        return not known.unfinished and all(
            (folder / name).is_file() for name in (PAIRS, IMAGES, UNREADABLE)
        )
    raise UsageError(
        f"{folder} holds another audit (other sets, files or settings); choose another folder"
        " with -o DIR, or replace it with --force"
    )


def write(folder: Path, outcome: Outcome, summary: AuditSummary) -> None:
    """Write the tables, then ``audit.json``, whose presence says that all is there."""
    try:
        (folder / AUDIT).unlink(missing_ok=True)
        (folder / RECORDINGS).unlink(missing_ok=True)
        # pages of verbs that worked on the audit that stood here before
        shutil.rmtree(folder / SECTIONS, ignore_errors=True)
        write_tables(folder / PAIRS, PAIRS_SCHEMA, pair_tables(outcome.compared, outcome.sides))
        tables = image_tables(outcome.sets, outcome.compared, outcome.sides)
        write_tables(folder / IMAGES, IMAGES_SCHEMA, tables)
        problems = [p for images in outcome.sets for p in images.problems]
        problems += [p for s in outcome.sides.values() for p in s.fingerprints.problems]
        write_problems(folder / UNREADABLE, problems)
        if outcome.recordings:
            rows = recordings.rows(outcome.recordings)
            write_csv(folder / RECORDINGS, recordings.COLUMNS, rows)
        names = [PAIRS, IMAGES, UNREADABLE, *([RECORDINGS] if outcome.recordings else [])]
        files = {name: file_digest(folder / name) for name in names}
        replace(summary, files=files).save(folder)
    except OSError as error:
        raise VisleakError(f"{folder} cannot be written: {error}") from error
