"""Carrying out a command that may take hours: its log, its time limit, and its end with ours."""

from __future__ import annotations

import multiprocessing
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from visleak.dlede.train import TrainingFailed
from visleak.dlede.train.execution import signal_name
from visleak.dlede.trainers import supervisor

#: Seconds between two checks of a running command.
_LOOK: Final = 0.2

#: Characters of a command's last words that a message repeats.
_SHOWN: Final = 200

#: Escape sequences that colour a terminal and move its cursor.
_ESCAPES: Final = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|.)")


def carry_out(
    command: Sequence[str],
    log: Path,
    *,
    limit: float | None = None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run a command to its end; nothing of it is left behind however this ends.

    The working folder is ours, the standard input is empty. On an exception here, such as Ctrl-C,
    at the time limit, and when this process dies, the command and all that it started are asked
    to end, and killed after :data:`supervisor.GRACE` seconds.
    """
    with log.open("ab") as printed:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", supervisor.__file__, *command],
            stdin=subprocess.PIPE,
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment,
        )
    try:
        code = _waited(process, limit)
    finally:
        if process.stdin is not None:
            process.stdin.close()  # the supervisor ends the command, if it still runs
        process.wait()
    if code == 0:
        return
    if code is None:
        ended = f"it took longer than {limit:g} seconds and was ended"
    elif code > 0:
        ended = f"the command ended with exit code {code}"
    else:
        ended = f"the command was ended by {signal_name(-code)}"
    last = last_line(log)
    raise TrainingFailed(f"{ended}; {f'its last line: {last}' if last else 'it printed nothing'}")


def _waited(process: subprocess.Popen[bytes], limit: float | None) -> int | None:
    """Return the exit code, ``None`` where the time is up."""
    until = None if limit is None else time.monotonic() + limit
    parent = multiprocessing.parent_process()
    while True:
        left = _LOOK if until is None else min(_LOOK, until - time.monotonic())
        if left <= 0:
            return None
        try:
            return process.wait(timeout=left)
        except subprocess.TimeoutExpired:
            if parent is not None and not parent.is_alive():
                raise SystemExit("the process that started the training run is gone") from None


def last_line(log: Path) -> str:
    """Return the last line of a log that is not empty, without what only terminals understand."""
    with log.open("rb") as file:
        end = file.seek(0, 2)
        file.seek(max(0, end - 16384))
        text = _ESCAPES.sub("", file.read().decode("utf-8", "replace"))
    lines = ("".join(c for c in line if c.isprintable()).strip() for line in text.splitlines())
    last = next((line for line in reversed(list(lines)) if line), "")
    return last if len(last) <= _SHOWN else f"{last[: _SHOWN - 3]}..."
