"""Which files of a numbered sequence are missing: ``img_emb_0.npy``, ``img_emb_1.npy``, ..."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from visleak.records import MISSING_LISTED, FileCount


@dataclass(frozen=True, slots=True)
class _Sequence:
    """Names of one form and their numbers.

    Attributes:
        before, after: text around the number.
        digits: number of digits that shorter numbers are filled up to with zeros.
        numbers: that are present.
        total: of the sequence as the names state it (``-of-00400``), 0 where they do not.
    """

    before: str
    after: str
    digits: int
    numbers: frozenset[int]
    total: int

    def name(self, number: int) -> str:
        """Return the name of the file with a number."""
        return f"{self.before}{number:0{self.digits}d}{self.after}"


def count_files(
    files: Sequence[Path], companions: Iterable[int] = (), expected: int = 0
) -> FileCount:
    """Return how many files of a sequence are present, and which are known to be missing.

    A number between others is missing, and so is one that another file of the set has. Sequences
    begin with 0 or 1; one that begins later is taken for a part that somebody chose, as long as
    the number of files is not stated. Names that are no sequence say nothing.

    Args:
        files: that are present.
        companions: numbers of files that belong to them, such as their tables.
        expected: number of files as the user states it; 0 if not.

    >>> print(count_files([Path("e_0.npy"), Path("e_1.npy"), Path("e_3.npy")]))
    3 of 4 files; e_2.npy is missing
    >>> print(count_files([Path("e_0.npy"), Path("e_1.npy")], expected=4))
    2 of 4 files; e_2.npy, e_3.npy are missing
    >>> print(count_files([Path("t-00001-of-00003.parquet")]))
    1 of 3 files; t-00000-of-00003.parquet, t-00002-of-00003.parquet are missing
    """
    found = _sequence(files)
    if found is None:
        return FileCount(len(files), expected or len(files))
    known = found.numbers | set(companions)
    total = expected or found.total
    if total:
        start = 1 if min(known) > 0 and max(known) == total else 0
        span = range(start, start + total)
    else:
        span = range(min(known), max(known) + 1)
        if span.start > 1 and len(span) > 2 * len(known):
            # dates, or other numbers that do not count files
            return FileCount(len(files), len(files))
    inside = sum(number in span for number in found.numbers)
    names = islice(_absent(found, span), MISSING_LISTED)
    return FileCount(len(files), len(files) - inside + len(span), tuple(names))


def _absent(found: _Sequence, span: range) -> Iterator[str]:
    return (found.name(number) for number in span if number not in found.numbers)


def _sequence(files: Sequence[Path]) -> _Sequence | None:
    """Return the sequence that the names of files are, ``None`` where they are none."""
    parts = [
        re.fullmatch(r"(.*?)(\d+)((?:-of-(\d+))?\.\w+)", file.name, re.ASCII) for file in files
    ]
    matches = [part for part in parts if part is not None]
    if not matches or len(matches) < len(files):
        return None
    numbers = frozenset(int(part[2]) for part in matches)
    forms = {(part[1], part[3]) for part in matches}
    if len(forms) > 1 or len(numbers) < len(files):
        return None
    first = matches[0]
    # numbers of one length, or with leading zeros, are filled up
    lengths = {len(part[2]) for part in matches}
    filled = len(lengths) == 1 and any(part[2].startswith("0") for part in matches)
    digits = lengths.pop() if filled else 1
    return _Sequence(first[1], first[3], digits, numbers, int(first[4] or 0))
