"""Progress bars on a terminal, and silence everywhere else."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from visleak.cli.edges import plain

if TYPE_CHECKING:
    from visleak.pipeline.workplace import Progress


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
        if step not in tasks:
            tasks[step] = shown.add_task(plain(step), total=total or None)
        shown.update(tasks[step], completed=done, total=total or None)

    with shown:
        yield progress


def _shown() -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        SpinnerColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Counted(ProgressColumn):
        """How many of how many, and how many a second."""

        def render(self, task: Task) -> Text:
            if task.total is None or task.total <= 1:
                return Text("")
            count = f"{task.completed:,.0f} of {task.total:,.0f}"
            speed = task.finished_speed or task.speed
            return Text(f"{count}, {speed:,.0f}/s" if speed else count, "dim")

    return Progress(
        SpinnerColumn(finished_text="[green]✓"),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        Counted(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
