"""Signals, streams, limits of the system, and errors of the command line."""

import errno
import json
import os
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from calling import MOSTLY_READABLE, refused, run

import visleak

VISLEAK = (sys.executable, "-m", "visleak")
PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


def program(command, environment=None, **how):
    env = {**os.environ, **(environment or {})}
    return subprocess.run([*VISLEAK, *shlex.split(command)], check=False, env=env, **(PIPES | how))


#: Runs the command line with a reader that announces itself and then takes its time.
SLOW = """
import sys, time
import visleak.pipeline.fingerprints as step
def slow(*arguments, **options):
    print("reading", file=sys.stderr, flush=True)
    time.sleep(60)
step.decode = slow
from visleak.cli import main
main(sys.argv[1:])
"""


def test_help_names_every_verb():
    assert run().out == run("--help", code=0).out
    for group, name in (((), "audit"), (("memorization",), "detect"), (("evaluate",), "classify")):
        shown = run(*group, "--help").out
        assert name in shown
        assert "bool" not in shown
    # a TorchScript file is a program, which is said before anybody loads one
    words = " ".join(run("evaluate classify --help").out.replace("│", " ").split())
    assert "torchscript:FILE (a program: load trusted files only)" in words


def test_help_comes_at_once():
    """In processor seconds, so that other work of the machine does not count."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*VISLEAK, "--help"], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.0


def test_version():
    printed = run("--version").out
    assert re.fullmatch(
        rf"visleak {re.escape(visleak.__version__)}( \([0-9a-f]{{12}}\))?\n", printed
    )


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "x/y"), "the disk is full: x/y; make"),
        (PermissionError(errno.EACCES, "Permission denied", "x"), "Permission denied: x"),
        (OSError(errno.EFBIG, "File too large", "x"), "File too large: x; a process may write"),
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files; a process may open"),
        (MemoryError(), "not enough memory; use fewer --workers"),
        (ZeroDivisionError("by\nzero"), r"unexpected ZeroDivisionError: by\nzero; this is a de"),
    ],
)
def test_an_unexpected_error_is_one_line(audited, monkeypatch, error, words):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr("visleak.report.page.write_report", fails)
    code, message = refused("report", audited)
    assert code == 1
    assert message.startswith(words)


def test_a_wrong_command_line_shows_no_secrets(audited):
    _, said = refused("show", audited, "id", "https://me:secret@host/a.png?sig=key", code=2)
    assert "https://host/a.png" in said
    assert "secret" not in said
    assert "key" not in said


def test_traceback_on_demand(audited):
    ran = program(f"show {audited} nosuch", {"VISLEAK_DEBUG": "1"})
    assert ran.returncode == 2
    assert ran.stderr.startswith("Traceback")
    assert ran.stderr.endswith("visleak: no image of this audit has the id 'nosuch'\n")


@pytest.mark.parametrize(
    ("number", "code", "word", "cached"),
    [(signal.SIGINT, 130, "interrupted", True), (signal.SIGTERM, 143, "terminated", False)],
)
def test_stopped_run_reports_what_is_kept(dataset, tmp_path, number, code, word, cached):
    out, cache = tmp_path / "out", tmp_path / "cache"
    arguments = ["audit", str(dataset), "-o", str(out), "--cache", str(cache) if cached else "off"]
    with subprocess.Popen([sys.executable, "-c", SLOW, *arguments], **PIPES) as process:
        # a busy machine has steps of progress before
        assert any(line == "reading\n" for line in process.stderr)
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=30)
    kept = f"is kept in the cache {cache}" if cached else "nothing is kept"
    assert (process.returncode, stdout) == (code, "")
    assert stderr.startswith(f"visleak: {word}; ")
    assert (kept in stderr, stderr.count("\n")) == (True, 1)
    assert [path.name for path in out.iterdir()] == [".visleak.lock"]


def test_ascii_terminal_is_no_error(dataset, audited):
    ran = program(f"audit {dataset} -o {audited}", {"PYTHONIOENCODING": "ascii"})
    assert (ran.returncode, ran.stdout.startswith("3 of 6 test images")) == (0, True)


#: How lines of progress begin, which a busy machine shows.
STEPS = ("step ", "listing ", "loading ")


def shell(command):
    """Run visleak by a shell, which can close what Python cannot."""
    return subprocess.run(
        ["sh", "-c", f"{' '.join(VISLEAK)} {command}"], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("verb", "where", "cause"),
    [("--version", ">&-", "closed"), ("--help", ">/dev/full", "No space left on device")],
)
def test_what_cannot_be_shown_is_one_line(verb, where, cause):
    if "full" in where and not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    ran = shell(f"{verb} {where}")
    assert ran.returncode == 1
    (line,) = ran.stderr.splitlines()
    assert line.startswith("visleak: stdout cannot be written")
    assert cause in line


def test_a_closed_stderr_keeps_complaints_out_of_stdout(audited, dataset):
    ran = shell(f"audit {dataset} -o {audited} --json 2>&-")
    assert (ran.returncode, json.loads(ran.stdout)["schema"], ran.stderr) == (0, 2, "")
    ran = shell("nonsense 2>&-")
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", "")
    assert shell("--version >&- 2>&- <&-").returncode == 1


@pytest.mark.parametrize(
    ("command", "code"), [("--version", 0), ("audit --help", 0), ("audit {gated}", 3)]
)
def test_a_reader_that_left_is_no_error(dataset, audited, command, code):
    gated = f"{dataset} -o {audited} --fail-on near {' '.join(MOSTLY_READABLE)}"
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        ran = program(command.format(gated=gated), stdout=closed)
    assert ran.returncode == code
    lines = [line for line in ran.stderr.splitlines() if not line.startswith(STEPS)]
    starts = ("reused: ", "visleak: gate near") if code else ()
    assert [line.startswith(start) for line, start in zip(lines, starts, strict=True)] == [
        True for _ in starts
    ]


def bounded(kind, most):
    return lambda: resource.setrlimit(kind, (most, most))


def limited(command, limit, cwd=None):
    """Return the one line in which a run ends with 1."""
    # Python would keep bytecode that the limit cuts, and every later run would fail to load it
    ran = program(command, {"PYTHONDONTWRITEBYTECODE": "1"}, preexec_fn=limit, cwd=cwd)
    assert ran.returncode == 1, ran
    line = ran.stderr.splitlines()[-1]
    assert "defect" not in ran.stderr
    assert "Traceback" not in ran.stderr
    assert line.startswith("visleak: ")
    return line


def left(folder):
    return [path.name for path in folder.rglob("*") if path.name != ".visleak.lock"]


@pytest.mark.parametrize("megabytes", [300, 800])
def test_too_little_address_space(audited, tmp_path, megabytes):
    limit = bounded(resource.RLIMIT_AS, megabytes * 1_000_000)
    line = limited(f"stats {audited} -o {tmp_path}/out", limit)
    assert "memory" in line
    assert f"{megabytes} MB" in line
    assert left(tmp_path) == []


@pytest.mark.parametrize("verb", ["audit {data}", "show {audit} thing/copy.png"])
def test_a_limit_on_files(dataset, audited, tmp_path, verb):
    out = tmp_path / "out.png"
    command = f"{verb.format(data=dataset, audit=audited)} -o {out}"
    line = limited(command, bounded(resource.RLIMIT_FSIZE, 2_000))
    assert "File too large" in line
    assert str(out) in line
    assert set(left(tmp_path)) <= {"out.png"}


def test_verdicts_that_cannot_be_written(folder, tmp_path):
    """SQLite writes them, which no test of writes in Python reaches."""
    given = tmp_path / "list.csv"
    given.write_text("TestID,TrainID,Judgment\nthing/copy.png,thing/t0.png,0\n")
    command = f"verdicts {folder} import {given} --reviewer Ada"
    for most in (1_000, 10_000):
        line = limited(command, bounded(resource.RLIMIT_FSIZE, most))
        assert str(folder / "verdicts.sqlite") in line
        assert not (folder / "verdicts.csv").exists()
    run(command, code=0)
    assert (folder / "verdicts.csv").read_text().count("\n") == 2


def test_a_working_folder_that_was_deleted(audited, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    line = limited(f"export {audited} --format csv -o e.csv", gone.rmdir, gone)
    assert "working folder" in line


@pytest.mark.skipif(sys.platform != "linux", reason="names are any bytes on Linux alone")
def test_names_that_are_not_utf8(dataset, tmp_path):
    name = os.fsdecode(b"na\xefve")
    data = Path(shutil.copytree(dataset, tmp_path / "data"))
    (data / "test" / "thing" / "copy.png").rename(data / "test" / "thing" / f"{name}.png")
    audit = tmp_path / f"audit {name}"
    assert run("audit", data, "-o", audit, "--workers", 1).code == 0
    shown = run("show", audit, f"thing/{name}.png", "-o", tmp_path / f"{name}.jpg", code=0)
    assert "thing/na\\xefve.png" in shown.out
    assert (tmp_path / f"{name}.jpg").stat().st_size
    for kind, *command in (
        ("html", "report", audit),
        ("csv", "export", audit, "--format", "csv"),
        ("json", "diff", audit, audit),
    ):
        run(*command, "-o", tmp_path / f"{name}.{kind}", code=0)
        assert (tmp_path / f"{name}.{kind}").stat().st_size


#: Seconds after which a run that was stopped has ended.
PATIENCE = 60

#: Python itself is loading before: what it says then is not visleak's.
EARLIEST = 0.25

AUDIT = "audit {data} --cache off --workers 2"
PURGE = "purge {audit} --remove-from test --grade near --format copy --apply"


def started(command, dataset, audited, out):
    given = command.format(data=dataset, audit=audited).split()
    return subprocess.Popen([*VISLEAK, *given, "-o", str(out)], **PIPES, start_new_session=True)


def stop_and_check(process, number, *, group, out):
    """Send a signal to a run, or to its workers too; it ends in good order or was faster."""
    (os.killpg if group else os.kill)(process.pid, number)
    _, printed = process.communicate(timeout=PATIENCE)
    assert process.returncode in (0, 128 + number), printed
    if process.returncode:
        # a machine with other work says how far a slow step is
        *progress, line = printed.splitlines()
        assert all(other.startswith("step ") for other in progress), printed
        assert line.startswith("visleak: ")
        assert ("interrupted" if number == signal.SIGINT else "terminated") in line
    left = [path.name for path in out.parent.rglob("*")]
    assert [name for name in left if name.endswith(".part") or "scratch" in name] == []


def test_a_signal_to_the_group_while_workers_load(dataset, audited, tmp_path):
    process = started(AUDIT, dataset, audited, tmp_path / "out")
    while not list((tmp_path / "out").glob(".visleak-scratch-*/workers-*")):
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(0.2)
    stop_and_check(process, signal.SIGINT, group=True, out=tmp_path / "out")


@pytest.mark.slow
@pytest.mark.parametrize("verb", [AUDIT, PURGE], ids=["audit", "purge"])
def test_a_signal_at_any_moment(dataset, audited, tmp_path, verb):
    draw = random.Random(verb)
    start = time.monotonic()
    _, printed = started(verb, dataset, audited, tmp_path / "whole").communicate(timeout=PATIENCE)
    took = time.monotonic() - start
    whole = {path.name for path in tmp_path.rglob("*")}
    assert whole, printed
    for moment in range(2):
        out = tmp_path / f"{moment}" / "whole"
        out.parent.mkdir()
        process = started(verb, dataset, audited, out)
        time.sleep(draw.uniform(EARLIEST, took))
        number = draw.choice([signal.SIGINT, signal.SIGTERM])
        stop_and_check(process, number, group=draw.random() < 0.5, out=out)
        shutil.rmtree(out.parent)
