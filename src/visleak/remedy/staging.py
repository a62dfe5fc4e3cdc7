"""A folder that is written under a temporary name and renamed in one step, or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from visleak.errors import UsageError, VisleakError
from visleak.quantities import size
from visleak.storage.files import flush
from visleak.storage.run_folder import is_running, try_lock

#: Up to this number files are flushed one by one; above it, the whole system is.
ONE_BY_ONE: Final = 100


@contextlib.contextmanager
def staged(out: Path) -> Iterator[Path]:
    """Yield an empty hidden folder beside ``out``; on success it is renamed to ``out``.

    Leftovers of killed runs are removed first. After a failure nothing remains.
    """
    beside = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(out)
        if beside.exists():
            raise VisleakError(f"another run is writing to {out}; wait for it")
        beside.mkdir()
        handle = os.open(beside, os.O_RDONLY)
    except OSError as error:
        raise VisleakError(f"{out} cannot be written: {error.strerror or error}") from error
    try:
        try_lock(handle)
        yield beside
        _flush_all(beside)
        os.rename(beside, out)
        flush(out.parent)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    finally:
        os.close(handle)


def refuse_place(out: Path, inputs: list[Path]) -> None:
    """Refuse an output folder that is an input, or is inside of one."""
    real = Path(os.path.realpath(out))
    for given in inputs:
        source = Path(os.path.realpath(given))
        if real == source or (source.is_dir() and source in real.parents):
            raise UsageError(
                f"the output {out} is, or lies in, the input {given}, which is never changed;"
                " choose another -o DIR"
            )


def refuse_small_disk(out: Path, wanted: int) -> None:
    """Refuse to write more bytes than the disk has free."""
    place = out.parent
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if wanted > free:
        raise VisleakError(
            f"{out} needs {size(wanted)}, its disk has {size(free)} free; make room, or write"
            " links or lists alone with --format link or --format manifest"
        )


def _remove_leftovers(out: Path) -> None:
    pattern = re.compile(rf"\.{re.escape(out.name)}\.(\d+)\.part")
    for entry in os.scandir(out.parent):
        found = pattern.fullmatch(entry.name)
        if not found or not entry.is_dir(follow_symlinks=False):
            continue
        if int(found[1]) != os.getpid() and not _is_held(entry.path, int(found[1])):
            shutil.rmtree(entry.path, ignore_errors=True)


def _is_held(folder: str, process: int) -> bool:
    """Whether a writer is running: it holds the lock of the folder, or its process exists."""
    if is_running(process):
        return True
    # the process may live in another container that shares the disk
    handle = os.open(folder, os.O_RDONLY)
    try:
        return not try_lock(handle)
    finally:
        os.close(handle)


def _flush_all(folder: Path) -> None:
    names = [os.path.join(top, name) for top, _, files in os.walk(folder) for name in files]
    if len(names) > ONE_BY_ONE and hasattr(os, "sync"):
        os.sync()
        return
    for name in names:
        if not os.path.islink(name):
            flush(Path(name))
    for top, _, _ in os.walk(folder, topdown=False):
        flush(Path(top))
