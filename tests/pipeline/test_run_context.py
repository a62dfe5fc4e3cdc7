"""Worker processes: order, errors, deaths, scripts without a guard, and a clean scratch folder."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import process
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import pytest
import working
from hypothesis import given
from hypothesis import strategies as st

from visleak.errors import VisleakError, VisleakWarning
from visleak.pipeline import context
from visleak.pipeline.context import GrowingColumn, RunContext


@given(sizes=st.lists(st.integers(0, 7), max_size=6), width=st.sampled_from([(), (3,), (2, 2)]))
def test_a_growing_column_has_what_was_appended(tmp_path_factory, sizes, width):
    rng = np.random.default_rng(sum(sizes))
    parts = [rng.normal(size=(size, *width)).astype(np.float32) for size in sizes]
    column = GrowingColumn(tmp_path_factory.mktemp("c") / "x", np.float32, width)
    for part in parts:
        column.append(part)
    with pytest.raises(ValueError, match="rows must have shape"):
        column.append(np.zeros((1, 9)))
    got = column.mapped()
    np.testing.assert_array_equal(got, np.concatenate([np.empty((0, *width)), *parts]))
    assert got.dtype == np.float32
    assert column.rows == sum(sizes)
    assert not len(got) or not got.flags.writeable


@pytest.mark.parametrize("workers", [1, 2])
def test_tasks_results_and_errors(tmp_path, workers):
    with RunContext.at(tmp_path, workers, None) as place:
        working.check_tasks(place)


def test_released_workers_end_and_others_follow(tmp_path):
    with RunContext.at(tmp_path, 2, None) as place:
        path = place.share([1, 2])
        # loaded once per process
        assert len(set(place.each(working.identity_of, [path] * 20))) <= 2
        before = set(place.each(working.process_of, range(8)))
        place.executor.release()
        assert [pid for pid in before if Path(f"/proc/{pid}").exists()] == []
        assert list(place.each(working.load, [path])) == [[1, 2]]
        assert before.isdisjoint(place.each(working.process_of, range(8)))


def test_tasks_of_a_killed_worker_are_repeated_by_fewer_workers(tmp_path):
    tasks = working.deadly(tmp_path, 20, deaths=2)
    with RunContext.at(tmp_path, 4, None) as place:
        value = place.share([4])
        with pytest.warns(VisleakWarning) as told:
            assert list(place.each(working.die_sometimes, tasks, "reading a")) == [*range(0, 40, 2)]
        said = [str(warning.message) for warning in told]
        assert all(f"--workers {n} " in line for n, line in zip((2, 1), said, strict=True))
        assert all("killed while reading a" in line and "\n" not in line for line in said)
        # what was shared before, and tasks of later steps, are not affected
        assert list(place.each(working.load, [value])) == [[4]]
        assert set(place.each(working.process_of, range(4))).isdisjoint([os.getpid()])


def test_steps_at_once_survive_one_death(tmp_path):
    """A step that hands its tasks to the pool while another is at it is not disturbed."""
    with RunContext.at(tmp_path, 2, None) as place:
        other = place.each(working.double, range(30))
        assert next(other) == 0
        tasks = working.deadly(tmp_path, 9, deaths=1)
        with pytest.warns(VisleakWarning):
            found = list(place.each(working.die_sometimes, tasks))
        # where it warned once more, that would be an error
        assert (found, [0, *other]) == ([*range(0, 18, 2)], [*range(0, 60, 2)])


def test_a_task_that_kills_the_last_worker_too_is_one_line(tmp_path):
    with RunContext.at(tmp_path, 2, None) as place:
        said = "^[^\n]*while checking pairs[^\n]*--workers 1[^\n]*$"
        with pytest.warns(VisleakWarning), pytest.raises(VisleakError, match=said):
            list(place.each(working.die, range(20), "checking pairs"))
        assert list(place.each(working.double, range(3))) == [0, 2, 4]


def test_a_worker_that_dies_while_others_start(tmp_path, monkeypatch, capfd):
    """The pool's thread may then end with a traceback, and leave processes that end with one."""
    begin, begun = BaseProcess.start, []

    def start(process):
        begin(process)
        begun.append(process)
        if len(begun) == 1:
            os.kill(process.pid, signal.SIGKILL)
        time.sleep(0.2)

    monkeypatch.setattr(BaseProcess, "start", start)
    with RunContext.at(tmp_path, 3, None) as place, pytest.warns(VisleakWarning, match="killed"):
        assert list(place.each(working.double, [1, 2])) == [2, 4]
    assert not any(each.is_alive() for each in begun)
    assert capfd.readouterr().err == ""


def test_a_task_that_a_breaking_pool_forgets_is_repeated(tmp_path, monkeypatch):
    """As by a pool that breaks between its check that it is whole and the task's entry."""
    monkeypatch.setattr(context, "PATIENCE", 0.1)
    monkeypatch.setattr(process._ExecutorManagerThread, "terminate_broken", lambda *_: None)
    task = working.deadly(tmp_path, 4, deaths=1)[3]
    with RunContext.at(tmp_path, 2, None) as place, pytest.warns(VisleakWarning, match="killed"):
        assert list(place.each(working.die_sometimes, [task])) == [6]


def test_values_that_cannot_be_sent_are_refused_in_one_line(tmp_path):
    with RunContext.at(tmp_path, 2, None) as place:
        for value in (working.Stubborn([]), lambda: None, open(os.devnull)):  # noqa: SIM115
            kind = type(value).__name__
            said = rf"^{kind} cannot be sent to worker processes \([^\n]*; use workers=1$"
            with pytest.raises(VisleakError, match=said):
                place.share(value)
    value.close()
    with RunContext.at(tmp_path, 1, None) as place:
        stubborn = working.Stubborn([])
        assert list(place.each(working.load, [place.share(stubborn)])) == [stubborn]
        assert set(place.each(working.process_of, range(2))) == {os.getpid()}


@pytest.mark.parametrize(("workers", "fails"), [(1, False), (1, True), (2, True)])
def test_the_scratch_folder_is_removed(tmp_path, workers, fails):
    """After success, after an error and with workers still busy."""
    with suppress(RuntimeError), RunContext.at(tmp_path, workers, None) as place:
        assert place.scratch.parent == tmp_path
        place.file(".x").write_text("x")
        next(place.each(working.slow_first, range(9)))
        if fails:
            raise RuntimeError("broke")
    assert list(tmp_path.iterdir()) == []
    gone = RunContext.at(tmp_path / "gone", 1, None)
    with pytest.raises(VisleakError, match="no scratch folder can be made in"), gone:
        pass


def ran(folder, body):
    """Run a script in a process of its own, which finds this folder's functions."""
    (folder / "scratch").mkdir()
    begin = """
import os, signal, sys
from pathlib import Path
import numpy as np
import working
from visleak.errors import VisleakError
from visleak.pipeline.context import RunContext
"""
    (folder / "script.py").write_text(begin + body)
    command = [sys.executable, str(folder / "script.py"), str(folder / "scratch")]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


UNGUARDED = """
from visleak.encoders import load_encoder
from visleak.formats import open_images
from visleak.pipeline.fingerprints import fingerprint
print("script", flush=True)
images = open_images(list(np.random.default_rng(0).integers(0, 256, (1300, 8, 8, 3), np.uint8)))
with RunContext.at(None, 3, None) as context:
    found = fingerprint(images, load_encoder(), context)
    print(len(found), found.matrix.any())
    class Mine: pass
    try:
        context.share({'deep': [Mine()]})
    except VisleakError as error:
        print(error)
"""


def test_a_script_without_a_guard_works(tmp_path):
    """Spawned workers would run it again, and it would start workers again."""
    done = ran(tmp_path, UNGUARDED)
    assert done.stderr == ""
    *words, last = done.stdout.splitlines()
    assert words == ["script", "1300 True"]
    assert last.startswith("dict cannot be sent to worker processes (Mine is in the script itself")


INTERRUPTED = """
def stop(*_):
    raise KeyboardInterrupt
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, stop)
try:
    with RunContext.at(Path(sys.argv[1]), 2, None) as context:
        for n in context.each(working.process_of, range(10**6)):
            os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    print("interrupted")
"""

#: The signal comes once the first of two processes has started.
STARTING = """
from multiprocessing.process import BaseProcess
begin = BaseProcess.start
def start(process):
    begin(process)
    os.kill(os.getpid(), signal.{})
BaseProcess.start = start
"""


@pytest.mark.parametrize(
    "body",
    [INTERRUPTED, *(STARTING.format(name) + INTERRUPTED for name in ("SIGINT", "SIGTERM"))],
    ids=["tasks run", "SIGINT while workers start", "SIGTERM while workers start"],
)
def test_an_interrupt_ends_at_once_and_cleans_up(tmp_path, body):
    """Ctrl-C reaches the workers' process group too; only this process prints."""
    done = ran(tmp_path, body)
    assert (done.stdout, done.stderr) == ("interrupted\n", "")
    assert list((tmp_path / "scratch").iterdir()) == []


KILLED = """
with RunContext.at(Path(sys.argv[1]), 2, None) as context:
    print(*set(context.each(working.process_of, range(8))), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_workers_end_with_the_process_that_began_the_run(tmp_path):
    """A killed process cannot end them; they would wait for tasks for ever."""
    killed = ran(tmp_path, KILLED)
    assert killed.returncode == -signal.SIGKILL
    workers = [int(number) for number in killed.stdout.split()]
    assert workers
    until = time.monotonic() + 20
    while any(_is_running(worker) for worker in workers) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(_is_running(worker) for worker in workers)


def _is_running(process):
    """Whether a process exists and is not a zombie."""
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
