"""Prompts of legacy pickles, without trusting a pickle.

A pickle is a program. Only what builds texts, lists, sets and dicts of them is carried out: every
instruction is looked at first, and nothing can be imported. Tuples are not built either, for the
hash of a deeply nested one overflows the stack.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NoReturn

from visleak.errors import UsageError, VisleakError
from visleak.memorization.prompt_files.rows import Row
from visleak.memorization.prompt_files.tables import named_rows

#: A larger pickle is refused; MemBench's has 233 kB.
MOST_BYTES: Final = 64 << 20

_TEXTS: Final = ("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8")
_LISTS: Final = ("EMPTY_LIST", "LIST", "APPEND", "APPENDS")
_TABLES: Final = ("EMPTY_DICT", "DICT", "SETITEM", "SETITEMS", "EMPTY_SET", "ADDITEMS")
_NUMBERED: Final = ("PUT", "BINPUT", "LONG_BINPUT")
_KEPT: Final = ("MEMOIZE", *_NUMBERED, "GET", "BINGET", "LONG_BINGET")
_FRAMES: Final = ("PROTO", "FRAME", "MARK", "STOP")
_ALLOWED: Final = frozenset((*_TEXTS, *_LISTS, *_TABLES, *_KEPT, *_FRAMES))


class _Unpickler(pickle.Unpickler):
    """Imports nothing, whatever it is told."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise pickle.UnpicklingError("it asks for an object kept elsewhere")


def pickle_rows(path: Path, column: str | None) -> Iterator[Row]:
    """Yield the prompts of a pickle: a dict from prompt to a set or list of images, or a list.

    Raises:
        UsageError: a column was asked for.
        VisleakError: it is too large, damaged, or holds anything but texts, lists, sets and dicts.
    """
    content = load_plain(path)
    if isinstance(content, dict):
        # a set has no order of its own
        plain = {
            prompt: sorted(images, key=str) if isinstance(images, set) else images
            for prompt, images in content.items()
        }
        yield from named_rows(plain, path, column)
        return
    if not isinstance(content, list) or not all(isinstance(each, str) for each in content):
        raise VisleakError(
            f"{path} is no list of prompts: it holds neither texts nor a dict from prompt to images"
        )
    if column is not None:
        raise UsageError(f"--column {column!r}: {path} is a list of prompts, without columns")
    for number, text in enumerate(content, 1):
        yield Row(f"entry {number:,}", text)


def load_plain(path: Path) -> Any:
    """Return what a pickle builds of texts, lists, sets and dicts.

    Raises:
        VisleakError: it is too large, damaged, or would do anything else.
    """
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise VisleakError(f"{path} has {size:,} bytes; pickles are read up to {MOST_BYTES:,}")
    data = path.read_bytes()
    try:
        _look_through(data)
        return _Unpickler(io.BytesIO(data)).load()
    except Exception as error:  # a damaged pickle can raise anything
        said = " ".join(str(error).split())[:120]
        raise VisleakError(
            f"{path} cannot be read as a pickle of texts, lists, sets and dicts alone: {said};"
            " write the prompts as CSV or JSON where you trust it"
        ) from error


def _look_through(data: bytes) -> None:
    """Refuse a pickle with any other instruction, before one is carried out."""
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name not in _ALLOWED:
            raise pickle.UnpicklingError(f"it holds the instruction {opcode.name}")
        # memory is set aside for all numbers below the one that is named
        if opcode.name in _NUMBERED and int(argument or 0) > len(data):
            raise pickle.UnpicklingError(f"it numbers an object {argument}")
