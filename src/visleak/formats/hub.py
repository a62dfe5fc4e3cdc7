"""Hugging Face data sets: objects of the ``datasets`` library, and ``hf:NAME#split``.

Images are taken as they are stored: encoded bytes where there are any. A streamed data set is only
read forward. Code that comes with a data set is never run.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from visleak.errors import UsageError, VisleakError, one_line
from visleak.formats.files import StatefulOpener, file_stamp, read_file
from visleak.formats.memory import rgb_of
from visleak.formats.remote import is_address, redacted
from visleak.formats.request import (
    Request,
    canonical_split,
    describe,
    row_numbers,
    text_column,
    wanted_columns,
    writable,
)
from visleak.formats.sources import locate
from visleak.formats.tables import image_column, with_images
from visleak.formats.writing import Destination, OutputPart, OutputSource
from visleak.lazy import library
from visleak.records import Bytes8, ImageSet, Unreadable

if TYPE_CHECKING:
    import datasets

BATCH: Final = 64  # rows read at a time
ROWS: Final = 100  # rows per row group: what the library's own writer takes for images
OPTIONS: Final = ("config", "revision", "image", "streaming")  # what may follow ? in hf:NAME?..


def open_object(source: object, request: Request) -> ImageSet:
    """Make a set of a ``datasets.Dataset`` or ``IterableDataset`` that a program holds."""
    if isinstance(source, dict):
        splits = ", ".join(map(str, source))
        raise UsageError(f"source holds the splits {splits}; give one of them: source['SPLIT']")
    return _set_of(source, request, remote=False)


def open_hub(request: Request) -> ImageSet:
    """List a data set of the Hugging Face hub or one in a folder: ``hf:NAME?config=C#split``.

    A folder may be one of ``save_to_disk``, or one that ``load_dataset`` understands. The hub is
    asked only where NAME is not a folder. ``?image=COLUMN`` chooses among image columns,
    ``?revision=`` a version, ``?streaming=yes`` reads without a copy on this machine.
    """
    return _set_of(_loaded(request), request, remote=not Path(request.place).exists())


def write_hub(part: OutputPart, place: Destination) -> OutputSource:
    """Write a part as ``PART.parquet`` with all columns and the images themselves.

    The file declares the features of its columns, so that both visleak and ``load_dataset`` read
    class names.
    """
    (piece,) = part.pieces
    images = piece.images
    source = _loaded(Request.at(images.source))
    if not hasattr(source, "__len__"):
        raise UsageError(
            f"set {images.name!r} is streamed and cannot be written; open it without"
            " ?streaming=yes, or write the list of ids with --format manifest"
        )
    source = source.with_format("arrow")
    schema: pa.Schema = source.features.arrow_schema
    wanted = locate(images.source).options.get("image")
    column = image_column(schema if wanted is None else pa.schema([schema.field(wanted)]))
    if column is None:
        raise UsageError(
            f"set {images.name!r}: {images.source} holds arrays and not encoded images; write the"
            " list of ids with --format manifest"
        )
    name, stored = place.below(part, f"{part.name}.parquet"), piece.stored()
    with place.made(name).open("wb") as file, pq.ParquetWriter(file, schema) as writer:
        for start in range(0, len(piece), ROWS):
            rows = piece.keep[start : start + ROWS].tolist()
            contents = dict(zip(range(len(rows)), stored, strict=False))
            writer.write_table(with_images(source[rows], contents, column).cast(schema))
            place.progress(f"writing {part.name}", start + len(rows), len(piece))
    options = dict(images.options)
    if images.labels is not None and not {"label", "label_name"} & set(schema.names):
        classes = (name for name in schema.names if _has_classes(source.features, name))
        options = {"label": next(classes), **options}
    return OutputSource(name, options=options, renamed=True)


@dataclass(frozen=True)
class HubOpener:
    """Reads the image column of a data set with random access."""

    rows: datasets.Dataset  # with that column alone, in Arrow format
    column: str
    remote: bool  # the data set may name images by address, for it comes from the hub
    stamp: str | None  # text that changes when the data set does, None where that is unknown

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield the images at the positions, see :class:`visleak.records.Opener`."""
        for start in range(0, len(positions), BATCH):
            rows = [int(position) for position in positions[start : start + BATCH]]
            try:
                values = self.rows[rows][self.column].to_pylist()
            except Exception as error:  # each storage has exceptions of its own
                values = [Unreadable("io-error", redacted(one_line(error)))] * len(rows)
            yield from (_stored_image(value, self.remote) for value in values)


@dataclass
class StreamOpener(StatefulOpener):
    """Reads a data set that only streams.

    Positions ahead are reached by reading on; for an earlier position, the stream starts over. So
    one pass of ascending reads is one pass over the stream.
    """

    stream: datasets.IterableDataset  # with the image column alone, undecoded
    column: str
    stamp: str | None = None  # always None: whether a stream has changed is unknown
    _items: Iterator[dict[str, object]] | None = field(default=None, repr=False, compare=False)
    _next: int = field(default=0, repr=False, compare=False)

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield the images at the positions, see :class:`visleak.records.Opener`."""
        for position in map(int, positions):
            try:
                if self._items is None or position < self._next:
                    self._items, self._next = iter(self.stream), 0
                item = next(itertools.islice(self._items, position - self._next, None))
                self._next = position + 1
            except StopIteration:
                self._items = None
                yield Unreadable("missing", "the stream ends before this image")
            except Exception as error:  # each storage has exceptions of its own
                self._items = None
                yield Unreadable("io-error", redacted(one_line(error)))
            else:
                yield _stored_image(item[self.column], remote=True)


def _stored_image(value: object, remote: bool) -> bytes | Bytes8 | Unreadable:
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
    from datasets.utils.file_utils import xopen

    try:
        with xopen(path, "rb") as file:
            return bytes(file.read())
    except FileNotFoundError:
        return Unreadable("missing", "no such file")
    except Exception as error:  # each storage has exceptions of its own
        return Unreadable("io-error", redacted(one_line(error)))


def _loaded(request: Request) -> datasets.Dataset | datasets.IterableDataset:
    """Return the split that a source names, as an object of the library."""
    request.refuse_options(*OPTIONS)
    datasets = library("datasets", "hf", f"source {request.text!r}")
    place, options = Path(request.place), request.options
    try:
        with _quiet(datasets):
            if (place / "state.json").is_file() or (place / "dataset_dict.json").is_file():
                loaded = datasets.load_from_disk(str(place))
            else:
                loaded = datasets.load_dataset(
                    str(place) if place.exists() else request.place,
                    options.get("config"),
                    revision=options.get("revision"),
                    streaming=options.get("streaming", "no") in ("yes", "true", "1"),
                )
    except Exception as error:  # the library, the network and each file format have their own
        said = redacted(one_line(error))
        if place.exists():
            what = f"{request.place} cannot be read as a data set: {said}"
        else:
            hub = redacted(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
            what = (
                f"{request.place} is not a folder here and could not be loaded from the hub at"
                f" {hub} ({said}); check the name, sign in with `hf auth login` if it is private,"
                " or download it and give its folder"
            )
        raise VisleakError(f"source {request.text!r}: {what}") from error
    return _split_of(loaded, request) if isinstance(loaded, dict) else loaded


@contextlib.contextmanager
def _quiet(datasets: ModuleType) -> Iterator[None]:
    """Silence the libraries' reports of single attempts; the error is reported once, at the end."""
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


def _split_of(splits: datasets.DatasetDict, request: Request) -> datasets.Dataset:
    names, wanted = ", ".join(map(str, splits)), request.split
    if not wanted and len(splits) == 1:
        return next(iter(splits.values()))
    if not wanted:
        raise request.refusal(f"add #SPLIT, one of {names}")
    if wanted in splits:
        return splits[wanted]
    for name, split in splits.items():
        if canonical_split(str(name)) == canonical_split(wanted):
            return split
    raise request.refusal(f"no split {wanted!r}; there are {names}")


def _set_of(source: datasets.Dataset, request: Request, remote: bool) -> ImageSet:
    """Return the set: ids are row numbers unless a column was chosen."""
    streamed, shown = not hasattr(source, "__len__"), request.text or "the data set"
    if streamed and source.features is None:
        try:
            source = source._resolve_features()
        except Exception as error:  # each storage has exceptions of its own
            raise VisleakError(
                f"{shown} does not declare its columns, and its first rows do not tell"
                f" ({redacted(one_line(error))}); make it with features=Features(..)"
            ) from error
    features = source.features
    schema: pa.Schema | None = None if features is None else features.arrow_schema
    column = _image_column(schema, request, shown)
    others = [name for name in features if name != column]
    classes = [name for name in others if _has_classes(features, name)]
    names = wanted_columns(others, request)
    label = request.label
    if label is None and not {"label", "label_name"} & set(others) and len(classes) == 1:
        label = classes[0]  # the only column of class names
        names = list(dict.fromkeys([*names, label]))
    opener: HubOpener | StreamOpener
    if streamed:
        table, opener = _streamed(source, column, names, shown)
    else:
        rows = source.with_format("arrow")
        table = rows.select_columns(names)[:] if names else pa.table({"row": range(len(source))})
        opener = HubOpener(rows.select_columns([column]), column, remote, _stamp(source))
    if not table.num_rows:
        request.refuse_empty("its stream is empty" if streamed else "it has no rows")
    numbers = row_numbers(table.num_rows)
    class_names = {
        name: [writable(str(label)) for label in features[name].names]
        for name in classes
        if name in names
    }
    _, columns = describe(table, replace(request, label=label), numbers, class_names)
    ids = numbers if request.id is None else text_column(table[request.id], request.id)
    locators = numbers
    if request.text:
        place = f"{request.shown}#{request.split}" if request.split else request.shown
        locators = pc.binary_join_element_wise(f"hf:{place}", numbers, "!").cast(pa.string())
    return request.image_set(ids, locators, opener, **columns)


def _has_classes(features: datasets.Features, name: str) -> bool:
    return hasattr(features[name], "int2str")


def _image_column(schema: pa.Schema | None, request: Request, shown: str) -> str:
    has = ", ".join(map(writable, [] if schema is None else schema.names)) or "none"
    wanted = request.options.get("image")
    if wanted is not None:
        if schema is None or wanted not in schema.names:
            raise UsageError(f"image {wanted!r}: {shown} has no such column; it has {has}")
        return wanted
    found = None if schema is None else image_column(schema)
    if found is None:
        raise VisleakError(f"{shown} has no column with images; its columns are {has}")
    return found.removesuffix(".bytes")


def _streamed(
    source: datasets.IterableDataset, column: str, names: Sequence[str], shown: str
) -> tuple[pa.Table, StreamOpener]:
    """Return the columns of a data set that only streams, in one pass, and an opener."""
    import datasets

    if isinstance(source.features[column], datasets.Image):
        source = source.cast_column(column, datasets.Image(decode=False))
    schema = source.features.arrow_schema
    try:
        rows = list(source.select_columns(names)) if names else [{} for _ in source]
    except Exception as error:  # each storage has exceptions of its own
        raise VisleakError(f"{shown} cannot be listed: {redacted(one_line(error))}") from error
    columns = {
        name: pa.array([row[name] for row in rows], schema.field(name).type) for name in names
    }
    table = pa.table(columns or {"row": range(len(rows))})
    return table, StreamOpener(source.select_columns([column]), column)


def _stamp(source: datasets.Dataset) -> str | None:
    """Return the library's fingerprint of a data set, and size and time of its files."""
    mark = getattr(source, "_fingerprint", None)
    try:
        files = [file_stamp(file["filename"]) for file in source.cache_files] if mark else []
    except OSError:
        return None
    return " ".join([str(mark), *files]) if mark else None
