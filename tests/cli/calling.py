"""The command line run in this process."""

import contextlib
import io
import shlex
from dataclasses import dataclass

import pytest

from visleak.cli import main

#: A name that a terminal, rich and a line-wise reader would all misread.
HOSTILE = "[red]=x\x1b[31m\n.png"

#: For gates on the small data set, of whose seven test images one cannot be read.
MOSTLY_READABLE = ("--fail-on", "unreadable=20%")


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


class Terminal(io.TextIOWrapper):
    def isatty(self):
        return True


def run(*arguments, code=None, err=None, terminal=False):
    """Run a command line, of words or of one text, which ends with ``code`` and writes ``err``."""
    if arguments and isinstance(arguments[0], str):
        arguments = (*shlex.split(arguments[0]), *arguments[1:])
    kind = Terminal if terminal else io.TextIOWrapper
    streams = [kind(io.BytesIO(), "utf-8", newline="") for _ in range(2)]
    with (
        contextlib.redirect_stdout(streams[0]),
        contextlib.redirect_stderr(streams[1]),
        pytest.raises(SystemExit) as ended,
    ):
        main([str(argument) for argument in arguments])
    for stream in streams:
        stream.flush()
    texts = [stream.buffer.getvalue().decode() for stream in streams]
    ran = Ran(ended.value.code, *texts)
    assert isinstance(ran.code, int)
    assert "Traceback" not in ran.err
    assert code in (None, ran.code), ran
    assert err in (None, ran.err), ran
    return ran


def refused(*arguments, code=None, words=""):
    """Return exit code and message of a command line that prints one line of complaint."""
    ran = run(*arguments, code=code)
    assert ran.out == ""
    lines = ran.err.splitlines()
    assert len(lines) == 1, ran.err
    assert lines[0].startswith("visleak: ")
    assert words in lines[0], lines[0]
    return ran.code, lines[0].removeprefix("visleak: ")


def refusals(table):
    """Parametrize a test by ``arguments -> words of the complaint``, one per line of a table."""
    rows = [line.split("-> ", 1) for line in table.strip("\n").splitlines() if line.strip()]
    cells = [tuple(part.strip() for part in row) for row in rows]
    return pytest.mark.parametrize(("arguments", "words"), cells)


def check_refused(command, words, code=2, **places):
    """Check exit code and words of a command line in which places stand for ``{names}``."""
    given = [part.format(**places) for part in shlex.split(command)]
    refused(*given, code=code, words=words.format(**places))


def loaded(monkeypatch, model):
    """Let a model stand for every name; return names, devices and precisions as they are asked."""
    asked = []

    def load(name, *, device, precision):
        asked.append((name, device, precision))
        return model

    monkeypatch.setattr("visleak.diffusion.load_model", load)
    return asked
