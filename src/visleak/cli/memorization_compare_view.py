"""What ``visleak memorization compare`` prints: a sentence, a row a method, the folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from visleak.cli import edges
from visleak.cli.edges import plain

if TYPE_CHECKING:
    from rich.console import RenderableType

    from visleak.memorization.baselines import Comparison

#: Columns of the table that a screen has room for.
COLUMNS: Final = (0, 1, 2, 3, 4, 5, 7)


def say_comparison(result: Comparison, *, json: bool) -> None:
    """Print a comparison: the bytes of its file, or what a person reads, and the folder."""
    from visleak.cli.terminal import rendered
    from visleak.memorization.baselines.stored import RESULT

    if json:
        edges.say_bytes((result.folder / RESULT).read_bytes())
        return
    edges.say(rendered(_shown(result)))
    edges.say(f"{plain(str(result.folder))}\n")


def _shown(result: Comparison) -> Iterator[RenderableType]:
    """Yield the summary and the table of methods."""
    from rich.table import Table
    from rich.text import Text

    from visleak.memorization.baselines.headline import headline
    from visleak.memorization.baselines.tables import main_grid

    yield Text(plain(headline(result)), "bold")
    grid = main_grid(result)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for at in COLUMNS:
        table.add_column(grid.header[at], justify="right" if at else "left")
    for row in grid.rows:
        table.add_row(*(Text(plain(row[at])) for at in COLUMNS))
    yield table
