"""The manifest of a data set that a remedy wrote, and its lists."""

from __future__ import annotations

import csv
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from visleak.documents import read_document
from visleak.errors import UsageError, VisleakError
from visleak.storage import csv_cell, csv_text, write_csv_rows, write_json

#: What ``manifest.json`` says it is, and its layout.
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


class Removed(NamedTuple):
    """An image that is left out: a row of ``removed.csv``.

    Attributes:
        set, id, digest, locator, label: which image; empty where unknown.
        why: ``near``: the grade, degree or other reason.
        partner: ``SET/ID`` of the image it repeats, with the most alike first.
    """

    set: str
    id: str
    digest: str = ""
    locator: str = ""
    label: str = ""
    why: str = ""
    partner: str = ""


@dataclass(frozen=True)
class File:
    """A file that was written: a row of ``files.csv``.

    Attributes:
        path: relative to the folder, with ``/``.
        kind: ``file`` or ``link``.
        bytes: its size; of a link 0.
        digest: BLAKE2b-128 of its bytes, hexadecimal; of a link empty.
        target: where a link leads.
    """

    path: str
    kind: str
    bytes: int
    digest: str
    target: str = ""


def write_rows(path: Path, header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    """Write a list, formula-proof; names that are not UTF-8 keep their bytes."""
    with path.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        write_csv_rows(file, [header])
        write_csv_rows(file, (tuple(map(csv_cell, row)) for row in rows))


def read_rows(path: Path, header: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a list.

    Raises:
        VisleakError: it is missing, or no such list.
    """
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


def digest_of_file(path: Path) -> str:
    """Return the BLAKE2b-128 digest of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def files_below(folder: Path) -> list[File]:
    """Return what stands in a folder now, by name; links are not followed."""
    found = []
    for top, folders, names in os.walk(folder):
        linked = [name for name in folders if os.path.islink(os.path.join(top, name))]
        for name in (*names, *linked):
            path = Path(top) / name
            found.append(_file(path, path.relative_to(folder).as_posix()))
    return sorted(found, key=lambda file: file.path)


def _file(path: Path, name: str) -> File:
    if path.is_symlink():
        return File(name, "link", 0, "", os.readlink(path))
    return File(name, "file", path.stat().st_size, digest_of_file(path))


def write_manifest(folder: Path, content: Mapping[str, Any]) -> list[File]:
    """Write ``files.csv`` with all that stands in a folder, and ``manifest.json`` last."""
    files = files_below(folder)
    rows = ((f.path, f.kind, str(f.bytes), f.digest, f.target) for f in files)
    write_rows(folder / FILES, FILES_COLUMNS, rows)
    head = {"kind": KIND, "schema": SCHEMA}
    lists = {"files": FILES, "files_digest": digest_of_file(folder / FILES)}
    write_json(folder / MANIFEST, head | dict(content) | lists)
    return files


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the content of a manifest.

    Args:
        path: ``manifest.json``, or the folder it lies in.

    Raises:
        UsageError: there is none.
        VisleakError: it is damaged, or of a newer visleak.
    """
    file = path / MANIFEST if path.is_dir() else path
    if not file.is_file():
        raise UsageError(f"{file} does not exist; give the manifest.json of a clean data set")
    return read_document(file, KIND, SCHEMA, "give the manifest.json of a clean data set")


def read_files(folder: Path, content: Mapping[str, Any]) -> list[File]:
    """Return the files that a manifest says were written.

    Raises:
        VisleakError: the list is damaged, was changed, or names a file outside of the folder.
    """
    path = folder / FILES
    if not path.is_file() or digest_of_file(path) != content.get("files_digest"):
        raise VisleakError(f"{path} is not the list that was written; nothing can be told by it")
    files = []
    for name, kind, size, digest, target in read_rows(path, FILES_COLUMNS):
        parts = name.split("/")
        if not name or os.path.isabs(name) or {"", ".", ".."} & set(parts) or "\0" in name:
            raise VisleakError(f"{path} names {name!r}, which lies outside of its folder")
        if kind not in ("file", "link") or not size.isdecimal():
            raise VisleakError(f"{path}: the row of {name!r} is damaged")
        files.append(File(name, kind, int(size), digest, target))
    return files


def changed(folder: Path, file: File) -> str | None:
    """Say what became of a file that was written; ``None`` if it is as it was.

    No link is followed: one that took the place of a folder is a change.
    """
    path = folder
    for part in Path(file.path).parts[:-1]:
        path = path / part
        if path.is_symlink():
            return "its folder is a link now"
    path = folder / file.path
    if not os.path.lexists(path):
        return "it is gone"
    if path.is_symlink():
        same = file.kind == "link" and os.readlink(path) == file.target
        return None if same else "it leads elsewhere"
    if file.kind == "link" or not path.is_file():
        return "another kind of file stands there"
    try:
        same = path.stat().st_size == file.bytes and digest_of_file(path) == file.digest
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    return None if same else "its content is another"
