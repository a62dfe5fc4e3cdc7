"""Writes that fail on purpose: the k-th time something is opened to write, written or renamed."""

from __future__ import annotations

import builtins
import contextlib
import errno
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


class Faults:
    """Counts what is written below a folder, and lets one of these acts fail.

    Args:
        root: the folder.
        fatal: number of the act that fails, ``None`` to count alone.
        code: the error; a full disk stays full, any other comes once.
    """

    def __init__(self, root: Path, fatal: int | None = None, code: int = errno.ENOSPC) -> None:
        self.root = f"{os.path.realpath(root)}{os.sep}"
        self.fatal, self.code = fatal, code
        self.acts: list[str] = []

    def act(self, kind: str, path: object) -> None:
        """Take note of an act; fail if it is the one.

        Raises:
            OSError: it is.
        """
        if isinstance(path, int):
            path = os.readlink(f"/proc/self/fd/{path}")
        name = os.path.abspath(os.fspath(path))  # type: ignore[call-overload]
        if not f"{name}{os.sep}".startswith(self.root) or self.fatal == -1:
            return
        number = len(self.acts)
        self.acts.append(f"{kind} {name.removeprefix(self.root)}")
        full = self.code == errno.ENOSPC
        if self.fatal is not None and (number == self.fatal or (full and number > self.fatal)):
            shown = () if kind in ("write", "fsync") else (name,)
            raise OSError(self.code, os.strerror(self.code), *shown)

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Let them happen."""
        with pytest.MonkeyPatch.context() as patch:
            for name in ("replace", "rename", "link", "symlink", "mkdir", "fsync"):
                patch.setattr(os, name, self._failing(name, getattr(os, name)))
            patch.setattr(os, "open", self._opening(os.open))
            for module in (builtins, io):
                patch.setattr(module, "open", self._writing(io.open))
            yield

    def _failing(self, kind: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def failing(*given: Any, **named: Any) -> Any:
            self.act(
                kind, given[1] if kind in ("replace", "rename", "link", "symlink") else given[0]
            )
            return real(*given, **named)

        return failing

    def _opening(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def opening(path: Any, flags: int, *given: Any, **named: Any) -> Any:
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                self.act("open", path)
            return real(path, flags, *given, **named)

        return opening

    def _writing(self, real: Callable[..., Any]) -> Callable[..., Any]:
        faults = self

        class Raw(io.FileIO):
            def write(self, data: Any) -> int | None:
                faults.act("write", self.name)
                return super().write(data)

        def writing(
            file: Any, mode: str = "r", buffering: int = -1, *given: Any, **named: Any
        ) -> Any:
            if isinstance(file, int) or not set(mode) & set("wxa+"):
                return real(file, mode, buffering, *given, **named)
            self.act("open", file)
            if "+" in mode or named.get("opener"):
                return real(file, mode, buffering, *given, **named)
            raw = Raw(file, mode.replace("b", "").replace("t", ""))
            if "b" in mode:
                return io.BufferedWriter(raw) if buffering else raw
            return io.TextIOWrapper(io.BufferedWriter(raw), *given, **named)

        return writing
