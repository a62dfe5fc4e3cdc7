"""Reading the images of Hugging Face data sets, as they are stored."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from visleak.errors import MissingExtra, UsageError, VisleakError
from visleak.formats.addresses import is_address, redacted
from visleak.formats.files import read_file
from visleak.formats.memory import rgb_of
from visleak.formats.parquet import image_column, with_images
from visleak.formats.request import (
    Request,
    canonical_split,
    describe,
    text_column,
    wanted_columns,
    writable,
)
from visleak.formats.sources import locate
from visleak.formats.writing import Destination, OutputPart, OutputSource, Selection
from visleak.records import Bytes8, ImageSet, Unreadable

#: Rows asked for at a time.
BATCH: Final = 64


@dataclass(frozen=True)
class HubOpener:
    """Reads the image column of a data set that can be read anywhere.

    Attributes:
        rows: a ``datasets.Dataset`` with that column alone, in Arrow format.
        column: its name.
        remote: the data set may name images by address, for it comes from the hub.
        stamp: text that changes when the data set does, ``None`` where that cannot be told.
    """

    rows: Any
    column: str
    remote: bool
    stamp: str | None

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield the images at the positions, see :class:`visleak.records.Opener`."""
        for start in range(0, len(positions), BATCH):
            asked = [int(position) for position in positions[start : start + BATCH]]
            try:
                values = self.rows[asked][self.column].to_pylist()
            except Exception as error:  # each storage has exceptions of its own
                said = redacted(" ".join(str(error).split()))[:200]
                values = [Unreadable("io-error", said or type(error).__name__)] * len(asked)
            yield from (stored_image(value, self.remote) for value in values)


@dataclass
class StreamOpener:
    """Reads a data set that only streams.

    Positions ahead are reached by reading on; a position that is past starts over. So one pass
    of ascending reads is one pass over the stream.

    Attributes:
        stream: a ``datasets.IterableDataset`` with the image column alone, undecoded.
        column: its name.
        stamp: always ``None``: nobody knows whether a stream has changed.
    """

    stream: Any
    column: str
    stamp: str | None = None
    _items: Iterator[Any] | None = field(default=None, repr=False, compare=False)
    _next: int = field(default=0, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return StreamOpener, (self.stream, self.column)

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield the images at the positions, see :class:`visleak.records.Opener`."""
        for position in positions:
            try:
                item = self._item(int(position))
            except StopIteration:
                self._items = None
                yield Unreadable("missing", "the stream ends before this image")
            except Exception as error:  # each storage has exceptions of its own
                self._items = None
                said = redacted(" ".join(str(error).split()))[:200]
                yield Unreadable("io-error", said or type(error).__name__)
            else:
                yield stored_image(item[self.column], remote=True)

    def _item(self, position: int) -> Any:
        if self._items is None or position < self._next:
            self._items, self._next = iter(self.stream), 0
        while True:
            item = next(self._items)
            self._next += 1
            if self._next > position:
                return item


def stored_image(value: Any, remote: bool) -> bytes | Bytes8 | Unreadable:
    """Return the image of a cell: bytes, else the file it names, else what is decoded already."""
    if value is None:
        return Unreadable("missing", "the row holds no image")
    if not isinstance(value, dict):
        return value if isinstance(value, Unreadable) else rgb_of(value)
    data, path = value.get("bytes"), value.get("path")
    if isinstance(data, bytes):
        return data
    if isinstance(path, str) and path and not (is_address(path) or "::" in path):
        return read_file(path)
    if path and remote:
        return _fetched(str(path))
    what = "an address, and nothing is fetched" if path else "no image"
    return Unreadable("missing", f"the row holds {what}")


def _fetched(path: str) -> bytes | Unreadable:
    """Return the image at an address that a data set of the hub names."""
    from datasets.utils.file_utils import xopen

    try:
        with xopen(path, "rb") as file:
            data: bytes = file.read()
            return data
    except FileNotFoundError:
        return Unreadable("missing", "no such file")
    except Exception as error:  # each storage has exceptions of its own
        return Unreadable("io-error", redacted(" ".join(str(error).split()))[:200])


#: What may stand after ``?`` in ``hf:NAME?..``.
OPTIONS: Final = ("config", "revision", "image", "streaming")


def open_object(source: Any, request: Request) -> ImageSet:
    """Make a set of a ``datasets.Dataset`` or ``IterableDataset`` that a program holds.

    Raises:
        UsageError: it is a dictionary of splits, or lacks a column.
        VisleakError: it is empty, or no column holds images.
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
    asked only where NAME is no folder. ``?image=COLUMN`` chooses among image columns,
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


def _image_column(schema: pa.Schema | None, request: Request) -> str:
    """Return the column with the images.

    Raises:
        UsageError: the one asked for is not there.
        VisleakError: none holds images.
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
        raise VisleakError(f"{shown} has no column with images; its columns are {has}")
    return found.removesuffix(".bytes")


def _mapped_set(source: Any, request: Request, remote: bool) -> ImageSet:
    """Return the set of a data set that can be read anywhere."""
    plain = source.with_format("arrow")
    schema: pa.Schema = source.features.arrow_schema
    column = _image_column(schema, request)
    others = [name for name in schema.names if name != column]
    names = [*wanted_columns(others, request), *_more_labels(source.features, others, request)]
    if len(source) == 0:
        request.refuse_empty("it has no rows")
    table = plain.select_columns(names)[:] if names else pa.table({"row": range(len(source))})
    opener = HubOpener(plain.select_columns([column]), column, remote, _stamp(source))
    return _described(table, source.features, request, opener)


def _streamed_set(source: Any, request: Request) -> ImageSet:
    """Return the set of a data set that only streams; one pass tells how long it is."""
    if source.features is None:
        source = _with_features(source, request)
    features = source.features
    schema = None if features is None else features.arrow_schema
    column = _image_column(schema, request)
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
        request.refuse_empty("its stream is empty")
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
    ids = rows if request.id is None else text_column(table[request.id], request.id)
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


#: Rows in a row group: what the library's own writer takes for images.
ROWS: Final = 100


def write_hub(part: OutputPart, place: Destination) -> OutputSource:
    """Write a part as ``PART.parquet`` with all columns and the images themselves.

    The file says what its columns are, so that both visleak and ``load_dataset`` know classes.
    """
    (piece,) = part.pieces
    source = _data_set_of(piece.images)
    schema: pa.Schema = source.features.arrow_schema
    column = _column(piece.images, schema)
    name = place.below(part, f"{part.name}.parquet")
    with place.made(name).open("wb") as file, pq.ParquetWriter(file, schema) as writer:
        for done, table in _tables(source, piece, column):
            writer.write_table(table.cast(schema))
            place.progress(f"writing {part.name}", done, len(piece))
    classes = [name for name in schema.names if hasattr(source.features[name], "int2str")]
    options: Mapping[str, str] = piece.images.options
    if piece.images.labels is not None and not {"label", "label_name"} & set(schema.names):
        options = {"label": classes[0], **options}
    return OutputSource(name, options=options, renamed=True)


def _data_set_of(images: ImageSet) -> Any:
    source = load(Request.at(images.source))
    if not hasattr(source, "__len__"):
        raise UsageError(
            f"set {images.name!r} is streamed and cannot be written; open it without"
            " ?streaming=yes, or write the list of ids with --format manifest"
        )
    return source.with_format("arrow")


def _column(images: ImageSet, schema: pa.Schema) -> str:
    """Return the column with the images, as the set was opened.

    Raises:
        UsageError: it holds no encoded images.
    """
    wanted = locate(images.source).options.get("image")
    known = schema if wanted is None else pa.schema([schema.field(wanted)])
    found = image_column(known)
    if found is None:
        raise UsageError(
            f"set {images.name!r}: {images.source} holds arrays and no encoded images; write the"
            " list of ids with --format manifest"
        )
    return found


def _tables(source: Any, piece: Selection, column: str) -> Iterator[tuple[int, pa.Table]]:
    """Yield the kept rows with their images put in, wherever those were stored."""
    images = piece.stored()
    for start in range(0, len(piece), ROWS):
        places = piece.keep[start : start + ROWS].tolist()
        table = source[places]
        stored = dict(zip(range(len(places)), images, strict=False))
        yield start + len(places), with_images(table, stored, column)
