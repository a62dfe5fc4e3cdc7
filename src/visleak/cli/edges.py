"""The edge between the command line and the rest: texts that go out, errors that end a run."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import typer

from visleak import templates
from visleak.cli import interrupts, streams
from visleak.cli.interrupts import Terminated
from visleak.errors import VisleakError, VisleakWarning

INTERRUPTED: Final = 128 + signal.SIGINT

#: Bytes of address space below which no verb gets as far as to its work.
LEAST_SPACE: Final = 700_000_000

#: Untrusted text as one line that no terminal takes for a command.
plain: Final = templates.plain

#: What typer raises for a wrong command line, whichever click it carries.
Refusal: Final[Any] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)


class Stopped(VisleakError):
    """Somebody ended the run; carries the exit code of the signal."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code


def complain(text: str) -> None:
    """Write one line about this run to stderr."""
    print(f"visleak: {plain(text)}", file=sys.stderr, flush=True)


def note(text: str) -> None:
    """Write a line that is not a warning to stderr."""
    print(plain(text), file=sys.stderr, flush=True)


def say(text: str) -> None:
    """Write finished text to stdout."""
    sys.stdout.write(text)
    sys.stdout.flush()


def say_json(content: Any) -> None:
    """Write plain values to stdout as JSON."""
    text = json.dumps(content, indent=1, ensure_ascii=False)
    say(text.encode("utf-8", "backslashreplace").decode("utf-8") + "\n")


def say_bytes(data: bytes) -> None:
    """Write bytes to stdout as they are."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def run(command: Any, arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code; every error becomes one line on stderr."""
    with streams.guarded(), interrupts.handled() as signals:
        try:
            _refuse_small_space(arguments)
            with _warnings_in_a_line():
                code = command.main(
                    args=list(arguments),
                    prog_name="visleak",
                    standalone_mode=False,
                    obj=tuple(arguments),
                )
            # newer typers turn Ctrl-C, and what is like it, into a plain exit code
            if code == INTERRUPTED:
                raise signals.error()
            return code if isinstance(code, int) else 0
        except (Exception, KeyboardInterrupt) as error:
            if os.environ.get("VISLEAK_DEBUG") not in (None, "", "0"):
                traceback.print_exc()
            # libraries make errors of their own of an interrupt
            stopped = signals.came is not None and not isinstance(error, Stopped)
            cause = signals.error() if stopped else error
            message, code = verdict(cause, verb=next(iter(arguments), ""))
            complain(message)
            return code


@contextmanager
def _warnings_in_a_line() -> Iterator[None]:
    """Show visleak's own warnings as lines about this run."""
    shown = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, VisleakWarning):
            complain(str(message))
        else:
            shown(message, category, *where, **more)

    with warnings.catch_warnings():
        warnings.simplefilter("always", VisleakWarning)
        warnings.showwarning = show
        yield


def verdict(error: BaseException, verb: str = "") -> tuple[str, int]:
    """Return the line that tells of an error of a verb, and the exit code.

    >>> verdict(VisleakError("a.zip is damaged"))
    ('a.zip is damaged', 1)
    """
    if isinstance(error, VisleakError):
        return str(error), error.exit_code
    if isinstance(error, Terminated):
        return "terminated", 128 + signal.SIGTERM
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return "interrupted", INTERRUPTED
    if isinstance(error, Refusal):
        return _refused(error, verb), int(getattr(error, "exit_code", 2))
    return _unforeseen(error), 1


def _unforeseen(error: BaseException) -> str:
    """Return the line for an unexpected error."""
    if _is_lack_of_memory(error):
        return f"not enough memory{_limit()}; use fewer --workers, or audit in parts"
    if isinstance(error, FileNotFoundError) and not _where(error) and _is_nowhere():
        return "the working folder was deleted; change to one that exists (cd)"
    if _is_full_disk(error):
        return (
            f"the disk is full{_where(error)}; make room, or write elsewhere with -o DIR"
            " and --cache DIR"
        )
    if isinstance(error, OSError):
        return f"{error.strerror or error}{_where(error)}"
    if isinstance(error, UnicodeEncodeError) and "surrogates" in error.reason:
        return f"the name {error.object} is not UTF-8, as is needed here; give it another one"
    return (
        f"unexpected {type(error).__name__}: {error}; this is a defect of visleak,"
        " VISLEAK_DEBUG=1 shows where"
    )


def _is_lack_of_memory(error: BaseException) -> bool:
    """Whether memory, or room for one more thread or library, was asked for in vain."""
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return True
    words = ("failed to map segment", "cannot allocate memory", "can't start new thread")
    return isinstance(error, ImportError | RuntimeError | OSError) and any(
        word in str(error).lower() for word in words
    )


def _address_space() -> int | None:
    """Return how many bytes a process of this session may address, if that is bounded."""
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if most == resource.RLIM_INFINITY else most


def _limit() -> str:
    most = _address_space()
    if most is None:
        return ""
    return f" (a process may use {most // 1_000_000:,} MB of address space, see ulimit -v)"


def _refuse_small_space(arguments: Sequence[str]) -> None:
    """Refuse to begin where the libraries cannot be loaded; some of them would end the process.

    Raises:
        VisleakError: it is so.
    """
    most = _address_space()
    asked = set(arguments) - {"--help", "-h", "--version"}
    if most is not None and most < LEAST_SPACE and len(asked) == len(set(arguments)) > 0:
        raise VisleakError(
            f"not enough memory{_limit()}; the libraries alone need {LEAST_SPACE // 1_000_000:,} MB"
        )


def _is_nowhere() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _is_full_disk(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return "disk is full" in str(error)


def _where(error: BaseException) -> str:
    name = getattr(error, "filename", None)
    return f": {os.fsdecode(name)}" if isinstance(name, str | bytes) else ""


def _refused(error: Any, verb: str) -> str:
    """Return what is wrong with a command line, and what was most likely meant."""
    message = " ".join(str(error.format_message()).split()).rstrip(".")
    option = getattr(error, "option_name", None)
    guesses = getattr(error, "possibilities", None)
    if option and message.startswith("No such option"):
        message = f"no such option {option}"
        message += f"; did you mean {' or '.join(guesses)}?" if guesses else ""
    message = message[:1].lower() + message[1:]
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else f"visleak {verb}".strip()
    return message if "did you mean" in message.lower() else f"{message}; see {path} --help"
