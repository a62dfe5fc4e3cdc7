"""What a capability reports: a headline, statements, tables, figures, and how to read them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import pyarrow as pa

from visleak.reporting.drawing import cut
from visleak.reporting.markup import Grid

#: What makes a text of a value, by heading.
Show: TypeAlias = Mapping[str, Callable[[Any], str]]

#: Rows of a table for people; its file has all.
LIMIT: Final = 200

#: Characters of a text in a table for people.
LONGEST: Final = 80


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str = ""  # in files; empty where it is only shown
    type: pa.DataType = field(default_factory=pa.string)  # in files, of Arrow; by default text
    heading: str = ""  # for people; empty where it is only in files
    # makes text of a value that is known; by default numbers as they are, texts cut
    show: Callable[[Any], str] | None = None
    number: bool = False  # aligned as a number

    def text(self, value: object) -> str:
        """Return a value as text; unknown ones are empty."""
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return ""
        if self.show is not None:
            return self.show(value)
        return f"{value:,}" if isinstance(value, int) else cut(str(value), LONGEST)


@dataclass(frozen=True, slots=True)
class Table:
    """A table, for people and for files from the same rows."""

    title: str  # what it shows
    # of it; those that hold texts come first among those that are shown
    columns: tuple[Column, ...]
    rows: Sequence[Sequence[object]]  # values in the order of the columns
    file: str = ""  # that has all rows, for the title where only some are shown
    limit: int = LIMIT  # rows that are shown
    # row and column name or heading of values that stand out
    bold: frozenset[tuple[int, str]] = frozenset()

    @classmethod
    def of(
        cls,
        title: str,
        headings: Sequence[str],
        rows: Sequence[Sequence[object]],
        texts: int = 1,
        *,
        show: Show | None = None,
        hidden: Collection[str] = (),
        **options: Any,
    ) -> Table:
        """Return a table for people only.

        Args:
            title, rows, options: as in the class.
            headings: of all columns of the rows.
            texts: number of columns that hold texts; those after them hold numbers.
            show: by heading, what makes a text of a value.
            hidden: headings of columns that are not shown.
        """
        known = show or {}
        columns = tuple(
            Column(heading="" if name in hidden else name, show=known.get(name), number=at >= texts)
            for at, name in enumerate(headings)
        )
        return cls(title, columns, rows, **options)

    def grid(self) -> Grid:
        """Return the columns for people, as texts."""
        shown = [(at, column) for at, column in enumerate(self.columns) if column.heading]
        rows = [[column.text(row[at]) for at, column in shown] for row in self.rows[: self.limit]]
        title = self.title
        if len(rows) < len(self.rows):
            all_in = f"; {self.file} has all" if self.file else ""
            title += f" ({len(rows):,} of {len(self.rows):,}{all_in})"
        places = {column.heading: place for place, (_, column) in enumerate(shown)}
        return Grid(
            title,
            [column.heading for _, column in shown],
            rows,
            texts=sum(not column.number for _, column in shown),
            bold=frozenset((row, places[name]) for row, name in self.bold if row < len(rows)),
        )

    def arrow(self) -> pa.Table:
        """Return the columns for files."""
        stored = [(at, column) for at, column in enumerate(self.columns) if column.name]
        schema = pa.schema([(column.name, column.type) for _, column in stored])
        arrays = [pa.array([row[at] for row in self.rows], column.type) for at, column in stored]
        return pa.Table.from_arrays(arrays, schema=schema)


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure."""

    name: str  # of its files, without ending
    title: str  # what it shows
    # its content by ending, ``svg`` and ``png``; empty where there is nothing to draw
    files: Mapping[str, bytes]
    shown: bool = False  # it is part of Markdown

    def by_name(self) -> dict[str, bytes | None]:
        """Return the content of its files by name; ``None`` for those that it does not have."""
        return {f"{self.name}.{ending}": self.files.get(ending) for ending in ("svg", "png")}


@dataclass(frozen=True, slots=True)
class Fact:
    """A statement with a short name in front."""

    name: str  # of it; empty where it continues the one before
    text: str  # what is stated
    style: str = ""  # ``caution``, ``good``, ``strong``, or empty


@dataclass(frozen=True, slots=True)
class Document:
    """What a capability reports."""

    title: str  # of the page
    headline: str  # what was found, as one line that can be repeated
    lines: tuple[str, ...] = ()  # further statements and cautions, the most important first
    # the most important first; those without rows are left out
    tables: tuple[Table | Grid, ...] = ()
    figures: tuple[Figure, ...] = ()  # of it
    images: tuple[tuple[str, str], ...] = ()  # titles and files of contact sheets
    notes: tuple[str, ...] = ()  # what was measured, with which settings, at what cost
    reading: tuple[str, ...] = ()  # how to read the result
    facts: tuple[Fact, ...] = ()  # statements with names, shown behind the tables

    def grids(self) -> list[Grid]:
        """Return the tables that have rows, as texts."""
        found = (each if isinstance(each, Grid) else each.grid() for each in self.tables)
        return [grid for grid in found if grid.rows]
