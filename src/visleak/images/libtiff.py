"""What libtiff reports of a file, kept from the terminal.

The library prints its errors to the standard error of the process. Its error handler is one of the
process, too, so ours passes on what does not belong to a file that is read here. Where Pillow was
built without a libtiff that can be reached (on Windows), nothing is kept, and errors are printed.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

LONGEST: Final = 200  # characters of a message that are kept


_HANDLER: Final = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p)


class _Kept(threading.local):
    """The messages of the files that a thread reads."""

    messages: list[str] | None = None


_KEPT: Final = _Kept()


@contextmanager
def messages_kept() -> Iterator[list[str]]:
    """Collect what libtiff reports of files that this thread reads meanwhile, one text each."""
    _set_handler()
    before, _KEPT.messages = _KEPT.messages, []
    try:
        yield _KEPT.messages
    finally:
        _KEPT.messages = before


#: What libtiff may call as long as the process lives. Two threads may each set a handler; then one
#: passes on to the other.
_ALIVE: Final[list[Any]] = []


@cache
def _set_handler() -> None:
    """Set the error handler, once."""
    from PIL import _imaging

    try:
        set_handler = ctypes.CDLL(_imaging.__file__).TIFFSetErrorHandler
        format_text = ctypes.CDLL(None).vsnprintf
    except (AttributeError, OSError, TypeError):
        return
    set_handler.restype = ctypes.c_void_p
    previous: Any = None

    def keep(module: bytes | None, form: bytes | None, values: int | None) -> None:
        if _KEPT.messages is None:
            if previous is not None:
                previous(module, form, values)
            return
        text = ctypes.create_string_buffer(LONGEST)
        # a list of arguments is passed by its address on all platforms that have this function
        format_text(text, ctypes.c_size_t(LONGEST), form, ctypes.c_void_p(values))
        source = f"{module.decode('utf-8', 'replace')}: " if module else ""
        _KEPT.messages.append(source + text.value.decode("utf-8", "replace"))

    handler = _HANDLER(keep)
    _ALIVE.append(handler)
    found = set_handler(handler)
    if found:
        previous = _HANDLER(found)
