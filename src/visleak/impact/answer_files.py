"""Files of predictions, of any kind that is read."""

from __future__ import annotations

import csv
import lzma
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from visleak.errors import UsageError, VisleakError
from visleak.impact.answer_columns import Answers, listed, quoted, text_of
from visleak.impact.answer_csv import read_csv
from visleak.impact.answer_npz import read_npz
from visleak.impact.answer_parquet import read_parquet

#: Endings of the names of files of predictions, and what they are.
SUFFIXES: Final = {".csv": "CSV", ".tsv": "CSV", ".parquet": "Parquet", ".npz": "npz"}

_READERS: Final = {"CSV": read_csv, "Parquet": read_parquet, "npz": read_npz}

_Block = TypeVar("_Block")

_DAMAGE: Final = (
    OSError,
    ValueError,
    EOFError,
    RuntimeError,
    pa.ArrowException,
    csv.Error,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
)


def read_answers(path: str | os.PathLike[str]) -> Answers:
    """Read a file of predictions; lists of scores and of classes only when they are asked for.

    Raises:
        UsageError: there is no such file, or it is of no kind that is read.
        VisleakError: it is damaged or empty, or its ids do not tell the images apart.
    """
    place = Path(path)
    kind = SUFFIXES.get(place.suffix.lower())
    if kind is None:
        raise UsageError(f"{place}: predictions are read from {', '.join(SUFFIXES)} files")
    if not place.is_file():
        raise UsageError(f"{place}: there is no such file of predictions")
    with _damage(place, kind):
        found = _read(place, kind)
    return replace(
        found,
        scores=found.scores
        and replace(found.scores, blocks=_guarded(found.scores.blocks, place, kind)),
        ranked=found.ranked and _guarded(found.ranked, place, kind),
    )


def _read(place: Path, kind: str) -> Answers:
    columns, scores, ranked, unused = _READERS[kind](place)
    if "id" in unused:
        raise VisleakError(f"{place}: `id` must be a column of text or of whole numbers")
    if "id" not in columns:
        names = [*columns, *unused]
        raise VisleakError(
            f"{place} has no column `id` with the ids of the images; it has"
            f" {listed(names) or 'none'}{_separated(place, kind, names)}"
        )
    ids = _ids(place, columns.pop("id"))
    return Answers(str(place), ids, columns, scores, ranked, unused)


def _separated(place: Path, kind: str, names: Sequence[str]) -> str:
    """Return what to do where the header of a CSV file was not taken apart, or nothing."""
    wrong = kind == "CSV" and len(names) == 1 and any(mark in names[0] for mark in ",;\t|")
    if not wrong:
        return ""
    mark = "tabs" if place.suffix.lower() == ".tsv" else "commas"
    return f": separate the columns of a {place.suffix} by {mark}"


def _ids(place: Path, column: Any) -> pa.StringArray:
    """Return the ids as text; refuse them where two rows could not be told apart."""
    ids = text_of(column, f"{place}: column `id`")
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
        rows = np.flatnonzero(pc.equal(ids, twice).to_numpy(zero_copy_only=False))
        raise VisleakError(
            f"{place}: id {quoted(twice)} occurs more than once, in rows {rows[0]} and {rows[1]};"
            " keep one prediction an image"
        )
    return ids


def _guarded(
    blocks: Callable[[], Iterator[_Block]], place: Path, kind: str
) -> Callable[[], Iterator[_Block]]:
    """Return a reader of blocks that says in one line what is wrong with the file."""

    def read() -> Iterator[_Block]:
        with _damage(place, kind):
            yield from blocks()

    return read


@contextmanager
def _damage(place: Path, kind: str) -> Iterator[None]:
    try:
        yield
    except _DAMAGE as error:
        said = " ".join(str(error).split())[:200]
        unknown = "UTF8" in said or isinstance(error, UnicodeDecodeError)
        advice = "; save it as UTF-8" if unknown and "save it as" not in said else ""
        raise VisleakError(f"{place} cannot be read as {kind}: {said}{advice}") from error
