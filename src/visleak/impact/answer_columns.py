"""What a file of predictions holds, and its columns as text and as numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import VisleakError

Float64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]

#: Values of class scores, or entries of ranked lists, held at a time.
BLOCK: Final = 1 << 20

#: Columns that may hold text; those of other names are metrics, or nothing.
TEXTS: Final = ("id", "label", "prediction", "correct")

#: Words for "no value", small; what other programs write into empty cells.
NOTHING: Final = ("", "na", "n/a", "nan", "null", "none")

_NUMBER: Final = r"^[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|inf|infinity)$"


@dataclass(frozen=True)
class ClassScores:
    """A score for each class and image, read in blocks of rows.

    Attributes:
        classes: their names; ``None`` where the file does not say, so that they are called by
            their numbers.
        blocks: reads from the first row on: values (rows, classes), NaN where there is no number,
            and ``bool`` (rows,), whether the row is there at all.
    """

    classes: pa.StringArray | None
    blocks: Callable[[], Iterator[tuple[npt.NDArray[Any], Bool]]]


#: Reads lists of class names as text, best first, in blocks of rows.
Ranked = Callable[[], Iterator[pa.ListArray]]

#: What a reader finds: columns with one value an image, the two kinds of lists, and the names of
#: columns that nothing is made of.
Found = tuple[dict[str, pa.Array], ClassScores | None, Ranked | None, tuple[str, ...]]


@dataclass(frozen=True)
class Answers:
    """What a file of predictions holds, row by row.

    Attributes:
        path: the file as given.
        ids: Arrow string array (n,): no null, none twice.
        columns: the other columns with one value an image, as stored; a CSV has text only.
        scores: class scores, if it has any.
        ranked: ranked predictions, if it has any.
        unused: columns of a kind that nothing is made of.
    """

    path: str
    ids: pa.StringArray
    columns: Mapping[str, pa.Array]
    scores: ClassScores | None = None
    ranked: Ranked | None = None
    unused: tuple[str, ...] = ()


def quoted(value: object, limit: int = 80) -> str:
    r"""Return an untrusted text for a message: in quotes, on one line, of bounded length.

    >>> quoted("a\nb"), quoted("x" * 9, limit=4)
    ("'a\\nb'", "'xxxx...'")
    """
    text = str(value)
    return repr(text if len(text) <= limit else f"{text[:limit]}...")


def listed(names: Iterable[str], limit: int = 12) -> str:
    """Return untrusted names for a message, so many of them.

    >>> listed(["ap", "iou", "loss"], limit=2)
    "'ap', 'iou' and 1 more"
    """
    every = list(names)
    rest = f" and {len(every) - limit:,} more" if len(every) > limit else ""
    return ", ".join(quoted(name) for name in every[:limit]) + rest


def joined(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array; Arrow hands over large ones in pieces."""
    if isinstance(column, pa.ChunkedArray):
        return pa.concat_arrays(column.chunks) if column.num_chunks else column.combine_chunks()
    return column


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of a type is text, in any of the ways Arrow keeps it."""
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    tests = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_null,
    )
    # by name: older releases of Arrow have no test for it
    return any(test(kind) for test in tests) or str(kind) == "string_view"


def is_number(kind: pa.DataType) -> bool:
    """Whether a column of a type holds numbers, or yes and no."""
    if pa.types.is_dictionary(kind):
        return is_number(kind.value_type)
    tests = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_boolean,
        pa.types.is_decimal,
    )
    return any(test(kind) for test in tests)


def text_of(column: pa.Array, where: str) -> pa.StringArray:
    """Return a column as text: whole numbers in decimal, whatever their type; nothing as null.

    >>> text_of(pa.array([1.0, None, 12.0]), "column `id`").to_pylist()
    ['1', None, '12']

    Args:
        column: of any type.
        where: what it is called in a message.

    Raises:
        VisleakError: it holds something else, such as 1.5.
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_floating(column.type):
        column = _whole(column, where)
    if not (is_text(column.type) or is_number(column.type)):
        raise VisleakError(f"{where} must hold text or whole numbers; its type is {column.type}")
    try:
        text = column.cast(pa.string())
        text.validate(full=True)
    except pa.ArrowInvalid as error:
        raise VisleakError(f"{where} of type {column.type} is no text in UTF-8") from error
    return pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)


def _whole(column: pa.Array, where: str) -> pa.Array:
    """Return numbers as whole ones; what pandas makes of whole numbers where one is missing."""
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
    """Return a column as numbers, NaN where it has none, or the first row that is no number.

    >>> numbers_of(pa.array(["0.5", "NA", "true"])).tolist()
    [0.5, nan, 1.0]
    >>> numbers_of(pa.array(["0.5", "high"]))
    1
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if is_text(column.type):
        words = pc.utf8_lower(pc.utf8_trim_whitespace(text_of(column, "text")))
        words = pc.if_else(_is_in(words, NOTHING), pa.scalar(None, pa.string()), words)
        words = pc.if_else(_is_in(words, ("true",)), "1", words)
        words = pc.if_else(_is_in(words, ("false",)), "0", words)
        right = pc.fill_null(pc.match_substring_regex(words, _NUMBER), True)
        wrong = ~np.asarray(right.to_numpy(zero_copy_only=False), dtype=bool)
        if wrong.any():
            return int(wrong.argmax())
        column = words
    values = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.asarray(values, dtype=np.float64)


def percentages_of(column: pa.Array) -> tuple[Float64, int] | None:
    """Return a column of percentages as shares, and the first row that has no sign of percent.

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


def _is_in(words: pa.Array, chosen: tuple[str, ...]) -> pa.Array:
    return pc.is_in(words, value_set=pa.array(chosen, pa.string()))
