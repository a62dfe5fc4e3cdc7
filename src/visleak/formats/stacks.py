"""Files that hold several images, such as videos, volumes and arrays: how they are listed and read.

A format lists the images of a file as its :class:`Contents` and opens it as a :class:`Stack`; all
else is the same for all of them. An id is the name of the file and of the image in it, divided by
``#``: ``drive.mp4#t=12.04``.
"""

from __future__ import annotations

import itertools
import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from visleak.errors import MissingExtra, UsageError, one_line
from visleak.formats.files import StatefulOpener, as_unreadable, file_stamp
from visleak.formats.frames import Frames
from visleak.formats.listing import (
    Walk,
    describe_skipped,
    ending_of,
    is_hidden,
    is_image_file,
    labels_of,
    name_text,
)
from visleak.formats.request import Request
from visleak.images.decoding import MAX_PIXELS, MAX_SIDE
from visleak.images.pixels import rgb_of_array
from visleak.records import Bytes8, ImageSet, Int64, Problem, Refused, Unreadable

MAX_IMAGES: Final = 5_000_000  # a file with more images is refused
MAX_BYTES: Final = 1 << 30  # what is unpacked at once
#: Words in errors of libraries on a file that ends too early.
_ENDED: Final = ("truncat", "eof", "end of file", "not enough", "unexpected end", "incomplete")
_UNREAD: Final = ("unsupported", "not supported", "not implemented", "no decoder", "encrypt")


class Stack(Protocol):
    """An open file that holds several images."""

    def read(self, numbers: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield the images with some ascending numbers; may raise anything of a damaged file."""

    def close(self) -> None:
        """Close the file."""


@runtime_checkable
class Footage(Stack, Protocol):
    """A stack of frames with times."""

    @property
    def moments(self) -> tuple[Sequence[int], Sequence[int]]:
        """The times of all frames in milliseconds, ascending, and their numbers."""


@dataclass(frozen=True, slots=True)
class Contents:
    """The images of one file."""

    names: Sequence[str]  # of the images within the file; empty for what is the whole file
    numbers: Sequence[int]  # by which the stack reads them, ascending
    frames: Sequence[int | None] | None = None  # frame numbers, or milliseconds
    labels: Sequence[str | None] | None = None
    problem: Unreadable | None = None  # why some of its images are not there
    skipped: str = ""  # what the file is, if it is none that can have images
    before: str = ""  # text before the name of the file in ids
    group: str | None = None  # of all its images, where a group is more than a file
    columns: Mapping[str, str | None] = field(default_factory=dict)  # what else it belongs to


@dataclass
class StackOpener(StatefulOpener):
    """Reads images of files that hold several; the last file that was read stays open."""

    files: tuple[str, ...]
    owners: Int64  # int64 (n,), ascending: the file of each image
    numbers: Int64  # int64 (n,): its number in the file
    opens: Callable[[str], Stack]  # picklable
    _held: tuple[int, Stack] | None = field(default=None, repr=False, compare=False)

    @property
    def stamp(self) -> str:
        """Text that changes when a file does; locators may be hidden."""
        stamps = []
        for path in self.files:
            try:
                stamps.append(file_stamp(path))
            except OSError:
                stamps.append("missing")
        return "\n".join(stamps)

    def read(self, positions: Sequence[int]) -> Iterator[bytes | Bytes8 | Unreadable]:
        """Yield the images at the positions, see :class:`visleak.records.Opener`."""
        for owner, members in itertools.groupby(positions, key=lambda at: int(self.owners[at])):
            numbers = [int(self.numbers[at]) for at in members]
            while numbers:
                try:
                    for image in self._stack(owner).read(list(numbers)):
                        del numbers[0]
                        yield image
                except Exception as error:  # a damaged file can make its library raise anything
                    self.close()
                    del numbers[0]
                    yield library_failure(error)

    def between(
        self, position: int, start: int, end: int, every: int
    ) -> Iterator[tuple[int, Bytes8]]:
        """Yield frames of a recording, see :class:`visleak.records.FootageOpener`."""
        try:
            stack = self._stack(int(self.owners[position]))
            if not isinstance(stack, Footage):
                return
            times, numbers = stack.moments
            span = range(bisect_left(times, end) - 1, bisect_left(times, start) - 1, -1)
            wanted = sorted({times[at] // every: at for at in span}.values())
            images = stack.read([numbers[at] for at in wanted])
            for at, image in zip(wanted, images, strict=True):
                if isinstance(image, np.ndarray):
                    yield times[at], image
        except Exception:  # a damaged file can make its library raise anything
            self.close()

    def _stack(self, owner: int) -> Stack:
        if self._held is None or self._held[0] != owner:
            self.close()
            self._held = owner, self.opens(self.files[owner])
        return self._held[1]

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the file that is open."""
        if self._held is not None:
            held, self._held = self._held[1], None
            held.close()


def library_failure(error: Exception) -> Unreadable:
    """Return the reason of an error of a library on a file."""
    if isinstance(error, Refused):
        return error.why
    if isinstance(error, FileNotFoundError | PermissionError):
        return as_unreadable(error)
    text = one_line(error)
    words, reason = text.lower(), "corrupt"
    if isinstance(error, MemoryError):
        reason = "too-large"
    elif isinstance(error, EOFError) or any(word in words for word in _ENDED):
        reason = "truncated"
    elif isinstance(error, NotImplementedError) or any(word in words for word in _UNREAD):
        reason = "unsupported"
    return Unreadable(reason, text)


def check_size(width: int, height: int, images: int = 1) -> None:
    """Refuse images that are too large, before any pixel is decoded, and too many of them."""
    if width * height > MAX_PIXELS or max(width, height) > MAX_SIDE:
        raise Refused(
            "too-large", f"{width} x {height} pixels; up to {MAX_PIXELS:,} pixels are read"
        )
    if images > MAX_IMAGES:
        raise Refused("too-large", f"{images:,} images; up to {MAX_IMAGES:,} of a file are read")


def image_of(array: npt.NDArray[np.generic]) -> Bytes8 | Unreadable:
    """Return an image of an array, see :func:`visleak.images.pixels.rgb_of_array`."""
    try:
        return rgb_of_array(array)
    except ValueError as error:
        return Unreadable("unsupported", one_line(error))


@dataclass(frozen=True)
class Files:
    """The files of a source."""

    root: Path
    names: Sequence[str]  # below the root
    skipped: Mapping[str, int]  # number of other files by ending
    hidden: Callable[[str], str] | None = None  # makes a pseudonym of a name

    def text(self, name: str) -> str:
        """Return how a file is called in the results."""
        return name_text(name) if self.hidden is None else self.hidden(name)

    def place(self, name: str) -> str:
        """Return where a file is, as far as results may show it."""
        shown = self.hidden is None
        return name_text(os.path.join(self.root, name)) if shown else self.text(name)


def files_of(request: Request, takes: Callable[[str], bool], what: str) -> Files:
    """Return the file of a source, or those of its folder that a format takes."""
    request.refuse_columns_and_split(what)
    if request.path.is_file():
        return Files(request.path.parent, [request.path.name], {})
    skipped: Counter[str] = Counter()

    def kept(path: str) -> bool:
        name = os.path.basename(path)
        if is_hidden(name) or takes(path):
            return not is_hidden(name)
        skipped[ending_of(name)] += 1
        return False

    names = sorted(Walk(str(request.path), kept).names(), key=name_text)
    if not names:
        request.refuse_empty(f"no file below it is {what}")
    return Files(request.path, names, dict(skipped))


def only_holds(path: Path, takes: Callable[[str], bool]) -> bool:
    """Whether a folder has files of one kind, and no images of another kind."""
    if not path.is_dir():
        return False
    found = False

    def is_other(file: str) -> bool:
        nonlocal found
        taken = takes(file)
        found |= taken
        return not taken and is_image_file(file)

    return next(Walk(str(path), is_other).names(), None) is None and found


def stack_set(
    request: Request,
    files: Files,
    contents: Callable[[str], Contents],
    opens: Callable[[str], Stack],
    *,
    timed: bool = False,
    by_file: bool = True,
) -> ImageSet:
    """Return the set of the images of some files, grouped by file or as the files state.

    A file that cannot be listed becomes a row of ``unreadable.csv``.
    """
    paths = tuple(os.path.join(files.root, name) for name in files.names)
    listed = [_listed(path, contents) for path in paths]
    skipped = Counter(files.skipped) + Counter(each.skipped for each in listed if each.skipped)
    texts, places = list(map(files.text, files.names)), list(map(files.place, files.names))
    problems = [
        Problem(request.name, text, place, each.problem.reason, each.problem.detail)
        for text, place, each in zip(texts, places, listed, strict=True)
        if each.problem is not None
    ]
    owners = np.repeat(np.arange(len(listed)), [len(each.names) for each in listed])
    if not len(owners):
        request.refuse_empty(problems[0].detail if problems else describe_skipped(skipped))
    taken = pa.array(owners)

    def named(before: Sequence[str], mark: str) -> pa.StringArray:
        return pa.array(
            f"{text}{mark}{part}" if part else text
            for text, each in zip(before, listed, strict=True)
            for part in each.names
        )

    def spread(values: Sequence[str | None]) -> pa.StringArray:
        return pa.array(values, pa.string()).take(taken)

    def known(name: str, kind: pa.DataType) -> pa.Array | None:
        values = [getattr(each, name) or [None] * len(each.names) for each in listed]
        found = any(getattr(each, name) is not None for each in listed)
        return pa.array(itertools.chain.from_iterable(values), kind) if found else None

    groups = spread(texts if by_file else [each.group for each in listed])
    labels, frames = known("labels", pa.string()), known("frames", pa.int64())
    if labels is None and not files.hidden:  # else their folders
        folders = labels_of(map(name_text, files.names))
        labels = None if folders is None else folders.take(taken)
    columns = dict.fromkeys(name for each in listed for name in each.columns)
    return request.image_set(
        named([each.before + text for each, text in zip(listed, texts, strict=True)], "#"),
        named(places, "!"),
        StackOpener(
            paths,
            owners.astype(np.int64),
            np.fromiter((n for each in listed for n in each.numbers), np.int64, len(owners)),
            opens,
        ),
        labels=labels,
        groups=groups if groups.null_count < len(groups) else None,
        frames=None if frames is None else Frames(frames, timed),
        columns={name: spread([each.columns.get(name) for each in listed]) for name in columns},
        problems=problems,
        skipped=skipped,
    )


def _listed(path: str, contents: Callable[[str], Contents]) -> Contents:
    try:
        return contents(path)
    except (MissingExtra, UsageError):
        raise
    except Exception as error:  # a damaged file can make its library raise anything
        return Contents((), (), problem=library_failure(error))
