"""Modules that are imported on first use: of packages, and of heavy libraries."""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from visleak.errors import MissingExtra, VisleakError, brief


def on_use(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package.

    The names are those that the package imports under ``if TYPE_CHECKING:``, its own packages and
    modules among them, so that people, type checkers and the program read one list.

    >>> get, names = on_use("visleak")
    >>> get("VisleakError").__name__, get("remedy").__name__, "audit" in names()
    ('VisleakError', 'visleak.remedy', True)
    """

    @cache
    def homes() -> dict[str, str]:
        module = sys.modules[package]
        # also of a module in an archive, and under the import hook of pytest
        return dict(_imports("".join(linecache.getlines(module.__file__ or "", vars(module)))))

    def get(name: str) -> object:
        # the import system and inspection ask for names that no package exports
        if name.startswith("__") or name not in homes():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if homes()[name] == package:
            return import_module(f"{package}.{name}")
        return getattr(import_module(homes()[name]), name)

    return get, lambda: sorted(homes())


def _imports(source: str) -> Iterator[tuple[str, str]]:
    """Yield the names that a module imports for type checkers only, and their modules."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for each in node.body:
                if isinstance(each, ast.ImportFrom) and each.module:
                    yield from ((alias.name, each.module) for alias in each.names)


def load(place: str) -> Any:
    """Return what stands at ``module:name``, imported now."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def library(name: str, extra: str, what: str) -> ModuleType:
    """Return a heavy library; a missing or broken one is reported in one line."""
    try:
        return import_module(name)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == name.partition(".")[0]:
            raise MissingExtra(extra, what) from error
        raise broken(name, what, error) from error
    except RuntimeError as error:
        raise broken(name, what, error) from error


def foreign(name: str, called: str, package: str) -> ModuleType:
    """Return a library that no extra of visleak brings."""
    try:
        return import_module(name)
    except ImportError as error:
        raise VisleakError(f"{called} is not installed: pip install {package}") from error


def member(module: ModuleType, name: str, what: str) -> Any:
    """Return a part of a library that imports its parts on use."""
    try:
        return getattr(module, name)
    except (ImportError, AttributeError, RuntimeError) as error:
        raise broken(f"{module.__name__}.{name}", what, error) from error


def broken(name: str, what: str, error: Exception) -> VisleakError:
    """Return the error for an installed library that cannot be imported."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    return VisleakError(
        f"{what} needs {name}, which is installed but cannot be imported ({brief(cause)}); a"
        " torchvision that was built for another torch does that: install the one of your torch"
        " (pytorch.org), or none"
    )
