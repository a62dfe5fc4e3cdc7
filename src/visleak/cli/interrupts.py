"""SIGINT and SIGTERM, which may come at any moment: they unwind the stack once, in good order."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final

#: What ends a run.
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

#: Seconds in which a second signal is the first one, sent to a process and to its group.
SAME: Final = 1.0


class Terminated(KeyboardInterrupt):
    """SIGTERM came; everything is put in order as for Ctrl-C."""


class Interrupts:
    """Raises an exception for the first signal; a later one does not wait for what is unwound.

    Attributes:
        came: the first signal, ``None`` while there is none.
    """

    def __init__(self) -> None:
        self.came: int | None = None
        self._since = 0.0

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Take a signal.

        Raises:
            KeyboardInterrupt: it is the first.
        """
        if self.came is None:
            self.came, self._since = number, time.monotonic()
            raise self.error()
        if time.monotonic() - self._since > SAME:
            with suppress(OSError):
                os.write(2, b"visleak: stopped while it cleaned up; the next run does the rest\n")
            os._exit(128 + self.came)

    def error(self) -> KeyboardInterrupt:
        """Return what the first signal is in Python."""
        return Terminated() if self.came == signal.SIGTERM else KeyboardInterrupt()

    def raise_again(self) -> None:
        """Raise what came again, soon: Python drops what is raised where it tidies up."""
        number, self.came = self.came, None
        if number is not None:
            timer = threading.Timer(0.01, os.kill, (os.getpid(), number))
            timer.daemon = True
            timer.start()


@contextmanager
def handled() -> Iterator[Interrupts]:
    """Let signals unwind the stack, so that scratch files go; give what knows which came."""
    interrupts = Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield interrupts  # somebody else handles signals
        return
    # a shell has what it runs in the background ignore Ctrl-C
    taken = [n for n in SIGNALS if signal.getsignal(n) not in (signal.SIG_IGN, None)]
    before = [signal.signal(number, interrupts.handle) for number in taken]
    hook = sys.unraisablehook

    def unraisable(what: Any) -> None:
        if isinstance(what.exc_value, KeyboardInterrupt):
            interrupts.raise_again()
        else:
            hook(what)

    sys.unraisablehook = unraisable
    try:
        yield interrupts
    finally:
        sys.unraisablehook = hook
        for number, handler in zip(taken, before, strict=True):
            signal.signal(number, handler)
