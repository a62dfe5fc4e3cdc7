"""Folders, globs, lists of files and single images, on this machine or in a remote store."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from visleak.delimited import encoding_of
from visleak.errors import VisleakError, explaining
from visleak.formats.files import (
    FileOpener,
    RemoteOpener,
    Root,
    as_unreadable,
    file_set,
    remote_places,
    without_secrets,
)
from visleak.formats.listing import (
    Listing,
    Walk,
    glob_names,
    is_hidden,
    is_image_file,
    labels_of,
    name_text,
    split_glob,
)
from visleak.formats.remote import (
    StoreError,
    folder_of,
    is_address,
    is_web,
    listed,
    opened,
    path_of,
    redacted,
)
from visleak.formats.request import Request, writable
from visleak.formats.sources import is_glob
from visleak.formats.writing import (
    Destination,
    OutputPart,
    OutputSource,
    contents,
    file_name,
    file_of,
    names_of,
    put_files,
    source_place,
    write_listing,
)
from visleak.records import ImageSet, Problem


def is_folder(path: Path) -> bool:
    """Whether a path is a folder."""
    return path.is_dir()


def is_image_glob(path: Path) -> bool:
    """Whether a path is a pattern of image files."""
    return is_glob(path) and path.suffix != ".parquet"


def is_image_path(path: Path) -> bool:
    """Whether a path is an image file."""
    return path.is_file() and is_image_file(str(path))


def open_folder(request: Request) -> ImageSet:
    """List the images of a folder and of its sub-folders, which are the labels; by id."""
    request.refuse_columns_and_split("the folder")
    listing = Listing()
    walk = Walk(str(request.path), listing.takes_file)
    names = sorted(walk.names(), key=name_text)
    problems = [
        Problem(
            request.name,
            name_text(folder) or ".",
            name_text(os.path.join(request.path, folder)),
            as_unreadable(error).reason,
            f"the folder could not be listed: {error.strerror}",
        )
        for folder, error in walk.problems
    ]
    why = problems[0].detail if problems else listing.why_empty("no file below it")
    if listing.skipped[".npy"]:
        why += "; embeddings are emb:FOLDER?encoder=NAME, images in an array are array:FILE"
    return _labelled(request, request.path, names, listing, why, problems)


def _labelled(
    request: Request,
    root: Path,
    names: Sequence[str],
    listing: Listing,
    why_empty: str,
    problems: Sequence[Problem] = (),
) -> ImageSet:
    if not names:
        request.refuse_empty(why_empty)
    labels = labels_of(map(name_text, names))
    return file_set(request, root, names, labels=labels, problems=problems, skipped=listing.skipped)


def open_glob(request: Request) -> ImageSet:
    """List the images that match a pattern, where ``**`` stands for any folders; by id.

    Ids are relative to the folder before the first wildcard, labels are its sub-folders.
    """
    request.refuse_columns_and_split("the glob")
    root, pattern = split_glob(str(request.path))
    listing = Listing()
    names = sorted(glob_names(root, pattern, listing.takes_file), key=name_text)
    return _labelled(request, Path(root), names, listing, listing.why_empty("no file that matches"))


def open_list(request: Request) -> ImageSet:
    """List the files named in a text file, one a line, relative to the text file's folder."""
    request.refuse_columns_and_split("the file list")
    return listed_files(request, read_list(request.place), folder_of(request.place))


def listed_files(request: Request, names: Sequence[str], folder: str) -> ImageSet:
    """Return the set of some files, which may be remote, relative to a folder."""
    if request.root is not None:
        folder, placed = Root.parse(request.root).applied(folder, names)
        names = [name for name in placed if name is not None]
    places = remote_places(request, names, folder)
    if places is None:
        root = Path(folder)
        return file_set(request, root, [relative_name(name, root) for name in names])
    ids = without_secrets(pa.array(map(writable, names), pa.string()))
    return request.image_set(ids, without_secrets(places), RemoteOpener(places))


def open_file(request: Request) -> ImageSet:
    """Make a set of one image."""
    request.refuse_columns_and_split("the image")
    return file_set(request, request.path.parent, [request.path.name])


def open_remote_folder(request: Request) -> ImageSet:
    """List the images below an address; sub-folders are labels. A web server must list them."""
    request.refuse_columns_and_split("the address")
    web = is_web(request.place)
    root = request.place.partition("?")[0] if web else request.place
    start = len(path_of(root.rstrip("/"))) + 1
    found = {}
    listing = Listing()
    with explaining(f"{request.text} cannot be listed", StoreError):
        for address, stamp in listed(request.place):
            name = path_of(address)[start:]
            *folders, last = name.split("/")
            # by its name alone: each first byte would be a request
            if not any(map(is_hidden, folders)) and listing.takes(last):
                found[writable(name)] = (address, stamp)
    if not found:
        where = " that the server's page links to" if web else ""
        request.refuse_empty(
            f"no object below it{where} has an image's ending; images may also be named one"
            " by one, in a table with a column `path`"
        )
    names = sorted(found)
    addresses = [found[name][0] for name in names]
    stamps = [found[name][1] for name in names]
    return request.image_set(
        pa.array(names, pa.string()),
        pa.array(map(redacted, addresses), pa.string()),
        RemoteOpener(
            pa.array(addresses, pa.string()),
            None if None in stamps else "\n".join(map(str, stamps)),
        ),
        labels=labels_of(names),
        skipped=listing.skipped,
    )


def open_remote_image(request: Request) -> ImageSet:
    """Make a set of one image."""
    request.refuse_columns_and_split("the address")
    name = writable(path_of(request.place).rpartition("/")[2])
    places = pa.array([request.place], pa.string())
    ids, shown = pa.array([name], pa.string()), pa.array([request.shown], pa.string())
    return request.image_set(ids, shown, RemoteOpener(places))


def write_folder(part: OutputPart, place: Destination) -> OutputSource:
    """Write a part as a folder of images under their names; of several, one a sub-folder.

    Files that have an image's name but for the ending (captions, boxes) go with it. As
    ``manifest``, a list of the files where they are.
    """
    if place.how == "manifest":
        return write_listing(part, place)
    names = names_of(part)
    rest = iter(names)
    beside = SideFiles()
    for piece in part.pieces:
        for position, stored in contents(piece):
            name = next(rest)
            place.put(piece, position, place.below(part, name), stored)
            for file in beside.of(file_of(piece.images, position)):
                stem, ending = os.path.splitext(name)[0], os.path.splitext(file)[1]
                path = place.folder / place.below(part, stem + os.fsdecode(ending))
                if not os.path.lexists(path):  # two images may share a caption
                    place.put_file(file, path)
    return OutputSource.by_name(place.below(part), names)


def write_list(part: OutputPart, place: Destination) -> OutputSource:
    """Write a part as a ``.txt`` list beside its files; as ``manifest``, a list with ids.

    Where a name leads out of the list's folder, the list becomes a table that keeps the ids.
    """
    if place.how == "manifest":
        return write_listing(part, place)
    listed = []
    for piece in part.pieces:
        source = source_place(piece)
        names = read_list(source)
        listed += [relative_name(names[at], Path(source).parent) for at in piece.keep.tolist()]
    names = put_files(part, place, listed)
    file = file_name(source_place(part.pieces[0]))
    local = all(isinstance(piece.images.opener, FileOpener) for piece in part.pieces)
    if names != listed or not local:
        return write_listing(part, place, place.below(part, f"{Path(file).stem}.csv"), names)
    path = place.made(place.below(part, file))
    text = "".join(f"{name}\n" for name in names)
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return OutputSource(place.below(part, file))


def read_list(path: str | os.PathLike[str]) -> list[str]:
    """Return the lines of a text file that are not blank."""
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

    >>> relative_name("./a//b.png", Path("data")), relative_name("s3://a//b.png", Path("data"))
    ('a/b.png', 's3://a//b.png')
    """
    if is_address(name):
        return name
    plain = os.path.normpath(name)
    if os.path.isabs(plain):
        base = os.path.abspath(root)
        if plain.startswith(base.rstrip("/") + "/"):
            return os.path.relpath(plain, base)
    return plain


class SideFiles:
    """Files that belong to images: captions and boxes, named as they are but for the ending."""

    def __init__(self) -> None:
        self._folder = b""
        self._files: dict[bytes, list[bytes]] = {}

    def of(self, image: bytes | None) -> list[bytes]:
        """Return the side files of an image; images of one folder must follow each other."""
        if image is None:
            return []
        folder, name = os.path.split(image)
        if folder != self._folder:
            self._folder, self._files = folder, {}
            with os.scandir(folder) as entries:
                for entry in entries:
                    text = os.fsdecode(entry.name)
                    if text.startswith(".") or "." not in text or not entry.is_file():
                        continue
                    # what is an image without its name saying so belongs to itself
                    if not is_image_file(os.fsdecode(entry.path)):
                        stem = os.path.splitext(entry.name)[0]
                        self._files.setdefault(stem, []).append(entry.path)
        return sorted(self._files.get(os.path.splitext(name)[0], ()))
