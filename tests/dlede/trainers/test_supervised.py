"""A command that runs for hours: its log, its end by itself, by time, with who asked."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from handed import script

from refusals import refusal
from visleak.dlede.train import TrainingFailed, supervisor
from visleak.dlede.train.execution import last_line, run_command

#: A program that starts another, tells both ids, and waits.
FAMILY = """
import subprocess
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
Path(sys.argv[1] + ".part").write_text(f"{os.getpid()} {child.pid}")
os.rename(sys.argv[1] + ".part", sys.argv[1])
time.sleep(600)
"""

#: What is deaf to what asks it to end.
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"


def is_running(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(path):
    until = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    return [int(word) for word in path.read_text().split()]


def are_gone(processes, seconds=10):
    until = time.monotonic() + seconds
    while any(map(is_running, processes)) and time.monotonic() < until:
        time.sleep(0.02)
    return not any(map(is_running, processes))


def run(tmp_path, text, *arguments, limit=None):
    program = script(tmp_path / "program.py", text)
    run_command([sys.executable, str(program), *arguments], tmp_path / "log.txt", limit=limit)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (
            "print('\\x1b[31mCUDA\\x1b[0m out\\r  of memory\\x07 \\n'); sys.exit(3)",
            "the command ended with exit code 3; its last line: of memory",
        ),
        ("os.kill(os.getpid(), 9)", "ended by SIGKILL, most likely for lack of memory"),
        ("os.kill(os.getpid(), 11)", "ended by SIGSEGV; it printed nothing"),
    ],
)
def test_how_a_program_ended_is_told(tmp_path, program, said):
    assert said in refusal(TrainingFailed, run, tmp_path, program)


def test_a_program_that_is_no_program_is_told(tmp_path):
    (tmp_path / "program").write_text("no program")
    with pytest.raises(TrainingFailed, match=r"exit code 127; its last line: .*cannot be started"):
        run_command([str(tmp_path / "program")], tmp_path / "log.txt")


def test_at_the_time_limit_the_whole_group_is_ended(tmp_path):
    said = refusal(TrainingFailed, run, tmp_path, FAMILY, str(tmp_path / "ids"), limit=1)
    assert "it took longer than 1 seconds and was ended" in said
    assert are_gone(wait_for(tmp_path / "ids"), seconds=1)


def test_what_ended_well_and_left_others_running_is_cleared_up(tmp_path):
    text = FAMILY.rpartition("time.sleep")[0]
    run(tmp_path, text, str(tmp_path / "ids"))
    assert are_gone(wait_for(tmp_path / "ids"), seconds=1)


#: Asks itself, or as in a pool: a process of ours asks, and only the one above it is killed.
ASKER = """
import multiprocessing
from visleak.dlede.train.execution import run_command

def ask():
    run_command([sys.executable, sys.argv[1], sys.argv[2]], Path(sys.argv[2] + ".log"))

if __name__ == "__main__" and sys.argv[3] == "alone":
    ask()
elif __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=ask)
    process.start()
    process.join()
"""


@pytest.mark.parametrize(
    ("how", "name"), [("alone", "SIGKILL"), ("alone", "SIGINT"), ("pool", "SIGKILL")]
)
def test_nothing_stays_behind_where_the_one_who_asked_is_ended(tmp_path, how, name):
    asker = script(tmp_path / "asker.py", ASKER)
    program = script(tmp_path / "program.py", FAMILY)
    words = [sys.executable, asker, program, tmp_path / "ids", how]
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        family = wait_for(tmp_path / "ids")
        assert all(map(is_running, family))
        os.kill(process.pid, getattr(signal, name))
        process.wait(20)
    finally:
        process.kill()
    assert are_gone(family)


def test_who_is_deaf_is_killed(tmp_path, monkeypatch):
    program = script(tmp_path / "program.py", DEAF + FAMILY)
    process = subprocess.Popen(
        [sys.executable, str(program), str(tmp_path / "ids")], start_new_session=True
    )
    family = wait_for(tmp_path / "ids")
    monkeypatch.setattr(supervisor, "GRACE", 0.3)
    begun = time.monotonic()
    supervisor.end(process.pid)
    assert time.monotonic() - begun >= 0.3
    assert process.wait(10) == -signal.SIGKILL
    assert are_gone(family)


def test_last_words_are_short_and_plain(tmp_path):
    log = tmp_path / "log.txt"
    log.write_bytes(b"x" * 100_000 + b"\xff\xfe\x1b]0;title\x07\x1b[2Kend\x00\n \n")
    assert last_line(log) == f"{'x' * 197}..."
