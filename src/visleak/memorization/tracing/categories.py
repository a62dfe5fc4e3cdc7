"""What memorized images show, as a person wrote it down."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from visleak.delimited import opened_table
from visleak.errors import UsageError, VisleakError
from visleak.memorization.tracing.records import CATEGORIES, Match, Original, Trace
from visleak.storage import csv_text

#: Columns by which a row may name what it is about, the first that is there.
KEYS: Final = ("reference", "image", "prompt")


@dataclass(frozen=True)
class Categories:
    """Categories by reference, generated image or prompt.

    Attributes:
        key: one of :data:`KEYS`.
        words: category of each, of :data:`visleak.memorization.tracing.records.CATEGORIES`.
        origin: file they were read from.
    """

    key: str
    words: Mapping[str, str]
    origin: str

    def told(self, trace: Trace) -> Trace:
        """Return a trace whose memorized images have their category.

        Where rows disagree on one memorized image, the first match with a category decides, and a
        note says so. Rows about nothing that was verified are counted in a note.
        """
        used: set[str] = set()
        notes = list(trace.notes)
        found = []
        for each in trace.originals:
            words = self._of(each, trace.matches, used)
            if len(set(words)) > 1:
                notes.append(
                    f"memorized image {each.number} has several categories in {self.origin}:"
                    f" {', '.join(dict.fromkeys(words))}; the first is taken"
                )
            found.append(replace(each, category=words[0] if words else ""))
        unused = len(self.words) - len(used)
        if unused:
            notes.append(f"{unused:,} rows of {self.origin} are about no memorized image")
        return replace(trace, originals=tuple(found), notes=tuple(notes))

    def _of(self, original: Original, matches: tuple[Match, ...], used: set[str]) -> list[str]:
        names = [
            str(getattr(match, self.key)) for match in matches if match.memorized == original.number
        ]
        names = [name for name in names if name in self.words]
        used.update(names)
        return [self.words[name] for name in names]


def read_categories(path: str | os.PathLike[str]) -> Categories:
    """Read a CSV file of categories.

    Raises:
        UsageError: there is no such file.
        VisleakError: it lacks a column, or a category is none of the four.
    """
    file = Path(path)
    if not file.is_file():
        raise UsageError(f"categories {file} is not a file; give a CSV file")
    try:
        with opened_table(file) as (lines, delimiter):
            reader = csv.DictReader(lines, delimiter=delimiter)
            names = reader.fieldnames or ()
            key = next((name for name in KEYS if name in names), None)
            if key is None or "category" not in names:
                raise VisleakError(
                    f"{file} needs the column category, and one of {', '.join(KEYS)}; it has"
                    f" {', '.join(names) or 'none'}"
                )
            words = {}
            for row in reader:
                word = (row["category"] or "").strip().lower()
                if word and word not in CATEGORIES:
                    raise VisleakError(
                        f"{file}, line {reader.line_num}: category is one of"
                        f" {', '.join(CATEGORIES)}; got {word!r:.60}"
                    )
                if word and row[key]:
                    words[csv_text(row[key])] = word
    except (OSError, ValueError, csv.Error) as error:
        raise VisleakError(f"{file} cannot be read as CSV ({error})") from error
    return Categories(key, words, file.name)
