"""Progress bars on a terminal, and silence everywhere else."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from visleak.cli.edges import plain
from visleak.quantities import duration

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
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        SpinnerColumn,
        Task,
        TextColumn,
    )
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

    Args:
        done, total: units; a total of 0 or 1 has no count worth showing.
        speed: units a second, if known.
        took: seconds since the step began, or in all if it is done.
        left: seconds to go, if known.
        unit: what is counted, with a space in front.

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
