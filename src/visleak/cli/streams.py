"""stdout and stderr, which may be closed, full, or lead to a reader that has left."""

from __future__ import annotations

import io
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from visleak.errors import VisleakError


class Outlet(io.RawIOBase):
    """A stream's bytes on their way out; after a failure they go nowhere.

    A reader that went away (``| head``) is not an error.

    Args:
        raw: what is written to, ``None`` for a stream that was closed before the program began.
        told: whether other failures are told.
    """

    def __init__(self, raw: Any, *, told: bool) -> None:
        self._raw, self._told, self._open = raw, told, True

    def writable(self) -> bool:
        """Say that it can be written to."""
        return True

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._raw is not None and bool(self._raw.isatty())

    def fileno(self) -> int:
        """Return the handle of the file."""
        if self._raw is None:
            raise OSError("the stream is closed")
        return int(self._raw.fileno())

    def write(self, data: Any) -> int:
        """Write all of some bytes, and return how many they are.

        Raises:
            VisleakError: they cannot be written, for the first time.
        """
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
            if self._told:
                raise VisleakError(
                    f"stdout cannot be written ({error.strerror}); give it a file or a pipe that"
                    " takes what is shown"
                ) from error
        return len(data)


@contextmanager
def guarded() -> Iterator[None]:
    """Let nothing that happens to stdout and stderr end a run in another way than by one line."""
    _fill_gaps()
    before = sys.stdout, sys.stderr
    sys.stdout = _guarded(before[0], told=True)
    sys.stderr = _guarded(before[1], told=False)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(VisleakError, ValueError):
                stream.flush()
        sys.stdout, sys.stderr = before


def _fill_gaps() -> None:
    """Open what was closed, so that no other file gets its number, and what is printed with it."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # the lowest free number is taken
            os.open(os.devnull, os.O_RDWR)


def _guarded(stream: Any, *, told: bool) -> Any:
    """Return a stream that writes to the same place through an :class:`Outlet`."""
    raw = None
    if stream is not None:
        raw = getattr(stream, "buffer", None)
        raw = raw if isinstance(raw, io.RawIOBase) else getattr(raw, "raw", None)
        if raw is None:
            # somebody's own stream: only names that are not UTF-8 must not end a run
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
            return stream
        with suppress(OSError):
            stream.flush()
    outlet = Outlet(raw, told=told)
    # without a buffer, as what an interrupted write leaves in one is written twice
    return io.TextIOWrapper(
        outlet,
        encoding=getattr(stream, "encoding", None) or "utf-8",
        errors="backslashreplace",
        write_through=True,
    )
