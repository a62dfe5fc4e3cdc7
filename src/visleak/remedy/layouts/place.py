"""Where a layout writes to, and how the result is opened again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from visleak.errors import UsageError, VisleakError
from visleak.pipeline.context import Progress
from visleak.records import Int64
from visleak.remedy.contents import Filled, FilledPart
from visleak.remedy.fitting import Stored


@dataclass(frozen=True)
class Opened:
    """How a part that was written is opened, and what is then found.

    Attributes:
        path: file or folder, relative to the folder of the result; empty for that itself.
        before, after: what stands around it in the SOURCE: ``yolo:``, ``#val``.
        ids: the ids in the result, in its order; ``None`` where they are those of the sets.
        order: ``int64``: which image of the part, counted over its pieces, stands in each place
            of the result; ``None`` for their own order.
        options: columns it is opened with.
        renamed: ids are of the result's own making, as where they are row numbers.
    """

    path: str
    before: str = ""
    after: str = ""
    ids: tuple[str, ...] | None = None
    order: Int64 | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    renamed: bool = False

    def source(self, folder: Path) -> str:
        """Return the SOURCE, with the result at ``folder``."""
        return f"{self.before}{folder / self.path}{self.after}"

    def as_dict(self) -> dict[str, Any]:
        """Return what opens it as plain values, from which it can be made again."""
        return {
            "path": self.path,
            "before": self.before,
            "after": self.after,
            "options": dict(self.options),
        }


@dataclass(frozen=True)
class Place:
    """Where a result is written.

    Attributes:
        folder: where it lies while it is written.
        final: the name it gets; beside ``folder``.
        how: ``manifest``, ``link`` or ``copy``.
        many: there are several parts, each in a folder of its own.
        progress: is told how far it is.
    """

    folder: Path
    final: Path
    how: str
    many: bool
    progress: Progress

    def below(self, part: FilledPart, name: str = "") -> str:
        """Return the relative name of something of a part."""
        return "/".join(word for word in (part.name if self.many else "", name) if word)

    def made(self, name: str) -> Path:
        """Return the path of a new file, with its folder there.

        Raises:
            VisleakError: the name leads out of the folder, or is taken.
        """
        if is_outside(name):
            raise VisleakError(
                f"{name!r} lies outside of its data set and has no place in {self.final}; write"
                " the lists alone with --format manifest"
            )
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(path):
            raise VisleakError(f"two images would be {self.final / name}; rename one of them")
        return path

    def put(self, piece: Filled, position: int, name: str, stored: Stored | None = None) -> None:
        """Put the picture of a place under a name: a link or a copy.

        Args:
            piece: what it is of.
            position: its place.
            name: relative to the folder.
            stored: its content, where it is no file.
        """
        path, source = self.made(name), piece.path(position)
        if source is not None:
            self.put_file(source, path)
        elif isinstance(stored, bytes):
            path.write_bytes(stored)
        else:
            raise UsageError(
                f"set {piece.images.name!r}: an image is no file to link to; use --format copy"
            )

    def put_file(self, source: bytes, path: Path) -> None:
        """Link or copy a file."""
        if self.how == "link":
            os.symlink(self.link_to(source, path), path)
        else:
            shutil.copyfile(source, path)

    def link_to(self, source: bytes, path: Path) -> str:
        """Return how a file is named from where ``path`` will be."""
        # the folder gets its name only later, but lies beside it: the way is the same
        start = os.path.realpath(path.parent)
        return os.path.relpath(os.path.abspath(os.fsdecode(source)), start)


def is_outside(name: str) -> bool:
    """Whether a relative name leads out of its folder.

    >>> is_outside("a/b.png"), is_outside("../a.png"), is_outside("/a.png")
    (False, True, True)
    """
    return os.path.isabs(name) or os.path.normpath(name).split("/")[0] in ("..", ".")
