"""A summary as rich renders it, for a terminal or as plain text."""

from __future__ import annotations

import re
import sys
import textwrap
from typing import TYPE_CHECKING, Any, Final

from visleak.templates import plain

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console, RenderableType
    from rich.table import Table

#: Columns where the output is not a terminal.
WIDEST: Final = 10_000

#: So narrow a column of texts may become on a narrow terminal.
NARROWEST: Final = 10

#: Blanks between two columns.
_BETWEEN: Final = 3


def shown(result: Any) -> Iterable[RenderableType]:
    """Return the parts of a document, or of lines, texts and tables; lines are made plain."""
    from rich.text import Text

    from visleak.reporting.document import Document
    from visleak.reporting.rendering import terminal

    parts = terminal(result) if isinstance(result, Document) else result
    return [Text(plain(part)) if isinstance(part, str) else part for part in parts]


def rendered(parts: Iterable[RenderableType]) -> str:
    """Return renderables as text: coloured for a terminal, plain otherwise.

    Lines of plain text are never wrapped, and off a terminal tables are as wide as they need to
    be: a path can be copied, a row can be searched for.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=sys.stdout, markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = WIDEST
    with console.capture() as captured:
        for part in parts:
            if isinstance(part, Table):
                _narrow(part, console)
            console.print(part, soft_wrap=isinstance(part, Text))
    text = captured.get()
    return text if console.is_terminal else re.sub(r"[ ]+$", "", text, flags=re.MULTILINE)


def _width(table: Table, console: Console) -> int:
    """Return how wide a table would like to be."""
    return console.measure(table, options=console.options.update(max_width=WIDEST)).maximum


def _narrow(table: Table, console: Console) -> None:
    """Break the names of columns over lines, and cut numbers, before a column of texts vanishes."""
    if _width(table, console) <= console.width:
        return
    numbers = [column for column in table.columns if column.no_wrap]
    texts = [column for column in table.columns if not column.no_wrap]
    room = console.width - _BETWEEN * (len(table.columns) - 1)
    wanted = []
    for column in numbers:
        widest = max((len(str(cell)) for cell in column.cells), default=0)
        lines = textwrap.wrap(str(column.header), max(widest, NARROWEST)) or [""]
        column.header = "\n".join(lines)
        wanted.append(max(widest, *map(len, lines)))
    for column in texts:
        own = (column.header, *column.cells)
        column.min_width = min(NARROWEST, max(len(str(cell)) for cell in own))
        room -= column.min_width
    if sum(wanted) > room:
        # the narrowest first: what one does not need, wider ones may have
        ranked = sorted(zip(wanted, numbers, strict=True), key=lambda each: each[0])
        for place, (wish, column) in enumerate(ranked):
            column.max_width = max(1, min(wish, room // (len(ranked) - place)))
            room -= column.max_width
