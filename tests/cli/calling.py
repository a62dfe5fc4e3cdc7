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
    def isatty(self) -> bool:
        return True


def run(*arguments: object, terminal: bool = False) -> Ran:
    """Run a command line as ``visleak`` would; a traceback is never right."""
    kind = Terminal if terminal else io.TextIOWrapper
    out, err = (kind(io.BytesIO(), "utf-8", newline="") for _ in range(2))
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        main([str(argument) for argument in arguments])
    for stream in (out, err):
        stream.flush()
    texts = [stream.buffer.getvalue().decode() for stream in (out, err)]
    code = ended.value.code
    assert isinstance(code, int)
    assert "Traceback" not in texts[1]
    return Ran(code, *texts)


def refused(*arguments: object) -> tuple[int, str]:
    """Return exit code and message of a command line that prints one line of complaint."""
    ran = run(*arguments)
    assert ran.out == ""
    lines = ran.err.splitlines()
    assert len(lines) == 1, ran.err
    assert lines[0].startswith("visleak: ")
    return ran.code, lines[0].removeprefix("visleak: ")


def refusals(table: str) -> pytest.MarkDecorator:
    """Parametrize a test by ``arguments -> words of the complaint``, one per line of a table."""
    rows = [line.split("-> ", 1) for line in table.strip("\n").splitlines() if line.strip()]
    cells = [tuple(part.strip() for part in row) for row in rows]
    return pytest.mark.parametrize(("arguments", "words"), cells)


def check_refused(command: str, words: str, code: int = 2, **places: object) -> None:
    """Check exit code and words of a command line in which places stand for ``{names}``."""
    given = [part.format(**places) for part in shlex.split(command)]
    ended, message = refused(*given)
    assert (ended, words.format(**places) in message) == (code, True), message
