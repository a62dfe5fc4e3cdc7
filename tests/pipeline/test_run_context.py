"""Worker processes: order, errors, deaths, scripts without a guard, and a clean scratch folder."""

from __future__ import annotations

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
from visleak.storage import SCRATCH_PREFIX, remove_leftovers

HERE = str(Path(__file__).parent)


@given(sizes=st.lists(st.integers(0, 7), max_size=6), width=st.sampled_from([(), (3,), (2, 2)]))
def test_a_growing_column_has_what_was_appended(tmp_path_factory, sizes, width):
    rng = np.random.default_rng(sum(sizes))
    parts = [rng.normal(size=(size, *width)).astype(np.float32) for size in sizes]
    column = GrowingColumn(tmp_path_factory.mktemp("c") / "x", np.float32, width)
    for part in parts:
        column.append(part)
    got = column.mapped()
    np.testing.assert_array_equal(got, np.concatenate([np.empty((0, *width)), *parts]))
    assert got.dtype == np.float32
    assert column.rows == sum(sizes)
    assert not len(got) or not got.flags.writeable


def test_rows_of_another_shape_are_refused(tmp_path):
    column = GrowingColumn(tmp_path / "x", np.float32, (3,))
    with column, pytest.raises(ValueError, match=r"^rows must have shape \(3,\), got \(2,\)$"):
        column.append(np.zeros((1, 2)))


@pytest.fixture(autouse=True)
def _findable(monkeypatch):
    """Workers import this folder's helpers."""
    monkeypatch.setenv("PYTHONPATH", HERE)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two workers that several tests share: starting them takes most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", HERE)
        with RunContext.at(tmp_path_factory.mktemp("scratch"), 2, None) as place:
            list(place.each(working.double, [1]))
            yield place


def test_one_worker_is_this_process(tmp_path):
    with RunContext.at(tmp_path, 1, None) as place:
        assert set(place.each(working.process_of, range(2))) == {os.getpid()}
        value = object()
        path = place.share(value)
        assert list(place.each(working.load, [path])) == [value]


def test_tasks_are_taken_as_needed(pair):
    taken = []

    def tasks():
        for number in range(1000):
            taken.append(number)
            yield number

    results = pair.each(working.double, tasks())
    assert next(results) == 0
    assert len(taken) < 10
    results.close()


def test_a_shared_value_is_loaded_once_per_process(pair):
    path = pair.share({"large": list(range(1000))})
    found = set(pair.each(working.identity_of, [path] * 20))
    assert len(found) <= 2
    (value,) = pair.each(working.load, [path])
    assert value == {"large": list(range(1000))}


def test_released_workers_end_and_others_follow(tmp_path):
    with RunContext.at(tmp_path, 2, None) as place:
        path = place.share([1, 2])
        before = set(place.each(working.process_of, range(8)))
        place.executor.release()
        assert [pid for pid in before if Path(f"/proc/{pid}").exists()] == []
        assert list(place.each(working.load, [path])) == [[1, 2]]
        assert before.isdisjoint(place.each(working.process_of, range(8)))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(*working.FAILURES)
def test_an_error_of_a_task_is_raised_unchanged(pair, tmp_path, workers, function, kind, said):
    with RunContext.at(tmp_path, 1, None) as alone:
        place = alone if workers == 1 else pair
        with pytest.raises(kind) as caught:
            list(place.each(function, range(5)))
        assert str(caught.value) == said
        assert list(place.each(working.double, [4])) == [8]


def deadly(folder, count, deaths):
    """Return tasks of which one kills its process a number of times."""
    lives = folder / "lives"
    lives.mkdir()
    for life in range(deaths):
        (lives / str(life)).touch()
    return [working.Deadly(number, lives) for number in range(count)]


def test_tasks_of_a_killed_worker_are_repeated_by_fewer_workers(tmp_path):
    tasks = deadly(tmp_path, 20, deaths=2)
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
        tasks = deadly(tmp_path, 9, deaths=1)
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
    task = deadly(tmp_path, 4, deaths=1)[3]
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


def test_a_scratch_folder_that_cannot_be_made_is_one_line(tmp_path):
    with (
        pytest.raises(VisleakError, match=r"^no scratch folder can be made in .*gone: "),
        RunContext.at(tmp_path / "gone", 1, None),
    ):
        pass


def test_leftovers_of_killed_runs_are_removed(tmp_path):
    for name in (SCRATCH_PREFIX + "abc", "mine"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("")
    remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


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
"""


def test_a_script_without_a_guard_works(tmp_path):
    """Spawned workers would run it again, and it would start workers again."""
    done = ran(tmp_path, UNGUARDED)
    assert done.stderr == ""
    assert done.stdout.split() == ["script", "1300", "True"]


SHARING = """
class Mine: pass
def own(): pass
for value in (Mine(), [Mine], own, {'deep': [Mine()]}):
    with RunContext.at(None, 1, None) as context:
        assert context.share(value).load() is value
    with RunContext.at(None, 2, None) as context:
        try:
            context.share(value)
        except VisleakError as error:
            print(error)
"""


def test_definitions_of_a_script_are_refused_in_one_line(tmp_path):
    done = ran(tmp_path, SHARING)
    assert done.stderr == ""
    message = "cannot be sent to worker processes ({} is in the script itself, not in a module)"
    kinds = (("Mine", "Mine"), ("list", "Mine"), ("function", "own"), ("dict", "Mine"))
    assert done.stdout.splitlines() == [
        f"{kind} {message.format(name)}; use workers=1" for kind, name in kinds
    ]


INTERRUPTED = """
try:
    with RunContext.at(Path(sys.argv[1]), 2, None) as context:
        for n in context.each(working.process_of, range(10**6)):
            os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_ends_at_once_and_cleans_up(tmp_path):
    """Ctrl-C reaches the workers' process group too; only this process prints."""
    done = ran(tmp_path, INTERRUPTED)
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
