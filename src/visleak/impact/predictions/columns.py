"""Columns of Arrow as text and as numbers, and untrusted names in messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import VisleakError
from visleak.impact.benchmark import Benchmark
from visleak.quantities import some
from visleak.records import Bool, Float64, Int64

#: Texts for "no value", in lower case; what other programs write into empty cells.
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
    """Return a column as one array without a dictionary; Arrow returns large ones in pieces."""
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else column.combine_chunks()
    kind = column.type
    return column.cast(kind.value_type) if pa.types.is_dictionary(kind) else column


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of a type is text, in any of the ways Arrow stores it."""
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    types = ("string", "large_string", "binary", "large_binary", "null", "string_view")
    return str(kind) in types


def is_number(kind: pa.DataType) -> bool:
    """Whether a column of a type holds numbers, or true and false."""
    if pa.types.is_dictionary(kind):
        return is_number(kind.value_type)
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(test(kind) for test in tests)


def text_of(column: pa.Array, where: str) -> pa.StringArray:
    """Return a column as text: whole numbers in decimal, whatever their type; nothing as null.

    >>> text_of(pa.array([1.0, None, 12.0]), "column `id`").to_pylist()
    ['1', None, '12']
    """
    column = joined(column)
    if pa.types.is_floating(column.type):
        column = _whole(column, where)
    if not (is_text(column.type) or is_number(column.type)):
        raise VisleakError(f"{where} must hold text or whole numbers; its type is {column.type}")
    try:
        text = column.cast(pa.string())
        text.validate(full=True)
    except pa.ArrowInvalid as error:
        raise VisleakError(f"{where} of type {column.type} is not text in UTF-8") from error
    return pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)


def _whole(column: pa.Array, where: str) -> pa.Array:
    """Return floats as integers; pandas stores integers so where one is missing."""
    values = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    missing = np.isnan(values)
    wrong = ~missing & ((values != np.trunc(values)) | (np.abs(values) > 2**53))
    if wrong.any():
        row = int(wrong.argmax())
        raise VisleakError(
            f"{where} must hold text or whole numbers; row {row} holds {values[row]}"
        )
    return pa.array(np.where(missing, 0, values).astype(np.int64), mask=missing)


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


# -- matching the ids of a prediction file to the images of a test set ----------------------------


COVERAGE: Final = 0.95  # share of the images that must have a prediction, unless less is allowed
_SAMPLE: Final = 10_000  # ids of a file that are compared in other spellings to explain a mismatch


@dataclass(frozen=True)
class Match:
    """Rows of a file and their images."""

    rows: Int64  # (m,): rows whose id is one of the benchmark's, ascending
    images: Int64  # (m,): position of the image of each
    unknown: int  # rows whose id the benchmark lacks


def match(ids: pa.StringArray, benchmark: Benchmark, path: str) -> Match:
    """Match the ids of a file to the images of a benchmark; the order of rows is ignored."""
    place = pc.index_in(ids, value_set=benchmark.ids)
    known = place.is_valid().to_numpy(zero_copy_only=False)
    if not known.any():
        of = f"set {quoted(benchmark.name)}"
        theirs = f"{of} has {quoted(benchmark.ids[0])}" if len(benchmark) else f"{of} has none"
        raise VisleakError(
            f"{path}: none of its ids is one of {of} ({len(ids):,} and {len(benchmark):,} ids): it"
            f" has {quoted(ids[0])}, {theirs}; {_hint(ids, benchmark) or _ADVICE}"
        )
    rows = np.flatnonzero(known)
    images = place.filter(place.is_valid()).to_numpy().astype(np.int64)
    return Match(rows, images, len(ids) - len(rows))


_ADVICE: Final = "ids must be those of the audit (column `id` of its images.parquet)"


def unknown_note(found: Match, ids: pa.StringArray, benchmark: Benchmark) -> Iterator[str]:
    """Yield a note about predictions whose ids the benchmark lacks."""
    if not found.unknown:
        return
    lost = np.ones(len(ids), dtype=np.bool_)
    lost[found.rows] = False
    example = quoted(ids[int(lost.argmax())])
    share = found.unknown / len(ids)
    most = "most of the file is about other images: " if share > 0.5 else ""
    yield (
        f"{most}{found.unknown:,} of its {len(ids):,} predictions ({100 * share:.1f} %) are not for"
        f" a readable image of set {quoted(benchmark.name)} and are ignored, such as {example}"
    )


def coverage_note(
    answered: Bool, found: Match, ids: pa.StringArray, benchmark: Benchmark, path: str, allow: bool
) -> Iterator[str]:
    """Yield how many images have no prediction; ``answered`` (n,) is by image of the benchmark."""
    total, count = len(benchmark), int(answered.sum())
    if count == total:
        return
    absent = total - len(found.rows)
    empty = total - count - absent
    text = (
        f"{count:,} of the {total:,} readable images of set {quoted(benchmark.name)} have a"
        f" prediction ({_percent(count, total)} %); not in the file: {absent:,}, without a value:"
        f" {empty:,}, such as {quoted(benchmark.ids[int(answered.argmin())])}"
    )
    if count >= COVERAGE * total:
        yield f"{text}; the others are ignored"
        return
    if not allow or not count:
        hint = _hint(ids, benchmark, len(found.rows))
        raise VisleakError(
            f"{path}: only {text}; {100 * COVERAGE:.0f} % are needed:"
            f" {f'{hint}; or ' if hint else ''}complete the file, or accept it with"
            " --allow-partial"
        )
    yield f"only {text}; scores, gains and leaks are those of the images with a prediction"


def _percent(part: int, whole: int) -> str:
    """Return a share in percent, rounded down, so that too few never looks enough."""
    return f"{np.floor(1000 * part / whole) / 10:.1f}"


def _slashes(ids: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(pc.replace_substring(ids, "\\", "/"), r"^(\./|/)+", "")


def _bare(ids: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(_slashes(ids), r"^.*/", "")


def _stem(ids: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(ids, r"\.[A-Za-z0-9]{1,5}$", "")


def _plain_number(ids: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(
        pc.replace_substring_regex(ids, r"^([0-9]+)\.0+$", r"\1"), r"^0+([0-9]+)$", r"\1"
    )


#: Spellings of the ids of both sides in which they may agree; what changes least comes first.
_READINGS: Final[tuple[tuple[str, Callable[[pa.Array], pa.Array]], ...]] = (
    ("without spaces around them", pc.utf8_trim_whitespace),
    ("with `/` between folders and without `./` before them", _slashes),
    ("without regard to case", pc.utf8_lower),
    ("without leading zeros and `.0`", _plain_number),
    ("without their folders", _bare),
    ("without their suffixes", _stem),
    ("without folders and suffixes", lambda ids: _stem(_bare(ids))),
)


def _hint(ids: pa.StringArray, benchmark: Benchmark, matched: int = 0) -> str:
    """Return the likely reason why ids do not match, or an empty text."""
    if not len(benchmark):
        return ""
    sample = ids[:_SAMPLE]
    known = int(pc.sum(pc.is_in(sample, value_set=benchmark.ids)).as_py()) if matched else 0
    for name, reading in _READINGS:
        agree = pc.sum(pc.is_in(reading(sample), value_set=reading(benchmark.ids))).as_py()
        if agree > known and 2 * agree >= len(sample):
            return f"ids agree {name}: write them as the audit has them"
    mine, theirs = _are_rows(ids), _are_rows(benchmark.ids)
    if mine and not theirs and not matched:
        return "its ids look like row numbers; write the ids that the audit has instead"
    if theirs and not mine and not matched:
        return "the audit uses row numbers as ids of these images; write those instead"
    return ""


def _are_rows(ids: pa.StringArray) -> bool:
    """Whether ids are whole numbers from 0 or 1 on, one per row, in any order."""
    if not pc.all(pc.match_substring_regex(ids, r"^(0|[1-9][0-9]{0,9})$")).as_py():
        return False
    ends = pc.min_max(ids.cast(pa.int64()))
    low, high = ends["min"].as_py(), ends["max"].as_py()
    return low in (0, 1) and high - low + 1 == len(ids)
