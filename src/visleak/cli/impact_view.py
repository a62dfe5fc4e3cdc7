"""What ``visleak impact`` prints: sentences, the papers' tables, notes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from visleak.cli.edges import plain

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from visleak.impact import Impact
    from visleak.markup import Grid

#: Names of models are cut to this many characters, so that three fit side by side; files have
#: them whole.
LONGEST: Final = 12

#: Columns that only files have: a terminal has no room for them.
_LEFT_OUT: Final = ("leaked", "others", "metric", "images", "behind %")


def shown(result: Impact) -> Iterator[RenderableType]:
    """Yield the parts of the summary."""
    from rich.text import Text

    from visleak.impact.headline import headlines
    from visleak.impact.markup import about
    from visleak.impact.tables import absent, comparisons, flips, gaps, layouts, steady

    for line in headlines(result):
        yield Text(plain(line), "bold")
    yield Text(plain(about(result)), "dim")
    for grid in layouts(result):
        yield from _titled(*_by_leak(grid))
    for grid in (*comparisons(result), *flips(result), *gaps(result)):
        yield from _titled(grid.title, _narrow(grid))
    yield Text()
    for line in (*result.notes, absent(result), steady(result)):
        if line:
            yield Text(plain(line), "dim")


def _titled(title: str, table: Table) -> Iterator[RenderableType]:
    from rich.text import Text

    yield Text()
    yield Text(plain(title), "bold")
    yield table


def _by_leak(grid: Grid) -> tuple[str, Table]:
    """Return title and table of parts, those of a leak beneath its name, units in the title."""
    from visleak.cli.terminal import plain_table

    _, _, *names = grid.header
    own = [name for name in names if name not in ("images", "gain", "95 % CI")]
    shares = all(name.endswith(" %") for name in own)
    names = [name.removesuffix(" %") if shares else name for name in names]
    table = plain_table("images of", *map(_cut, names), numbers=len(names))
    above = ""
    for subset, leak, *cells in grid.rows:
        if leak != above:
            table.add_section()
            table.add_row(plain(leak), style="bold")
            above = leak
        table.add_row(f"  {plain(subset)}" if leak else plain(subset), *map(plain, cells))
    return grid.title + ", %" * shares, table


def _narrow(grid: Grid) -> Table:
    """Return another table without the columns that a terminal has no room for."""
    from visleak.cli.terminal import plain_table

    kept = [at for at, name in enumerate(grid.header) if name not in _LEFT_OUT]
    texts = sum(at < grid.texts for at in kept)
    table = plain_table(*(grid.header[at] for at in kept), numbers=len(kept) - texts)
    for row in grid.rows:
        cells = [
            _cut(row[at]) if at < texts and _is_model(grid, at) else plain(row[at]) for at in kept
        ]
        table.add_row(*cells)
    return table


def _is_model(grid: Grid, column: int) -> bool:
    return grid.header[column] in ("model", "first", "second")


def _cut(name: str) -> str:
    """Write a name, or the middle of a long one left out: ends tell variants apart."""
    text = plain(name)
    if len(text) <= LONGEST:
        return text
    half = (LONGEST - 1) // 2
    return f"{text[:half]}…{text[len(text) - half :]}"
