"""Prediction files as CSV, Parquet or npz: each reader returns one table, which is checked once.

Values per image are columns of Arrow. Lists per image (class scores, ranked predictions) may be
larger than memory and are read in blocks. Nothing is ever unpickled.
"""

from __future__ import annotations

import csv
import json
import lzma
import os
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from visleak.delimited import arrow_encoding, dialect_of, opened_table
from visleak.errors import UsageError, VisleakError
from visleak.formats.arrays import Header, npy_header
from visleak.quantities import some
from visleak.records import Bool, Float64, Refused
from visleak.storage import csv_text

#: Texts for "no value", in lower case.
NOTHING: Final = ("", "na", "n/a", "nan", "null", "none")
_NUMBER: Final = r"^[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|inf|infinity)$"


def quoted(value: object, limit: int = 80) -> str:
    r"""Return an untrusted text for a message: in quotes, on one line, of bounded length.

    >>> quoted("a\nb"), quoted("x" * 9, limit=4)
    ("'a\\nb'", "'xxxx...'")
    """
    text = str(value)
    return repr(text if len(text) <= limit else f"{text[:limit]}...")


def listed(names: Iterable[str], limit: int = 12) -> str:
    """Return untrusted names for a message, up to a number of them.

    >>> listed(["ap", "iou", "loss"], limit=2)
    "'ap', 'iou' and 1 more"
    """
    return some([quoted(name) for name in names], limit)


def joined(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array without a dictionary; Arrow returns large ones in chunks."""
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return column.cast(_plain(column.type))


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of a type is text, in any of the ways Arrow stores it."""
    texts = ("string", "large_string", "binary", "large_binary", "null", "string_view")
    return str(_plain(kind)) in texts


def is_number(kind: pa.DataType) -> bool:
    """Whether a column of a type holds numbers, or true and false."""
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(test(_plain(kind)) for test in tests)


def text_of(column: pa.Array, where: str) -> pa.StringArray:
    """Return a column as text: whole numbers in decimal, whatever their type; nothing as null.

    >>> text_of(pa.array([1.0, None, 12.0]), "column `id`").to_pylist()
    ['1', None, '12']
    """
    column = joined(column)
    if pa.types.is_floating(column.type):
        # pandas stores integers as floats where one is missing
        values = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
        missing = np.isnan(values)
        wrong = ~missing & ((values != np.trunc(values)) | (np.abs(values) > 2**53))
        if wrong.any():
            row = int(wrong.argmax())
            raise VisleakError(
                f"{where} must hold text or whole numbers; row {row} holds {values[row]}"
            )
        column = pa.array(np.where(missing, 0, values).astype(np.int64), mask=missing)
    if not (is_text(column.type) or is_number(column.type)):
        raise VisleakError(f"{where} must hold text or whole numbers; its type is {column.type}")
    try:
        text = column.cast(pa.string())
        text.validate(full=True)
    except pa.ArrowInvalid as error:
        raise VisleakError(f"{where} of type {column.type} is not text in UTF-8") from error
    return pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)


def numbers_of(column: pa.Array) -> Float64 | int:
    """Return a column as numbers, NaN where it has none, or the first row that is not a number.

    >>> numbers_of(pa.array(["0.5", "NA", "true"])).tolist()
    [0.5, nan, 1.0]
    >>> numbers_of(pa.array(["0.5", "high"]))
    1
    """
    column = joined(column)
    if is_text(column.type):
        words = pc.utf8_lower(pc.utf8_trim_whitespace(text_of(column, "text")))
        for known, number in ((NOTHING, None), (("true",), "1"), (("false",), "0")):
            found = pc.is_in(words, value_set=pa.array(known, pa.string()))
            words = pc.if_else(found, pa.scalar(number, pa.string()), words)
        right = pc.fill_null(pc.match_substring_regex(words, _NUMBER), True)
        if not pc.all(right, min_count=0).as_py():
            return int(right.to_numpy(zero_copy_only=False).argmin())
        column = words
    values = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.asarray(values, dtype=np.float64)


def percentages_of(column: pa.Array) -> tuple[Float64, int] | None:
    """Return a column of percentages as shares, and the first row without a percent sign.

    The row is -1 where all that hold something have it; ``None`` where it holds anything else.

    >>> shares, odd = percentages_of(pa.array(["50%", None, "100 %"]))
    >>> shares.tolist(), odd
    ([0.5, nan, 1.0], -1)
    """
    if not is_text(column.type):
        return None
    words = pc.utf8_trim_whitespace(text_of(column, "text"))
    marked = pc.fill_null(pc.ends_with(words, "%"), False).to_numpy(zero_copy_only=False)
    values = numbers_of(pc.replace_substring_regex(words, r"\s*%$", ""))
    if isinstance(values, int) or not marked.any():
        return None
    odd = ~marked & ~np.isnan(values)
    return values / 100.0, int(odd.argmax()) if odd.any() else -1


#: Columns that may hold text; those of other names are metrics, or ignored.
TEXTS: Final = ("id", "label", "prediction", "correct")
LISTS: Final = ("scores", "predictions")  # columns that hold a list per image
SCORE: Final = "score:"  # before the name of a class, in the header of a CSV with class scores

BLOCK: Final = 1 << 20  # values of lists read at a time
_BYTES: Final = 8 << 20  # bytes of CSV parsed at a time, which no line may exceed

#: Bytes that npz arrays read whole may have together: a million ids of 200 letters are 0.8 GB.
LARGEST: Final = 2 << 30

_DAMAGE: Final = (
    *(Refused, OSError, ValueError, EOFError, RuntimeError, pa.ArrowException, csv.Error),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
)

#: Reads lists from the first row on, as Arrow arrays of lists.
Blocks = Callable[[], Iterator[pa.Array]]


@dataclass(frozen=True)
class PredictionFile:
    """A prediction file, row by row."""

    path: str  # as given
    # one value per image, as stored; a CSV has text only. `id` is text, unique, without nulls
    columns: Mapping[str, pa.Array]
    lists: Mapping[str, Blocks] = field(default_factory=dict)  # readers of the columns in LISTS
    classes: pa.StringArray | None = None  # of the columns of `scores`, if named
    unused: tuple[str, ...] = ()  # columns of a type that cannot be used

    @property
    def ids(self) -> pa.StringArray:
        """The ids of the images, (n,)."""
        return self.columns["id"]

    def ranked(self) -> Iterator[pa.ListArray]:
        """Yield lists of class names as text, best first, in blocks of rows."""
        for lists in self.lists["predictions"]():
            texts = text_of(lists.flatten(), f"{self.path}: column `predictions`")
            lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
            offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
            yield pa.ListArray.from_arrays(pa.array(offsets), texts)

    def scores(self) -> Iterator[tuple[Float64, Bool]]:
        """Yield class scores in blocks of rows.

        Yields values (rows, classes), NaN where there is no number, and whether a row has scores.
        """
        width, start = 0, 0
        for lists in self.lists["scores"]():
            lengths = pc.fill_null(pc.list_value_length(lists), -1).to_numpy(zero_copy_only=False)
            known = lengths >= 0
            if known.any():
                width = width or int(lengths[known][0])
            odd = known & (lengths != width)
            if odd.any():
                row = int(odd.argmax())
                raise VisleakError(
                    f"{self.path}: row {start + row} has {lengths[row]:,} class scores, others"
                    f" have {width:,}; each image needs a score for each class"
                )
            flat = lists.flatten().cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
            values = np.full((len(lists), width), np.nan)
            values[known] = flat.reshape(-1, width) if width else 0
            yield values, known
            start += len(lists)


def read_predictions(path: str | os.PathLike[str]) -> PredictionFile:
    """Read a prediction file; its lists are only read when they are used."""
    place = Path(path)
    ending = place.suffix.lower()
    if ending not in READERS:
        raise UsageError(f"{place}: predictions are read from {', '.join(READERS)} files")
    if not place.is_file():
        raise UsageError(f"{place}: there is no such prediction file")
    kind, reader = READERS[ending]
    with _damage(place, kind):
        found = reader(place)
        ids = _ids(place, found)

    def guarded(blocks: Blocks) -> Iterator[pa.Array]:
        with _damage(place, kind):
            yield from blocks()

    lists = {name: partial(guarded, blocks) for name, blocks in found.lists.items()}
    return replace(found, columns={**found.columns, "id": ids}, lists=lists)


def _ids(place: Path, found: PredictionFile) -> pa.StringArray:
    """Return the ids as text; refuse missing and repeated ones."""
    if "id" in found.unused:
        raise VisleakError(f"{place}: `id` must be a column of text or of whole numbers")
    if "id" not in found.columns:
        names = [*found.columns, *found.lists, *found.unused]
        there = listed(names) or "none"
        marks = {".csv": "commas", ".tsv": "tabs"}
        mark = marks.get(place.suffix.lower())
        if mark and len(names) == 1 and any(each in names[0] for each in ",;:\t|"):
            there += f": separate the columns of a {place.suffix} by {mark}"
        raise VisleakError(f"{place} has no column `id` with the ids of the images; it has {there}")
    ids = text_of(found.columns["id"], f"{place}: column `id`")
    if not len(ids):
        raise VisleakError(f"{place} holds no predictions: it has columns, but no rows")
    if ids.null_count:
        rows = np.flatnonzero(ids.is_null().to_numpy(zero_copy_only=False))
        which = f"row {rows[0]}" if len(rows) == 1 else f"rows {rows[0]} and {rows[1]}"
        raise VisleakError(f"{place}: no id in {which}; every prediction needs the id of its image")
    counts = pc.value_counts(ids)
    repeated = counts.filter(pc.greater(counts.field("counts"), 1))
    if len(repeated):
        twice = repeated.field("values")[0]
        first, second, *_ = np.flatnonzero(pc.equal(ids, twice).to_numpy(zero_copy_only=False))
        raise VisleakError(
            f"{place}: id {quoted(twice)} occurs more than once, in rows {first} and {second};"
            " keep one prediction per image"
        )
    return ids


@contextmanager
def _damage(place: Path, kind: str) -> Iterator[None]:
    """Turn what readers raise into one line."""
    try:
        yield
    except _DAMAGE as error:
        reason = " ".join(str(error).split())[:200]
        unknown = "UTF8" in reason or isinstance(error, UnicodeDecodeError)
        advice = "; save it as UTF-8" if unknown and "save it as" not in reason else ""
        raise VisleakError(f"{place} cannot be read as {kind}: {reason}{advice}") from error


def _unique(path: Path, names: Sequence[str]) -> None:
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise VisleakError(f"{path} has more than one column {quoted(name)}; keep one")


def read_csv(path: Path) -> PredictionFile:
    """Return the columns of a CSV file as text, empty cells as null, and its class scores."""
    with opened_table(path) as (lines, delimiter):
        header = next(csv.reader(lines, delimiter=delimiter), [])
    if not header:
        raise VisleakError(f"{path} is empty: a prediction file begins with a header")
    _unique(path, [csv_text(name) for name in header])
    plain = [name for name in header if not name.startswith(SCORE)]
    scored = [name for name in header if name.startswith(SCORE)]
    columns: dict[str, pa.Array] = {}
    if plain:
        with _csv(path, plain, pa.string()) as reader:
            table = reader.read_all()
        columns = {csv_text(name): _unguarded(table[name]) for name in plain}
    if not scored:
        return PredictionFile(str(path), columns)
    classes = pa.array([name.removeprefix(SCORE) for name in scored], pa.string())
    lists = {"scores": partial(_csv_scores, path, scored)}
    return PredictionFile(str(path), columns, lists, classes)


def _csv(path: Path, names: Sequence[str], kind: pa.DataType) -> pa.csv.CSVStreamingReader:
    with path.open("rb") as file:
        dialect = dialect_of(file, path.name)
    return pa.csv.open_csv(
        path,
        read_options=pa.csv.ReadOptions(block_size=_BYTES, encoding=arrow_encoding(dialect)),
        parse_options=pa.csv.ParseOptions(delimiter=dialect.delimiter, newlines_in_values=True),
        convert_options=pa.csv.ConvertOptions(
            include_columns=names,
            column_types=dict.fromkeys(names, kind),
            null_values=[""],
            strings_can_be_null=True,
        ),
    )


def _csv_scores(path: Path, names: Sequence[str]) -> Iterator[pa.Array]:
    with _csv(path, names, pa.float64()) as reader:
        for batch in reader:
            columns = [column.to_numpy(zero_copy_only=False) for column in batch.columns]
            missing = sum(column.is_null().to_numpy(zero_copy_only=False) for column in batch)
            values = np.stack(columns, axis=1)
            yield _rows(values, missing == len(names))


def _rows(values: npt.NDArray[np.generic], missing: Bool | None = None) -> pa.Array:
    """Return a matrix as lists, null where a row is missing."""
    flat = joined(pa.array(np.ascontiguousarray(values).reshape(-1)))
    # lists of a fixed size cannot be empty
    offsets = pa.array(np.arange(len(values) + 1, dtype=np.int32) * values.shape[1])
    mask = None if missing is None else pa.array(missing)
    return pa.ListArray.from_arrays(offsets, flat, mask=mask)


def _unguarded(column: pa.ChunkedArray) -> pa.StringArray:
    """Return text without the quotes that keep spreadsheets from running it."""
    text = joined(column)
    guarded = pc.fill_null(pc.starts_with(text, "'"), False)
    if not pc.any(guarded).as_py():
        return text
    plain = [csv_text(cell) for cell in text.filter(guarded).to_pylist()]
    return pc.replace_with_mask(text, guarded, pa.array(plain, pa.string()))


def read_parquet(path: Path) -> PredictionFile:
    """Return the plain columns of a Parquet file and its lists."""
    with pq.ParquetFile(path) as file:
        schema = file.schema_arrow
        if not schema.names:
            raise VisleakError(f"{path} has no columns")
        _unique(path, schema.names)
        plain = [
            each.name
            for each in schema
            if is_number(each.type) or (each.name in TEXTS and is_text(each.type))
        ]
        # a name with a dot in it also reads part of a struct, which select leaves out
        table = file.read(columns=plain).select(plain)
    lists: dict[str, Blocks] = {}
    for name in LISTS:
        kind = schema.field(name).type if name in schema.names else None
        # maps and views of lists have a value type too, and are not read
        if kind is not None and str(kind).startswith(("list<", "large_list<", "fixed_size_list<")):
            inner = kind.value_type
            if is_number(inner) or (name == "predictions" and is_text(inner)):
                lists[name] = partial(_parquet_lists, path, name)
    unused = tuple(name for name in schema.names if name not in {*plain, *lists})
    classes = _parquet_classes(path, schema) if "scores" in lists else None
    columns = {name: joined(table[name]) for name in plain}
    return PredictionFile(str(path), columns, lists, classes, unused)


def _parquet_classes(path: Path, schema: pa.Schema) -> pa.StringArray | None:
    """Return the class names in the metadata under ``classes``, a JSON list."""
    if (stored := (schema.metadata or {}).get(b"classes")) is None:
        return None
    try:
        names = json.loads(stored)
        if not isinstance(names, list) or not names:
            raise ValueError("it must be a list")
        return text_of(pa.array(names), "classes")
    except (ValueError, TypeError, RecursionError, VisleakError) as error:
        raise VisleakError(
            f"{path}: its metadata key `classes` must be a JSON list of class names"
        ) from error


def _parquet_lists(path: Path, name: str) -> Iterator[pa.Array]:
    """Yield a column of lists in blocks of about :data:`BLOCK` values."""
    with pq.ParquetFile(path, buffer_size=1 << 20) as file:
        if (first := next(file.iter_batches(64, columns=[name]), None)) is None:
            return
        longest = pc.max(pc.list_value_length(first.column(name))).as_py() or 1
        for batch in file.iter_batches(max(1, BLOCK // longest), columns=[name]):
            yield batch.column(name)


def read_npz(path: Path) -> PredictionFile:
    """Return the plain columns of an npz archive, its lists, and the rest."""
    with zipfile.ZipFile(path) as archive:
        found = _headers(path, archive)
        rows = _npz_rows(path, found)
        known = {name for name, each in found.items() if each.dtype.kind in "biufUS"}
        plain = [n for n in found if n in known - {"classes"} and found[n].shape == rows]
        matrices = {n for n in known if len(found[n].shape) == 2 and found[n].shape[:1] == rows}
        whole = {*plain, *({"classes", "predictions"} & known)}
        if "scores" in matrices and found["scores"].fortran:
            whole.add("scores")
        sizes = {name: found[name].size for name in whole}
        if (total := sum(sizes.values())) > LARGEST:
            raise VisleakError(
                f"{path}: its arrays claim {total:,} bytes, array"
                f" {quoted(max(sizes, key=sizes.__getitem__))} most of them; at most {LARGEST:,}"
                " are read (use Parquet for more)"
            )
        columns = {name: joined(pa.array(_read(archive, name))) for name in plain}
        lists: dict[str, Blocks] = {}
        classes = None
        if "scores" in matrices and found["scores"].dtype.kind in "iuf":
            streamed = partial(_npz_scores, path)
            fortran = found["scores"].fortran
            lists["scores"] = partial(_slices, _read(archive, "scores")) if fortran else streamed
            if "classes" in known:
                names = _read(archive, "classes")
                where = f"{path}: array `classes`"
                if names.ndim != 1:
                    raise VisleakError(
                        f"{where} must be one name per class; its shape is {names.shape}"
                    )
                classes = text_of(pa.array(names), where)
        if "predictions" in matrices:
            lists["predictions"] = partial(_slices, _read(archive, "predictions"))
    used = {*columns, *lists, *(["classes"] if "scores" in lists else [])}
    unused = tuple(name for name in found if name not in used)
    return PredictionFile(str(path), columns, lists, classes, unused)


def _headers(path: Path, archive: zipfile.ZipFile) -> dict[str, Header]:
    """Return the header of each array; refuse what could hide more than data."""
    found = {}
    for info in archive.infolist():
        name = info.filename.removesuffix(".npy")
        if name == info.filename or name in found:
            raise VisleakError(
                f"{path}: {quoted(info.filename)} is not an array of an npz archive, or a second"
                " one of this name"
            )
        with archive.open(info) as member:
            header = npy_header(member)
            rest = info.file_size - member.tell()
        if header.dtype.hasobject:
            raise VisleakError(
                f"{path}: array {quoted(name)} holds Python objects, which are never loaded; save"
                " it as numbers or text, such as np.array(ids, dtype=str)"
            )
        if header.size != rest:
            raise VisleakError(
                f"{path}: array {quoted(name)} claims {header.size:,} bytes and has {rest:,}; the"
                " file is damaged"
            )
        found[name] = header
    return found


def _npz_rows(path: Path, found: Mapping[str, Header]) -> tuple[int, ...]:
    """Return how many ids there are; refuse other lengths of what must have as many."""
    if "id" not in found:
        return ()
    rows = found["id"].shape
    if len(rows) != 1:
        raise VisleakError(f"{path}: array `id` must be one id per image; its shape is {rows}")
    for name in (*TEXTS, *LISTS):
        if name in found and found[name].shape[:1] != rows:
            raise VisleakError(
                f"{path}: array {quoted(name)} of shape {found[name].shape} must have a row for"
                f" each of the {rows[0]:,} ids"
            )
    return rows


def _read(archive: zipfile.ZipFile, name: str) -> npt.NDArray[np.generic]:
    with archive.open(f"{name}.npy") as member:
        return _native(np.lib.format.read_array(member, allow_pickle=False))


def _native(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _npz_scores(path: Path) -> Iterator[pa.Array]:
    """Yield rows of class scores without ever holding all of them."""
    with zipfile.ZipFile(path) as archive, archive.open("scores.npy") as member:
        header = npy_header(member)
        rows, width = header.shape
        step = max(1, BLOCK // max(1, width))
        for start in range(0, rows, step):
            count = min(step, rows - start)
            data = member.read(count * width * header.dtype.itemsize)
            yield _rows(_native(np.frombuffer(data, header.dtype).reshape(count, width)))


def _slices(matrix: npt.NDArray[np.generic]) -> Iterator[pa.Array]:
    step = max(1, BLOCK // max(1, matrix.shape[1]))
    for start in range(0, len(matrix), step):
        yield _rows(matrix[start : start + step])


#: Endings of the names of prediction files -> their format and its reader.
READERS: Final = {
    **dict.fromkeys((".csv", ".tsv"), ("CSV", read_csv)),
    ".parquet": ("Parquet", read_parquet),
    ".npz": ("npz", read_npz),
}
