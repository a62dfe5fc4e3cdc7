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
from typing import TYPE_CHECKING, Any, Final, Protocol, TextIO

from visleak.quantities import duration
from visleak.templates import plain

if TYPE_CHECKING:
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
        """How far it is: ``200 of 1,000, 50 images/s, 16 s left``, or ``1:15`` that it took."""
        parts, rate = [], self.rate
        if self.total > 1:
            unit = " images" if self.name.startswith(IMAGES) else ""
            parts.append(f"{self.done:,} of {self.total:,}")
            parts += [f"{rate:,.{0 if rate >= 10 else 2}f}{unit}/s"] if rate else []
        if rate and not self.finished:
            parts.append(f"{duration((self.total - self.done) / rate)} left")
        else:
            parts.append(duration(self.took))
        return ", ".join(parts)


class Silent:
    """A display of steps that shows nothing."""

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

    def __init__(self, display: Silent, prefix: str = "") -> None:
        self._display, self._prefix = display, prefix
        self._steps: dict[str, Step] = {}
        self._stages: list[Stage] = []

    def expect(self, stages: Sequence[Stage]) -> None:
        """Number the steps by the stages of a run, after those that were seen."""
        self._stages = [(name,) for name in self._steps] + list(stages)

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


class Forwarded(Silent):
    """Calls a function with the name of the step, how much is done, and of how much."""

    def __init__(self, receive: Callable[[str, int, int], None]) -> None:
        self._receive = receive

    def show(self, step: Step, *, new: bool) -> None:
        """Call the function."""
        self._receive(step.name, step.done, step.total)


class _Lines(Silent):
    """Writes a line where a step begins, and one every 30 seconds; a short run writes none.

    Steps that take turns, as the rounds of verification do, begin once.
    """

    def __init__(self, write: Callable[[str], None], patience: float) -> None:
        self._write, self._from = write, time.monotonic() + patience
        self._begun: set[str] = set()
        self._written = 0.0

    def show(self, step: Step, *, new: bool) -> None:
        now = time.monotonic()
        due = now - self._written >= INTERVAL and not step.finished
        if now >= self._from and (due or step.name not in self._begun):
            self._write(step.label if new else f"{step.label}: {step.state}")
            self._begun.add(step.name)
            self._written = now


class _Bars(Silent):
    """Draws a bar per step on a terminal, and removes them at the end."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

        self._shown = Progress(
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[state]}", style="dim", markup=False),
            console=Console(stderr=True),
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}

    def show(self, step: Step, *, new: bool) -> None:
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
        self._shown.stop()


class _Notebook(Silent):
    """Shows a bar under a cell of Jupyter, drawn some times a second."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._drawn = 0.0

    def show(self, step: Step, *, new: bool) -> None:
        now = time.monotonic()
        if not new and not step.finished and now - self._drawn < 0.2:
            return
        self._drawn = now
        text = f"{escape(step.label)} <small>{escape(step.state)}</small>"
        value = f' value="{step.done}" max="{step.total}"' if step.total else ""
        self._draw(f"<progress{value}></progress> {text}")

    def close(self) -> None:
        if self._handle is not None:
            self._draw("")

    def _draw(self, html: str) -> None:
        from IPython.display import HTML, display

        if self._handle is None:
            self._handle = display(HTML(html), display_id=True)
        else:
            self._handle.update(HTML(html))


def display_for(stream: TextIO, write: Callable[[str], None], *, verbose: bool = False) -> Silent:
    """Return the display that a stream can show: a notebook, bars, or (``verbose``) lines."""
    ipython = sys.modules.get("IPython")
    if ipython is not None and hasattr(ipython.get_ipython(), "kernel"):
        return _Notebook()
    if verbose or not stream.isatty() or os.environ.get("TERM") == "dumb":
        return _Lines(write, 0.0 if verbose else PATIENCE)
    return _Bars()


@contextmanager
def steps(display: Silent, prefix: str = "") -> Iterator[Steps]:
    """Give what receives how far each step is; the display is closed at the end."""
    try:
        yield Steps(display, prefix)
    finally:
        display.close()
