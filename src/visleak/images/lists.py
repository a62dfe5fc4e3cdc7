"""Pictures that are files and named one by one: a list of names, a glob."""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from visleak.delimited import encoding_of
from visleak.errors import VisleakError
from visleak.images.addresses import folder_of, redacted
from visleak.images.fetching import RemoteOpener, remote_places, without_secrets
from visleak.images.folder import Walk, as_text, file_set, labels_of
from visleak.images.listing import Listing, is_hidden
from visleak.images.remote_file import opened
from visleak.images.request import Request, writable
from visleak.records import ImageSet


def open_list(request: Request) -> ImageSet:
    """List the files named in a text file, one a line, relative to the text file's folder.

    Raises:
        VisleakError: no lines, or not UTF-8.
    """
    request.refuse_columns("the file list")
    request.refuse_split()
    names, folder = read_list(request.place), folder_of(request.place)
    places = remote_places(request, names, folder)
    if places is None:
        root = Path(folder)
        return file_set(request, root, [relative_name(name, root) for name in names])
    if not names:
        request.no_pictures()
    ids = without_secrets(pa.array(map(writable, names), pa.string()))
    return request.image_set(ids, without_secrets(places), RemoteOpener(places))


def read_list(path: str | os.PathLike[str]) -> list[str]:
    """Return the lines of a text file that are not blank.

    Raises:
        VisleakError: the file is not UTF-8 text.
    """
    try:
        with opened(os.fspath(path)) as file:
            content = file.read()
        text = content.decode(encoding_of(content[:64]))
    except (OSError, ValueError) as error:
        shown = redacted(os.fspath(path))
        raise VisleakError(f"file list {shown} cannot be read as UTF-8 text: {error}") from error
    lines = (line.rstrip("\r") for line in text.split("\n"))
    return [line for line in lines if line.strip()]


def relative_name(name: str, root: Path) -> str:
    """Return a listed name in its plain form: relative to the root where it lies below it.

    >>> relative_name("./a//b.png", Path("data"))
    'a/b.png'
    """
    plain = os.path.normpath(name)
    if os.path.isabs(plain):
        base = os.path.abspath(root)
        if plain.startswith(base.rstrip("/") + "/"):
            return os.path.relpath(plain, base)
    return plain


def open_glob(request: Request) -> ImageSet:
    """List the pictures that match a pattern, where ``**`` stands for any folders; by id.

    Ids are relative to the folder before the first wildcard, labels are its sub-folders.

    Raises:
        VisleakError: nothing matches.
    """
    request.refuse_columns("the glob")
    request.refuse_split()
    root, pattern = split_glob(str(request.path))
    listing = Listing()
    names = sorted(glob_names(root, pattern, listing.takes_file), key=as_text)
    if not names:
        request.no_pictures(listing.why_empty("no file that matches"))
    labels = labels_of(map(as_text, names))
    return file_set(request, Path(root), names, labels=labels, skipped=listing.skipped)


def split_glob(pattern: str) -> tuple[str, str]:
    """Return the folder before the first wildcard, and the rest.

    >>> split_glob("data/train/**/*.png")
    ('data/train', '**/*.png')
    """
    parts = pattern.split("/")
    first = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts) - 1)
    root = "/".join(parts[:first])
    return root or ("/" if pattern.startswith("/") else "."), "/".join(parts[first:])


def glob_names(root: str, pattern: str, keep: Callable[[str], bool]) -> Iterator[str]:
    """Yield the names of files below ``root`` that match, relative to it.

    Args:
        root: a folder.
        pattern: names with wildcards, where ``**`` stands for any folders.
        keep: which of those that match are wanted, by their path.
    """
    parts = pattern.split("/")
    if "**" in parts:
        # Python's own recursive glob follows links in circles.
        names = Walk(root, lambda path: not is_hidden(os.path.basename(path))).names()
        found: Iterator[str] = (name for name in names if matches(name.split("/"), parts))
    else:
        found = glob.iglob(pattern, root_dir=root)
    for name in found:
        path = os.path.join(root, name)
        if not os.path.isdir(path) and keep(path):
            yield name


def matches(name: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether the parts of a name match the parts of a pattern.

    >>> matches(["a", "b", "1.png"], ["**", "*.png"]), matches(["a", "1.png"], ["*.png"])
    (True, False)
    """
    if not pattern or not name:
        return not pattern and not name
    first, *others = pattern
    if first != "**":
        return fnmatch.fnmatchcase(name[0], first) and matches(name[1:], others)
    return not others or any(matches(name[skip:], others) for skip in range(len(name)))
