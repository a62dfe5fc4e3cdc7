"""The audit's tables: one row a pair, one row an image."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from visleak.pipeline import labels
from visleak.pipeline.candidates import Side
from visleak.records import (
    DEGREES,
    GRADES,
    VIEWS,
    Float32,
    Grades,
    ImageSet,
    Int8,
    Int64,
    Pairs,
)
from visleak.storage import IMAGES_SCHEMA, PAIRS_SCHEMA

#: Rows a row group.
GROUP: Final = 50_000


@dataclass(frozen=True, slots=True)
class Compared:
    """One comparison, complete: a pair of sets, its pairs and their verdicts.

    Attributes:
        query, reference: the sets.
        pairs: sorted by the query's id.
        degree: ``int8`` (n,): index into ``DEGREES``, -1 below the soft threshold.
        grades: the verdicts, or ``None`` where pictures were not looked at.
        matrix: ``float32`` (n, 9), NaN where no relation was fitted.
        coverage, modality: of the comparison.
        skipped: ``int8`` (n,), as in :class:`visleak.records.Evidence`, or ``None``.
    """

    query: ImageSet
    reference: ImageSet
    pairs: Pairs
    degree: npt.NDArray[np.int8]
    grades: Grades | None
    matrix: Float32 | None
    coverage: str
    modality: str
    skipped: Int8 | None = None


def degree_of(similarity: Float32, hard: float | None, soft: float | None) -> npt.NDArray[np.int8]:
    """Return the degree of similarities: 0 hard, 1 soft, -1 neither."""
    result = np.full(len(similarity), -1, np.int8)
    if soft is not None:
        result[similarity >= np.float32(soft)] = DEGREES.index("soft")
    if hard is not None:
        result[similarity >= np.float32(hard)] = DEGREES.index("hard")
    return result


def pair_tables(compared: Sequence[Compared], sides: Mapping[str, Side]) -> Iterator[pa.Table]:
    """Yield the rows of ``pairs.parquet``: by query set, query id, falling similarity, reference.

    Args:
        compared: the comparisons.
        sides: the sides by set name.
    """
    for name in sorted({each.query.name for each in compared}):
        own = sorted((c for c in compared if c.query.name == name), key=lambda c: c.reference.name)
        yield from _by_query(own, sides)


def _by_query(own: Sequence[Compared], sides: Mapping[str, Side]) -> Iterator[pa.Table]:
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


def _rows(compared: Compared, sides: Mapping[str, Side], rows: Int64) -> pa.Table:
    """Return some pairs of a comparison as rows of ``pairs.parquet``."""
    pairs, count = compared.pairs, len(rows)
    left, right = sides[compared.query.name].prints, sides[compared.reference.name].prints
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


def _verdicts(compared: Compared, rows: Int64) -> dict[str, Any]:
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


def nearest(own: Sequence[Compared], count: int) -> Nearest:
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
    sets: Sequence[ImageSet], compared: Sequence[Compared], sides: Mapping[str, Side]
) -> Iterator[pa.Table]:
    """Yield the rows of ``images.parquet``: by set in the order of the call, then by id."""
    for images in sets:
        side = sides[images.name]
        own = [c for c in compared if c.query.name == images.name]
        # repeats within a set are no leak: they are its nearest only where it is all there is
        own = [c for c in own if c.coverage != "within"] or own
        found = nearest(own, len(side.prints))
        order = np.argsort(side.order)
        for start in range(0, len(order), GROUP):
            rows = order[start : start + GROUP]
            yield _image_rows(images, side, rows, found, _nearest_columns(own, sides, found, rows))


def _image_rows(
    images: ImageSet, side: Side, rows: Int64, found: Nearest, nearest_columns: dict[str, Any]
) -> pa.Table:
    prints = side.prints
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
    own: Sequence[Compared], sides: Mapping[str, Side], found: Nearest, rows: Int64
) -> dict[str, Any]:
    """Return set, id and similarity of the nearest references of some images."""
    names = np.full(len(rows), None, object)
    ids = np.full(len(rows), None, object)
    for index, compared in enumerate(own):
        mine = np.flatnonzero(found.set[rows] == index)
        reference = pa.array(found.row[rows[mine]])
        names[mine] = compared.reference.name
        ids[mine] = sides[compared.reference.name].prints.ids.take(reference).to_pylist()
    return {
        "nearest_set": pa.array(names, pa.string()),
        "nearest": pa.array(ids, pa.string()),
        "nearest_similarity": pa.array(found.similarity[rows], from_pandas=True),
    }
