"""Predictions from Parquet files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from visleak.errors import VisleakError
from visleak.impact.answer_columns import (
    BLOCK,
    TEXTS,
    Bool,
    ClassScores,
    Found,
    is_number,
    is_text,
    joined,
    quoted,
    text_of,
)


def read_parquet(path: Path) -> Found:
    """Return the plain columns of a Parquet file, its lists, and the columns that are neither.

    Raises:
        VisleakError: it has a column twice, or its class names are damaged.
        ValueError, OSError: it is no Parquet.
    """
    with pq.ParquetFile(path) as file:
        schema = file.schema_arrow
        if not schema.names:
            raise VisleakError(f"{path} has no columns")
        name, count = Counter(schema.names).most_common(1)[0]
        if count > 1:
            raise VisleakError(f"{path} has more than one column {quoted(name)}; keep one")
        plain = [f.name for f in schema if _is_plain(f)]
        # a name with a dot in it also reads part of a struct, which select leaves out
        table = file.read(columns=plain).select(plain)
    columns = {name: joined(table[name]) for name in plain}
    lists = {f.name: f.type.value_type for f in schema if _is_list(f.type)}
    named = lists.get("predictions")
    scores = ranked = None
    if "scores" in lists and is_number(lists["scores"]):
        scores = ClassScores(_classes(path, schema), partial(_score_blocks, path))
    if named is not None and (is_text(named) or is_number(named)):
        ranked = partial(_ranked_blocks, path)
    used = {*columns, *(["scores"] if scores else []), *(["predictions"] if ranked else [])}
    return columns, scores, ranked, tuple(name for name in schema.names if name not in used)


def _is_plain(field: pa.Field) -> bool:
    """Whether a column has one value an image that something is made of."""
    return is_number(field.type) or (field.name in TEXTS and is_text(field.type))


def _is_list(kind: pa.DataType) -> bool:
    tests = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(test(kind) for test in tests)


def _classes(path: Path, schema: pa.Schema) -> pa.StringArray | None:
    """Return the class names that the metadata gives under ``classes``, as a JSON list."""
    stored = (schema.metadata or {}).get(b"classes")
    if stored is None:
        return None
    try:
        names: Any = json.loads(stored)
        if not isinstance(names, list) or not names:
            raise ValueError("it is no list")
        return text_of(pa.array(names), "classes")
    except (ValueError, TypeError, RecursionError, VisleakError) as error:
        raise VisleakError(
            f"{path}: its metadata key `classes` must be a JSON list of class names"
        ) from error


def _lists(path: Path, name: str) -> Iterator[pa.Array]:
    """Yield a column of lists in blocks of about :data:`BLOCK` values."""
    with pq.ParquetFile(path, buffer_size=1 << 20) as file:
        first = next(file.iter_batches(64, columns=[name]), None)
        if first is None:
            return
        longest = pc.max(pc.list_value_length(first.column(name))).as_py() or 1
        for batch in file.iter_batches(max(1, BLOCK // longest), columns=[name]):
            yield batch.column(name)


def _score_blocks(path: Path) -> Iterator[tuple[npt.NDArray[Any], Bool]]:
    width, start = 0, 0
    for lists in _lists(path, "scores"):
        lengths = pc.fill_null(pc.list_value_length(lists), -1).to_numpy(zero_copy_only=False)
        there = lengths >= 0
        if there.any():
            width = width or int(lengths[there][0])
        odd = there & (lengths != width)
        if odd.any():
            row = int(odd.argmax())
            raise VisleakError(
                f"{path}: row {start + row} has {lengths[row]:,} class scores, others have"
                f" {width:,}; each image needs a score for each class"
            )
        given = lists.flatten().cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        values = np.full((len(lists), width), np.nan)
        values[there] = given.reshape(-1, width) if width else 0
        yield values, there
        start += len(lists)


def _ranked_blocks(path: Path) -> Iterator[pa.ListArray]:
    for lists in _lists(path, "predictions"):
        texts = text_of(lists.flatten(), f"{path}: column `predictions`")
        lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
        offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
        yield pa.ListArray.from_arrays(pa.array(offsets), texts)
