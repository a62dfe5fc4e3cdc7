"""How far a run is: bars on a terminal, plain lines elsewhere, a bar in Jupyter, log records."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Final, Protocol, TextIO

from visleak.quantities import duration
from visleak.templates import plain

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

#: Receives a record per step; `logging.basicConfig(level="INFO")` shows them.
logger: Final = logging.getLogger("visleak")
logger.addHandler(logging.NullHandler())  # without handlers of the user nothing is printed

#: Seconds that a run takes before plain lines begin, and between two lines of one step.
PATIENCE: Final = 10.0
INTERVAL: Final = 30.0

#: Seconds over which the rate of a step is measured.
WINDOW: Final = 30.0

#: How the steps begin that count images.
IMAGES: Final = ("reading ", "local features of ", "decoding images of ")

#: Steps that count as one: how their names begin.
Stage = tuple[str, ...]


class Progress(Protocol):
    """Receives how far a step is."""

    def __call__(self, step: str, done: int, total: int) -> None:
        """Note that ``done`` of ``total`` units of a step are done."""
        ...


def silent(step: str, done: int, total: int) -> None:
    """Report nothing."""


@dataclass
class Step:
    """A step of a run: how much of it is done, and how fast it is."""

    name: str
    number: int = 0  # of the stage; 0 where it is not planned
    of: int = 0
    done: int = 0
    total: int = 0  # 0 where it is not known
    began: float = field(default_factory=time.monotonic)
    took: float = 0.0
    _seen: deque[tuple[float, int]] = field(default_factory=deque)

    def update(self, done: int, total: int) -> None:
        """Note that ``done`` of ``total`` units are done."""
        now = time.monotonic()
        if done < self.done or (self.finished and total != self.total):
            # the step runs once more, as when images are verified again, at a higher resolution
            self.began = now
            self._seen.clear()
        self.done, self.total, self.took = done, total, now - self.began
        self._seen.append((now, done))
        while len(self._seen) > 2 and now - self._seen[0][0] > WINDOW:
            self._seen.popleft()

    @property
    def finished(self) -> bool:
        """Whether all of it is done."""
        return self.total > 0 and self.done >= self.total

    @property
    def rate(self) -> float:
        """Units per second, 0 where it is not known."""
        (start, first), (end, last) = self._seen[0], self._seen[-1]
        return (last - first) / (end - start) if end > start else 0.0

    @property
    def label(self) -> str:
        """Its number and name, as one line."""
        number = f"step {self.number} of {self.of}: " if self.of else ""
        return f"{number}{plain(self.name)}"

    @property
    def state(self) -> str:
        """How far it is, in words."""
        left = (self.total - self.done) / self.rate if self.rate and not self.finished else None
        unit = " images" if self.name.startswith(IMAGES) else ""
        return in_words(self.done, self.total, self.rate, self.took, left, unit)


class Display(Protocol):
    """Shows steps."""

    def show(self, step: Step, *, new: bool) -> None:
        """Show that a step began or is further."""

    def close(self) -> None:
        """Show no more."""


class Steps:
    """Receives how far each step is, and shows and logs it.

    Args:
        display: where steps are shown.
        prefix: put in front of the names of all steps.
    """

    def __init__(self, display: Display, prefix: str = "") -> None:
        self._display, self._prefix = display, prefix
        self._steps: dict[str, Step] = {}
        self._stages: list[Stage] = []

    def expect(self, stages: Sequence[Stage]) -> None:
        """Number the steps by the stages of a run, after those that were seen."""
        self._stages = [(name,) for name in self._steps] + list(stages)

    def close(self) -> None:
        """Show no more."""
        self._display.close()

    def __call__(self, step: str, done: int, total: int) -> None:
        """Note that ``done`` of ``total`` units of a step are done."""
        new = step not in self._steps
        if new:
            number = next(
                (at for at, names in enumerate(self._stages, 1) if step.startswith(names)), 0
            )
            of = len(self._stages) if number else 0
            self._steps[step] = Step(self._prefix + step, number, of)
        known = self._steps[step]
        before = known.finished
        known.update(done, total)
        if new:
            logger.info("%s", known.label)
        elif known.finished and not before:
            logger.debug("%s: done, %s", known.label, known.state)
        self._display.show(known, new=new)


class Silent:
    """Shows nothing."""

    def show(self, step: Step, *, new: bool) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Show nothing."""


class Forwarded:
    """Calls a function with the name of the step, how much is done, and of how much."""

    def __init__(self, receive: Callable[[str, int, int], None]) -> None:
        self._receive = receive

    def show(self, step: Step, *, new: bool) -> None:
        """Call the function."""
        self._receive(step.name, step.done, step.total)

    def close(self) -> None:
        """Call nothing more."""


class Lines:
    """Writes a line where a step begins, and one every 30 seconds; a short run writes none.

    Steps that take turns, as the rounds of verification do, begin once.

    Args:
        write: writes a line.
        patience: seconds before the first line.
    """

    def __init__(self, write: Callable[[str], None], patience: float = PATIENCE) -> None:
        self._write, self._from = write, time.monotonic() + patience
        self._begun: set[str] = set()
        self._written = 0.0

    def show(self, step: Step, *, new: bool) -> None:
        """Write a line where one is due."""
        now = time.monotonic()
        if now < self._from:
            return
        due = now - self._written >= INTERVAL and not step.finished
        if due or step.name not in self._begun:
            self._write(step.label if new else f"{step.label}: {step.state}")
            self._begun.add(step.name)
            self._written = now

    def close(self) -> None:
        """Write nothing more."""


class Bars:
    """Draws a bar per step on a terminal, and removes them at the end."""

    def __init__(self) -> None:
        self._shown = _rich()
        self._tasks: dict[str, TaskID] = {}

    def show(self, step: Step, *, new: bool) -> None:
        """Draw a step."""
        # shown from the first step on: a command that reports none draws nothing
        self._shown.start()
        # a step of one unit says nothing until it is done
        known = step.total if step.total > 1 or step.done else None
        if step.name not in self._tasks:
            self._tasks[step.name] = self._shown.add_task("", total=known, state="")
        self._shown.update(
            self._tasks[step.name],
            description=step.label,
            completed=step.done,
            total=known,
            state=step.state,
        )

    def close(self) -> None:
        """Remove the bars."""
        self._shown.stop()


class _Shown(Protocol):
    """What Jupyter returns for what it displays."""

    def update(self, content: object) -> None:
        """Replace it."""


class Notebook:
    """Shows a bar under a cell of Jupyter."""

    def __init__(self) -> None:
        self._handle: _Shown | None = None
        self._drawn = 0.0

    def show(self, step: Step, *, new: bool) -> None:
        """Draw the present step, some times a second."""
        now = time.monotonic()
        if not new and not step.finished and now - self._drawn < 0.2:
            return
        self._drawn = now
        text = f"{escape(step.label)} <small>{escape(step.state)}</small>"
        value = f' value="{step.done}" max="{step.total}"' if step.total else ""
        self._draw(f"<progress{value}></progress> {text}")

    def close(self) -> None:
        """Remove the bar."""
        if self._handle is not None:
            self._draw("")

    def _draw(self, html: str) -> None:
        from IPython.display import HTML, display

        if self._handle is None:
            self._handle = display(HTML(html), display_id=True)
        else:
            self._handle.update(HTML(html))


def in_notebook() -> bool:
    """Whether this is a kernel of Jupyter, which shows HTML."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


def display_for(stream: TextIO, write: Callable[[str], None], *, verbose: bool = False) -> Display:
    """Return the display that a stream can show: a notebook, bars, or (``verbose``) lines."""
    if in_notebook():
        return Notebook()
    if verbose or not stream.isatty() or os.environ.get("TERM") == "dumb":
        return Lines(write, 0.0 if verbose else PATIENCE)
    return Bars()


@contextmanager
def steps(display: Display, prefix: str = "") -> Iterator[Steps]:
    """Give what receives how far each step is; the display is closed at the end."""
    try:
        yield Steps(display, prefix)
    finally:
        display.close()


def _rich() -> RichProgress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    return Progress(
        SpinnerColumn(finished_text="[green]✓"),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[state]}", style="dim", markup=False),
        console=Console(stderr=True),
        transient=True,
    )


def in_words(
    done: int, total: int, rate: float, took: float, left: float | None, unit: str = ""
) -> str:
    """Return how far a step is, in words.

    >>> in_words(200, 1_000, 50.0, 4.0, 16.0, " images")
    '200 of 1,000, 50 images/s, 16 s left'
    >>> in_words(2, 10, 0.25, 8.0, 32.0)
    '2 of 10, 0.25/s, 32 s left'
    >>> in_words(1, 1, 0.0, 75.0, None)
    '1:15'
    """
    parts = []
    if total > 1:
        parts.append(f"{done:,} of {total:,}")
        parts += [f"{rate:,.{0 if rate >= 10 else 2}f}{unit}/s"] if rate else []
    parts.append(duration(took) if left is None else f"{duration(left)} left")
    return ", ".join(parts)
