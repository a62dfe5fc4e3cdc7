"""Pictures that are files: a folder of them, or one."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from visleak.images.listing import Listing, is_hidden, is_picture_file
from visleak.images.request import Request
from visleak.images.stores import StoreError
from visleak.records import Bytes8, ImageSet, Problem, Unreadable

#: A larger file is not read into memory.
MAX_FILE_BYTES: Final = 1 << 30

#: Bytes read at once of a file whose size is not known.
PART: Final = 1 << 20


@dataclass(frozen=True)
class FileOpener:
    """Reads files.

    Attributes:
        root: the folder that the names are relative to.
        names: Arrow binary array, the file names as the system has them; null is missing.
    """

    root: str
    names: pa.BinaryArray

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield the content of the files at the positions, see :class:`visleak.records.Opener`."""
        root = os.fsencode(self.root)
        for position in positions:
            name = self.names[position].as_py()
            if name is None:
                yield Unreadable("missing", "the manifest names no file")
            else:
                yield read_file(os.path.join(root, name))


def read_file(path: bytes | str) -> bytes | Unreadable:
    """Return the content of a regular file, or why it cannot be had."""
    try:
        # Not blocking, so that a pipe that nobody writes to cannot stop the run.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                what = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
                return Unreadable("io-error", f"{what} stands at this name")
            if status.st_size > MAX_FILE_BYTES:
                return _over_limit(status.st_size)
            data = _content(handle, status.st_size)
        finally:
            os.close(handle)
    except (OSError, ValueError) as error:
        return why_not(error)
    return data if len(data) <= MAX_FILE_BYTES else _over_limit(len(data))


def _content(handle: int, size: int) -> bytes:
    """Return what an open file of a known size holds, or the first bytes of more than is read."""
    data = os.read(handle, size)
    if size and len(data) == size:
        return data
    # read in parts, or its system tells no size
    parts = [data]
    left = MAX_FILE_BYTES + 1 - len(data)
    while left > 0 and (part := os.read(handle, min(left, PART))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _over_limit(size: int) -> Unreadable:
    return Unreadable("too-large", f"{size:,} bytes; files up to {MAX_FILE_BYTES:,} are read")


def why_not(error: OSError | ValueError) -> Unreadable:
    """Return the reason for what the system, or a remote store, said about a file."""
    if isinstance(error, StoreError):
        return Unreadable(error.reason, str(error))
    return _why_not_here(error)


def _why_not_here(error: OSError | ValueError) -> Unreadable:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return Unreadable("missing", "no such file")
    if isinstance(error, PermissionError):
        return Unreadable("no-permission", "the system does not let this user read the file")
    if isinstance(error, IsADirectoryError):
        return Unreadable("io-error", "a folder stands at this name")
    if isinstance(error, OSError) and error.errno is not None:
        if error.errno == errno.ENAMETOOLONG:
            return Unreadable("missing", "the name is longer than a file's name can be")
        return Unreadable("io-error", os.strerror(error.errno))
    return Unreadable("io-error", str(error))


def as_text(name: str) -> str:
    r"""Return a file name as text that can be written; bytes that are not UTF-8 as ``\xNN``."""
    return name if name.isascii() else os.fsencode(name).decode("utf-8", "backslashreplace")


@dataclass
class Walk:
    """The files below a folder, by default its pictures.

    Real folders are walked before folders that symbolic links lead to, and no folder is walked
    twice: loops end, and a picture has one id however many links lead to it.

    Attributes:
        root: where the walk begins.
        keep: which files, by their path.
        problems: (name relative to the root, what the system said) of unreadable folders.
    """

    root: str
    keep: Callable[[str], bool] = is_picture_file

    def __post_init__(self) -> None:
        self.problems: list[tuple[str, OSError]] = []
        self._seen: set[tuple[int, int]] = set()

    def names(self) -> Iterator[str]:
        """Yield the names relative to the root, with ``/``, in no particular order."""
        pending, linked = [""], list[str]()
        while pending or linked:
            if not pending:
                linked.sort()
                pending.append(linked.pop(0))
            folder = pending.pop()
            entries = self._entries(folder)
            for entry in entries:
                name = f"{folder}/{entry.name}" if folder else entry.name
                if _is_folder(entry):
                    if not is_hidden(entry.name):
                        (linked if entry.is_symlink() else pending).append(name)
                elif self.keep(entry.path):
                    yield name

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        path = os.path.join(self.root, folder) if folder else self.root
        try:
            status = os.stat(path)
            if (status.st_dev, status.st_ino) in self._seen:
                return []
            self._seen.add((status.st_dev, status.st_ino))
            with os.scandir(path) as entries:
                return list(entries)
        except OSError as error:
            self.problems.append((folder, error))
            return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False


def first_folder(name: str) -> str | None:
    """Return the first path component of a file in a sub-folder: its label.

    >>> first_folder("cats/tabby/1.png"), first_folder("1.png"), first_folder("../dogs/2.png")
    ('cats', None, 'dogs')
    """
    return next((part for part in name.split("/")[:-1] if part not in ("", ".", "..")), None)


def labels_of(names: Iterable[str]) -> pa.StringArray | None:
    """Return each name's first folder; ``None`` where no picture is in a folder."""
    labels = pa.array((first_folder(name) for name in names), pa.string())
    return None if labels.null_count == len(labels) else labels


def file_set(
    request: Request,
    root: Path,
    names: Sequence[str],
    *,
    labels: pa.StringArray | None = None,
    captions: pa.StringArray | None = None,
    annotated: bool = False,
    ids: Sequence[str] | None = None,
    problems: Sequence[Problem] = (),
    skipped: Mapping[str, int] | None = None,
) -> ImageSet:
    """Return the set of the files ``names`` below ``root``, in that order."""
    texts = [as_text(name) for name in names] if ids is None else ids
    return request.image_set(
        pa.array(texts, pa.string()),
        pa.array((as_text(os.path.join(root, name)) for name in names), pa.string()),
        FileOpener(str(root), pa.array((os.fsencode(name) for name in names), pa.binary())),
        labels=labels,
        captions=captions,
        annotated=annotated,
        problems=problems,
        skipped=skipped,
    )


def open_folder(request: Request) -> ImageSet:
    """List the pictures of a folder and of its sub-folders, which are the labels; by id.

    Raises:
        VisleakError: there are none.
        UsageError: a column was asked for.
    """
    request.refuse_columns("the folder")
    request.refuse_split()
    listing = Listing()
    walk = Walk(str(request.path), listing.takes_file)
    names = sorted(walk.names(), key=as_text)
    problems = [
        Problem(
            request.name,
            as_text(folder) or ".",
            as_text(os.path.join(request.path, folder)),
            why_not(error).reason,
            f"the folder could not be listed: {error.strerror}",
        )
        for folder, error in walk.problems
    ]
    if not names:
        request.no_pictures(
            problems[0].detail if problems else listing.why_empty("no file below it")
        )
    labels = labels_of(map(as_text, names))
    return file_set(
        request, request.path, names, labels=labels, problems=problems, skipped=listing.skipped
    )


def open_file(request: Request) -> ImageSet:
    """Make a set of one picture."""
    request.refuse_columns("the picture")
    request.refuse_split()
    return file_set(request, request.path.parent, [request.path.name])
