"""Reads and writes that fail on purpose: the k-th time something is opened, written or renamed."""

import builtins
import contextlib
import errno
import io
import os
from collections import Counter
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest


class Faults:
    """Counts writes below a folder; lets act ``fatal`` fail, and all later ones on a full disk."""

    def __init__(self, root, fatal=None, code=errno.ENOSPC):
        self.root = f"{os.path.realpath(root)}{os.sep}"
        self.fatal, self.code = fatal, code
        self.acts: list[str] = []

    def act(self, kind, path):
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
    def at_work(self):
        """Let them happen."""
        with pytest.MonkeyPatch.context() as patch:
            for name in ("replace", "rename", "link", "symlink", "mkdir", "fsync"):
                patch.setattr(os, name, partial(self._failing, name, getattr(os, name)))
            patch.setattr(os, "open", partial(self._opening, os.open))
            for module in (builtins, io):
                patch.setattr(module, "open", self._writing(io.open))
            yield

    def _failing(self, kind, real, *given, **named):
        self.act(kind, given[kind not in ("mkdir", "fsync")])
        return real(*given, **named)

    def _opening(self, real, *given, **named):
        path, flags = given[:2]
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            self.act("open", path)
        return real(*given, **named)

    def _writing(self, real):
        faults = self

        class Raw(io.FileIO):
            def write(self, data):
                faults.act("write", self.name)
                return super().write(data)

        def writing(file, mode="r", buffering=-1, *given, **named):
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
    """Counts files opened for reading below ``root``; number ``fatal`` fails in a way of ``READS``.

    ``beside`` is for changed copies, ``other`` an image that stands for one, ``counts`` a choice.
    """

    def __init__(
        self, root, beside, other=b"", fatal=None, fault="", counts=lambda name, before: True
    ):
        self.root = f"{os.path.realpath(root)}{os.sep}"
        self.beside, self.other, self.counts = beside, other, counts
        self.fatal, self.fault = fatal, fault
        self.opened: list[str] = []
        self.before: Counter[str] = Counter()

    def given(self, path):
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
    def at_work(self):
        """Let it happen."""
        real_open, real_os = io.open, os.open

        def opening(file, mode="r", *given, **named):
            file = file if set(mode) & set("wxa+") else self.given(file)
            return real_open(file, mode, *given, **named)

        def os_opening(path, flags, *given, **named):
            writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            return real_os(path if writes else self.given(path), flags, *given, **named)

        def reading(real, source, *given, **named):
            return real(self.given(source), *given, **named)

        with pytest.MonkeyPatch.context() as patch:
            for module in (builtins, io):
                patch.setattr(module, "open", opening)
            patch.setattr(os, "open", os_opening)
            # Arrow opens files itself
            for name in ("read_table", "ParquetFile"):
                patch.setattr(pq, name, partial(reading, getattr(pq, name)))
            yield
