"""Runs a command, and ends it with all that it started when visleak closes the standard input.

A separate script that imports nothing of visleak. The standard input also ends when visleak is
killed, so that no training run remains. (``PR_SET_PDEATHSIG`` is for Linux only, and does not reach
the processes that the command started.)
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Final, NoReturn

GRACE: Final = 5.0  # seconds that processes are given to end before they are killed
NOT_STARTED: Final = 127  # exit code of a shell for a program that cannot be started


def main(command: list[str]) -> int:
    """Run a command in a process group of its own; return its exit code, or die of its signal."""
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0)
    except (OSError, ValueError) as error:
        print(f"{command[0]} cannot be started: {error}", file=sys.stderr)
        return NOT_STARTED

    def in_background(function: Callable[[int], None]) -> None:
        threading.Thread(target=function, args=(child.pid,), daemon=True).start()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: in_background(end))
    in_background(_watch)
    code = child.wait()
    end(child.pid)  # what it has left running
    return code if code >= 0 else _die_of(-code)


def _watch(group: int) -> None:
    while os.read(0, 1024):
        pass
    end(group)


def end(group: int) -> None:
    """Terminate all processes of a group, and kill those that remain."""
    try:
        os.killpg(group, signal.SIGTERM)
        until = time.monotonic() + GRACE
        while time.monotonic() < until:
            time.sleep(0.02)
            os.killpg(group, 0)
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        # none is left; on macOS a group of the dead alone is "not permitted"
        return


def _die_of(number: int) -> NoReturn:
    if number == signal.SIGKILL:
        os.kill(os.getpid(), number)
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    while True:
        signal.pause()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
