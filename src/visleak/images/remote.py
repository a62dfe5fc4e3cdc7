"""Pictures that lie one by one in a remote store: below an address, or a single one."""

from __future__ import annotations

import pyarrow as pa

from visleak.errors import VisleakError
from visleak.images.addresses import is_web, path_of, redacted
from visleak.images.fetching import RemoteOpener
from visleak.images.folder import labels_of
from visleak.images.listing import Listing, is_hidden
from visleak.images.request import Request, writable
from visleak.images.stores import StoreError, listed
from visleak.records import ImageSet


def open_remote_picture(request: Request) -> ImageSet:
    """Make a set of one picture."""
    request.refuse_columns("the address")
    request.refuse_split()
    name = writable(path_of(request.place).rpartition("/")[2])
    places = pa.array([request.place], pa.string())
    ids, shown = pa.array([name], pa.string()), pa.array([request.shown], pa.string())
    return request.image_set(ids, shown, RemoteOpener(places))


def open_remote_folder(request: Request) -> ImageSet:
    """List the pictures below an address; sub-folders are labels. A web server must list them.

    Raises:
        VisleakError: it cannot be listed, or there are none.
        MissingExtra: fsspec is not installed.
    """
    request.refuse_columns("the address")
    request.refuse_split()
    root = request.place.partition("?")[0] if is_web(request.place) else request.place
    start = len(path_of(root.rstrip("/"))) + 1
    found = {}
    listing = Listing()
    try:
        for address, stamp in listed(request.place):
            name = path_of(address)[start:]
            parts = name.split("/")
            if any(map(is_hidden, parts[:-1])):
                continue
            # by its name alone: each first byte would be a request
            if listing.takes(parts[-1]):
                found[writable(name)] = (address, stamp)
    except StoreError as error:
        raise VisleakError(f"{request.text} cannot be listed: {error}") from error
    if not found:
        where = " that the server's page links to" if is_web(request.place) else ""
        request.no_pictures(
            f"no object below it{where} has a picture's ending; pictures may also be named one"
            " by one, in a table with a column `path`"
        )
    names = sorted(found)
    stamps = [found[name][1] for name in names]
    return request.image_set(
        pa.array(names, pa.string()),
        pa.array((redacted(found[name][0]) for name in names), pa.string()),
        RemoteOpener(
            pa.array((found[name][0] for name in names), pa.string()),
            None if None in stamps else "\n".join(map(str, stamps)),
        ),
        labels=labels_of(names),
        skipped=listing.skipped,
    )
