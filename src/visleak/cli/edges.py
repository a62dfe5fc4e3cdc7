"""The edge of the command line: signals, streams, texts that go out, errors that end a run."""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import re
import select
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import Any, Final

import typer

from visleak.errors import UsageError, VisleakError, VisleakWarning
from visleak.options import Messages
from visleak.progress import logger
from visleak.templates import plain

#: What ends a run.
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

#: Seconds in which a second signal is the first one, sent to a process and to its group.
SAME: Final = 1.0


class Terminated(KeyboardInterrupt):
    """SIGTERM was received; cleaned up as for Ctrl-C."""


class _Interrupts:
    """Raises an exception for the first signal; a later one ends the process at once."""

    def __init__(self) -> None:
        self.came: int | None = None
        self._since = 0.0

    def handle(self, number: int, frame: FrameType | None) -> None:
        if self.came is None:
            self.came, self._since = number, time.monotonic()
            raise self.error()
        if time.monotonic() - self._since > SAME:
            with suppress(OSError):
                os.write(2, b"visleak: stopped while it cleaned up; the next run does the rest\n")
            os._exit(128 + self.came)

    def error(self) -> KeyboardInterrupt:
        """Return what the first signal is in Python."""
        return Terminated() if self.came == signal.SIGTERM else KeyboardInterrupt()

    def raise_again(self) -> None:
        """Raise what came again, soon: Python drops what is raised where it tidies up."""
        number, self.came = self.came, None
        if number is not None:
            timer = threading.Timer(0.01, os.kill, (os.getpid(), number))
            timer.daemon = True
            timer.start()


@contextmanager
def handled() -> Iterator[_Interrupts]:
    """Let signals unwind the stack, so that scratch files are removed; give the first signal."""
    interrupts = _Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield interrupts  # the main thread handles signals
        return
    # a shell has what it runs in the background ignore Ctrl-C
    taken = [n for n in SIGNALS if signal.getsignal(n) not in (signal.SIG_IGN, None)]
    before = [signal.signal(number, interrupts.handle) for number in taken]
    hook = sys.unraisablehook

    def unraisable(what: sys.UnraisableHookArgs) -> None:
        if isinstance(what.exc_value, KeyboardInterrupt):
            interrupts.raise_again()
        else:
            hook(what)

    sys.unraisablehook = unraisable
    try:
        yield interrupts
    finally:
        sys.unraisablehook = hook
        for number, handler in zip(taken, before, strict=True):
            signal.signal(number, handler)


class _Outlet(io.RawIOBase):
    """A stream's bytes on their way out; dropped once the reader has closed (``| head``)."""

    def __init__(self, raw: Any, *, reports: bool) -> None:
        self._raw, self._reports, self._open = raw, reports, True

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._raw is not None and bool(self._raw.isatty())

    def fileno(self) -> int:
        if self._raw is None:
            raise OSError("the stream is closed")
        return int(self._raw.fileno())

    def write(self, data: Any) -> int:
        try:
            left = memoryview(data) if self._open else memoryview(b"")
            while left:
                if self._raw is None:
                    raise OSError(0, "it is closed")
                written = self._raw.write(left)
                if written is None:  # the parent process made writing non-blocking
                    select.select([], [self._raw], [])
                left = left[written or 0 :]
        except BrokenPipeError:
            self._open = False
        except OSError as error:
            self._open = False
            if self._reports:
                raise VisleakError(
                    f"stdout cannot be written ({error.strerror}); give it a file or a pipe that"
                    " takes what is shown"
                ) from error
        return len(data)


@contextmanager
def guarded() -> Iterator[None]:
    """Report every failure of stdout and stderr in one line."""
    # what was closed is opened, so that no other file gets its number, and what is printed with it
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    before = sys.stdout, sys.stderr
    sys.stdout = _guarded(before[0], reports=True)
    sys.stderr = _guarded(before[1], reports=False)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(VisleakError, ValueError):
                stream.flush()
        sys.stdout, sys.stderr = before


def _guarded(stream: Any, *, reports: bool) -> Any:
    """Return a stream that writes to the same place through an :class:`_Outlet`."""
    raw = getattr(stream, "buffer", None)
    raw = raw if isinstance(raw, io.RawIOBase) else getattr(raw, "raw", None)
    if stream is not None:
        if raw is None:
            # a stream of the caller: only names that are not UTF-8 must not end a run
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
            return stream
        with suppress(OSError):
            stream.flush()
    outlet = _Outlet(raw, reports=reports)
    # without a buffer, as what an interrupted write leaves in one is written twice
    return io.TextIOWrapper(
        outlet,
        encoding=getattr(stream, "encoding", None) or "utf-8",
        errors="backslashreplace",
        write_through=True,
    )


INTERRUPTED: Final = 128 + signal.SIGINT

#: Bytes of address space below which OpenBLAS, of which three libraries bring one, ends the process
#: or waits for ever.
LEAST_SPACE: Final = 1_000_000_000

#: What bounds a process, by the number of the error, and what to do.
BOUNDS: Final = {
    errno.EFBIG: "; a process may write no larger file, see ulimit -f",
    errno.EMFILE: "; a process may open no more, see ulimit -n; use fewer --workers",
}

#: What typer raises for a wrong command line, whichever click it carries.
Refusal: Final[Any] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)


class Stopped(VisleakError):
    """The run was ended by a signal, whose exit code it carries."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code


#: Whether notes are left out.
_quiet: Final = ContextVar("quiet", default=False)


class _Notes(logging.Handler):
    """Shows what the library warns of; what the command line reports itself is shown already."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.name != logger.name:
            print_note(record.getMessage())


@contextmanager
def messages(options: Messages, line: str) -> Iterator[None]:
    """Leave notes out, or write a log, by the options of a command."""
    handlers: list[logging.Handler] = [_Notes(logging.WARNING)]
    if options.log_file is not None:
        handlers.append(_Log(options.log_file))
        logger.setLevel(logging.DEBUG)
    token = _quiet.set(options.quiet)
    for handler in handlers:
        logger.addHandler(handler)
    logger.info("%s", _public(line))
    try:
        yield
    except BaseException as error:
        if not isinstance(error, typer.Exit):
            logger.error("%s", _public(error_line(error)[0]))
        raise
    finally:
        for handler in handlers:
            logger.removeHandler(handler)
            handler.close()
        logger.setLevel(logging.NOTSET)
        _quiet.reset(token)


class _Log(logging.FileHandler):
    """A log that is added to; it is opened once the sources are known, among which it may not lie.

    The command line, the sources and the step that lists them come first.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, encoding="utf-8", delay=True)
        self._path = path
        self._held: list[logging.LogRecord] = []
        self._refused = False
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        head = b""
        with self._refusing():
            # a missing folder is an error, a missing file is not
            if path.exists() or not path.parent.is_dir():
                with path.open("rb") as file:
                    head = file.read(40)
        if head and not re.match(rb"\d{4}-\d\d-\d\d [\d:,]{12} [A-Z]+ ", head):
            raise UsageError(f"--log-file {path} exists, and is not a log; choose another file")

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except UsageError:
            self._refused = True
            raise
        except OSError as error:
            self._refused = True
            words = f"--log-file {self._path} cannot be written ({error.strerror})"
            raise UsageError(words) from error

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or hold it while sources are opened."""
        from visleak.storage import refuse_among

        if self._refused:
            return
        source = getattr(record, "source", None)
        # of images that a list, a table or a pattern names
        folders = getattr(record, "folders", None) or ()
        parent = self._path.resolve().parent
        with self._refusing():
            if source is not None:
                base = getattr(record, "base", Path())
                refuse_among(self._path, [(source, source)], base, "the log", "--log-file FILE")
            if parent in folders:
                raise UsageError(
                    f"the log {self._path} lies among the images of {parent}, which are only read;"
                    " choose another place with --log-file FILE"
                )
        first = not self._held and self.stream is None
        self._held.append(record)
        listing = source or folders or record.getMessage().endswith("listing images")
        if not (first or listing):
            self._release()

    def _release(self) -> None:
        with self._refusing():
            while self._held:
                super().emit(self._held.pop(0))

    def close(self) -> None:
        if not self._refused:
            self._release()
        super().close()


def _public(text: str) -> str:
    """Return a text in one line, without the secrets of addresses in it."""
    if "://" in text:  # otherwise nothing is imported, as memory may be lacking
        from visleak.formats.remote import redacted

        text = redacted(text)
    return plain(text)


def warn(text: str) -> None:
    """Write one line about this run to stderr."""
    logger.warning("%s", _public(text))
    print_error(text)


def print_error(text: str) -> None:
    """Write a warning or error to stderr that is in the log already."""
    print(f"visleak: {_public(text)}", file=sys.stderr, flush=True)


def note(text: str) -> None:
    """Write a line that is not a warning to stderr."""
    logger.info("%s", plain(text))
    print_note(text)


def print_note(text: str) -> None:
    """Write a line to stderr that is in the log already, unless it is to be quiet."""
    if not _quiet.get():
        print(plain(text), file=sys.stderr, flush=True)


def print_text(text: str) -> None:
    """Write finished text to stdout."""
    sys.stdout.write(text)
    sys.stdout.flush()


def print_line(text: str) -> None:
    """Write a line to stdout at once, while a command runs."""
    print_text(f"{plain(text)}\n")


def print_json(content: Any) -> None:
    """Write plain values to stdout as JSON."""
    text = json.dumps(content, indent=1, ensure_ascii=False)
    print_text(text.encode("utf-8", "backslashreplace").decode("utf-8") + "\n")


def print_bytes(data: bytes) -> None:
    """Write bytes to stdout as they are."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def run(
    command: Any,
    arguments: Sequence[str],
    defaults: Callable[[Any], dict[str, Any]] = lambda command: {},
) -> int:
    """Run a command line and return its exit code; every error becomes one line on stderr.

    Args:
        command: the group of all commands.
        arguments: without the program's name.
        defaults: returns the defaults of options that the user has set elsewhere.
    """
    with guarded(), handled() as signals:
        try:
            _refuse_small_space(arguments)
            with _warnings_in_a_line():
                code = command.main(
                    args=list(arguments),
                    prog_name="visleak",
                    standalone_mode=False,
                    obj=tuple(arguments),
                    default_map=defaults(command),
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
            message, code = error_line(cause, verb=next(iter(arguments), ""))
            print_error(message)
            return code


@contextmanager
def _warnings_in_a_line() -> Iterator[None]:
    """Show visleak's own warnings as lines about this run."""
    shown = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, VisleakWarning):
            warn(str(message))
        else:
            shown(message, category, *where, **more)

    with warnings.catch_warnings():
        warnings.simplefilter("always", VisleakWarning)
        warnings.showwarning = show
        yield


def error_line(error: BaseException, verb: str = "") -> tuple[str, int]:
    """Return the line of an error of a command, and the exit code.

    >>> error_line(VisleakError("a.zip is damaged"))
    ('a.zip is damaged', 1)
    """
    if isinstance(error, VisleakError):
        return str(error), error.exit_code
    if isinstance(error, Terminated):
        return "terminated", 128 + signal.SIGTERM
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return "interrupted", INTERRUPTED
    if isinstance(error, Refusal):
        return _usage_error(error, verb), int(getattr(error, "exit_code", 2))
    return _unexpected_error(error), 1


def _unexpected_error(error: BaseException) -> str:
    name = getattr(error, "filename", None)
    where = f": {os.fsdecode(name)}" if isinstance(name, str | bytes) else ""
    if _is_lack_of_memory(error):
        return f"not enough memory{_limit()}; use fewer --workers, or audit in parts"
    if isinstance(error, FileNotFoundError) and not where and _is_nowhere():
        return "the working folder was deleted; change to one that exists (cd)"
    number = error.errno or 0 if isinstance(error, OSError) else 0
    if number in (errno.ENOSPC, errno.EDQUOT) or "disk is full" in str(error):
        return f"the disk is full{where}; make room, or write elsewhere with -o DIR and --cache DIR"
    if isinstance(error, OSError):
        return f"{error.strerror or error}{where}{BOUNDS.get(number, '')}"
    if isinstance(error, UnicodeEncodeError) and "surrogates" in error.reason:
        return f"the name {error.object} is not UTF-8, as is needed here; give it another one"
    return (
        f"unexpected {type(error).__name__}: {error}; this is a defect of visleak,"
        " VISLEAK_DEBUG=1 shows where"
    )


def _is_lack_of_memory(error: BaseException) -> bool:
    """Whether there was not enough memory, also for one more thread or library."""
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
    if (most := _address_space()) is None:
        return ""
    return f" (a process may use {most // 1_000_000:,} MB of address space, see ulimit -v)"


def _refuse_small_space(arguments: Sequence[str]) -> None:
    """Refuse to begin where the libraries cannot be loaded; some of them would end the process."""
    most = _address_space()
    light = not arguments or not {"--help", "-h", "--version"}.isdisjoint(arguments)
    if most is not None and most < LEAST_SPACE and not light:
        raise VisleakError(
            f"not enough memory{_limit()}; the libraries alone need {LEAST_SPACE // 1_000_000:,} MB"
        )


def _is_nowhere() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _usage_error(error: Any, verb: str) -> str:
    from visleak.formats.sources import IN_SOURCE

    message = " ".join(str(error.format_message()).split()).rstrip(".")
    option, guesses = (getattr(error, name, None) for name in ("option_name", "possibilities"))
    if option and message.startswith("No such option"):
        message = f"no such option {option}"
        if example := IN_SOURCE.get(option.lstrip("-")):
            return f"{message}; it stands in the text of the source: {example}"
        message += f"; did you mean {' or '.join(guesses)}?" if guesses else ""
    message = message[:1].lower() + message[1:]
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else f"visleak {verb}".strip()
    name = getattr(getattr(error, "param", None), "name", None)
    source = context.get_parameter_source(name) if context is not None and name else None
    if source is not None and source.name == "DEFAULT_MAP":
        message += ", by a default of the project's file or of a variable VISLEAK_..."
    return message if "did you mean" in message.lower() else f"{message}; see {path} --help"
