import errno
import os
import re
import resource
import signal
import subprocess
import sys

import pytest
from calling import MOSTLY_READABLE, refused, run

import visleak
from visleak.templates import plain

VISLEAK = (sys.executable, "-m", "visleak")

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
    ran = run("--help")
    assert ran.code == 0
    for verb in ("audit", "report", "show", "export"):
        assert verb in ran.out
    assert "audit" in run().out
    for group in ((), ("memorization",), ("evaluate",)):
        assert "bool" not in run(*group, "--help").out


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


def test_unknown_verb():
    code, message = refused("adit")
    assert (code, "'adit'" in message, "audit" in message) == (2, True, True)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "x/y"), "the disk is full: x/y; make"),
        (PermissionError(errno.EACCES, "Permission denied", "x"), "Permission denied: x"),
        (OSError(errno.EFBIG, "File too large", "x"), "File too large: x; a process may write"),
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files; a process may open"),
        (MemoryError(), "not enough memory; use fewer --workers"),
        (ZeroDivisionError("by\nzero"), r"unexpected ZeroDivisionError: by\nzero; this is a de"),
    ],
)
def test_what_nobody_foresaw_is_one_line(audited, monkeypatch, error, said):
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("visleak.report.page.write_report", fails)
    code, message = refused("report", audited)
    assert code == 1
    assert message.startswith(said)


def test_traceback_on_demand(audited):
    ran = subprocess.run(
        [*VISLEAK, "show", str(audited), "nosuch"],
        env={**os.environ, "VISLEAK_DEBUG": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert ran.stderr.startswith("Traceback")
    assert ran.stderr.endswith("visleak: no image of this audit has the id 'nosuch'\n")


@pytest.mark.parametrize(
    ("number", "code", "word", "cached"),
    [(signal.SIGINT, 130, "interrupted", True), (signal.SIGTERM, 143, "terminated", False)],
)
def test_stopped_run_says_what_is_kept(dataset, tmp_path, number, code, word, cached):
    out, cache = tmp_path / "out", tmp_path / "cache"
    arguments = ["audit", str(dataset), "-o", str(out), "--cache", str(cache) if cached else "off"]
    with subprocess.Popen(
        [sys.executable, "-c", SLOW, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        # a busy machine has steps of progress before
        assert any(line == "reading\n" for line in process.stderr)
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=30)
    kept = f"is kept in the cache {cache}" if cached else "nothing is kept"
    assert (process.returncode, stdout) == (code, "")
    assert stderr.startswith(f"visleak: {word}; ")
    assert (kept in stderr, stderr.count("\n")) == (True, 1)
    assert [path.name for path in out.iterdir()] == [".visleak.lock"]


#: How lines of progress begin, which a busy machine shows.
STEPS = ("step ", "listing ", "loading ")


def test_reader_that_leaves_early(dataset, audited):
    reading, writing = os.pipe()
    os.close(reading)
    gates = ("--fail-on", "near", *MOSTLY_READABLE)
    with os.fdopen(writing, "wb") as closed:
        ran = subprocess.run(
            [*VISLEAK, "audit", str(dataset), "-o", str(audited), *gates],
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert ran.returncode == 3
    lines = [line for line in ran.stderr.splitlines() if not line.startswith(STEPS)]
    first, second = lines
    assert first.startswith("reused: ")
    assert second.startswith("visleak: gate near")


def test_ascii_terminal_is_no_error(dataset, audited):
    ran = subprocess.run(
        [*VISLEAK, "audit", str(dataset), "-o", str(audited)],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )
    assert ran.returncode == 0
    assert ran.stdout.startswith(b"3 of 6 test images")


def test_plain_keeps_what_people_write():
    assert plain("Grüße 猫.png") == "Grüße 猫.png"
    assert plain("a\u202egnp.exe\r") == r"a\u202egnp.exe\r"
