"""Counts and tables as plain text."""

from __future__ import annotations


def counted(count: int, what: str) -> str:
    """Return a count with its noun.

    >>> counted(1, "audit"), counted(2_000, "audit")
    ('1 audit', '2,000 audits')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def left_aligned(header: list[str], rows: list[list[str]], numbers: int = 0) -> list[str]:
    """Return a table as lines, columns two blanks apart.

    Args:
        header, rows: the cells.
        numbers: so many columns at the end stand to the right.

    >>> left_aligned(["name", "n"], [["a", "10"], ["bc", "7"]], numbers=1)
    ['name   n', 'a     10', 'bc     7']
    """
    table = [header, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(header))]
    first = len(header) - numbers
    lines = []
    for row in table:
        cells = [
            cell.rjust(width) if column >= first else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
