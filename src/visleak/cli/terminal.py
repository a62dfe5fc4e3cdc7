"""What rich makes of a summary, as text for the stream it goes to."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

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
