"""Which files of numbered sequences are missing: ``img_emb_0.npy``, ``img_emb_1.npy``, ..."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Final

from visleak.records import MISSING_LISTED, FileCount

#: Data sets of the hub have a hash behind the number of files.
_NAME: Final = re.compile(r"(.*?)(\d+)(?:(-of-(\d+))(?:-[0-9a-f]+)?)?(\.\w+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Numbered:
    """Names of one form and their numbers."""

    before: str  # text around the number
    after: str
    digits: int  # number of digits that shorter numbers are filled up to with zeros
    numbers: frozenset[int]  # that are present
    total: int  # of the sequence as the names state it (-of-00400), 0 where they do not

    def span(self, known: Iterable[int] = (), total: int = 0) -> range:
        """Return the numbers that the sequence must have."""
        numbers = self.numbers.union(known)
        least, most, total = min(numbers), max(numbers), total or self.total
        if total:
            start = 1 if least > 0 and most == total else 0
            return range(start, start + total)
        return range(least, most + 1)

    def absent(self, span: range) -> Iterator[str]:
        """Yield the names of the files of a span that are not present."""
        for number in span:
            if number not in self.numbers:
                yield f"{self.before}{number:0{self.digits}d}{self.after}"


def count_files(
    files: Sequence[Path], companions: Iterable[int] = (), expected: int = 0
) -> FileCount:
    """Return how many files of numbered sequences are present, and which are known to be missing.

    A number between others is missing, and so is one that another file of the set has. Sequences
    begin with 0 or 1; one that begins later is taken for a part that somebody chose, as long as
    the number of files is not stated. Other files beside a sequence change nothing.

    >>> print(count_files([Path("e_0.npy"), Path("e_1.npy"), Path("e_3.npy"), Path("mean.npy")]))
    4 of 5 files; e_2.npy is missing
    >>> print(count_files([Path("e_0.npy"), Path("e_1.npy")], expected=4))
    2 of 4 files; e_2.npy, e_3.npy are missing
    >>> print(count_files([Path("t-00001-of-00003-5c1e.parquet")]))
    1 of 3 files; t-00000-of-00003.parquet, t-00002-of-00003.parquet are missing
    """
    found = sequences(files)
    if not found:
        return FileCount(len(files), expected or len(files))
    own, *others = found
    beside = len(files) - len(own.numbers)
    spans = [(own, own.span(companions, max(expected - beside, 0)))]
    spans += [(other, other.span()) for other in others]
    if not expected:
        # dates, or other numbers that do not count files
        spans = [(seq, s) for seq, s in spans if seq.total or not _is_sparse(seq, s, companions)]
    lacking = sum(len(span) - sum(n in span for n in seq.numbers) for seq, span in spans)
    names = chain.from_iterable(seq.absent(span) for seq, span in spans)
    return FileCount(len(files), len(files) + lacking, tuple(islice(names, MISSING_LISTED)))


def _is_sparse(found: Numbered, span: range, companions: Iterable[int]) -> bool:
    return span.start > 1 and len(span) > 2 * len(found.numbers.union(companions))


def sequences(files: Sequence[Path]) -> list[Numbered]:
    """Return the sequences that the names of files are, those with the most files first."""
    forms = defaultdict(list)
    for file in files:
        found = _NAME.fullmatch(file.name)
        if found is not None:
            before, number, stated, total, ending = found.groups(default="")
            forms[before, stated + ending, int(total or 0)].append(number)
    return sorted(
        (
            Numbered(before, after, _digits(texts), frozenset(map(int, texts)), total)
            for (before, after, total), texts in forms.items()
            if len(set(map(int, texts))) == len(texts)
        ),
        key=lambda found: (-len(found.numbers), found.before, found.after),
    )


def _digits(texts: Sequence[str]) -> int:
    """Return to how many digits shorter numbers are filled up: all have one length, or zeros."""
    lengths = {len(text) for text in texts}
    return lengths.pop() if len(lengths) == 1 and any(t.startswith("0") for t in texts) else 1
