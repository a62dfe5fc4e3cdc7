"""Taking back what a remedy wrote: those files, as they were written, and nothing else."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from visleak.errors import VisleakError
from visleak.pipeline.context import Progress, silent
from visleak.remedy.manifest import FILES, MANIFEST, File, changed, read_files, read_manifest


@dataclass(frozen=True)
class Undo:
    """What is taken back.

    Attributes:
        folder: of the data set.
        removed: files that go, or went.
        kept: files that were changed since, each with what became of it; they stay.
        others: files that the remedy did not write; they stay.
        bytes: that become free.
        applied: it was done.
    """

    folder: Path
    removed: tuple[str, ...]
    kept: tuple[tuple[str, str], ...]
    others: tuple[str, ...]
    bytes: int
    applied: bool

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "folder": str(self.folder),
            "removed": len(self.removed),
            "kept": [list(each) for each in self.kept],
            "others": list(self.others),
            "bytes": self.bytes,
            "applied": self.applied,
        }


def undo(
    manifest: str | os.PathLike[str], *, apply: bool = False, progress: Progress = silent
) -> Undo:
    """Remove the files that a remedy wrote, if they are still as they were written.

    Files that were changed or added since stay, and so do the folders they are in. No link is
    followed: the pictures that links lead to are inputs, and never touched.

    Args:
        manifest: ``manifest.json`` of the data set, or its folder.
        apply: do it; else say what would be done.
        progress: is told how far it is.

    Raises:
        UsageError: there is no manifest.
        VisleakError: it is damaged, or names files outside of its folder.
    """
    given = Path(manifest)
    content = read_manifest(given)
    folder = given if given.is_dir() else given.parent
    files = read_files(folder, content)
    going: list[File] = []
    kept: list[tuple[str, str]] = []
    for number, file in enumerate(files):
        if number % 64 == 0:
            progress("comparing files", number, len(files))
        what = changed(folder, file)
        if what is None:
            going.append(file)
        else:
            kept.append((file.path, what))
    progress("comparing files", len(files), len(files))
    names = [file.path for file in going] + [FILES, MANIFEST]
    own = {file.path for file in files} | {FILES, MANIFEST}
    others = tuple(name for name in _names(folder) if name not in own)
    if apply:
        _remove(folder, names)
    size = sum(file.bytes for file in going)
    return Undo(folder, tuple(names), tuple(kept), others, size, apply)


def _names(folder: Path) -> list[str]:
    """Return what stands in a folder, links not followed."""
    found = []
    for top, folders, names in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(top, name))]
        found += [os.path.relpath(os.path.join(top, name), folder) for name in (*names, *links)]
    return sorted(found)


def _remove(folder: Path, names: list[str]) -> None:
    """Remove files, then the folders they leave empty; the manifest goes last."""
    try:
        for name in names:
            (folder / name).unlink()
        parents = {parent for name in names for parent in Path(name).parents}
        for parent in sorted(parents, key=lambda path: len(path.parts), reverse=True):
            # what holds something else stays
            with contextlib.suppress(OSError):
                (folder / parent).rmdir()
    except OSError as error:
        raise VisleakError(f"{error.filename} cannot be removed: {error.strerror}") from error
