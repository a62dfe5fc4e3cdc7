"""Where the files that a list names are now, if it was made on another machine."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePath
from typing import Final, Self

from visleak.errors import UsageError
from visleak.formats.files import FileOpener
from visleak.records import ImageSet

#: Folders that are searched for a file that is missing.
SEARCHED: Final = 200


@dataclass(frozen=True)
class Root:
    """What ``--root`` says: the folder that names start from, or a beginning that is replaced."""

    folder: str  # the folder, absolute
    # what names begin with on the other machine; ``None`` where the folder is put in front of
    # relative names
    replaces: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the root of ``DIR`` or ``OLD=NEW``; refuse a folder that does not exist."""
        old, equals, new = ("", "", text) if os.path.isdir(text) else text.partition("=")
        folder = new if equals else text
        if not os.path.isdir(folder):
            raise UsageError(
                f"root {text!r}: there is no folder {folder!r}; give the folder of the files, or"
                " OLD=NEW to replace the beginning of their names"
            )
        return cls(os.path.abspath(folder), old if equals else None)

    @property
    def text(self) -> str:
        """The text that :meth:`parse` takes, from any working folder."""
        return self.folder if self.replaces is None else f"{self.replaces}={self.folder}"

    def applied(self, base: str, names: Sequence[str | None]) -> tuple[str, list[str | None]]:
        """Return the folder that names start from, and the names of the files here.

        >>> Root("/data", "/home/ann").applied("lists", ["/home/ann/a.png", "b.png", None])
        ('lists', ['/data/a.png', 'b.png', None])
        """
        if self.replaces is None:
            return self.folder, list(names)
        return base, [name and self._moved(name) for name in names]

    def _moved(self, name: str) -> str:
        if self.replaces is None or not name.startswith(self.replaces):
            return name
        return os.path.join(self.folder, name[len(self.replaces) :].lstrip("/\\"))


def root_hint(images: ImageSet) -> str:
    """Return the ``--root`` by which the first file of a set is found here; empty if none is."""
    opener = images.opener
    if not isinstance(opener, FileOpener):
        return ""
    name = next((each for each in opener.names.to_pylist() if each is not None), b"")
    text = os.fsdecode(name)
    parts = PurePath(text.replace("\\", "/")).parts
    for skipped in range(1 if text.startswith("/") else 0, len(parts)):
        rest = "/".join(parts[skipped:])
        for folder in islice(_folders(Path(opener.root)), SEARCHED):
            if (folder / rest).is_file():
                old = text[: len(text) - len(rest)]
                return f"--root {shlex.quote(f'{old}={folder}/' if old else str(folder))}"
    return ""


def _folders(root: Path) -> Iterator[Path]:
    """Yield folders in which files may be: around the list, and around the working folder."""
    seen = set()
    for start in (root, *list(root.absolute().parents)[:2], Path()):
        inside = sorted(each for each in start.iterdir() if each.is_dir()) if start.is_dir() else []
        for folder in (start, *inside):
            if folder.resolve() not in seen:
                seen.add(folder.resolve())
                yield folder
