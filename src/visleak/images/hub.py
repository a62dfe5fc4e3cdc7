"""Hugging Face data sets: objects of the ``datasets`` library, and ``hf:NAME#split``.

Pictures are taken as they are stored: undecoded bytes where there are any. A streamed data set
is only ever read forward. Code that comes with a data set is never run.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import MissingExtra, UsageError, VisleakError
from visleak.images.addresses import redacted
from visleak.images.columns import as_text, canonical_split, describe, wanted_columns
from visleak.images.hub_openers import HubOpener, StreamOpener
from visleak.images.parquet import image_column
from visleak.images.request import Request, writable
from visleak.records import ImageSet

#: What may stand after ``?`` in ``hf:NAME?..``.
OPTIONS: Final = ("config", "revision", "image", "streaming")


def open_object(source: Any, request: Request) -> ImageSet:
    """Make a set of a ``datasets.Dataset`` or ``IterableDataset`` that a program holds.

    Raises:
        UsageError: it is a dictionary of splits, or lacks a column.
        VisleakError: it is empty, or no column holds pictures.
    """
    if isinstance(source, dict):
        splits = ", ".join(map(str, source))
        raise UsageError(f"source holds the splits {splits}; give one of them: source['SPLIT']")
    return _set_of(source, request, remote=False)


def _set_of(source: Any, request: Request, remote: bool) -> ImageSet:
    if hasattr(source, "__len__"):
        return _mapped_set(source, request, remote)
    return _streamed_set(source, request)


def open_hub(request: Request) -> ImageSet:
    """List a data set of the Hugging Face hub or one in a folder: ``hf:NAME?config=C#split``.

    A folder may be one of ``save_to_disk``, or one that ``load_dataset`` understands. The hub is
    asked only where NAME is no folder. ``?image=COLUMN`` chooses among picture columns,
    ``?revision=`` a version, ``?streaming=yes`` reads without a copy on this machine.

    Raises:
        UsageError: there is no such split, or none was chosen.
        VisleakError: the data set cannot be had.
        MissingExtra: the ``datasets`` library is not installed.
    """
    return _set_of(load(request), request, remote=not Path(request.place).exists())


def load(request: Request) -> Any:
    """Return the split of a data set that a source names, as an object of the library.

    Raises:
        UsageError, VisleakError, MissingExtra: see :func:`open_hub`.
    """
    request.refuse_options(*OPTIONS)
    loaded = _loaded(request)
    return _split_of(loaded, request) if isinstance(loaded, dict) else loaded


def _loaded(request: Request) -> Any:
    """Return what the library makes of the source: a data set, or a dictionary of splits."""
    try:
        import datasets
    except ImportError as error:
        raise MissingExtra("hf", f"source {request.text!r}") from error
    place, config = Path(request.place), request.options.get("config")
    streaming = request.options.get("streaming", "no") in ("yes", "true", "1")
    try:
        with _quiet(datasets):
            if (place / "state.json").is_file() or (place / "dataset_dict.json").is_file():
                return datasets.load_from_disk(str(place))
            return datasets.load_dataset(
                str(place) if place.exists() else request.place,
                config,
                revision=request.options.get("revision"),
                streaming=streaming,
            )
    except Exception as error:  # the library, the network and each file format have their own
        raise VisleakError(_not_had(request, error)) from error


@contextlib.contextmanager
def _quiet(datasets: Any) -> Iterator[None]:
    """Keep the libraries from telling of each attempt; what went wrong is said once, at the end."""
    loggers = [logging.getLogger(name) for name in ("datasets", "huggingface_hub")]
    levels = [logger.level for logger in loggers]
    shown = not datasets.are_progress_bars_disabled()
    try:
        datasets.disable_progress_bars()
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        yield
    finally:
        if shown:
            datasets.enable_progress_bars()
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _not_had(request: Request, error: Exception) -> str:
    """Say what was looked for, where, and how to get it."""
    said = redacted(" ".join(str(error).split()))[:200] or type(error).__name__
    if Path(request.place).exists():
        return f"source {request.text!r}: {request.place} cannot be read as a data set: {said}"
    where = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    return (
        f"source {request.text!r}: {request.place} is no folder here and cannot be had from the"
        f" hub at {redacted(where)} ({said}); check the name, sign in with `hf auth login` if it is"
        " private, or download it and give its folder"
    )


def _split_of(splits: dict[str, Any], request: Request) -> Any:
    names = ", ".join(map(str, splits))
    if not request.split:
        if len(splits) == 1:
            return next(iter(splits.values()))
        raise UsageError(f"source {request.text!r}: add #SPLIT, one of {names}")
    if request.split in splits:
        return splits[request.split]
    wanted = canonical_split(request.split)
    for name, split in splits.items():
        if canonical_split(str(name)) == wanted:
            return split
    raise UsageError(f"source {request.text!r}: no split {request.split!r}; there are {names}")


def _picture_column(schema: pa.Schema | None, request: Request) -> str:
    """Return the column with the pictures.

    Raises:
        UsageError: the one asked for is not there.
        VisleakError: none holds pictures.
    """
    names = [] if schema is None else schema.names
    shown = request.text or "the data set"
    wanted = request.options.get("image")
    if wanted is not None:
        if wanted not in names:
            has = ", ".join(map(writable, names))
            raise UsageError(f"image {wanted!r}: {shown} has no such column; it has {has}")
        return wanted
    found = None if schema is None else image_column(schema)
    if found is None:
        has = ", ".join(map(writable, names)) or "none"
        raise VisleakError(f"{shown} has no column with pictures; its columns are {has}")
    return found.removesuffix(".bytes")


def _mapped_set(source: Any, request: Request, remote: bool) -> ImageSet:
    """Return the set of a data set that can be read anywhere."""
    plain = source.with_format("arrow")
    schema: pa.Schema = source.features.arrow_schema
    column = _picture_column(schema, request)
    others = [name for name in schema.names if name != column]
    names = [*wanted_columns(others, request), *_more_labels(source.features, others, request)]
    if len(source) == 0:
        request.no_pictures("it has no rows")
    table = plain.select_columns(names)[:] if names else pa.table({"row": range(len(source))})
    opener = HubOpener(plain.select_columns([column]), column, remote, _stamp(source))
    return _described(table, source.features, request, opener)


def _streamed_set(source: Any, request: Request) -> ImageSet:
    """Return the set of a data set that only streams; one pass tells how long it is."""
    if source.features is None:
        source = _with_features(source, request)
    features = source.features
    schema = None if features is None else features.arrow_schema
    column = _picture_column(schema, request)
    undecoded = _undecoded(source, column)
    others = [name for name in features if name != column]
    names = [*wanted_columns(others, request), *_more_labels(features, others, request)]
    rows = []
    try:
        for item in undecoded.select_columns(names or [column]):
            rows.append({name: item[name] for name in names})
    except Exception as error:  # each storage has exceptions of its own
        said = redacted(" ".join(str(error).split()))[:200] or type(error).__name__
        raise VisleakError(f"{request.text or 'the data set'} cannot be listed: {said}") from error
    if not rows:
        request.no_pictures("its stream is empty")
    kinds = features.arrow_schema
    table = (
        pa.table(
            {name: pa.array([row[name] for row in rows], kinds.field(name).type) for name in names}
        )
        if names
        else pa.table({"row": range(len(rows))})
    )
    return _described(
        table, features, request, StreamOpener(undecoded.select_columns([column]), column)
    )


def _with_features(source: Any, request: Request) -> Any:
    """Return a stream that did not say what its columns are with what its first rows tell."""
    try:
        return source._resolve_features()
    except Exception as error:  # each storage has exceptions of its own
        said = redacted(" ".join(str(error).split()))[:200] or type(error).__name__
        raise VisleakError(
            f"{request.text or 'the data set'} does not say what its columns are, and its first"
            f" rows do not tell ({said}); make it with features=Features(..)"
        ) from error


def _undecoded(source: Any, column: str) -> Any:
    import datasets

    if isinstance(source.features[column], datasets.Image):
        return source.cast_column(column, datasets.Image(decode=False))
    return source


def _more_labels(features: Any, names: Sequence[str], request: Request) -> list[str]:
    """Return the one column of class names, where no column has the usual name."""
    usual = request.label is not None or "label" in names or "label_name" in names
    classes = [name for name in names if hasattr(features[name], "int2str")]
    return classes if not usual and len(classes) == 1 else []


def _described(table: pa.Table, features: Any, request: Request, opener: Any) -> ImageSet:
    """Return the set: ids are row numbers unless a column was asked for."""
    classes = {
        name: [writable(str(label)) for label in features[name].names]
        for name in table.column_names
        if name in features and hasattr(features[name], "int2str")
    }
    rows = pa.array(range(table.num_rows), pa.int64()).cast(pa.string())
    label = request.label
    usual = ("label_name", "label")
    if label is None and not any(name in table.column_names for name in usual):
        label = next(iter(classes), None)
    described = describe(table, replace(request, label=label), rows, classes)
    ids = rows if request.id is None else as_text(table[request.id], request.id)
    shown = f"{request.shown}#{request.split}" if request.split else request.shown
    locators = pc.binary_join_element_wise(f"hf:{shown}", rows, "!") if request.text else rows
    return request.image_set(
        ids,
        locators.cast(pa.string()),
        opener,
        labels=described.labels,
        captions=described.captions,
        groups=described.groups,
        frames=described.frames,
    )


def _stamp(source: Any) -> str | None:
    """Return the library's fingerprint of a data set, and size and time of its files."""
    mark = getattr(source, "_fingerprint", None)
    if not mark:
        return None
    parts = [str(mark)]
    for file in source.cache_files:
        try:
            status = os.stat(file["filename"])
        except OSError:
            return None
        parts.append(f"{status.st_size} {status.st_mtime_ns}")
    return " ".join(parts)
