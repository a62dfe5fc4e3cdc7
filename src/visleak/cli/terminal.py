"""What rich makes of a summary, as text for the stream it goes to."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType
    from rich.table import Table

#: Columns of what is no terminal.
WIDEST: Final = 10_000


def rendered(parts: Iterable[RenderableType]) -> str:
    """Return renderables as text: coloured for a terminal, plain otherwise.

    Lines of plain text are never wrapped, and off a terminal tables are as wide as they need to
    be: a path can be copied, a row can be searched for.
    """
    from rich.console import Console
    from rich.text import Text

    console = Console(file=sys.stdout, markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = WIDEST
    with console.capture() as captured:
        for part in parts:
            console.print(part, soft_wrap=isinstance(part, Text))
    text = captured.get()
    return text if console.is_terminal else re.sub(r"[ ]+$", "", text, flags=re.MULTILINE)


def plain_table(*names: str, numbers: int) -> Table:
    """Return an empty table as the summary's.

    Args:
        names: of its columns.
        numbers: how many of the last columns hold numbers.
    """
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim")
    for place, name in enumerate(names):
        if place < len(names) - numbers:
            table.add_column(name, overflow="fold")
        else:
            table.add_column(name, justify="right", no_wrap=True)
    return table
