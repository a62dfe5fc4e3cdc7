"""The file of predictions: one row per image, and how they were made."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import visleak
from visleak.auditing import open_cache, workers_for
from visleak.errors import UsageError, VisleakError, explaining
from visleak.formats.remote import redacted
from visleak.pipeline.batches import batched
from visleak.pipeline.context import RunContext
from visleak.pipeline.encoded_set import entries, maker
from visleak.pipeline.fingerprints import fingerprint
from visleak.progress import Progress
from visleak.rates import Rate
from visleak.records import BatchEncoder, Encoder, Fingerprints, Float32, ImageSet, Int64, Problem
from visleak.reporting import Document
from visleak.reporting.document import Fact
from visleak.storage import (
    PROBLEM_COLUMNS,
    csv_cell,
    free_file,
    free_table,
    replacing_text,
    write_csv_rows,
    write_problems,
    write_tables,
)

if TYPE_CHECKING:
    from visleak.impact.evaluators.classifiers import Classifier


KIND: Final = "visleak predictions"  # kind of the file in its metadata
SCHEMA: Final = 1  # version of its layout
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
    parts = (
        pa.table({name: _arrow(values[start : start + _ROWS]) for name, values in every.items()})
        for start in range(0, max(len(ids), 1), _ROWS)
    )
    first = next(parts)
    if target.suffix.lower() == ".csv":
        if lists := [each.name for each in first.schema if pa.types.is_list(each.type)]:
            raise UsageError(
                f"{target}: a CSV cannot hold lists ({', '.join(lists)}); write a .parquet"
            )
        with replacing_text(target) as file:
            write_csv_rows(file, [first.column_names])
            for part in chain([first], parts):
                cells = (map(_cell, values.to_pylist()) for values in part.columns)
                write_csv_rows(file, zip(*cells, strict=True))
        return target
    content = {"kind": KIND, "schema": SCHEMA, "visleak": visleak.__version__, **about}
    # escaped, because a path may not be UTF-8
    metadata = {"visleak": json.dumps(content, allow_nan=False)}
    if classes:
        metadata["classes"] = json.dumps(list(classes))
    with explaining(f"{target} cannot be written", OSError):
        write_tables(target, first.schema.with_metadata(metadata), chain([first], parts))
    return target


def write_unreadable(target: Path, problems: Sequence[Problem]) -> Path | None:
    """Write the images without a prediction to ``predictions.unreadable.csv`` next to the target.

    Returns ``None`` where there are none; a file of an earlier run is then removed.
    """
    path = _unreadable(target)
    with explaining(f"{path} cannot be written", OSError):
        if problems:
            write_problems(path, problems)
        else:
            path.unlink(missing_ok=True)
    return path if problems else None


def _unreadable(target: Path) -> Path:
    return target.with_name(f"{target.stem}.unreadable.csv")


def _arrow(values: Values) -> pa.Array:
    """Return a column as an Arrow array; a numpy array (n, k) becomes lists."""
    if isinstance(values, np.ndarray) and values.ndim == 2:
        flat = pa.array(np.ascontiguousarray(values).reshape(-1))
        offsets = np.arange(len(values) + 1, dtype=np.int32) * np.int32(values.shape[1])
        return pa.ListArray.from_arrays(pa.array(offsets), flat)
    return values if isinstance(values, pa.Array) else pa.array(values)


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
    """Return the versions of the installed :data:`LIBRARIES`."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What all results of evaluators have."""

    file: Path  # of the predictions
    unreadable: int  # images without a prediction
    unreadable_file: Path | None  # lists them
    notes: tuple[str, ...] = ()  # for readers of the scores, one line each


def document_of(result: Evaluation, headline: str, facts: Iterable[tuple[str, str]]) -> Document:
    """Return a result as a document."""
    every = list(facts)
    if result.unreadable_file is not None:
        text = f"{result.unreadable:,}, not counted: {result.unreadable_file}"
        every.append(("unreadable", text))
    rows = tuple(Fact(name, text) for name, text in every)
    return Document(title="Predictions", headline=headline, facts=rows, notes=result.notes)


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


PathText = str | os.PathLike[str]

#: Outputs of wider networks are not cached: 50,000 images of 4,096 numbers are 0.8 GB.
WIDEST_KEPT: Final = 4096


@contextmanager
def context(
    images: ImageSet, workers: int | None, cache: PathText | None, progress: Progress
) -> Iterator[RunContext]:
    """Give a place to read and prepare the images of a set, with a cache for outputs if wanted."""
    with (
        open_cache(cache, [images]) as store,
        RunContext.at(None, workers_for(len(images), workers), store, progress) as place,
    ):
        yield place


def feed(
    images: ImageSet, network: Classifier, place: RunContext
) -> Iterator[tuple[Int64, Float32, tuple[Problem, ...]]]:
    """Yield positions, outputs (rows, width) and unreadable images, in the set's order.

    Memory is a few tasks per worker and one batch, whatever the size of the set. Neither the number
    of workers nor other images of the set change an output.
    """
    refuse_embeddings(images)
    done = 0
    encoder = _as_encoder(network)
    cache = place.cache if network.width <= WIDEST_KEPT else None
    reach = place.cache_handle() if cache is not None else None
    for chunk in batched(images.opener, range(len(images)), encoder, place, reach):
        if cache is not None and chunk.fresh.any():
            cache.put(maker(encoder), entries(chunk))
        unreadable = tuple(
            Problem(
                images.name,
                images.ids[position].as_py(),
                images.locators[position].as_py(),
                why.reason,
                why.detail,
            )
            for position, why in chunk.unreadable
        )
        done += len(chunk.rows) + len(unreadable)
        place.progress(f"reading {images.name}", done, len(images))
        if len(chunk.rows) or unreadable:
            yield chunk.rows, chunk.matrix, unreadable


def _as_encoder(network: Classifier) -> BatchEncoder:
    """Return a network with the digest of its outputs in the cache.

    The digest of its weights is not enough: an encoder of the same file stores unit vectors under
    it, and the preprocessing may not be part of the weights.
    """
    made = copy.copy(network)
    prepared = json.dumps(dict(network.prepared), sort_keys=True, default=str)
    about = hashlib.blake2b(prepared.encode(), digest_size=8).hexdigest()
    made.digest = f"outputs {network.digest} {about}"
    # batches use none of the attributes of an encoder that a classifier lacks
    return cast(BatchEncoder, made)


def image_vectors(images: ImageSet, encoder: Encoder, place: RunContext) -> Fingerprints:
    """Return the unit vectors of the readable images of a set; from the cache where known."""
    prints = fingerprint(images, encoder, place)
    if len(prints):
        return prints
    raise nothing_read(images, (*images.problems, *prints.problems))


def refuse_embeddings(images: ImageSet) -> None:
    """Refuse a set of embeddings."""
    if not images.has_pixels:
        raise UsageError(
            f"set {images.name!r} has embeddings and no images; give the images themselves"
        )


def nothing_read(images: ImageSet, problems: Sequence[Problem]) -> VisleakError:
    """Return the error for a set of which no image could be read."""
    if not problems:
        return VisleakError(f"set {images.name!r} has no images")
    first = problems[0]
    return VisleakError(
        f"none of the {len(problems):,} images of set {images.name!r} could be read, such as"
        f" {first.id!r} ({first.reason}{': ' if first.detail else ''}{first.detail})"
    )
