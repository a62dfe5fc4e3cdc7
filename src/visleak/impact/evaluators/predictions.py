"""The file of predictions: one row per image, and how they were made."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

import visleak
from visleak.errors import UsageError, VisleakError
from visleak.formats.remote import redacted
from visleak.rates import Rate
from visleak.records import ImageSet, Problem
from visleak.reporting import Document
from visleak.reporting.document import Fact
from visleak.storage import (
    PROBLEM_COLUMNS,
    csv_cell,
    free_file,
    free_table,
    replacing,
    replacing_text,
    write_csv_rows,
    write_problems,
)

#: What the metadata says the file is, and the version of its layout.
KIND: Final = "visleak predictions"
SCHEMA: Final = 1

SUFFIXES: Final = (".parquet", ".csv")

#: A column of a file.
Values: TypeAlias = pa.Array | npt.NDArray[np.generic] | Sequence[object]

#: Rows written at a time; bounds memory where a column holds a score for each of many classes.
_ROWS: Final = 8_192


def check_target(path: str | os.PathLike[str], *, force: bool = False) -> Path:
    """Return the path of the predictions; call it before any work is done."""
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise UsageError(f"predictions are written as .parquet or .csv; got {str(target)!r}")
    free_file(target, force=force)
    free_table(_unreadable(target), PROBLEM_COLUMNS)
    return target


def write_predictions(
    path: str | os.PathLike[str],
    ids: pa.Array | Sequence[str],
    columns: Mapping[str, Values],
    about: Mapping[str, object],
    *,
    classes: Sequence[str] = (),
    force: bool = False,
) -> Path:
    """Write predictions in one step, as Parquet or CSV by the suffix of the path.

    ``columns``: name to values, as many as ids: Arrow or numpy arrays or lists. Lists of values,
    one list per image, come as an Arrow list array or a numpy array (n, k); CSV has none.
    """
    target = check_target(path, force=force)
    wrong = [name for name, values in columns.items() if len(values) != len(ids)]
    if wrong:
        raise ValueError(f"column {wrong[0]!r} has another length than the ids, {len(ids)}")
    every = {"id": _arrow(ids).cast(pa.string()), **columns}
    if target.suffix.lower() == ".csv":
        _write_csv(target, every)
    else:
        content = {"kind": KIND, "schema": SCHEMA, "visleak": visleak.__version__, **about}
        # escaped, because a path may not be UTF-8
        metadata = {"visleak": json.dumps(content, allow_nan=False)}
        if classes:
            metadata["classes"] = json.dumps(list(classes))
        _write_parquet(target, every, metadata)
    return target


def write_unreadable(target: Path, problems: Sequence[Problem]) -> Path | None:
    """Write the images without a prediction next to the file of those with one.

    Returns the file, as ``predictions.unreadable.csv``; ``None`` where there are none, and then one
    of an earlier run is removed.
    """
    beside = _unreadable(target)
    try:
        if not problems:
            beside.unlink(missing_ok=True)
            return None
        write_problems(beside, problems)
    except OSError as error:
        raise VisleakError(f"{beside} cannot be written ({error.strerror})") from error
    return beside


def _unreadable(target: Path) -> Path:
    return target.with_name(f"{target.stem}.unreadable.csv")


def _write_parquet(path: Path, columns: Mapping[str, Values], metadata: Mapping[str, str]) -> None:
    rows = len(columns["id"])
    parts = _slices(columns, rows)
    first = next(parts)
    schema = first.schema.with_metadata(metadata)
    try:
        with (
            replacing(path) as beside,
            beside.open("wb") as opened,
            pq.ParquetWriter(opened, schema, compression="zstd") as file,
        ):
            file.write_table(first.cast(schema))
            for part in parts:
                file.write_table(part.cast(schema))
    except OSError as error:
        raise VisleakError(f"{path} cannot be written ({error.strerror or error})") from error


def _slices(columns: Mapping[str, Values], rows: int) -> Iterator[pa.Table]:
    """Yield the rows in order, at least one table."""
    for start in range(0, max(rows, 1), _ROWS):
        part = slice(start, start + _ROWS)
        yield pa.table({name: _arrow(values[part]) for name, values in columns.items()})


def _arrow(values: Values) -> pa.Array:
    """Return a column as an Arrow array; a numpy array (n, k) becomes lists."""
    if isinstance(values, np.ndarray) and values.ndim == 2:
        flat = pa.array(np.ascontiguousarray(values).reshape(-1))
        offsets = np.arange(len(values) + 1, dtype=np.int32) * np.int32(values.shape[1])
        return pa.ListArray.from_arrays(pa.array(offsets), flat)
    return values if isinstance(values, pa.Array) else pa.array(values)


def _write_csv(path: Path, columns: Mapping[str, Values]) -> None:
    arrays = {name: _arrow(values) for name, values in columns.items()}
    lists = [name for name, values in arrays.items() if pa.types.is_list(values.type)]
    if lists:
        raise UsageError(f"{path}: a CSV cannot hold lists ({', '.join(lists)}); write a .parquet")
    cells = (map(_cell, values.to_pylist()) for values in arrays.values())
    with replacing_text(path) as file:
        write_csv_rows(file, [tuple(arrays)])
        write_csv_rows(file, zip(*cells, strict=True))


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    return csv_cell(value) if isinstance(value, str) else str(value)


#: Packages whose versions may change a prediction.
LIBRARIES: Final = (
    *("torch", "transformers", "timm", "open_clip_torch", "onnxruntime", "torchmetrics"),
    *("numpy", "Pillow", "opencv-python-headless"),
)


def about_set(images: ImageSet, read: int, unreadable: int) -> dict[str, object]:
    """Return what identifies a set, as plain values."""
    return {
        "name": images.name,
        "dataset": images.dataset,
        "source": redacted(images.source),
        "options": dict(images.options),
        "images": read,
        "unreadable": unreadable,
    }


def versions() -> dict[str, str]:
    """Return the versions of what is installed of :data:`LIBRARIES`."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


# -- results --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What all results of evaluators have."""

    file: Path  # of the predictions
    unreadable: int  # images without a prediction
    unreadable_file: Path | None  # lists them
    notes: tuple[str, ...] = ()  # what a reader must know, one line each


def document_of(result: Evaluation, headline: str, facts: Iterable[tuple[str, str]]) -> Document:
    """Return a result as a document."""
    every = list(facts)
    if result.unreadable_file is not None:
        every.append(
            ("unreadable", f"{result.unreadable:,}, not counted: {result.unreadable_file}")
        )
    return Document(
        title="Predictions",
        headline=headline,
        facts=tuple(Fact(name, text) for name, text in every),
        notes=result.notes,
    )


def content_of(result: Evaluation, **more: object) -> dict[str, object]:
    """Return a result as plain values, for JSON."""
    file = str(result.unreadable_file) if result.unreadable_file else None
    return {
        "file": str(result.file),
        **more,
        "unreadable": {"images": result.unreadable, "file": file},
        "notes": list(result.notes),
    }


def rate_text(rate: Rate) -> str:
    """Return a rate in percent with its counts and interval."""
    ends = f"{100 * rate.low:.2f} to {100 * rate.high:.2f}"
    return f"{100 * rate.share:.2f} % ({rate.count:,} of {rate.total:,}; 95 % CI {ends})"


def rate_numbers(rate: Rate | None) -> dict[str, object] | None:
    """Return a rate as plain values; ``None`` of no images."""
    if rate is None or not rate.total:
        return None
    ends = {"low": rate.low, "high": rate.high}
    return {"value": rate.share, **ends, "right": rate.count, "images": rate.total}
