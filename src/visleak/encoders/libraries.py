"""Heavy libraries, imported on use; a missing or broken one is reported in one line."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

from visleak.errors import MissingExtra, VisleakError


def library(name: str, extra: str, what: str) -> ModuleType:
    """Return a library."""
    try:
        return import_module(name)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == name.partition(".")[0]:
            raise MissingExtra(extra, what) from error
        raise broken(name, what, error) from error
    except RuntimeError as error:
        raise broken(name, what, error) from error


def member(module: ModuleType, name: str, what: str) -> Any:
    """Return a part of a library that imports its parts on use."""
    try:
        return getattr(module, name)
    except (ImportError, AttributeError, RuntimeError) as error:
        raise broken(f"{module.__name__}.{name}", what, error) from error


def said(error: BaseException, most: int = 160) -> str:
    """Return the kind and the message of a library's error as a part of one line.

    >>> said(ValueError("two" + chr(10) + "lines"))
    'ValueError: two lines'
    """
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:most]}" if text else type(error).__name__


def broken(name: str, what: str, error: Exception) -> VisleakError:
    """Return the error for an installed library that cannot be imported."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    return VisleakError(
        f"{what} needs {name}, which is installed but cannot be imported ({said(cause)}); a"
        " torchvision that was built for another torch does that: install the one of your torch"
        " (pytorch.org), or none"
    )
