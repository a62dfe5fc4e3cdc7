"""What goes to a terminal: a summary as rich renders it, and progress bars."""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from visleak.cli.edges import plain
from visleak.quantities import duration

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

    from visleak.reporting import Document, terminal

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


# -- progress -------------------------------------------------------------------------------------


if TYPE_CHECKING:
    from visleak.pipeline.context import Progress

#: How the steps begin that count images.
IMAGES = ("reading ", "local features of ")


def _silent(step: str, done: int, total: int) -> None:
    """Take no note."""


@contextmanager
def bars() -> Iterator[Progress]:
    """Give a function that shows how far each step is, on stderr if that is a terminal.

    A step of ``total`` 0 is of unknown length.
    """
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield _silent
        return
    shown = _shown()
    tasks: dict[str, Any] = {}

    def progress(step: str, done: int, total: int) -> None:
        # shown from the first step on: a command that reports none draws nothing
        shown.start()
        # a step of one unit says nothing until it is done
        known = total if total > 1 or done else None
        if step not in tasks:
            tasks[step] = shown.add_task(plain(step), total=known)
        elif done < shown.tasks[tasks[step]].completed:
            # the step runs once more, as when images are verified again, at a higher resolution
            shown.reset(tasks[step])
        shown.update(tasks[step], completed=done, total=known)

    try:
        yield progress
    finally:
        shown.stop()


def _shown() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
    from rich.text import Text

    class Told(ProgressColumn):
        """What :func:`told` says of a step."""

        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            took = (task.finished_time if task.finished else task.elapsed) or 0.0
            left = None if task.finished else task.time_remaining
            unit = " images" if task.description.startswith(IMAGES) else ""
            done, total = int(task.completed), int(task.total or 0)
            return Text(told(done, total, speed, took, left, unit), "dim")

    return Progress(
        SpinnerColumn(finished_text="[green]✓"),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        Told(),
        console=Console(stderr=True),
        transient=True,
    )


def told(
    done: int, total: int, speed: float | None, took: float, left: float | None, unit: str = ""
) -> str:
    """Return how far a step is, in words.

    >>> told(200, 1_000, 50.0, 4.0, 16.0, " images")
    '200 of 1,000, 50 images/s, 16 s left'
    >>> told(2, 10, 0.25, 8.0, 32.0)
    '2 of 10, 0.25/s, 32 s left'
    >>> told(1, 1, None, 75.0, None)
    '1:15'
    """
    parts = []
    if total > 1:
        parts.append(f"{done:,} of {total:,}")
        parts += [f"{speed:,.{0 if speed >= 10 else 2}f}{unit}/s"] if speed else []
    parts.append(duration(took) if left is None else f"{duration(left)} left")
    return ", ".join(parts)
