"""One door to all files of prompts."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

import pyarrow as pa

from visleak.errors import UsageError, VisleakError
from visleak.images.request import writable
from visleak.memorization.prompt_files.cells import checked_text
from visleak.memorization.prompt_files.rows import Row, gathered
from visleak.memorization.prompts import Prompts

#: What is made of a file.
Made = TypeVar("Made")

_ROOM: Final = "visleak.memorization.prompt_files"

#: Ending of a file to its format and reader.
FORMATS: Final[dict[str, tuple[str, str]]] = {
    ".csv": ("CSV", f"{_ROOM}.texts:csv_rows"),
    ".tsv": ("TSV", f"{_ROOM}.texts:csv_rows"),
    ".txt": ("text", f"{_ROOM}.texts:text_rows"),
    ".jsonl": ("JSON lines", f"{_ROOM}.texts:jsonl_rows"),
    ".ndjson": ("JSON lines", f"{_ROOM}.texts:jsonl_rows"),
    ".json": ("JSON", f"{_ROOM}.tables:json_rows"),
    ".parquet": ("Parquet", f"{_ROOM}.tables:parquet_rows"),
    ".pickle": ("pickle", f"{_ROOM}.pickles:pickle_rows"),
    ".pkl": ("pickle", f"{_ROOM}.pickles:pickle_rows"),
}


def read_prompts(path: str | os.PathLike[str], *, column: str | None = None) -> Prompts:
    """Read a list of prompts; what it names is not fetched.

    The ending says what the file is: ``.csv`` and ``.tsv`` with a header (MemBench's
    ``SD1_final.csv``), ``.parquet`` (our own tables), ``.jsonl`` (Webster's and Wen's lists),
    ``.json`` (a list, prompts with their images, or COCO's captions, the first of each image),
    ``.txt`` (one a line), ``.pickle`` (legacy; data only). Prompts stand in ``prompt``, else
    ``caption``, else ``text``; memorized images in ``sources``, ``urls``, ``url``; whether a
    prompt is known to be memorized in ``label`` or ``memorized``.

    Args:
        path: the file, UTF-8 where it is text.
        column: with the prompts, where it has another name.

    Returns:
        The prompts in the order of the file, each once: equal ones join their images, empty ones
        are left out; ``notes`` counts both.

    Raises:
        UsageError: no such file, column or format.
        VisleakError: the file is damaged, contradicts itself, or holds no prompts.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "list.csv"
    >>> _ = file.write_text("prompt,urls\\na red bag,\\"['https://a.example/1.jpg']\\"\\n")
    >>> prompts = read_prompts(file)
    >>> prompts.texts, prompts.sources
    (('a red bag',), (('https://a.example/1.jpg',),))
    """
    file = Path(path)

    def listed(rows: Iterator[Row], kind: str) -> Prompts:
        return gathered(rows, str(file), f"{file.name} ({kind})")

    return _read(file, column, listed)


def read_values(
    path: str | os.PathLike[str], name: str, *, column: str | None = None
) -> tuple[tuple[str, str], ...]:
    """Read every value that prompts have in a further column of their file.

    :func:`read_prompts` keeps one value of a prompt that comes again, which is too few where the
    rows of a file are pairs, such as prompts that ``augment`` made of several triggers.

    Args:
        path, column: as of :func:`read_prompts`.
        name: of the further column.

    Returns:
        Prompts and values in the order of the file, each pair once. An empty value is left out
        where its prompt has another.

    Raises:
        UsageError, VisleakError: as of :func:`read_prompts`.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "list.csv"
    >>> _ = file.write_text("prompt,trigger\\na bag,red\\na bag,old\\na bag,\\n")
    >>> read_values(file, "trigger")
    (('a bag', 'red'), ('a bag', 'old'))
    """
    file = Path(path)

    def paired(rows: Iterator[Row], _kind: str) -> tuple[tuple[str, str], ...]:
        pairs = dict.fromkeys(
            (checked_text(row.text, f"{file}, {row.place}"), writable(row.columns.get(name, "")))
            for row in rows
        )
        named = {text for text, value in pairs if value}
        told = (pair for pair in pairs if pair[1] or pair[0] not in named)
        return tuple((text, value) for text, value in told if text)

    return _read(file, column, paired)


def _read(file: Path, column: str | None, made: Callable[[Iterator[Row], str], Made]) -> Made:
    """Return what is made of the rows of a file and the name of its format.

    Raises:
        UsageError: no such file, column or format.
        VisleakError: the file is damaged.
    """
    if file.is_dir():
        raise UsageError(f"prompts {file} is a folder; name a file in it")
    if not file.is_file():
        raise UsageError(f"prompts {file}: there is no such file")
    if file.suffix.lower() not in FORMATS:
        raise UsageError(
            f"prompts {file}: the ending says what a file is, one of {', '.join(FORMATS)}; got"
            f" {file.suffix!r}"
        )
    kind, place = FORMATS[file.suffix.lower()]
    try:
        return made(_rows(place, file, column), kind)
    except UnicodeDecodeError as error:
        raise VisleakError(f"{file} is no UTF-8 text ({error.reason}); save it as UTF-8") from error
    except (OSError, ValueError, RecursionError, pa.ArrowException) as error:
        said = " ".join(str(error).split())[:200]
        raise VisleakError(f"{file} cannot be read as {kind}: {said}") from error


def _rows(place: str, file: Path, column: str | None) -> Iterator[Row]:
    module, name = place.split(":")
    rows: Iterator[Row] = getattr(importlib.import_module(module), name)(file, column)
    return rows
