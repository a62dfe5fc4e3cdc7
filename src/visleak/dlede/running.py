"""Doing the trainings of a curve: those that are missing, each retried once, several at a time.

Each training writes its own files when it has ended, so a run that is killed loses no more than
the trainings in progress.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from visleak.dlede.lesson import Draw, Lesson, Outcome, Ready, Split, TrainingFailed
from visleak.dlede.results import Failure
from visleak.dlede.runs import LOG, Place, Run, read_run, write_run
from visleak.dlede.slots import Slot, sendable
from visleak.errors import VisleakError
from visleak.pipeline.processes import Processes
from visleak.pipeline.workplace import Engine, Handle, Progress

#: A training that fails is tried this often in all.
ATTEMPTS: Final = 2

#: What the progress bar says.
STEP: Final = "training"


@dataclass(frozen=True)
class Job:
    """One training to be done.

    Attributes:
        place: where its files go.
        draw: which rows are trained on.
        seed: of the trainer.
        epochs: asked for, or ``None``.
        key: of all that its result depends on.
        attempt: at it, from 1.
    """

    place: Place
    draw: Draw
    seed: int
    epochs: int | None
    key: str
    attempt: int = 1

    def lesson(self, split: Split) -> Lesson:
        """Return it as the trainer sees it."""
        return Lesson(
            split, self.draw, self.place.step, self.place.repetition, self.seed, self.epochs
        )


@dataclass(frozen=True)
class Finished:
    """A training that has ended, one way or the other; one of both is there."""

    job: Job
    run: Run | None = None
    failure: Failure | None = None


@dataclass(frozen=True)
class Common:
    """What all trainings of a curve share."""

    ready: Ready
    split: Split


def known(job: Job) -> Run | None:
    """Return the result of a job that is on disk, ``None`` where it is of something else."""
    run = read_run(job.place)
    if run is None or run.key != job.key:
        return None
    # a kill between the result and the end of its folder leaves the folder
    shutil.rmtree(job.place.work, ignore_errors=True)
    return run


def train_all(
    jobs: Sequence[Job],
    common: Common,
    *,
    at_once: int = 1,
    engine: Engine | None = None,
    limit: float | None = None,
    progress: Progress,
) -> Iterator[Finished]:
    """Yield every training as it ends; those on disk first.

    Args:
        jobs: the trainings.
        common: the trainer and the split.
        at_once: how many trainings run at a time on this machine.
        engine: a cluster's; then as many run as it has processors.
        limit: seconds after which a training counts as failed.
        progress: is told how many have ended.

    Raises:
        VisleakError: the disk refuses, or the trainer cannot be sent to another process.
    """
    done = 0
    missing = []
    for job in jobs:
        run = known(job)
        if run is None:
            missing.append(job)
            continue
        done += 1
        yield Finished(job, run)
    progress(STEP, done, len(jobs))
    if not missing:
        return
    if engine is None or engine is Processes:
        ended = _here(missing, common, at_once, limit)
    else:
        ended = _on_cluster(missing, common, at_once, engine, limit)
    for finished in ended:
        done += 1
        progress(STEP, done, len(jobs))
        yield finished


# -- on this machine -----------------------------------------------------------------------------


def _here(
    jobs: Sequence[Job], common: Common, at_once: int, limit: float | None
) -> Iterator[Finished]:
    try:
        sent = sendable(common)
    except VisleakError:
        if at_once > 1:
            raise
        # an object of the caller's own script: it can only train in this process
        for job in jobs:
            yield _tried(job, lambda job: carried_out(common, job))
        return
    yield from _in_slots(jobs, sent, min(at_once, len(jobs)), limit)


def _in_slots(
    jobs: Sequence[Job], sent: bytes, at_once: int, limit: float | None
) -> Iterator[Finished]:
    """Train in processes of their own, one thread waiting for each."""
    slots = [Slot(carried_out, sent, limit) for _ in range(at_once)]
    free = list(slots)
    lock = threading.Lock()

    def in_a_slot(job: Job) -> Finished:
        with lock:
            slot = free.pop()
        try:
            return _tried(job, slot.carry_out)
        finally:
            with lock:
                free.append(slot)

    pool = ThreadPoolExecutor(at_once)
    waiting = {pool.submit(in_a_slot, job) for job in jobs}
    try:
        while waiting:
            ended, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in ended:
                yield future.result()
    finally:
        for future in waiting:
            future.cancel()
        for slot in slots:
            slot.close()
        pool.shutdown()


def _tried(job: Job, carry_out: Callable[[Job], Run]) -> Finished:
    """Carry a job out, once more if it fails.

    Raises:
        VisleakError: something else than the training is wrong, such as a full disk.
    """
    reason = ""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return Finished(job, carry_out(replace(job, attempt=attempt)))
        except TrainingFailed as error:
            reason = str(error)
    job.place.keep_log(reason)
    failure = Failure(job.place.step, job.place.repetition, reason, str(job.place.log))
    return Finished(job, failure=failure)


def carried_out(common: Common, job: Job) -> Run:
    """Do one training and write its files.

    Raises:
        TrainingFailed: it came to no result; its log says more.
        VisleakError: the disk refuses.
    """
    place = job.place
    folder = place.clear()
    begun = time.perf_counter()
    outcome = _trained(common, job, folder)
    seconds = round(time.perf_counter() - begun, 3)
    run = Run(place.step, place.repetition, job.key, outcome, seconds, job.attempt)
    write_run(place, run, common.split.test, job.draw)
    return replace(run, outcome=replace(outcome, images={}))


def _trained(common: Common, job: Job, folder: Path) -> Outcome:
    """Train; whatever goes wrong in the trainer is a failed training, and stands in its log."""
    try:
        outcome = common.ready.train(job.lesson(common.split), folder)
    except TrainingFailed:
        raise
    except Exception as error:
        with (folder / LOG).open("a", encoding="utf-8") as log:
            log.write(traceback.format_exc())
        said = " ".join(str(error).split())[:300]
        raise TrainingFailed(f"{type(error).__name__}: {said}") from error
    if not isinstance(outcome, Outcome):
        raise TrainingFailed(f"the trainer returned {type(outcome).__name__}, not an Outcome")
    return outcome


# -- on a cluster --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sent:
    """A job on its way to a worker of a cluster."""

    common: Handle
    job: Job


def _on_cluster(
    jobs: Sequence[Job], common: Common, at_once: int, engine: Engine, limit: float | None
) -> Iterator[Finished]:
    if limit is not None:
        raise VisleakError("a time limit is kept on this machine only: leave out --engine ray")
    with tempfile.TemporaryDirectory() as scratch:
        crew = engine(Path(scratch), at_once)
        try:
            handle = crew.share(common)
            yield from crew.each(carry_out_afar, [Sent(handle, job) for job in jobs], network=True)
        finally:
            crew.close()


def carry_out_afar(sent: Sent) -> Finished:
    """Do a job in a worker of a cluster, which writes its files where all nodes see them.

    Raises:
        VisleakError: this node does not see the folder.
    """
    folder = sent.job.place.folder
    if not folder.is_dir():
        raise VisleakError(
            f"node {socket.gethostname()} does not see {folder}; choose a folder with -o DIR on a"
            " disk that every node sees"
        )
    common: Common = sent.common.load()
    return _tried(sent.job, lambda job: carried_out(common, job))
