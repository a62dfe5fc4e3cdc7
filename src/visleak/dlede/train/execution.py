"""Execution of training runs: those that are missing, each retried once, several concurrently.

Each run executes in a process of its own and writes its own files when it has finished, so that an
interrupted command loses no more than the runs in progress.
"""

from __future__ import annotations

import contextlib
import io
import math
import multiprocessing
import pickle
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Final, Generic, TypeVar

from visleak.dlede.draw import Draw, Split
from visleak.dlede.results import Failure
from visleak.dlede.settings import Execution
from visleak.dlede.train import (
    LOG,
    Outcome,
    PreparedTrainer,
    Run,
    RunFiles,
    TrainingFailed,
    TrainingTask,
    read_run,
    supervisor,
    write_run,
)
from visleak.errors import VisleakError, brief
from visleak.pipeline.context import (
    Handle,
    Processes,
    init_worker,
    send_to,
    uninterrupted,
    without_main,
)

ATTEMPTS: Final = 2  # attempts of a training run in total
STEP: Final = "training"  # name of the stage in progress bars
GRACE: Final = 5.0  # seconds that a process is given to exit before it is killed
#: Processes are started one at a time: the guard around it changes this process.
_STARTING: Final = threading.Lock()

Common = TypeVar("Common")
Task = TypeVar("Task")
Value = TypeVar("Value")

#: A finished run, or the failure of one.
Ended = tuple[Run | None, Failure | None]


@dataclass(frozen=True)
class Job:
    """One training run to carry out."""

    files: RunFiles  # of the run
    draw: Draw  # rows that are trained on
    seed: int  # of the trainer
    epochs: int | None  # requested, or None
    key: str  # of everything that its result depends on
    attempt: int = 1  # from 1

    def task(self, split: Split) -> TrainingTask:
        """Return it as the trainer receives it."""
        files = self.files
        return TrainingTask(split, self.draw, files.step, files.repetition, self.seed, self.epochs)


@dataclass(frozen=True)
class SharedContext:
    """What all training runs of a curve share."""

    prepared: PreparedTrainer
    split: Split


def known(job: Job) -> Run | None:
    """Return the result of a job that is on disk, ``None`` if there is none with its key."""
    run = read_run(job.files)
    if run is None or run.key != job.key:
        return None
    # a kill between writing the result and removing the working folder leaves the folder
    shutil.rmtree(job.files.work, ignore_errors=True)
    return run


def train_all(jobs: Sequence[Job], context: SharedContext, execution: Execution) -> Iterator[Ended]:
    """Yield every training run as it finishes or has failed; those on disk first."""
    missing = []
    for job in jobs:
        if (run := known(job)) is None:
            missing.append(job)
        else:
            yield run, None
    execution.progress(STEP, len(jobs) - len(missing), len(jobs))
    if not missing:
        return
    local = execution.engine is None or execution.engine is Processes
    ended = (_on_this_machine if local else _on_cluster)(missing, context, execution)
    for done, each in enumerate(ended, len(jobs) - len(missing) + 1):
        execution.progress(STEP, done, len(jobs))
        yield each


def _on_this_machine(
    jobs: Sequence[Job], context: SharedContext, execution: Execution
) -> Iterator[Ended]:
    try:
        sent = sendable(context)
    except VisleakError:
        if execution.jobs > 1:
            raise
        # an object of the caller's own script can only train in this process
        for job in jobs:
            yield _attempted(job, lambda job: carry_out(context, job))
        return
    slots = [Slot(carry_out, sent, execution.limit) for _ in range(min(execution.jobs, len(jobs)))]
    free = list(slots)

    def in_slot(job: Job) -> Ended:
        slot = free.pop()
        try:
            return _attempted(job, slot.carry_out)
        finally:
            free.append(slot)

    pool = ThreadPoolExecutor(len(slots))
    waiting = [pool.submit(in_slot, job) for job in jobs]
    try:
        for future in as_completed(waiting):
            yield future.result()
    finally:
        for future in waiting:
            future.cancel()
        for slot in slots:
            slot.close()
        pool.shutdown()


def _attempted(job: Job, function: Callable[[Job], Run]) -> Ended:
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return function(replace(job, attempt=attempt)), None
        except TrainingFailed as error:
            reason = str(error)
    files = job.files
    files.keep_log(reason)
    return None, Failure(files.step, files.repetition, reason, str(files.log))


def carry_out(context: SharedContext, job: Job) -> Run:
    """Carry out one training run and write its files; any exception of the trainer is its end."""
    files, begun = job.files, time.perf_counter()
    folder = files.clear()
    try:
        outcome = context.prepared.train(job.task(context.split), folder)
    except TrainingFailed:
        raise
    except Exception as error:
        with (folder / LOG).open("a", encoding="utf-8") as log:
            log.write(traceback.format_exc())
        raise TrainingFailed(brief(error, 300)) from error
    if not isinstance(outcome, Outcome):
        raise TrainingFailed(f"the trainer returned {type(outcome).__name__}, not an Outcome")
    metrics = {name: float(value) for name, value in outcome.metrics.items()}
    seconds = round(time.perf_counter() - begun, 3)
    run = Run(
        *(files.step, files.repetition, job.key, metrics, dict(outcome.about), seconds, job.attempt)
    )
    write_run(files, run, outcome.images, context.split.test, job.draw)
    return run


def sendable(common: object) -> bytes:
    """Return a value as the process of a slot can read it."""
    file = io.BytesIO()
    send_to(file, common, "use jobs=1, which trains in this process")
    return file.getvalue()


class Slot(Generic[Common, Task, Value]):
    """Carries out one task at a time in a process that is started when first needed."""

    def __init__(
        self, function: Callable[[Common, Task], Value], common: bytes, limit: float | None = None
    ) -> None:
        self._function, self._common, self._limit = function, common, limit
        self._process: SpawnProcess | None = None
        self._pipe: Connection | None = None
        self._closed = False

    def carry_out(self, task: Task) -> Value:
        """Return the function's value for a task."""
        pipe = self._started()
        try:
            pipe.send(task)
            if not pipe.poll(self._limit):
                self._end()
                raise TrainingFailed(f"it took longer than {self._limit:g} seconds")
            failed, value = pipe.recv()
        except (EOFError, OSError) as error:
            code = self._end(terminate=False) or 0
            ended = f"was ended by {signal_name(-code)}" if code < 0 else f"ended with code {code}"
            raise TrainingFailed(f"its process {ended}") from error
        if failed:
            raise value
        result: Value = value
        return result

    def close(self) -> None:
        """End the process, whatever its state."""
        self._closed = True
        self._end()

    def _started(self) -> Connection:
        if self._closed:
            raise VisleakError("the training runs were stopped")
        if self._pipe is None:
            context = multiprocessing.get_context("spawn")
            ours, theirs = context.Pipe()
            with _STARTING, without_main():
                process = context.Process(
                    target=_serve, args=(theirs, self._function), daemon=False
                )
                with uninterrupted():
                    process.start()
                    self._process, self._pipe = process, ours
            theirs.close()
            ours.send_bytes(self._common)
            with contextlib.suppress(EOFError, OSError):
                # the time of a run starts with its process; a dead one is noticed later
                ours.recv()
        return self._pipe

    def _end(self, terminate: bool = True) -> int | None:
        process, pipe = self._process, self._pipe
        self._process = self._pipe = None
        if process is None or pipe is None:
            return None
        if not terminate:
            process.join(GRACE)
        code = process.exitcode
        process.terminate()
        process.join(GRACE)
        if process.is_alive():
            process.kill()
            process.join()
        pipe.close()
        return code


def signal_name(number: int) -> str:
    """Return the name of a signal, with its most likely cause.

    >>> signal_name(9)
    'SIGKILL, most likely for lack of memory'
    """
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
    return name + (", most likely for lack of memory" if number == signal.SIGKILL else "")


def _serve(pipe: Connection, function: Callable[[object, object], object]) -> None:
    """Carry out the tasks from a pipe, until it is closed."""
    init_worker()
    # sent by the process that started the command, never by a user
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


def _on_cluster(
    jobs: Sequence[Job], context: SharedContext, execution: Execution
) -> Iterator[Ended]:
    if execution.limit is not None:
        raise VisleakError("--time-limit works on this machine only: leave out --engine ray")
    if execution.engine is None:
        raise ValueError("a cluster needs an engine")
    with tempfile.TemporaryDirectory() as scratch:
        workers = execution.engine(Path(scratch), execution.jobs)
        try:
            handle = workers.share(context)
            remote = [(handle, job) for job in jobs]
            yield from workers.each(carry_out_remotely, remote, network=True)
        finally:
            workers.close()


def carry_out_remotely(remote: tuple[Handle[SharedContext], Job]) -> Ended:
    """Carry out a job in a worker of a cluster, which writes its files to a shared disk."""
    handle, job = remote
    folder = job.files.folder
    if not folder.is_dir():
        raise VisleakError(
            f"node {socket.gethostname()} has no access to {folder}; choose a folder with -o DIR on"
            " a disk that all nodes share"
        )
    context = handle.load()
    return _attempted(job, lambda job: carry_out(context, job))


# -- commands that may take hours: log, time limit, and their end with ours ------------------------


_LOOK: Final = 0.2  # seconds between two checks of a running command
_SHOWN: Final = 200  # characters of a command's last words that a message repeats
#: Escape sequences that colour a terminal and move its cursor.
_ESCAPES: Final = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|.)")


def run_command(
    command: Sequence[str],
    log: Path,
    *,
    limit: float | None = None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run a command to its end; nothing of it is left behind however this ends.

    The working folder is ours, the standard input is empty. On an exception here, at the time
    limit, and when this process dies, the command and all that it started are terminated, then
    killed.
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
    else:
        how = f"ended with exit code {code}" if code > 0 else f"was ended by {signal_name(-code)}"
        ended = f"the command {how}"
    last = last_line(log)
    raise TrainingFailed(f"{ended}; {f'its last line: {last}' if last else 'it printed nothing'}")


def _waited(process: subprocess.Popen[bytes], limit: float | None) -> int | None:
    """Return the exit code, ``None`` where the time is up."""
    until = math.inf if limit is None else time.monotonic() + limit
    parent = multiprocessing.parent_process()
    while (left := min(_LOOK, until - time.monotonic())) > 0:
        try:
            return process.wait(timeout=left)
        except subprocess.TimeoutExpired:
            if parent is not None and not parent.is_alive():
                raise SystemExit("the process that started the training run is gone") from None
    return None


def last_line(log: Path) -> str:
    """Return the last line of a log that is not empty, without what only terminals understand."""
    with log.open("rb") as file:
        end = file.seek(0, 2)
        file.seek(max(0, end - 16384))
        text = _ESCAPES.sub("", file.read().decode("utf-8", "replace"))
    lines = ("".join(filter(str.isprintable, line)).strip() for line in text.splitlines())
    last = next(filter(None, reversed(list(lines))), "")
    return last if len(last) <= _SHOWN else f"{last[: _SHOWN - 3]}..."
