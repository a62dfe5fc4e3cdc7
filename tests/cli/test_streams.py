"""stdout and stderr that are closed, full, or lead to a reader that has left."""

import json
import os
import subprocess
import sys

import pytest

VISLEAK = f"{sys.executable} -m visleak"


def shell(command: str) -> subprocess.CompletedProcess[str]:
    """Run visleak by a shell, which can close what Python cannot."""
    return subprocess.run(
        ["sh", "-c", f"{VISLEAK} {command}"], capture_output=True, text=True, check=False
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
    assert (ran.returncode, json.loads(ran.stdout)["schema"], ran.stderr) == (0, 1, "")
    ran = shell("nonsense 2>&-")
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", "")
    assert shell("--version >&- 2>&- <&-").returncode == 1


@pytest.mark.parametrize("verb", ["--version", "audit --help"])
def test_a_reader_that_left_is_no_error(verb):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        ran = subprocess.run(
            [*VISLEAK.split(), *verb.split()],
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (ran.returncode, ran.stderr) == (0, "")
