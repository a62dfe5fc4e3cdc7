"""Columns of Arrow as text and as numbers, and untrusted names in messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import VisleakError
from visleak.records import Float64

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
    every = list(names)
    rest = f" and {len(every) - limit:,} more" if len(every) > limit else ""
    return ", ".join(quoted(name) for name in every[:limit]) + rest


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
