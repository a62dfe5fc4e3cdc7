"""Folders and files of results: which may be written, and claiming one for a run."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from visleak.errors import UsageError, VisleakError
from visleak.formats.sources import place_of
from visleak.records import AnySet
from visleak.storage.audit_folder import (
    AUDIT,
    DECISIONS,
    IMAGES,
    LEDGER,
    PAIRS,
    RECORDINGS,
    REPLACEMENTS,
    UNREADABLE,
    VERDICTS,
)
from visleak.storage.summary import AuditSummary

#: Scratch folders of runs that were killed are removed if their name begins so.
SCRATCH_PREFIX: Final = ".visleak-scratch-"


#: Kinds of documents that lie anywhere: they do not make a folder one of visleak's.
SINGLE: Final = (
    "visleak thresholds",
    "visleak leaderboard",
    "visleak mitigation leaderboard",
    "onnx encoder",
)


#: Held by the run that writes to a folder; it stays there, and says that the folder is visleak's.
LOCK: Final = ".visleak.lock"


def free_file(path: Path, *, force: bool = False, audit: Path | None = None) -> None:
    """Refuse a file that is there already, before any time is spent on what goes into it."""
    if path.is_dir():
        raise UsageError(f"the output {path} is a folder; choose a file with -o FILE")
    if _is_part(path, audit):
        raise UsageError(f"{path} is a part of an audit; choose another file with -o FILE")
    if path.exists() and not force:
        raise UsageError(f"{path} exists; choose another file with -o FILE, or --force replaces it")


def _is_part(path: Path, audit: Path | None) -> bool:
    """Whether a file, there or not yet, is one of those that make an audit: by name or by link."""
    tables = (AUDIT, PAIRS, IMAGES, UNREADABLE, RECORDINGS, LOCK)
    own = (*tables, LEDGER, VERDICTS, DECISIONS, REPLACEMENTS)
    real = path.resolve()
    if real.name in own and (real.parent / AUDIT).is_file():
        return True
    parts = [audit / name for name in own] if audit is not None and path.exists() else []
    return any(path.samefile(part) for part in parts if part.exists())


def refuse_foreign(folder: Path) -> None:
    """Refuse a folder that holds anything, and nothing that visleak wrote."""
    if not folder.is_dir() or (folder / LOCK).exists():
        return
    others = sorted(name for name in os.listdir(folder) if not name.startswith(".visleak"))
    if others and not any(_is_ours(path) for path in folder.glob("*.json")):
        raise UsageError(
            f"{folder} holds files that visleak did not write, such as {others[0]!r}; choose a new"
            " folder with -o DIR"
        )


def _is_ours(path: Path) -> bool:
    """Whether a document of visleak says so."""
    with suppress(OSError, ValueError, RecursionError):
        content = json.loads(path.read_text("utf-8"))
        if isinstance(content, dict):
            kinds = {str(content[key]) for key in ("kind", "visleak") if key in content}
            ours = "visleak" in content or any(kind.startswith("visleak") for kind in kinds)
            return ours and kinds.isdisjoint(SINGLE)
    return False


def free_folder(folder: str | os.PathLike[str], result: str, *, force: bool = False) -> Path:
    """Return the folder a result may be written to, before any time is spent on it."""
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise UsageError(f"output {path} is a file; choose a folder with -o DIR")
    if (path / result).exists() and not force:
        raise UsageError(
            f"{path} holds a result already ({result}); choose another folder with -o DIR, or"
            " --force replaces it"
        )
    if not (path / result).exists():
        refuse_foreign(path)
    return path


def remove_unfinished(folder: Path) -> None:
    """Remove files of a folder that processes began to write and were killed over."""
    for beside in folder.glob(".*.part"):
        process = beside.suffixes[-2].removeprefix(".") if len(beside.suffixes) > 1 else ""
        if process.isdecimal() and not _is_running(int(process)):
            beside.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def refuse_inputs(out: Path, sources: Iterable[tuple[str, str]], base: Path) -> None:
    """Refuse to write among what is read."""
    target = out.resolve()
    for name, source in sources:
        # a set given in memory has no source
        place = source and place_of(source, base)
        if not place or not place.exists():
            continue
        place = place.resolve()
        if place.is_dir() and target.is_relative_to(place):
            raise UsageError(
                f"output {out} lies among the images of {name!r}, which are only read;"
                " choose another folder with -o DIR"
            )
        if place.is_relative_to(target):
            raise UsageError(
                f"{name!r} ({place}) lies in the output {out}, which would be written over; choose"
                " another folder with -o DIR"
            )


def refuse_sets(summary: AuditSummary, out: Path) -> None:
    """Refuse to write among the images of an audit's sets: what is read stays as it is."""
    sources = [(each.name, each.source) for each in summary.sets]
    refuse_inputs(out, sources, Path(summary.opened_in))


@contextmanager
def claimed(folder: Path, sets: Sequence[AnySet] = ()) -> Iterator[None]:
    """Hold a folder for this run; remove what killed runs left behind."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"the output {folder} is a file; choose a folder with -o DIR")
    refuse_inputs(folder, [(images.name, images.source) for images in sets], Path())
    refuse_foreign(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("a")
    except OSError as error:
        raise VisleakError(f"the output folder {folder} cannot be written: {error}") from error
    with lock:
        _lock(lock.fileno(), folder)
        remove_leftovers(folder)
        yield


def _lock(handle: int, folder: Path) -> None:
    try:
        import fcntl
    except ImportError:  # no advisory locks on this system: the writers are atomic anyway
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise VisleakError(
                f"another run is writing to {folder}; wait for it or choose another -o DIR"
            ) from error


def remove_leftovers(folder: Path) -> None:
    """Remove what killed runs left in a folder of this run's own: scratch, half-written files."""
    for leftover in folder.glob(SCRATCH_PREFIX + "*"):
        shutil.rmtree(leftover, ignore_errors=True)
    remove_unfinished(folder)
