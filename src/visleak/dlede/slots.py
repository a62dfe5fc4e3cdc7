"""A process of its own for trainings: one that dies or hangs takes nothing else with it."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import pickle
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Final

from visleak.dlede.lesson import TrainingFailed
from visleak.errors import VisleakError
from visleak.pipeline.processes import be_a_worker, send_to, uninterrupted, without_main

#: Seconds that a process is given to end before it is killed.
GRACE: Final = 5.0

#: Processes are started one at a time: the guard around it changes this process.
_STARTING: Final = threading.Lock()


def sendable(common: object) -> bytes:
    """Return a value as a slot's process can read it.

    Raises:
        VisleakError: it cannot be sent to another process.
    """
    file = io.BytesIO()
    send_to(file, common, "use jobs=1, which trains in this process")
    return file.getvalue()


class Slot:
    """Carries out one task at a time in a process that is started when first needed.

    Args:
        function: importable by its name; called with the common value and the task.
        common: what :func:`sendable` made of the value that all tasks share.
        limit: seconds after which a task counts as failed, ``None`` for no limit.
    """

    def __init__(
        self, function: Callable[[Any, Any], Any], common: bytes, limit: float | None = None
    ) -> None:
        self._function, self._common, self._limit = function, common, limit
        self._process: Any = None
        self._pipe: Connection | None = None
        self._closed = False

    def carry_out(self, task: object) -> Any:
        """Return what the function makes of a task.

        Raises:
            TrainingFailed: the process died, or the time is up.
            Exception: whatever the function raised.
        """
        pipe = self._started()
        try:
            pipe.send(task)
            if not pipe.poll(self._limit):
                self._end()
                raise TrainingFailed(f"it took longer than {self._limit:g} seconds")
            failed, value = pipe.recv()
        except (EOFError, OSError) as error:
            raise TrainingFailed(f"its process {self._death()}") from error
        if failed:
            raise value
        return value

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._closed = True
        self._end()

    def _started(self) -> Connection:
        if self._closed:
            raise VisleakError("the trainings were stopped")
        if self._pipe is None:
            context = multiprocessing.get_context("spawn")
            ours, theirs = context.Pipe()
            with _STARTING, without_main():
                process = context.Process(
                    target=_serve, args=(theirs, self._function), daemon=False
                )
                with uninterrupted():
                    process.start()
            theirs.close()
            self._process, self._pipe = process, ours
            ours.send_bytes(self._common)
            with contextlib.suppress(EOFError, OSError):
                # the time of a training begins when its process is there; a dead one is noticed
                ours.recv()
        return self._pipe

    def _death(self) -> str:
        """Say how the process ended, and forget it."""
        process = self._process
        process.join(GRACE)
        code = process.exitcode
        self._end()
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                return f"was ended by {signal.Signals(-code).name}" + (
                    ", most likely for lack of memory" if -code == signal.SIGKILL else ""
                )
        return f"ended with code {code}"

    def _end(self) -> None:
        process, pipe = self._process, self._pipe
        self._process = self._pipe = None
        if process is None or pipe is None:
            return
        process.terminate()
        process.join(GRACE)
        if process.is_alive():
            process.kill()
            process.join()
        pipe.close()


def _serve(pipe: Connection, function: Callable[[Any, Any], Any]) -> None:
    """Do the tasks that come through the pipe, until it is closed."""
    be_a_worker()
    # sent by the process that began the run, never by a user
    common = pickle.loads(pipe.recv_bytes())  # noqa: S301
    pipe.send(None)
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        try:
            answer = False, function(common, task)
        except Exception as error:
            answer = True, error
        try:
            pipe.send(answer)
        except Exception as error:  # what it raised or returned cannot be pickled
            pipe.send((True, VisleakError(f"{type(answer[1]).__name__}: {answer[1]} ({error})")))
