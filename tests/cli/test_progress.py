from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from visleak.cli.terminal import bars


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stream", "term"), [(io.StringIO, "xterm"), (Terminal, "dumb")])
def test_silence_off_a_terminal(
    monkeypatch: pytest.MonkeyPatch, stream: type[io.StringIO], term: str
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(sys, "stderr", stream())
    with bars() as progress:
        progress("reading test", 1, 10)
    assert sys.stderr.getvalue() == ""


def test_steps_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(sys, "stderr", Terminal())
    with bars() as progress:
        progress("listing", 0, 0)
        progress("listing", 1, 1)
        progress("reading [red]x\x1b[31m\n", 0, 2_000)
        progress("reading [red]x\x1b[31m\n", 2_000, 2_000)
        progress("reading [red]x\x1b[31m\n", 500, 2_000)
    text = sys.stderr.getvalue()
    assert r"reading [red]x\x1b[31m\n" in text
    assert "500 of 2,000" in text


def test_whole_audit_on_a_terminal(dataset: Path, tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "visleak", "audit", str(dataset), "-o", str(tmp_path / "out")],
        stdout=follower,
        stderr=follower,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"},
    ) as process:
        os.close(follower)
        parts = []
        while True:
            try:
                parts.append(os.read(leader, 65536))
            except OSError:  # how Linux tells the end of a terminal
                break
            if not parts[-1]:
                break
    os.close(leader)
    text = b"".join(parts).decode()
    assert process.returncode == 0
    assert "reading test" in text
    last = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.rpartition("\x1b[2K")[2])
    assert last.lstrip("\r").startswith("3 of 6 test images")
    assert "\x1b[1m3 of 6 test images" in text
