"""Reads and writes that fail on purpose: the k-th time something is opened, written or renamed."""

import builtins
import contextlib
import errno
import io
import os
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest


class Faults:
    """Counts what is written below a folder, and lets the act of number ``fatal`` fail.

    A full disk stays full and a read-only one so, any other error comes once.
    """

    def __init__(self, root: Path, fatal: int | None = None, code: int = errno.ENOSPC) -> None:
        self.root = f"{os.path.realpath(root)}{os.sep}"
        self.fatal, self.code = fatal, code
        self.acts: list[str] = []

    def act(self, kind: str, path: object) -> None:
        """Take note of an act; fail if it is the one."""
        if isinstance(path, int):
            path = os.readlink(f"/proc/self/fd/{path}")
        name = os.path.abspath(os.fspath(path))  # type: ignore[call-overload]
        if not f"{name}{os.sep}".startswith(self.root) or self.fatal == -1:
            return
        number = len(self.acts)
        self.acts.append(f"{kind} {name.removeprefix(self.root)}")
        stays = self.code in (errno.ENOSPC, errno.EROFS)
        if self.fatal is not None and (number == self.fatal or (stays and number > self.fatal)):
            shown = () if kind in ("write", "fsync") else (name,)
            raise OSError(self.code, os.strerror(self.code), *shown)

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Let them happen."""
        with pytest.MonkeyPatch.context() as patch:
            for name in ("replace", "rename", "link", "symlink", "mkdir", "fsync"):
                patch.setattr(os, name, partial(self._failing, name, getattr(os, name)))
            patch.setattr(os, "open", partial(self._opening, os.open))
            for module in (builtins, io):
                patch.setattr(module, "open", self._writing(io.open))
            yield

    def _failing(self, kind: str, real: Callable[..., Any], *given: Any, **named: Any) -> Any:
        self.act(kind, given[kind not in ("mkdir", "fsync")])
        return real(*given, **named)

    def _opening(self, real: Callable[..., Any], *given: Any, **named: Any) -> Any:
        path, flags = given[:2]
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            self.act("open", path)
        return real(*given, **named)

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


#: How a read may fail: the file is away, the disk is broken, the content is cut or that of another
#: image.
READS = ("gone", "broken", "short", "other")


class ReadFaults:
    """Counts the files that are opened for reading below a folder, and lets number ``fatal`` fail.

    Args:
        root: the folder.
        beside: where changed copies go.
        other: the image that stands for another one.
        fatal, fault: which file fails, and how: one of :data:`READS`.
        counts: whether a file is counted, by its name and by how often it was opened before.
    """

    def __init__(
        self,
        root: Path,
        beside: Path,
        other: bytes = b"",
        fatal: int | None = None,
        fault: str = "",
        counts: Callable[[str, int], bool] = lambda name, before: True,
    ) -> None:
        self.root = f"{os.path.realpath(root)}{os.sep}"
        self.beside, self.other, self.counts = beside, other, counts
        self.fatal, self.fault = fatal, fault
        self.opened: list[str] = []
        self.before: Counter[str] = Counter()

    def given(self, path: Any) -> Any:
        """Return what is opened in the place of a file, or raise that it cannot be read."""
        if isinstance(path, int) or not isinstance(path, str | bytes | os.PathLike):
            return path
        name = os.path.abspath(os.fsdecode(path))
        if not name.startswith(self.root) or not os.path.isfile(name):
            return path
        short = name.removeprefix(self.root)
        self.before[short] += 1
        if not self.counts(short, self.before[short] - 1):
            return path
        self.opened.append(short)
        if len(self.opened) - 1 != self.fatal:
            return path
        if self.fault in ("gone", "broken"):
            code = errno.ENOENT if self.fault == "gone" else errno.EIO
            raise OSError(code, os.strerror(code), name)
        with open(os.open(name, os.O_RDONLY), "rb") as file:
            content = file.read()
        changed = self.beside / f"changed{os.path.splitext(name)[1]}"
        changed.write_bytes(self.other if self.fault == "other" else content[: len(content) // 2])
        return type(path)(changed) if isinstance(path, Path | str) else os.fsencode(changed)

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Let it happen."""
        real_open, real_os = io.open, os.open

        def opening(file: Any, mode: str = "r", *given: Any, **named: Any) -> Any:
            file = file if set(mode) & set("wxa+") else self.given(file)
            return real_open(file, mode, *given, **named)

        def os_opening(path: Any, flags: int, *given: Any, **named: Any) -> Any:
            writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            return real_os(path if writes else self.given(path), flags, *given, **named)

        def reading(real: Callable[..., Any], source: Any, *given: Any, **named: Any) -> Any:
            return real(self.given(source), *given, **named)

        with pytest.MonkeyPatch.context() as patch:
            for module in (builtins, io):
                patch.setattr(module, "open", opening)
            patch.setattr(os, "open", os_opening)
            # Arrow opens files itself
            for name in ("read_table", "ParquetFile"):
                patch.setattr(pq, name, partial(reading, getattr(pq, name)))
            yield
