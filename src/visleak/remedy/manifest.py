"""The manifest of a data set that a remedy wrote: its lists, its files, and their removal."""

from __future__ import annotations

import contextlib
import csv
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from visleak.documents import read_document
from visleak.errors import UsageError, VisleakError
from visleak.progress import Progress, silent
from visleak.records import Problem
from visleak.storage import csv_cell, csv_text, file_digest, write_csv_rows, write_json

#: Kind and schema of ``manifest.json``.
KIND: Final = "visleak-clean-set"
SCHEMA: Final = 1

MANIFEST: Final = "manifest.json"
KEPT: Final = "kept.csv"
REMOVED: Final = "removed.csv"
FILES: Final = "files.csv"

#: Columns of the lists.
REMOVED_COLUMNS: Final = ("set", "id", "digest", "locator", "label", "why", "partner")
KEPT_COLUMNS: Final = (*REMOVED_COLUMNS, "part", "new_id")
FILES_COLUMNS: Final = ("path", "kind", "bytes", "digest", "target")

_ADVICE: Final = "give the manifest.json of a clean data set"


class RemovedImage(NamedTuple):
    """An image that is removed: a row of ``removed.csv``; unknown values are empty."""

    set: str
    id: str
    digest: str = ""
    locator: str = ""
    label: str = ""
    why: str = ""  # reason, such as the grade ``near``
    partner: str = ""  # ``SET/ID`` of the most similar image that it is a duplicate of

    @classmethod
    def unreadable(cls, problem: Problem) -> Self:
        """Return the row of an image that could not be read."""
        why = f"unreadable: {problem.reason}"
        return cls(problem.set, problem.id, locator=problem.locator, why=why)


@dataclass(frozen=True)
class File:
    """A file that was written: a row of ``files.csv``."""

    path: str  # relative to the folder, with ``/``
    kind: str  # ``file`` or ``link``
    bytes: int  # 0 for a link
    digest: str  # BLAKE2b-128, hexadecimal; empty for a link
    target: str = ""  # of a link


def write_rows(path: Path, header: tuple[str, ...], rows: Iterable[Sequence[object]]) -> None:
    """Write a list without formulas; names that are not UTF-8 keep their bytes."""
    with path.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        write_csv_rows(file, [header])
        write_csv_rows(file, ([csv_cell(str(cell)) for cell in row] for row in rows))


def read_rows(path: Path, header: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a list."""
    try:
        with path.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
            rows = csv.reader(file)
            if tuple(next(rows, ())) != header:
                raise ValueError(f"its columns are not {', '.join(header)}")
            for row in rows:
                if len(row) != len(header):
                    raise ValueError(f"line {rows.line_num} has {len(row)} cells")
                yield tuple(map(csv_text, row))
    except (OSError, ValueError, csv.Error) as error:
        raise VisleakError(f"{path} cannot be read ({error})") from error


def _names(folder: Path) -> list[str]:
    """Return the names of all files and links of a folder, sorted; links are not followed."""
    found = []
    for top, folders, names in os.walk(folder):
        linked = [name for name in folders if os.path.islink(os.path.join(top, name))]
        found += [(Path(top) / name).relative_to(folder).as_posix() for name in (*names, *linked)]
    return sorted(found)


def _file(path: Path, name: str) -> File:
    if path.is_symlink():
        return File(name, "link", 0, "", os.readlink(path))
    return File(name, "file", path.stat().st_size, file_digest(path))


def write_manifest(folder: Path, content: Mapping[str, object]) -> None:
    """Write ``files.csv`` with all files of a folder, and ``manifest.json`` last."""
    files = (_file(folder / name, name) for name in _names(folder))
    write_rows(folder / FILES, FILES_COLUMNS, map(astuple, files))
    head = {"kind": KIND, "schema": SCHEMA}
    lists = {"files": FILES, "files_digest": file_digest(folder / FILES)}
    write_json(folder / MANIFEST, head | dict(content) | lists)


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the content of ``manifest.json``, given as itself or as its folder."""
    file = path / MANIFEST if path.is_dir() else path
    if not file.is_file():
        raise UsageError(f"{file} does not exist; {_ADVICE}")
    return read_document(file, KIND, SCHEMA, _ADVICE)


def read_files(folder: Path, content: Mapping[str, object]) -> list[File]:
    """Return the files that were written according to a manifest."""
    path = folder / FILES
    if not path.is_file() or file_digest(path) != content.get("files_digest"):
        raise VisleakError(f"{path} was changed since it was written, so it cannot be used")
    files = []
    for name, kind, size, digest, target in read_rows(path, FILES_COLUMNS):
        parts = name.split("/")
        if not name or os.path.isabs(name) or {"", ".", ".."} & set(parts) or "\0" in name:
            raise VisleakError(f"{path} names {name!r}, which is outside of its folder")
        if kind not in ("file", "link") or not size.isdecimal():
            raise VisleakError(f"{path}: the row of {name!r} is damaged")
        files.append(File(name, kind, int(size), digest, target))
    return files


def change_of(folder: Path, file: File) -> str | None:
    """Return how a file differs from what was written; ``None`` if it does not.

    Links are not followed; a folder that was replaced by a link is a change.
    """
    if any((folder / parent).is_symlink() for parent in Path(file.path).parents[:-1]):
        return "its folder is now a link"
    path = folder / file.path
    if not os.path.lexists(path):
        return "it is missing"
    kind = "link" if path.is_symlink() else "file" if path.is_file() else "other"
    if kind != file.kind:
        return "it is now another kind of file"
    try:
        if _file(path, file.path) == file:
            return None
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    return "its target changed" if kind == "link" else "its content changed"


# -- undoing -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Undo:
    """The result of :func:`undo`."""

    folder: Path
    removed: tuple[str, ...]
    kept: tuple[tuple[str, str], ...]  # name and change
    others: tuple[str, ...]  # files that visleak did not write
    bytes: int  # size of the removed files
    applied: bool

    def as_dict(self) -> dict[str, object]:
        """Return the result as plain values."""
        return asdict(self) | {"folder": str(self.folder), "removed": len(self.removed)}


def undo(
    manifest: str | os.PathLike[str], *, apply: bool = False, progress: Progress = silent
) -> Undo:
    """Remove the files that a remedy wrote, unless they were changed since.

    Files that were changed or added stay, and so do their folders. Links are not followed: their
    targets are inputs, which are never changed.

    Args:
        manifest: ``manifest.json`` of the data set, or its folder.
        apply: remove the files; otherwise only report what would be removed.
        progress: reports each step.

    Raises:
        UsageError: there is no manifest.
        VisleakError: it is damaged, or names files outside of its folder.
    """
    given = Path(manifest)
    content = read_manifest(given)
    folder = given if given.is_dir() else given.parent
    files = read_files(folder, content)
    changes: dict[str, str | None] = {}
    for number, file in enumerate(files):
        if number % 64 == 0:
            progress("comparing files", number, len(files))
        changes[file.path] = change_of(folder, file)
    progress("comparing files", len(files), len(files))
    names = [*(name for name, change in changes.items() if change is None), FILES, MANIFEST]
    others = tuple(name for name in _names(folder) if name not in {*changes, FILES, MANIFEST})
    if apply:
        _remove(folder, names)
    kept = tuple((name, change) for name, change in changes.items() if change is not None)
    size = sum(file.bytes for file in files if changes[file.path] is None)
    return Undo(folder, tuple(names), kept, others, size, apply)


def _remove(folder: Path, names: list[str]) -> None:
    """Remove files, then folders that are empty afterwards; the manifest is removed last."""
    try:
        for name in names:
            (folder / name).unlink()
        parents = {parent for name in names for parent in Path(name).parents}
        for parent in sorted(parents, key=lambda path: len(path.parts), reverse=True):
            # a folder that contains other files stays
            with contextlib.suppress(OSError):
                (folder / parent).rmdir()
    except OSError as error:
        raise VisleakError(f"{error.filename} cannot be removed: {error.strerror}") from error
